//! Files that a command writes while it runs: its journal, and a recording of the run.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use hugepilot_kernel::clock;
use hugepilot_kernel::proc::printable;
use hugepilot_launch::record::{MAX_PROCESSES, MetricsOptions, USUAL_SLICE};
use hugepilot_policy::round::Goal;
use hugepilot_record::Pid;
use hugepilot_recording::{Line, RecordedTrial};
use hugepilot_render::JsonReport;
use hugepilot_units::{Bytes, Nanos};
use serde::Serialize;

use self::file::Recording;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::journal::{JournalWriter, not_writable};

/// The flag of all commands that record their run.
#[derive(Debug, Default, Args)]
pub(crate) struct RecordFlag {
    /// Record the run in FILE, for `report`: command, machine, each round, run or trial, and the
    /// report. Replaces FILE when the run begins
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    record: Option<PathBuf>,
}

/// The flag of commands whose recordings have metrics of their targets.
#[derive(Debug, Default, Args)]
pub(crate) struct TargetRecordFlag {
    /// Record the run in FILE, for `report`: command, machine, metrics of the target processes over
    /// time, each round, and the report. Replaces FILE when the run begins
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    record: Option<PathBuf>,
}

impl TargetRecordFlag {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.record.as_deref()
    }
}

impl RecordFlag {
    pub(crate) fn path(&self) -> Option<&Path> {
        self.record.as_deref()
    }
}

/// Command line of hugepilot, escaped.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| printable(word.as_encoded_bytes())).collect()
}

/// Size at which a recording gets no further slices, and a file of the daemon ends. A round takes
/// about 100 KiB per GiB of the processes in it.
pub(crate) const MAX_FILE: Bytes = Bytes::gib(1);

/// Metrics of the processes that a run is about, as `record` has them. `sampler`: name of the stall
/// samples in its rounds, or why they have none over time.
pub(crate) fn metrics(processes: Vec<Pid>, sampler: Result<&str, &str>) -> MetricsOptions {
    MetricsOptions {
        every: USUAL_SLICE,
        // As of `record`: several processes are recorded without children.
        with_children: processes.len() <= 1,
        processes,
        max_processes: MAX_PROCESSES,
        keep: None,
        sampler: sampler.map(str::to_owned).map_err(str::to_owned),
    }
}

/// Journal and recording of a run, each if a flag names one.
pub(crate) struct RunFiles {
    journal: Option<JournalWriter>,
    recording: Option<Recording>,
    limit: Option<Bytes>,
}

impl RunFiles {
    /// Opens or creates the files. Older contents stay until [`Self::begin`], so that a command
    /// that fails before loses nothing.
    pub(crate) fn open(journal: Option<&Path>, record: Option<&Path>) -> anyhow::Result<Self> {
        let journal = JournalWriter::at(journal)?;
        let recording = record.map(Recording::create).transpose()?;
        if let (Some(journal), Some(recording)) = (&journal, &recording)
            && journal.is_file(&recording.file)?
        {
            let shown = recording.path.display();
            let failure = Failure::new(format!("cannot write {shown}"), Exit::Error);
            return Err(failure
                .because("--journal and --record name the same file")
                .with_help([
                    "omit --journal: a recording has the rounds, and explain reads it".to_owned()
                ])
                .into());
        }
        Ok(Self { journal, recording, limit: None })
    }

    /// Empties the files, and writes their headers. `goal`: that of the rounds, if there are any.
    pub(crate) fn begin(&mut self, goal: Option<Goal>) -> anyhow::Result<()> {
        self.begin_by(goal, |recording| recording.begin(clock::monotonic()))
    }

    /// Begins files of a simulation, whose time starts at 0.
    pub(crate) fn begin_simulated(&mut self, goal: Option<Goal>) -> anyhow::Result<()> {
        self.begin_by(goal, |recording| recording.begin(Nanos::ZERO))
    }

    /// Begins files of rounds that change processes. The recording has metrics of these over time.
    pub(crate) fn begin_with(&mut self, goal: Goal, metrics: MetricsOptions) -> anyhow::Result<()> {
        let limit = self.limit.unwrap_or(MAX_FILE);
        self.begin_by(Some(goal), |recording| {
            recording.set_limit(limit);
            recording.begin_with(metrics)
        })
    }

    fn begin_by(
        &mut self,
        goal: Option<Goal>,
        begin: impl FnOnce(&mut Recording) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        if let Some(recording) = &mut self.recording {
            let begun = begin(recording);
            begun.map_err(|error| not_writable("recording", &recording.path, &error))?;
            if let Some(goal) = &goal {
                recording.header(goal);
            }
        }
        if let (Some(journal), Some(goal)) = (&mut self.journal, goal) {
            journal.begin(goal)?;
        }
        Ok(())
    }

