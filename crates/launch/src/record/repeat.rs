//! Runs of a program, one for each set of events, joined into one recording.
//!
//! The first run is recorded into the file, so a killed hugepilot leaves a recording of it. The
//! other runs are kept in memory until all are joined.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use hugepilot_kernel::perf::groups::{CounterTarget, GroupCounters};
use hugepilot_kernel::{Process, Root, cpu};
use hugepilot_record::Pid;
use hugepilot_record::event::Resolved;
use hugepilot_record::recording::{
    Head, Line, MissingMetric, RecordStop, RecordingLimits, RecordingReader, RecordingWriter, join,
};
use hugepilot_units::Nanos;
use rustix::fs::SeekFrom as Offset;

use super::{RecordOptions, RecordProgress, RecordTarget, Recorded, record};
use crate::LaunchError;

/// Returns the sets of `events` that are counted in a run each. Each event is tried on hugepilot
/// itself. `limit`: events of a set at most, instead of the counters of the processor.
pub fn event_sets(events: &Resolved, limit: Option<usize>) -> Vec<Resolved> {
    let root = Root::live();
    let own = Process::open(&root, Pid(std::process::id().cast_signed()));
    let is_countable = |event: &hugepilot_record::event::ResolvedEvent| {
        let Ok(own) = &own else { return false };
        let events = std::slice::from_ref(event);
        GroupCounters::open(&root, CounterTarget::Process(own), events)
            .is_ok_and(|counters| counters.missing().next().is_none())
    };
    events.sets(&cpu::read(&root).unwrap_or_default(), &is_countable, limit)
}

/// Input of a program that runs several times: each run reads the same.
pub struct RepeatedInput {
    /// Offset at which each run begins; `None` for a terminal.
    begin: Option<u64>,
}

impl RepeatedInput {
    /// Returns that of hugepilot. `None` if only one run could read it: a pipe, or a socket.
    pub fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        if rustix::termios::isatty(&stdin) {
            return Some(Self { begin: None });
        }
        let begin = rustix::fs::seek(&stdin, Offset::Current(0)).ok()?;
        Some(Self { begin: Some(begin) })
    }

    fn rewind(&self) -> io::Result<()> {
        if let Some(begin) = self.begin {
            rustix::fs::seek(io::stdin(), Offset::Start(begin))?;
        }
        Ok(())
    }
}

/// Recorded runs.
#[derive(Debug)]
pub struct RepeatedRuns {
    /// Outcome: that of the first run, with the end of the first run that failed, otherwise of the
    /// last, and the file of all.
    pub recorded: Recorded,
    /// Time of each run that is in the file.
    pub times: Vec<Nanos>,
}

/// Records a program once for each of `sets` to `file`. An interrupted run ends it; complete runs
/// are joined.
///
/// # Errors
/// [`LaunchError::Start`] if the program cannot be started.
pub fn record_sets(
    target: &dyn Fn() -> io::Result<RecordTarget>,
    (options, sets, input): (&RecordOptions, Vec<Resolved>, &RepeatedInput),
    file: &File,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(RecordProgress),
) -> Result<RepeatedRuns, LaunchError> {
    let start = || target().map_err(|source| LaunchError::Start { program: String::new(), source });
    let mut sets = sets.into_iter();
    let of_run = |events: Option<Resolved>| RecordOptions {
        events: events.unwrap_or_default(),
        ..options.clone()
    };
    let first = of_run(sets.next());
    let mut copy = CopiedFile { file, bytes: Vec::new() };
    let mut recorded = record(start()?, &first, &mut copy, interrupted, progress)?;
    let mut times = vec![recorded.elapsed];
    let mut runs = vec![copy.bytes];
    for events in sets {
        if !matches!(recorded.stop, RecordStop::End | RecordStop::Duration) {
            break;
        }
        if let Err(error) = input.rewind() {
            recorded.write_error = Some(error);
            break;
        }
        let mut bytes = Vec::new();
        let run = record(start()?, &of_run(Some(events)), &mut bytes, interrupted, progress)?;
        recorded.stop = run.stop;
        recorded.ended_processes += run.ended_processes;
        if recorded.ending.is_none_or(|ending| ending.code() == 0) {
            recorded.ending = run.ending;
        }
        if run.stop == RecordStop::Interrupted {
            break;
        }
        times.push(run.elapsed);
        runs.push(bytes);
    }
    if recorded.write_error.is_none()
        && let Err(error) = write_joined(file, &runs, &mut recorded)
    {
        recorded.write_error = Some(error);
    }
    Ok(RepeatedRuns { recorded, times })
}

/// A file whose bytes are kept in memory, too.
struct CopiedFile<'a> {
    file: &'a File,
    bytes: Vec<u8>,
}

impl Write for CopiedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Replaces the recording of the first run by that of all.
fn write_joined(mut file: &File, runs: &[Vec<u8>], recorded: &mut Recorded) -> io::Result<()> {
    if runs.len() < 2 {
        return Ok(());
    }
    let runs = runs.iter().map(|run| read(run)).collect::<io::Result<Vec<_>>>()?;
    let (head, lines) = join(&runs).map_err(io::Error::other)?;
    recorded.missing = MissingMetric::all(&head);
    let mut whole = RecordingWriter::new(Vec::new(), head)?;
    for line in &lines {
        whole.add(line)?;
    }
    let whole = whole.finish()?;
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(&whole)?;
    recorded.bytes = whole.len() as u64;
    Ok(())
}

fn read(bytes: &[u8]) -> io::Result<(Head, Vec<Line>)> {
    let mut reader =
        RecordingReader::new(bytes, RecordingLimits::default()).map_err(io::Error::other)?;
    let head = reader.head().clone();
    let lines = reader.by_ref().collect::<Result<_, _>>().map_err(io::Error::other)?;
    Ok((head, lines))
}
