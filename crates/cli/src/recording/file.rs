//! Recording of a run, being written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use hugepilot_kernel::{Root, clock, file, memory};
use hugepilot_launch::record::{MetricsOptions, MetricsThread};
use hugepilot_policy::round::{Goal, Header};
use hugepilot_profiler::recorder::machine;
use hugepilot_record::{Pid, ProvenanceCounts};
use hugepilot_recording::{End, Head, Line, RecordingWriter, SCHEMA};
use hugepilot_units::{Bytes, Nanos};

use super::command_line;
use crate::journal::not_writable;
use crate::output::not_stdout;

/// Time between two writes of slices to the file.
const FLUSH_EVERY: Nanos = Nanos::seconds(1);

/// A recording being written. Rounds reach the file at once, slices of metrics once a second.
pub(super) struct Recording {
    pub(super) path: PathBuf,
    pub(super) file: File,
    lines: Arc<Mutex<Lines>>,
    metrics: Option<MetricsThread>,
    started: Nanos,
    /// Goal of the last header.
    goal: Option<Goal>,
}

impl Recording {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        not_stdout(path, "the recording", "--record")?;
        let opened = file::open_to_write(path);
        let file = opened.map_err(|error| not_writable("recording", path, &error))?;
        let (path, lines) = (path.to_owned(), Arc::default());
        Ok(Self { path, file, lines, metrics: None, started: Nanos::ZERO, goal: None })
    }

    /// Begins a recording without metrics.
    pub(super) fn begin(&mut self, started: Nanos) -> io::Result<()> {
        self.file.set_len(0)?;
        self.started = started;
        let head = head(started)?;
        locked(&self.lines).begin(self.file.try_clone()?, head)
    }

    /// Begins a recording with metrics, which a thread adds.
    pub(super) fn begin_with(&mut self, metrics: MetricsOptions) -> io::Result<()> {
        self.file.set_len(0)?;
        // The lines of the thread wait for the head.
        let mut lines = locked(&self.lines);
        let to = Arc::clone(&self.lines);
        let add = move |more: Vec<Line>| locked(&to).add_all(&more);
        let (head, thread) = MetricsThread::start(metrics, command_line(), add)?;
        self.metrics = Some(thread);
        self.started = head.started;
        lines.begin(self.file.try_clone()?, head)
    }

    /// Records the metrics of a process from now on, if there are metrics.
    pub(super) fn watch(&self, pid: Pid) {
        self.metrics.iter().for_each(|metrics| metrics.watch(pid));
    }

    /// Sets the size at which the recording ends.
    pub(super) fn set_limit(&self, limit: Bytes) {
        locked(&self.lines).limit = Some(limit);
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

    /// Adds a line.
    pub(super) fn add(&self, line: impl FnOnce(&mut Writer) -> io::Result<()>) {
        locked(&self.lines).add(|writer| line(writer).and_then(|()| writer.flush()));
    }

    /// Whether the file has its limit, or a line could not be written.
    pub(super) fn is_over(&self) -> bool {
        let lines = locked(&self.lines);
        lines.failed.is_some() || lines.is_full()
    }

    /// Writes the last lines, and returns the first error.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        // Its last line is the end, unless the file was full before.
        self.metrics = None;
        let is_simulated = self.started == Nanos::ZERO;
        let time = if is_simulated { Nanos::ZERO } else { clock::monotonic() };
        let (samples, own_cpu) = (ProvenanceCounts::default(), clock::own_cpu_time());
        let end = Line::End(End { time, samples, own_cpu, ..End::default() });
        if !locked(&self.lines).has_end {
            self.add(|writer| writer.add(&end));
        }
        let failed = locked(&self.lines).failed.take();
        let shown = self.path.display();
        failed.map_or(Ok(()), Err).with_context(|| format!("writing {shown}"))
    }
}

type Writer = RecordingWriter<File>;

/// Lines of a recording, which its command and the thread of its metrics add.
#[derive(Default)]
struct Lines {
    writer: Option<Writer>,
    /// Size at which no further slices are added.
    limit: Option<Bytes>,
    flushed: Nanos,
    has_end: bool,
    /// First error; lines after it are not written.
    failed: Option<io::Error>,
}

impl Lines {
    fn begin(&mut self, file: File, head: Head) -> io::Result<()> {
        self.writer = Some(RecordingWriter::new(file, head)?);
        Ok(())
    }

    fn add(&mut self, lines: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = lines(writer) {
            self.failed = Some(error);
            self.writer = None;
        }
    }

    /// Adds the lines of a slice. Returns whether there is room for another.
    fn add_all(&mut self, lines: &[Line]) -> bool {
        let now = clock::monotonic();
        let has_end = matches!(lines.last(), Some(Line::End(_)));
        let is_due = has_end || now >= self.flushed + FLUSH_EVERY;
        if is_due {
            self.flushed = now;
        }
        self.add(|writer| {
            lines.iter().try_for_each(|line| writer.add(line))?;
            if is_due { writer.flush() } else { Ok(()) }
        });
        self.has_end |= has_end;
        if let Some(limit) = self.limit.filter(|_| !has_end && self.is_full()) {
            let warning = format!("{limit} are recorded, the limit; there are no further slices");
            self.add(|writer| writer.add(&Line::Warning(warning)));
            return false;
        }
        self.writer.is_some()
    }

    fn is_full(&self) -> bool {
        let bytes = self.writer.as_ref().map_or(0, RecordingWriter::bytes);
        self.limit.is_some_and(|limit| Bytes::new(bytes) >= limit)
    }
}

fn locked(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
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