    /// Adds a round. The run goes on if that fails.
    pub(crate) fn add(&mut self, round: &impl Serialize) {
        if let Some(journal) = &mut self.journal {
            journal.add(round);
        }
        if let Some(recording) = &self.recording {
            recording.add(|writer| writer.add_journal(round));
        }
    }

    /// Adds a round of `goal`, after a header if the goal is another than before.
    pub(crate) fn add_of(&mut self, goal: &Goal, round: &impl Serialize) {
        if let Some(journal) = &mut self.journal {
            journal.add_of(goal, round);
        }
        if let Some(recording) = &mut self.recording {
            recording.header(goal);
            recording.add(|writer| writer.add_journal(round));
        }
    }

    /// Records the metrics of processes from now on, if the recording has metrics.
    pub(crate) fn watch(&self, pids: impl IntoIterator<Item = Pid>) {
        let Some(recording) = &self.recording else { return };
        pids.into_iter().for_each(|pid| recording.watch(pid));
    }

    /// Sets the size at which a file ends.
    pub(crate) fn set_limit(&mut self, limit: Bytes) {
        self.limit = Some(limit);
        self.recording.iter().for_each(|recording| recording.set_limit(limit));
    }

    /// Ends each file that has its limit, or that could not be written. Returns the causes.
    pub(crate) fn close_over(&mut self) -> Vec<String> {
        let limit = self.limit.unwrap_or(Bytes::MAX);
        let full =
            |kind: &str| format!("the {kind} has {limit}; restart the daemon with another file");
        let mut causes = Vec::new();
        if let Some(journal) = self.journal.take_if(|journal| journal.is_over(limit)) {
            let ended = journal.finish();
            causes.push(ended.map_or_else(|error| format!("{error:#}"), |()| full("journal")));
        }
        if let Some(recording) = self.recording.take_if(|recording| recording.is_over()) {
            let ended = recording.finish();
            causes.push(ended.map_or_else(|error| format!("{error:#}"), |()| full("recording")));
        }
        causes
    }

    /// Adds a run or trial that is over, and its facts. The run goes on if that fails.
    pub(crate) fn add_trial(
        &mut self,
        name: String,
        number: u64,
        seconds: f64,
        facts: &impl Serialize,
    ) {
        let Some(recording) = &self.recording else { return };
        let result = serde_json::to_value(facts).unwrap_or_default();
        let took = Duration::try_from_secs_f64(seconds).unwrap_or_default().into();
        let trial = RecordedTrial { time: clock::monotonic(), name, number, took, result };
        recording.add(|writer| writer.add(&Line::Trial(trial)));
    }

    /// Adds the JSON that the command prints.
    pub(crate) fn add_report(&mut self, report: &impl JsonReport) {
        let Some(recording) = &self.recording else { return };
        recording.add(|writer| match report.explained() {
            Some(explained) => writer.add_report(&explained),
            None => writer.add_report(report),
        });
    }

    /// Adds a line of JSON that the command prints.
    pub(crate) fn add_json(&mut self, line: &str) {
        let Some(recording) = &self.recording else { return };
        let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { return };
        recording.add(|writer| writer.add_report(&value));
    }

    /// Ends the files, and returns the first error of writing them.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let journal = self.journal.map_or(Ok(()), JournalWriter::finish);
        let recording = self.recording.map_or(Ok(()), Recording::finish);
        journal.and(recording)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hugepilot_policy::debloat::{DebloatPolicy, Order};
    use hugepilot_recording::{Head, RecordingLimits, RecordingReader};
    use serde_json::json;

    use super::*;

    fn lines(path: &Path) -> (Head, Vec<Line>) {
        let file = fs::read(path).unwrap();
        let reader = RecordingReader::new(&file[..], RecordingLimits::default()).unwrap();
        (reader.head().clone(), reader.map(|line| line.unwrap()).collect())
    }

    #[test]
    fn each_line_is_in_the_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        fs::write(&path, "older").unwrap();
        let mut files = RunFiles::open(None, Some(&path)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "older", "nothing failed yet");
        let goal = Goal::Debloat(DebloatPolicy::new(Order::Exact));
        files.begin(Some(goal.clone())).unwrap();
        assert_eq!(lines(&path).1.len(), 1, "the goal");
        files.add(&json!({"round": 1}));
        files.add_of(&goal, &json!({"round": 2}));
        files.add_of(&Goal::Debloat(DebloatPolicy::new(Order::Heat)), &json!({"round": 3}));
        files.add_trial("base".to_owned(), 1, 0.5, &json!({"a": 1}));
        files.add_json("{\"event\":\"idle\"}\n");
        let (head, all) = lines(&path);
        assert!(head.metrics.is_empty() && head.command == command_line());
        let journal = all.iter().filter(|line| matches!(line, Line::Journal(_)));
        assert_eq!(journal.count(), 5, "a header for each goal");
        let [.., Line::Trial(trial), Line::Report(event)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((trial.took, &trial.result), (Nanos::millis(500), &json!({"a": 1})));
        assert_eq!(*event, json!({"event": "idle"}));
        files.finish().unwrap();
        assert!(matches!(lines(&path).1.last(), Some(Line::End(_))));
    }

