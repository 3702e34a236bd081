//! Recording of a program from its start to its end, or of running processes.
//!
//! A loop collects stall samples and ends a slice of time at each interval
//! ([`hugepilot_profiler::recorder`]). The lines reach the file once a second, as a whole gzip
//! member, so a recording that is killed is readable up to its last second.

mod attach;
mod markers;
mod metrics;
mod output;
mod phases;
mod program;
mod repeat;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

pub use hugepilot_alloc::begin_phase;
use hugepilot_events::Resolved;
use hugepilot_kernel::{Process, Root, Target, clock};
use hugepilot_profiler::recorder::Recorder;
use hugepilot_record::Ending;
use hugepilot_recording::{Line, MissingMetric, NoBegin, RecordStop, RecordingWriter, TreeUse};
use hugepilot_units::Nanos;

use attach::running;

use crate::LaunchError;
pub use metrics::{MetricsOptions, MetricsThread};
pub use output::LinePatterns;
use program::RecordedProgram;
pub use repeat::{RepeatedInput, RepeatedRuns, event_sets, record_sets};

/// Length of a slice, unless the user chooses another.
pub const USUAL_SLICE: Nanos = Nanos::millis(100);
/// Processes that are recorded at a time.
pub const MAX_PROCESSES: usize = 256;
/// Time between two writes to the file.
const FLUSH_EVERY: Nanos = Nanos::seconds(1);

/// Target of a recording.
pub enum RecordTarget {
    /// Running processes. A single one with the children that it starts.
    Running(Vec<Process>),
    /// A program with its arguments, and all its children.
    Program {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Stream that gets its stdout.
        stdout: OwnedFd,
        /// Patterns of lines of its stdout.
        patterns: LinePatterns,
    },
}

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Length of a slice.
    pub every: Nanos,
    /// Stall samples per second of CPU time; `None` for none.
    pub rate_hz: Option<u32>,
    /// Whether each sample has its callers.
    pub callers: bool,
    /// Time after which the recording ends. A program runs on.
    pub duration: Option<Nanos>,
    /// Events to count.
    pub events: Resolved,
    /// Command line of hugepilot, escaped.
    pub command_line: Vec<String>,
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordProgress {
    /// Time since the start.
    pub elapsed: Nanos,
    /// Processes that are recorded now.
    pub processes: usize,
    /// Stall samples.
    pub samples: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Whether it waits for its begin, see [`LinePatterns`].
    pub is_waiting: bool,
}

/// Outcome of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes in the file.
    pub bytes: u64,
    /// Time from the first slice to the end of the recording.
    pub elapsed: Nanos,
    /// Why it did not begin, see [`LinePatterns`]; `None` if it began.
    pub no_begin: Option<NoBegin>,
    /// Slices of time.
    pub slices: u64,
    /// Recorded processes.
    pub processes: u64,
    /// Phases that began.
    pub phases: u64,
    /// Whether there were more phases than a recording can have.
    pub too_many_phases: bool,
    /// Sampler and its rate.
    pub sampler: Option<String>,
    /// Why there are no stall samples.
    pub sampler_missing: Option<String>,
    /// Stall samples, and lost ones.
    pub samples: (u64, u64),
    /// Share of the stall samples with callers; `None` without samples, or if stacks were not
    /// walked.
    pub callers_ratio: Option<f64>,
    /// Metrics without values.
    pub missing: Vec<MissingMetric>,
    /// CPU time of hugepilot itself.
    pub own_cpu: Nanos,
    /// Use of the program, or of the only process, with all its descendants.
    pub tree: Option<TreeUse>,
    /// Part of the run that was recorded, as a phrase; `None` for all of it.
    pub span: Option<String>,
    /// End of the program.
    pub ending: Option<Ending>,
    /// Cause of the end of the recording.
    pub stop: RecordStop,
    /// First error of writing the file; lines after it are not written.
    pub write_error: Option<io::Error>,
    /// Processes that the program left running, and that were ended.
    pub ended_processes: usize,
}

