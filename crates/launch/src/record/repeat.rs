//! Runs of a program, one for each set of events, joined into one recording.
//!
//! The first run is recorded into the file, so a killed hugepilot leaves a recording of it. The
//! other runs are kept in memory until all are joined, into a file that then replaces the first.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use hugepilot_events::Resolved;
use hugepilot_kernel::file::NewFile;
use hugepilot_kernel::perf::groups::{CounterTarget, GroupCounters};
use hugepilot_kernel::{KernelError, Process, Root, cpu};
use hugepilot_record::Pid;
use hugepilot_recording::{
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
    let is_countable = |event: &hugepilot_events::ResolvedEvent| {
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

/// Records a program once for each of `sets` to the file at the path. An interrupted run ends it;
/// complete runs are joined.
///
/// # Errors
/// [`LaunchError::Start`] if the program cannot be started.
pub fn record_sets(
    target: &dyn Fn() -> io::Result<RecordTarget>,
    (options, sets, input): (&RecordOptions, Vec<Resolved>, &RepeatedInput),
    (path, file): (&Path, &File),
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
        if !matches!(recorded.stop, RecordStop::End | RecordStop::Duration | RecordStop::Phase) {
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
        && let Err(error) = write_joined(path, &runs, &mut recorded)
    {
        recorded.write_error = Some(error);
        times.truncate(1);
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

/// Replaces the recording of the first run by that of all. It stays if that fails.
fn write_joined(path: &Path, runs: &[Vec<u8>], recorded: &mut Recorded) -> io::Result<()> {
    if runs.len() < 2 {
        return Ok(());
    }
    let runs = runs.iter().map(|run| read(run)).collect::<io::Result<Vec<_>>>()?;
    let (head, lines) = join(&runs).map_err(io::Error::other)?;
    let missing = MissingMetric::all(&head);
    let mut whole = RecordingWriter::new(Vec::new(), head)?;
    for line in &lines {
        whole.add(line)?;
    }
    let whole = whole.finish()?;
    replace(path, &whole).map_err(|error| match error {
        // The caller names the file.
        KernelError::Write { source, .. } => source,
        error => io::Error::other(error),
    })?;
    recorded.missing = missing;
    recorded.bytes = whole.len() as u64;
    Ok(())
}

fn replace(path: &Path, whole: &[u8]) -> Result<(), KernelError> {
    let mut file = NewFile::create(path, true)?;
    file.write(whole)?;
    file.finish().map(drop)
}

fn read(bytes: &[u8]) -> io::Result<(Head, Vec<Line>)> {
    let mut reader =
        RecordingReader::new(bytes, RecordingLimits::default()).map_err(io::Error::other)?;
    let head = reader.head().clone();
    let lines = reader.by_ref().collect::<Result<_, _>>().map_err(io::Error::other)?;
    Ok((head, lines))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hugepilot_recording::{RecordStop, SCHEMA};
    use hugepilot_units::Nanos;

    use super::*;

    fn recorded() -> Recorded {
        Recorded {
            bytes: 0,
            elapsed: Nanos::ZERO,
            no_begin: None,
            slices: 0,
            processes: 0,
            phases: 0,
            too_many_phases: false,
            sampler: None,
            sampler_missing: None,
            samples: (0, 0),
            callers_ratio: None,
            missing: Vec::new(),
            own_cpu: Nanos::ZERO,
            tree: None,
            span: None,
            ending: None,
            stop: RecordStop::End,
            write_error: None,
            ended_processes: 0,
        }
    }

    #[test]
    fn the_first_recording_is_replaced_by_a_whole_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let head = Head { schema: SCHEMA.to_owned(), ..Head::default() };
        let run = RecordingWriter::new(Vec::new(), head).unwrap().finish().unwrap();
        let runs = [run.clone(), run];
        fs::write(&path, "the first run").unwrap();
        let first = fs::File::open(&path).unwrap();
        let missing = folder.path().join("none/a.rec");
        let error = write_joined(&missing, &runs, &mut recorded()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!error.to_string().contains("a.rec"), "its caller names the file: {error}");
        let mut joined = recorded();
        write_joined(&path, &runs, &mut joined).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), joined.bytes);
        assert_eq!(io::read_to_string(first).unwrap(), "the first run", "it was not overwritten");
        fs::write(&path, &runs[0]).unwrap();
        write_joined(&path, &runs[..1], &mut joined).unwrap();
        assert_eq!(fs::read(&path).unwrap(), runs[0], "one run stays");
    }
}