    #[test]
    fn a_simulated_recording_starts_and_ends_at_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let mut files = RunFiles::open(None, Some(&path)).unwrap();
        files.begin_simulated(None).unwrap();
        files.finish().unwrap();
        let (head, all) = lines(&path);
        let [Line::End(end)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((head.started, end.time), (Nanos::ZERO, Nanos::ZERO));
    }

    /// A recording of this process with metrics in short slices.
    fn with_metrics(path: &Path) -> RunFiles {
        let mut files = RunFiles::open(None, Some(path)).unwrap();
        let goal = Goal::Debloat(DebloatPolicy::new(Order::Exact));
        let own = Pid(std::process::id().cast_signed());
        let options =
            MetricsOptions { every: Nanos::millis(5), ..metrics(vec![own], Ok("rounds")) };
        files.begin_with(goal, options).unwrap();
        files
    }

    fn slices(lines: &[Line]) -> usize {
        lines.iter().filter(|line| matches!(line, Line::Slice(_))).count()
    }

    #[test]
    fn rounds_and_slices_are_in_one_file_with_one_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let mut files = with_metrics(&path);
        for round in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            files.add(&json!({"round": round}));
        }
        let (head, before) = lines(&path);
        assert!(!head.metrics.is_empty() && head.sampler.as_deref() == Some("rounds"), "{head:?}");
        assert!(slices(&before) > 3, "a round brings the slices before it: {before:?}");
        files.finish().unwrap();
        let (_, all) = lines(&path);
        assert!(all.len() > before.len() && slices(&all) > slices(&before));
        let ends = all.iter().filter(|line| matches!(line, Line::End(_))).count();
        assert!(ends == 1 && matches!(all.last(), Some(Line::End(_))), "{all:?}");
        let rounds: Vec<&serde_json::Value> = all
            .iter()
            .filter_map(|line| match line {
                Line::Journal(line) => line.get("round"),
                _ => None,
            })
            .collect();
        assert!(rounds.iter().map(|round| round.as_i64()).eq((0..20).map(Some)), "{rounds:?}");
        let times = all.iter().filter_map(|line| match line {
            Line::Slice(slice) => Some(slice.time),
            _ => None,
        });
        assert!(times.is_sorted());
    }

    #[test]
    fn a_full_recording_gets_no_further_slices_and_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let mut files = with_metrics(&path);
        files.set_limit(Bytes::new(1));
        std::thread::sleep(Duration::from_millis(50));
        files.add(&json!({"round": 1}));
        let before = slices(&lines(&path).1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(files.close_over().len(), 1);
        let (_, all) = lines(&path);
        assert_eq!(slices(&all), before);
        let is_cause = |line: &Line| matches!(line, Line::Warning(text) if text.starts_with("1B"));
        assert_eq!(all.iter().filter(|line| is_cause(line)).count(), 1, "{all:?}");
        assert!(matches!(all.last(), Some(Line::End(_))), "{all:?}");
    }

    #[test]
    fn a_recording_that_is_dropped_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        drop(with_metrics(&path));
        assert!(matches!(lines(&path).1.last(), Some(Line::End(_))));
    }

    #[test]
    fn a_full_file_ends_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let [journal, path] = ["x.ndjson", "x.rec"].map(|name| folder.path().join(name));
        let mut files = RunFiles::open(Some(&journal), Some(&path)).unwrap();
        let goal = Goal::Debloat(DebloatPolicy::new(Order::Exact));
        files.begin(Some(goal)).unwrap();
        files.set_limit(Bytes::mib(1));
        assert!(files.close_over().is_empty());
        files.set_limit(Bytes::new(1));
        let causes = files.close_over();
        assert_eq!(causes.len(), 2, "{causes:?}");
        assert!(matches!(lines(&path).1.last(), Some(Line::End(_))));
    }

    #[test]
    fn a_file_that_cannot_be_written_has_a_cause_and_help() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let stdout = Path::new("-");
        for (journal, record, says) in [
            (Some(&*path), Some(&*path), "name the same file"),
            (None, Some(stdout), "the recording to stdout: `--record -` would mix it"),
            (Some(stdout), None, "the journal to stdout: `--journal -` would mix it"),
            (None, Some(folder.path()), "cannot write recording "),
            // A link is not followed.
            (None, Some(&link), "cannot write recording "),
        ] {
            let error = RunFiles::open(journal, record).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
        let mut unwritable = RunFiles::open(None, Some(Path::new("/proc/version"))).unwrap();
        assert!(unwritable.begin(None).err().unwrap().is::<Failure>());
    }
}
