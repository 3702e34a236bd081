//! Recording of a program from its start to its end, or of running processes.
//!
//! A loop collects stall samples and ends a slice of time at each interval
//! ([`hugepilot_profiler::recorder`]). The lines reach the file once a second, as a whole gzip
//! member, so a recording that is killed is readable up to its last second.

mod attach;
mod markers;
mod metrics;
mod output;
mod program;
mod repeat;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

pub use hugepilot_alloc::begin_phase;
use hugepilot_kernel::{Process, Root, clock};
use hugepilot_profiler::recorder::Recorder;
use hugepilot_record::event::Resolved;
use hugepilot_record::recording::{
    Line, MAX_PHASES, MissingMetric, Phase, RecordStop, RecordingWriter,
};
use hugepilot_record::run::Ending;
use hugepilot_units::Nanos;

use crate::LaunchError;
use attach::running;
pub use metrics::{MetricsOptions, MetricsThread};
pub use output::LinePatterns;
use output::{OutputCopy, OutputEvent};
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
    /// Whether it waits for the first match of [`LinePatterns::from`].
    pub is_waiting: bool,
}

/// Outcome of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Bytes in the file.
    pub bytes: u64,
    /// Time from the first slice to the end of the recording.
    pub elapsed: Nanos,
    /// Whether it began: `false` if no line matched [`LinePatterns::from`].
    pub began: bool,
    /// Slices of time.
    pub slices: u64,
    /// Recorded processes.
    pub processes: u64,
    /// Phases that began.
    pub phases: u64,
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
/// [`LaunchError::Start`] if the program cannot be started.
pub fn record(
    target: RecordTarget,
    options: &RecordOptions,
    file: impl Write,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(RecordProgress),
) -> Result<Recorded, LaunchError> {
    match target {
        RecordTarget::Running(processes) => {
            let recorder = running(processes, options)?;
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
                Some(ending)
            }
            _ => None,
        };
        self.take_last_phases(stop);
        // Before the last slice, which reads symbols for a while.
        let (elapsed, own_cpu) = (self.recorder.elapsed(), self.recorder.own_cpu());
        let last = self.recorder.finish(ending.map(exit_text));
        self.write(last);
        let counts = self.recorder.counts();
        self.finish_file();
        let (ending, ended_processes) = match &mut self.program {
            Some(program) => {
                let ending = program.wait(interrupted);
                let ended_processes = program.program.end_rest();
                if let Some(output) = &program.output {
                    output.wait();
                }
                (Some(ending), ended_processes)
            }
            None => (None, 0),
        };
        let began = !self.is_waiting();
        let (sampler, sampler_missing) = self.sampler;
        let stop = if self.write_error.is_some() { RecordStop::WriteError } else { stop };
        Ok(Recorded {
            bytes: self.bytes,
            elapsed,
            began,
            slices: counts.slices,
            processes: counts.processes,
            phases: self.phases,
            sampler,
            sampler_missing,
            samples: (counts.samples.total(), counts.samples.lost),
            callers_ratio: counts.callers_ratio().filter(|_| self.options.callers),
            missing: self.missing,
            own_cpu,
            ending,
            stop,
            write_error: self.write_error,
            ended_processes,
        })
    }

    /// Takes the last phases. Begins a recording that waited until the end, so that the file has a
    /// head.
    fn take_last_phases(&mut self, stop: RecordStop) {
        let waited = self.is_waiting();
        if let Some(program) = &self.program
            && let Some(output) = program.output.as_ref().filter(|_| stop == RecordStop::End)
        {
            output.wait();
        }
        self.take_phases();
        if self.write_error.is_none() && self.is_waiting() {
            self.recorder.discard();
            self.recorder.warn("the program ended before the recording began".to_owned());
            self.write_head();
        } else if waited && stop == RecordStop::End {
            let text = "the program ended before the first slice; the recording has no values";
            self.recorder.warn(text.to_owned());
        }
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
            self.take_phases();
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

    /// Takes the phases that began, and the begin of the recording.
    fn take_phases(&mut self) {
        let Some(program) = &mut self.program else { return };
        let mut found: Vec<OutputEvent> =
            program.output.iter().flat_map(OutputCopy::events).collect();
        // Those beyond the limit are not even read.
        let markers = program.markers.iter_mut().filter(|_| !self.too_many_phases);
        let marked = markers.flat_map(|one| one.phases(clock::monotonic()));
        found.extend(marked.map(OutputEvent::Phase));
        for event in found {
            match event {
                OutputEvent::From(_) if self.is_waiting() => {
                    self.recorder.begin();
                    if let Some(program) = &mut self.program {
                        program.is_waiting = false;
                    }
                    self.write_head();
                }
                OutputEvent::From(_) => {}
                OutputEvent::Phase(_) if self.is_waiting() => {}
                OutputEvent::Phase(phase) => self.begin_phase(phase),
            }
        }
    }

    /// Begins a phase, unless there are too many.
    fn begin_phase(&mut self, phase: Phase) {
        if self.phases < MAX_PHASES as u64 {
            self.phases += 1;
            self.recorder.begin_phase(phase.time);
            self.write(vec![Line::Phase(phase)]);
        } else if !std::mem::replace(&mut self.too_many_phases, true) {
            let text = format!("more than {MAX_PHASES} phases; later ones are not recorded");
            self.recorder.warn(text);
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