/// Records `target` to `file` until all of it has ended, or `interrupted` returns `true`; then a
/// program is ended. A file that cannot be written ends the recording, not the program.
///
/// # Errors
/// [`LaunchError::Start`] if the program cannot be started, [`LaunchError::Unwatched`].
pub fn record(
    target: RecordTarget,
    options: &RecordOptions,
    file: impl Write,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(RecordProgress),
) -> Result<Recorded, LaunchError> {
    match target {
        RecordTarget::Running(processes) => {
            let only = if let [only] = &processes[..] { Some(only.id().pid) } else { None };
            let mut recorder = running(processes, options)?;
            only.into_iter().for_each(|pid| recorder.count_running(pid));
            Session::new(recorder, options, file, None).run(interrupted, progress)
        }
        RecordTarget::Program { command, stdout, patterns } => {
            let mut program = RecordedProgram::start(&command, stdout, patterns)?;
            let process = Process::open(&Root::live(), program.program.pid())?;
            let mut recorder = running(vec![process], options)?;
            program.program.release()?;
            recorder.await_end(program.program.pid());
            // Until then it was a copy of hugepilot.
            recorder.discard();
            recorder.refresh();
            Session::new(recorder, options, file, Some(program)).run(interrupted, progress)
        }
    }
}

/// A recording in progress.
struct Session<'a, W: Write> {
    recorder: Recorder,
    options: &'a RecordOptions,
    /// Taken when the recording begins.
    file: Option<W>,
    writer: Option<RecordingWriter<W>>,
    program: Option<RecordedProgram>,
    bytes: u64,
    phases: u64,
    too_many_phases: bool,
    /// Whether the part of the run that is recorded is over.
    is_over: bool,
    /// Whether the recording has no values: its part did not begin, or was over within a slice.
    is_empty: bool,
    missing: Vec<MissingMetric>,
    sampler: (Option<String>, Option<String>),
    flushed: Nanos,
    write_error: Option<io::Error>,
}

impl<'a, W: Write> Session<'a, W> {
    fn new(
        recorder: Recorder,
        options: &'a RecordOptions,
        file: W,
        program: Option<RecordedProgram>,
    ) -> Self {
        Self {
            recorder,
            options,
            file: Some(file),
            writer: None,
            program,
            bytes: 0,
            phases: 0,
            too_many_phases: false,
            is_over: false,
            is_empty: false,
            missing: Vec::new(),
            sampler: (None, None),
            flushed: clock::monotonic(),
            write_error: None,
        }
    }

    fn run(
        mut self,
        interrupted: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(RecordProgress),
    ) -> Result<Recorded, LaunchError> {
        if !self.is_waiting() {
            self.write_head();
        }
        let stop = self.slices(interrupted, progress);
        let ending = match (stop, &mut self.program) {
            (RecordStop::End, Some(program)) => {
                let ending = program.wait(interrupted);
                if let Some(last) = program.program.last_use() {
                    self.recorder.ended(last);
                }
                ending
            }
            _ => None,
        };
        self.take_last_phases(stop);
        let stop = if self.is_over { RecordStop::Phase } else { stop };
        // Before the last slice, which reads symbols for a while.
        let (elapsed, own_cpu) = match self.is_empty {
            true => (Nanos::ZERO, Nanos::ZERO),
            false => (self.recorder.elapsed(), self.recorder.own_cpu()),
        };
        let (span, tree) = self.write_last(stop, ending);
        let counts = self.recorder.counts();
        self.finish_file();
        self.recorder.close();
        let (ending, ended_processes) = match &mut self.program {
            Some(program) => {
                let ending = program.wait(interrupted);
                let ended_processes = program.program.end_rest();
                if let Some(output) = &program.output {
                    output.wait();
                }
                program.program.check_watched()?;
                (ending, ended_processes)
            }
            None => (None, 0),
        };
        let no_begin = self.no_begin();
        let (sampler, sampler_missing) = self.sampler;
        let stop = if self.write_error.is_some() { RecordStop::WriteError } else { stop };
        Ok(Recorded {
            bytes: self.bytes,
            elapsed,
            no_begin,
            slices: counts.slices,
            processes: counts.processes,
            phases: self.phases,
            too_many_phases: self.too_many_phases,
            sampler,
            sampler_missing,
            samples: (counts.samples.total(), counts.samples.lost),
            callers_ratio: counts.callers_ratio().filter(|_| self.options.callers),
            missing: self.missing,
            own_cpu,
            tree,
            span,
            ending,
            stop,
            write_error: self.write_error,
            ended_processes,
        })
    }

