//! What a workload prints.

use std::fmt;
use std::io::{self, Write};

use hugepilot_kernel::Pages;
use serde::Serialize;

use super::latency::Latency;

/// The `schema` of [`Summary`]. If you change a field's meaning or take one away, raise the number.
pub const SCHEMA: &str = "hugepilot.workload/1";

/// What a run did: the last line, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Its name.
    pub workload: &'static str,
    /// How it reads, where there is a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<&'static str>,
    /// What it made resident, its bloat included.
    pub footprint_bytes: u64,
    /// The part of it that a huge page pays for.
    pub hot_bytes: u64,
    /// The part of it that is bloat by design, where there is any: never written, so zero where it is on huge pages, and
    /// not resident where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bloat_bytes: Option<u64>,
    /// Threads that worked.
    pub threads: usize,
    /// `default`, `base` or `huge`: what the kernel was asked for, not what it gave.
    pub pages: &'static str,
    /// What the random choices started from.
    pub seed: u64,
    /// Time to reserve and fill the memory.
    pub prepare_seconds: f64,
    /// Time from the start of the work to the end of the last thread.
    pub seconds: f64,
    /// Operations of all threads.
    pub ops: u64,
    /// `ops / seconds`.
    pub ops_per_second: f64,
    /// How long batches took, if they were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What was computed, in hex: equal for the same workload, sizes, seed, threads and fixed `ops`.
    pub checksum: String,
}

/// The word for `pages` in [`Summary`] and on the command line.
pub(crate) const fn pages_name(pages: Pages) -> &'static str {
    match pages {
        Pages::Default => "default",
        Pages::Base => "base",
        Pages::Huge => "huge",
    }
}

/// Writes lines, each at once. When the reader has gone it writes nothing more, and that is no error.
pub(crate) struct Lines<'a> {
    out: &'a mut dyn Write,
    open: bool,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, open: true }
    }

    /// Whether somebody still reads.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Writes one line.
    pub(crate) fn print(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        if !self.open {
            return Ok(());
        }
        match writeln!(self.out, "{line}").and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.open = false;
                Ok(())
            }
            result => result,
        }
    }
}
