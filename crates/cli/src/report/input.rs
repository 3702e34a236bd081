//! Files of which a report is made.

use std::io::{BufReader, ErrorKind, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hugepilot_kernel::file;
use hugepilot_kernel::proc::printable;
use hugepilot_recording::{
    Line, RecordingError, RecordingLimits, RecordingReader, Timeline, Window,
};
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::journal::{self, JournalUser};

/// Largest JSON of a result.
const MAX_RESULT: Bytes = Bytes::mib(256);

/// Help for a file that is not a recording.
const NO_RECORDING: &str =
    "name a file that hugepilot record, or --record or --journal of another command, wrote";

/// A file of which a report is made.
pub(super) enum Input {
    /// A recording.
    Recording(Box<Timeline>),
    /// The JSON of a command.
    Result(String),
}

/// Names of files in a report: their last parts, or the whole paths of those that end alike.
pub(super) fn names(paths: &[PathBuf]) -> Vec<String> {
    let last = |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_owned();
    let name = |path: &PathBuf| {
        let is_alone = paths.iter().filter(|other| last(other) == last(path)).count() == 1;
        let name = if is_alone { last(path) } else { path.clone().into_os_string() };
        printable(name.as_encoded_bytes())
    };
    paths.iter().map(name).collect()
}

/// Reads a regular file, or the standard input for `-`. `from_phase`: the phase of a recording at
/// which the window begins.
pub(super) fn read(
    path: &Path,
    mut window: Window,
    from_phase: Option<&str>,
) -> anyhow::Result<Input> {
    let shown = path.display();
    let opened = if path == Path::new(file::STDIN) { file::stdin() } else { file::open(path) };
    let mut opened = opened.map_err(|error| {
        let help = match error.kind() {
            ErrorKind::IsADirectory => "name a file in the directory",
            ErrorKind::InvalidInput => "name a regular file, or - for the standard input",
            _ => "check the path, and the permissions of the file",
        };
        unreadable(path, error.to_string(), help)
    })?;
    let begin = opened.stream_position().with_context(|| format!("cannot read {shown}"))?;
    let mut first = Vec::new();
    (&mut opened)
        .take(RecordingReader::LIKELY_BYTES)
        .read_to_end(&mut first)
        .with_context(|| format!("cannot read {shown}"))?;
    if first.is_empty() {
        return Err(unreadable(path, "the file is empty".to_owned(), NO_RECORDING).into());
    }
    if RecordingReader::is_likely(&first) {
        let mut rewound = || {
            let again = opened.seek(SeekFrom::Start(begin)).and_then(|_| opened.try_clone());
            again.map(BufReader::new).with_context(|| format!("cannot read {shown}"))
        };
        if let Some(name) = from_phase {
            window.from = Some(phase_start(rewound()?, path, name)?);
        }
        let timeline = recording(rewound()?, path, window)?;
        return Ok(Input::Recording(Box::new(timeline)));
    }
    let mut text = first;
    let limit = MAX_RESULT.get();
    opened.take(limit).read_to_end(&mut text).with_context(|| format!("cannot read {shown}"))?;
    if text.len() as u64 >= limit {
        return Err(unreadable(path, format!("more than {MAX_RESULT}"), NO_RECORDING).into());
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    if !Timeline::is_journal(&text) {
        return Ok(Input::Result(text));
    }
    if let Some(name) = from_phase {
        return Err(no_phase(path, name, &[]).into());
    }
    let timeline = Timeline::of_journal(&text, window)
        .map_err(|error| journal::failure(path, JournalUser::REPORT, false, &error))?;
    Ok(Input::Recording(Box::new(timeline)))
}

fn unreadable(path: &Path, cause: String, help: &str) -> Failure {
    let failure = Failure::new(format!("cannot read {}", path.display()), Exit::Error);
    failure.because(cause).with_help([help.to_owned()])
}

fn no_phase(path: &Path, name: &str, names: &[String]) -> Failure {
    let error = format!("{} has no phase {name:?}", path.display());
    let help = match names {
        [] => "omit --from-phase: the recording has no phases".to_owned(),
        _ => format!("name one of its phases: {}", names.join(", ")),
    };
    Failure::new(error, Exit::Error).with_help([printable(help.as_bytes())])
}

/// Returns the begin of the first phase with this name, in seconds since the start. Slices that end
/// in the phase may stand before its line, so the recording is then read again.
fn phase_start(from: impl Read, path: &Path, name: &str) -> anyhow::Result<f64> {
    const MAX_NAMES: usize = 8;
    let mut reader = reader(from, path)?;
    let started = reader.head().started;
    let mut names = Vec::new();
    for line in &mut reader {
        match line {
            Ok(Line::Phase(phase)) if phase.name == name => {
                return Ok(phase.time.max(started).as_seconds() - started.as_seconds());
            }
            Ok(Line::Phase(phase))
                if names.len() < MAX_NAMES && names.last() != Some(&phase.name) =>
            {
                names.push(phase.name);
            }
            Ok(_) => {}
            Err(error @ RecordingError::Io(_)) => return Err(failed(path, &error).into()),
            Err(_) => break,
        }
    }
    Err(no_phase(path, name, &names).into())
}

fn reader<'a>(from: impl Read + 'a, path: &Path) -> Result<RecordingReader<'a>, Failure> {
    RecordingReader::new(from, RecordingLimits::default()).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &RecordingError) -> Failure {
    let help = match error {
        RecordingError::Version { .. } => "report it with the version that recorded it",
        RecordingError::Io(_) => "check the disk, and copy the file",
        _ => NO_RECORDING,
    };
    unreadable(path, error.to_string(), help)
}