    /// Writes the last lines. Returns the part of the run that was recorded, and the use of the
    /// tree.
    fn write_last(
        &mut self,
        stop: RecordStop,
        ending: Option<Ending>,
    ) -> (Option<String>, Option<TreeUse>) {
        let exit = ending.map(exit_text);
        let mut last = match self.is_empty {
            true => self.recorder.end_empty(exit),
            false => self.recorder.finish(exit),
        };
        let began = !self.is_waiting();
        let begun = self.program.as_ref().filter(|_| began);
        let span = begun.and_then(|program| program.patterns.span(stop));
        let mut tree = None;
        if let Some(Line::End(end)) = last.last_mut() {
            end.span.clone_from(&span);
            tree.clone_from(&end.tree);
        }
        self.write(last);
        (span, tree)
    }

    fn is_waiting(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.is_waiting)
    }

    /// Records slice after slice, until the end.
    fn slices(
        &mut self,
        interrupted: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(RecordProgress),
    ) -> RecordStop {
        let mut due = clock::monotonic() + self.options.every;
        loop {
            self.sample_until(due, interrupted);
            due = next_due(due, self.options.every);
            if self.write_error.is_some() {
                return RecordStop::WriteError;
            }
            if interrupted() {
                return RecordStop::Interrupted;
            }
            if self.program.as_ref().is_some_and(|one| one.program.is_over()) {
                return RecordStop::End;
            }
            let waited = self.is_waiting();
            self.take_phases();
            if self.is_over {
                if waited {
                    let text = "the recording began and ended within a slice; it has no values";
                    self.recorder.warn(text.to_owned());
                    self.is_empty = true;
                }
                return RecordStop::Phase;
            }
            if self.is_waiting() {
                self.recorder.discard();
            } else {
                let lines = self.recorder.slice();
                self.write(lines);
                let duration = self.options.duration;
                if duration.is_some_and(|duration| self.recorder.elapsed() >= duration) {
                    return RecordStop::Duration;
                }
            }
            if self.program.is_none() && !self.recorder.has_processes() {
                return RecordStop::End;
            }
            let now = clock::monotonic();
            if now >= self.flushed + FLUSH_EVERY {
                self.flush(now);
                progress(self.progress());
            }
        }
    }

    /// Collects samples until `due`, the end of the program, or an interruption.
    fn sample_until(&mut self, due: Nanos, interrupted: &dyn Fn() -> bool) {
        // A long slice must not delay the end.
        const LONGEST: Nanos = Nanos::millis(100);
        loop {
            let left = due - clock::monotonic();
            if left == Nanos::ZERO {
                return;
            }
            self.recorder.sample(left.min(LONGEST));
            if interrupted() || self.program.as_ref().is_some_and(|one| one.program.is_over()) {
                return;
            }
        }
    }

    fn write_head(&mut self) {
        let head = self.recorder.head(self.options.command_line.clone(), unix_seconds());
        self.missing = MissingMetric::all(&head);
        self.sampler = (head.sampler.clone(), head.sampler_missing.clone());
        let Some(file) = self.file.take() else { return };
        match RecordingWriter::new(file, head) {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => self.write_error = Some(error),
        }
    }

    /// Writes lines. After an error, none.
    fn write(&mut self, lines: Vec<Line>) {
        let Some(writer) = &mut self.writer else { return };
        for line in lines {
            if let Err(error) = writer.add(&line) {
                self.write_error = Some(error);
                self.writer = None;
                return;
            }
        }
    }

    fn flush(&mut self, now: Nanos) {
        self.flushed = now;
        if let Some(writer) = &mut self.writer {
            let flushed = writer.flush();
            self.bytes = writer.bytes();
            if let Err(error) = flushed {
                self.write_error = Some(error);
                self.writer = None;
            }
        }
    }

    fn finish_file(&mut self) {
        self.flush(clock::monotonic());
        if let Some(Err(error)) = self.writer.take().map(RecordingWriter::finish) {
            self.write_error = Some(error);
        }
    }

    fn progress(&self) -> RecordProgress {
        let counts = self.recorder.counts();
        RecordProgress {
            elapsed: self.recorder.elapsed(),
            processes: counts.live,
            samples: counts.samples.total(),
            bytes: self.bytes,
            is_waiting: self.is_waiting(),
        }
    }
}

/// Returns the end of the slice after the one that ends at `due`. Slices that the recorder missed
/// are one long slice.
fn next_due(due: Nanos, every: Nanos) -> Nanos {
    let now = clock::monotonic();
    if now > due + every { now + every } else { due + every }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the exit status as a recording has it.
fn exit_text(ending: Ending) -> String {
    match ending {
        Ending::Exited(status) => status.to_string(),
        Ending::Killed(signal) => format!("signal {signal}"),
    }
}
