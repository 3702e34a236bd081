//! Output of a workload: lines, and the summary as JSON.

use std::fmt;
use std::io::{self, Write};

use hugepilot_kernel::Pages;
use schemars::JsonSchema;
use serde::Serialize;

use super::latency::Latency;

/// Schema of [`Summary`]. Raise the number if a field is removed or changes its meaning.
pub const SCHEMA: &str = "hugepilot.workload/1";

/// Summary of a run: the last line, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the workload.
    pub workload: &'static str,
    /// Access pattern; `None` if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<&'static str>,
    /// Resident memory, including bloat.
    pub footprint_bytes: u64,
    /// Part of it that huge pages help.
    pub hot_bytes: u64,
    /// Part of it that is bloat: never written, so zero on huge pages and not resident on
    /// base pages. `None` if the workload is not about bloat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bloat_bytes: Option<u64>,
    /// Worker threads.
    pub threads: usize,
    /// `default`, `base` or `huge`: the request to the kernel, not its result.
    pub pages: &'static str,
    /// Seed of the random accesses.
    pub seed: u64,
    /// Time to reserve and fill the memory.
    pub prepare_seconds: f64,
    /// Time from the start of the work to the end of the last thread.
    pub seconds: f64,
    /// Operations of all threads.
    pub ops: u64,
    /// `ops / seconds`.
    pub ops_per_second: f64,
    /// Times of batches, if timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Result in hexadecimal: equal for the same workload, sizes, seed, threads and fixed `ops`.
    pub checksum: String,
}

/// Returns the name of `pages` in [`Summary`] and on the command line.
pub(crate) const fn pages_name(pages: Pages) -> &'static str {
    match pages {
        Pages::Default => "default",
        Pages::Base => "base",
        Pages::Huge => "huge",
    }
}

/// Writer of lines, each flushed. A closed pipe is not an error; later lines are dropped.
pub(crate) struct Lines<'a> {
    out: &'a mut dyn Write,
    open: bool,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, open: true }
    }

    /// Whether the reader still reads.
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
