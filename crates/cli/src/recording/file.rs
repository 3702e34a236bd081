//! Recording of a run, being written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use hugepilot_kernel::{Root, clock, file, memory};
use hugepilot_policy::round::{Goal, Header};
use hugepilot_profiler::recorder::machine;
use hugepilot_record::ProvenanceCounts;
use hugepilot_record::recording::{End, Head, Line, RecordingWriter, SCHEMA};
use hugepilot_units::{Bytes, Nanos};

use super::command_line;
use crate::journal::not_writable;

/// A recording being written. Each line reaches the file at once.
pub(super) struct Recording {
    pub(super) path: PathBuf,
    pub(super) file: File,
    writer: Option<RecordingWriter<File>>,
    started: Nanos,
    /// Goal of the last header.
    goal: Option<Goal>,
    /// First error; lines after it are not written.
    failed: Option<io::Error>,
}

impl Recording {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let opened = file::open_to_write(path);
        let file = opened.map_err(|error| not_writable("recording", path, &error))?;
        let path = path.to_owned();
        Ok(Self { path, file, writer: None, started: Nanos::ZERO, goal: None, failed: None })
    }

    pub(super) fn begin(&mut self, started: Nanos) -> io::Result<()> {
        self.file.set_len(0)?;
        self.started = started;
        self.writer = Some(RecordingWriter::new(self.file.try_clone()?, head(started)?)?);
        Ok(())
    }

    /// Adds a header, if the goal is another than before.
    pub(super) fn header(&mut self, goal: &Goal) {
        if self.goal.as_ref() == Some(goal) {
            return;
        }
        self.goal = Some(goal.clone());
        let header = Header::of(goal.clone());
        self.add(|writer| writer.add_journal(&header));
    }

    pub(super) fn add(&mut self, line: impl FnOnce(&mut RecordingWriter<File>) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = line(writer).and_then(|()| writer.flush()) {
            self.failed = Some(error);
            self.writer = None;
        }
    }

    /// Whether the file has this size, or a line could not be written.
    pub(super) fn is_over(&self, limit: Bytes) -> bool {
        let bytes = self.writer.as_ref().map_or(0, RecordingWriter::bytes);
        self.failed.is_some() || Bytes::new(bytes) >= limit
    }

    /// Writes the last line, and returns the first error.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let is_simulated = self.started == Nanos::ZERO;
        let time = if is_simulated { Nanos::ZERO } else { clock::monotonic() };
        let (samples, own_cpu) = (ProvenanceCounts::default(), clock::own_cpu_time());
        let end = Line::End(End { time, exit: None, samples, own_cpu });
        self.add(|writer| writer.add(&end));
        let shown = self.path.display();
        self.failed.map_or(Ok(()), Err).with_context(|| format!("writing {shown}"))
    }
}

/// Head of a recording without metrics.
fn head(started: Nanos) -> io::Result<Head> {
    let root = Root::live();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sizes = memory::page_sizes(&root).map_err(io::Error::other)?;
    Ok(Head {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        started_unix_seconds: unix.as_secs_f64(),
        started,
        every: Nanos::ZERO,
        machine: machine(&root, sizes),
        metrics: Vec::new(),
        sampler: None,
        sampler_missing: None,
    })
}