/// Reads a recording up to its end, or to the line that is damaged.
fn recording(from: impl Read, path: &Path, window: Window) -> anyhow::Result<Timeline> {
    let mut reader = reader(from, path)?;
    let mut timeline = Timeline::new(reader.head().clone(), window);
    for line in &mut reader {
        match line {
            Ok(line) => timeline.add(line),
            Err(error @ RecordingError::Io(_)) => return Err(failed(path, &error).into()),
            Err(error) => {
                timeline.warnings.push(format!("the rest of the file is not shown: {error}"));
                return Ok(timeline);
            }
        }
    }
    // The head is the first line; one that was cut counts.
    if reader.lines() <= 2 {
        let cause = ["it was cut in its header", "it ends with its header"];
        let cause = if reader.lines() == 1 { cause[0] } else { cause[1] };
        let failure = Failure::new(format!("{} has no slice", path.display()), Exit::Error);
        let failure = failure.because(cause);
        return Err(failure.with_help(["copy or record it again".to_owned()]).into());
    }
    Ok(timeline)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use hugepilot_record::Pid;
    use hugepilot_recording::{Head, HeatSlice, Phase, RecordingWriter};
    use hugepilot_units::Nanos;

    use super::*;

    /// A slice of a second with samples.
    fn samples(seconds: u64) -> HeatSlice {
        let (time, length) = (Nanos::seconds(seconds), Nanos::seconds(1));
        let (samples, addressed, scattered) = (1, 0, 0);
        let (regions, mappings, threads) = (Vec::new(), Vec::new(), Vec::new());
        let pid = Pid(7);
        HeatSlice { time, length, pid, samples, addressed, scattered, regions, mappings, threads }
    }

    #[test]
    fn a_window_begins_at_the_first_phase_with_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let schema = hugepilot_recording::SCHEMA.to_owned();
        let head = Head { schema, started: Nanos::seconds(10), ..Head::default() };
        let mut writer = RecordingWriter::new(File::create(&path).unwrap(), head).unwrap();
        for (seconds, name) in [(10, "build"), (14, "trial 1"), (15, "trial 1")] {
            let phase = Phase { time: Nanos::seconds(seconds), name: name.to_owned() };
            writer.add(&Line::Phase(phase)).unwrap();
            writer.add(&Line::Heat(samples(seconds + 1))).unwrap();
        }
        writer.finish().unwrap();
        let slices = |timeline: &Timeline| timeline.processes[0].stalls.slots().len();
        let from = |name| match read(&path, Window::default(), name) {
            Ok(Input::Recording(timeline)) => {
                Ok((timeline.window.from, timeline.phases.len(), slices(&timeline)))
            }
            Ok(Input::Result(_)) => panic!("a recording"),
            Err(error) => Err(error),
        };
        assert_eq!(from(None).unwrap(), (None, 3, 3));
        assert_eq!(from(Some("trial 1")).unwrap(), (Some(4.0), 3, 2));
        let error = from(Some("end")).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        let help = format!("{failure:?}");
        assert!(help.contains("name one of its phases: build, trial 1"), "{help}");
    }

    #[test]
    fn a_phase_is_found_after_slices_that_end_in_it_and_after_a_thousand_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let schema = hugepilot_recording::SCHEMA.to_owned();
        let head = Head { schema, started: Nanos::seconds(10), ..Head::default() };
        let mut writer = RecordingWriter::new(File::create(&path).unwrap(), head).unwrap();
        let phase = |name: String| Line::Phase(Phase { time: Nanos::seconds(12), name });
        for at in 0..1000 {
            writer.add(&phase(at.to_string())).unwrap();
        }
        writer.add(&Line::Heat(samples(13))).unwrap();
        writer.add(&phase("solve".to_owned())).unwrap();
        writer.finish().unwrap();
        let input = read(&path, Window::default(), Some("solve")).unwrap();
        let Input::Recording(timeline) = input else { panic!("a recording") };
        assert_eq!(timeline.window.from, Some(2.0));
        assert_eq!(timeline.processes[0].stalls.slots().len(), 1);
    }

    #[test]
    fn a_recording_without_a_slice_is_no_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let schema = hugepilot_recording::SCHEMA.to_owned();
        let head = Head { schema, ..Head::default() };
        RecordingWriter::new(File::create(&path).unwrap(), head).unwrap().finish().unwrap();
        let error = || read(&path, Window::default(), None).err().unwrap().to_string();
        assert!(error().ends_with("a.rec has no slice: it ends with its header"), "{}", error());
        File::options().write(true).open(&path).unwrap().set_len(20).unwrap();
        assert!(error().ends_with("a.rec has no slice: it was cut in its header"), "{}", error());
    }

    #[test]
    fn files_that_end_alike_have_their_whole_paths() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["a/x.rec", "b/y.rec"]), ["x.rec", "y.rec"]);
        assert_eq!(of(&["a/x.rec", "y.rec", "b/x.rec"]), ["a/x.rec", "y.rec", "b/x.rec"]);
        assert_eq!(of(&["-"]), ["-"]);
    }

    #[test]
    fn a_journal_is_read_and_has_no_phases() {
        let journal = Path::new("../policy/testdata/journal.ndjson");
        let Ok(Input::Recording(timeline)) = read(journal, Window::default(), None) else {
            panic!("a journal")
        };
        assert!(timeline.is_journal && !timeline.processes.is_empty());
        let error = read(journal, Window::default(), Some("solve")).err().unwrap();
        assert!(error.to_string().contains("has no phase"), "{error}");
    }
}
