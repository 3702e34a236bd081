//! `record`: recordings of programs and processes, and their values against known programs.

mod phases;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugepilot_record::MetricScope;
use hugepilot_recording::{
    CodeStall, End, Head, Line, RecordReport, RecordStop, RecordingLimits, RecordingReader, Slice,
};
use hugepilot_testkit::{compiled, need, requires};
use hugepilot_units::Nanos;
use rustix::process::Signal;

use crate::hostile::is_plain;
use crate::tool::{HUGEPILOT, Running, hugepilot};
use crate::validation::validate;
use crate::workload::Workload;

/// A recording that was read.
pub(crate) struct Recording {
    pub(crate) head: Head,
    pub(crate) lines: Vec<Line>,
    is_cut: bool,
}

impl Recording {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        let file = fs::read(path).unwrap();
        let mut reader = RecordingReader::new(&file[..], RecordingLimits::default()).unwrap();
        let head = reader.head().clone();
        let lines = reader.by_ref().map(|line| line.unwrap()).collect();
        Self { head, lines, is_cut: reader.is_cut() }
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.lines.iter().find_map(|line| if let Line::End(end) = line { Some(end) } else { None })
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Slice(slice) = line { Some(slice) } else { None })
    }

    /// Values of a metric of processes, over all slices.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.timed(name).map(|(_, value)| value).collect()
    }

    /// Slices of processes that have a value of the metric, and this value.
    pub(crate) fn timed(&self, name: &str) -> impl Iterator<Item = (&Slice, f64)> {
        let metrics = self.head.metrics.iter();
        let mut scope = metrics.filter(|metric| metric.scope == MetricScope::Process);
        let at = scope.position(|metric| metric.name == name).expect(name);
        let of_processes = |slice: &&Slice| slice.pid.is_some() && slice.tid.is_none();
        let slices = self.slices().filter(of_processes);
        slices.filter_map(move |slice| Some((slice, slice.values[at]?)))
    }

    fn phases(&self) -> Vec<&str> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Phase(one) = line { Some(&one.name[..]) } else { None })
            .collect()
    }

    pub(crate) fn phase_times(&self) -> Vec<Nanos> {
        let phase = |line: &Line| if let Line::Phase(one) = line { Some(one.time) } else { None };
        self.lines.iter().filter_map(phase).collect()
    }

    fn warnings(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Warning(text) = line { Some(&text[..]) } else { None })
    }

    fn commands(&self) -> Vec<&str> {
        self.lines
            .iter()
            .filter_map(|line| {
                if let Line::Process(one) = line { Some(&one.id.command[..]) } else { None }
            })
            .collect()
    }

    fn stalls(&self) -> impl Iterator<Item = &CodeStall> {
        self.lines
            .iter()
            .filter_map(|line| if let Line::Code(one) = line { Some(&one.stalls) } else { None })
            .flatten()
    }
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("a.rec")
    }
    /// Starts `record` with these flags.
    fn start(&self, flags: &str, command: &[&str]) -> Running {
        let mut record = Command::new(HUGEPILOT);
        record.arg("record").arg("-o").arg(self.file()).args(flags.split_whitespace());
        if !command.is_empty() {
            record.arg("--").args(command);
        }
        Running::start(record)
    }
    pub(crate) fn run(&self, flags: &str, command: &[&str]) -> crate::tool::Done {
        self.start(flags, command).wait(crate::tool::LIMIT)
    }
}

#[test]
fn a_workload_is_recorded_with_its_faults_memory_and_code() {
    let folder = Folder::new();
    let line = [HUGEPILOT, "lab", "workload", "gups", "--pages", "base", "--footprint", "64MiB"];
    let line = [&line[..], &["--seconds", "1"]].concat();
    let done = folder.run("", &line);
    let done = done.exits(0);
    assert!(done.out().contains("hugepilot.workload/1"), "its stdout is untouched: {done:?}");
    let recording = Recording::read(&folder.file());
    assert!(!recording.is_cut && recording.end().is_some());
    assert_eq!(recording.end().unwrap().exit.as_deref(), Some("0"));
    let pages = (64 << 20) as f64 / 4096.0;
    let faults: f64 = recording.values("minor_faults").iter().sum();
    assert!((pages..pages + 8000.0).contains(&faults), "{faults} faults of {pages} pages");
    let rss = recording.values("rss").into_iter().fold(0.0, f64::max);
    assert!((64e6..128e6).contains(&rss), "{rss}");
    let cpu: f64 = recording.values("user_time").iter().sum();
    assert!((0.3e9..4e9).contains(&cpu), "{cpu}");
    let metrics = recording.head.metrics.iter();
    let mut system = metrics.filter(|metric| metric.scope == MetricScope::System);
    let width = system.clone().count();
    let of_system = |slice: &&Slice| slice.pid.is_none();
    assert!(recording.slices().filter(of_system).all(|slice| slice.values.len() == width));
    let traffic = system.find(|metric| metric.name.starts_with("memory_read")).unwrap();
    assert!(traffic.missing.as_ref().is_none_or(|cause| !cause.is_empty()), "{traffic:?}");
    if recording.head.sampler.is_some() {
        let all: u64 = recording.stalls().map(|stall| stall.samples).sum();
        let named = |stall: &&CodeStall| {
            stall.frame.function.as_deref().is_some_and(|name| name.contains("gups"))
        };
        let in_gups: u64 = recording.stalls().filter(named).map(|stall| stall.samples).sum();
        assert!(in_gups * 2 > all, "{in_gups} of {all}");
        assert!(recording.lines.iter().any(|line| matches!(line, Line::Heat(_))));
    }
}

#[test]
fn the_callers_of_a_stall_are_in_their_order() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let program = compiled(Path::new("callers.c"));
    let done = folder.run("--callers --json", &[program.to_str().unwrap(), "1"]);
    let done = done.exits(0);
    let report: RecordReport = serde_json::from_str(&done.out()).unwrap();
    requires!(report.sampler_missing.map_or(Ok(()), Err::<(), String>));
    let recording = Recording::read(&folder.file());
    let all: u64 = recording.stalls().map(|stall| stall.samples).sum();
    let is_chain = |stall: &&CodeStall| {
        let frames = std::iter::once(&stall.frame).chain(&stall.callers);
        let names: Vec<_> = frames.take(3).filter_map(|frame| frame.function.as_deref()).collect();
        names == ["inner", "outer", "main"]
    };
    let known: u64 = recording.stalls().filter(is_chain).map(|stall| stall.samples).sum();
    assert!(known * 10 > all * 7, "{known} of {all}");
    let source = recording.stalls().find(is_chain).and_then(|one| one.callers[0].source.clone());
    assert!(source.is_some_and(|(file, _)| file.ends_with("callers.c")));
    let ratio = report.callers_ratio.expect("samples");
    assert!(ratio > 0.7 && ratio >= known as f64 / all as f64, "{ratio}");
    let folded = hugepilot(["report", "--format", "folded", folder.file().to_str().unwrap()]);
    let folded = folded.exits(0).out();
    assert!(folded.contains("main;outer;inner;memory of "), "{folded}");
}

#[test]
fn a_program_runs_once_for_each_set_of_events_and_the_runs_are_joined() {
    let folder = Folder::new();
    let script = "echo run; read line; echo phase one; n=0; while [ $n -lt 30000 ]; do \
                  n=$((n + 1)); done; sleep 0.3";
    let flags = "--repeat --events-per-run 1 --events task-clock --events page-faults --no-stalls \
                 --json --phase-regex ^phase.(.*)";
    let done = folder.run(flags, &["sh", "-c", script]);
    let done = done.exits(0);
    let report: RecordReport = done.json();
    requires!(match &report.missing_metrics[..] {
        missing if missing.iter().any(|one| one.name == "task_clock") => Err("perf events"),
        _ => Ok(()),
    });
    assert_eq!(report.run_seconds.len(), 2);
    assert_eq!(done.err().matches("run\n").count(), 2, "its stdout: {done:?}");
    let recording = Recording::read(&folder.file());
    assert!(recording.end().is_some());
    assert_eq!(recording.phases(), ["one"]);
    for (name, run) in [("task_clock", "; run 1 of 2"), ("page_faults", "; run 2 of 2")] {
        let metric = recording.head.metrics.iter().find(|metric| metric.name == name).unwrap();
        assert!(metric.source.ends_with(run), "{metric:?}");
        assert!(recording.values(name).iter().sum::<f64>() > 0.0, "{name}");
    }
    let warned = |line: &&Line| matches!(line, Line::Warning(text) if text.contains("each phase"));
    assert_eq!(recording.lines.iter().filter(warned).count(), 1);
    assert_eq!(report.file_bytes.get(), fs::metadata(folder.file()).unwrap().len());
}

#[test]
fn each_run_reads_the_same_input_or_none_runs() {
    let folder = Folder::new();
    let input = folder.0.path().join("input");
    fs::write(&input, "skipped\nfirst\nsecond\n").unwrap();
    let repeat = |input: std::process::Stdio| {
        let mut record = Command::new(HUGEPILOT);
        record.args(["record", "--force", "--repeat", "--events-per-run", "1", "--no-stalls"]);
        record.args(["--events", "task-clock", "--events", "page-faults", "-o"]);
        record.arg(folder.file()).args(["--", "cat"]);
        record.stdin(input).output().unwrap()
    };
    let mut file = fs::File::open(&input).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(8)).unwrap();
    let done = repeat(file.into());
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text == "first\nsecond\n".repeat(2) || text == "first\nsecond\n", "{text}");
    fs::remove_file(folder.file()).unwrap();
    let (pipe, _end) = std::io::pipe().unwrap();
    let done = repeat(pipe.into());
    let error = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{error}");
    assert!(error.contains("stdin is a pipe") && error.contains("< /dev/null"), "{error}");
    assert!(!folder.file().exists());
}

/// The name ends the field of `stat` early, begins a line, an escape code and an element, and is
/// not UTF-8; that of its mappings closes a script.
#[test]
fn children_and_their_hostile_names_are_recorded_and_harm_no_reader() {
    requires!(need::c_compiler());
    let folder = Folder::new();
    let hostile = compiled(Path::new("hostile_name.c"));
    let script = "sleep 0.6 | \"$0\" & sleep 0.5 & wait";
    let line = ["sh", "-c", script, hostile.to_str().unwrap()];
    folder.run("--no-stalls", &line).exits(0);
    let recording = Recording::read(&folder.file());
    let names = recording.commands();
    for name in ["sh", "sleep", "a) R 1\\n\\u{1b}[1m\\xff</b"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let file = folder.file();
    for format in ["text", "json", "html", "markdown", "csv", "openmetrics"] {
        let done = hugepilot(["report", "--format", format, file.to_str().unwrap()]);
        is_plain(done.exits(0));
        let text = done.out();
        assert!(text.contains("memfd:x") && text.contains("R 1"), "no names in {text}");
        match format {
            "json" => _ = serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            "html" => {
                assert_eq!(text.matches("</script>").count(), 2, "of the data, and at the end");
                assert!(!text.contains(r"\xff</b"), "{text}");
            }
            _ => {}
        }
    }
}

#[test]
fn a_running_process_is_recorded_until_the_interrupt() {
    let folder = Folder::new();
    let workload = Workload::start("gups --footprint 16MiB");
    let mut running = folder.start(&format!("--json --pid {}", workload.pid()), &[]);
    let file = folder.file();
    running.until("a slice", || fs::metadata(&file).is_ok_and(|about| about.len() > 1200));
    running.signal(Signal::INT);
    let done = running.wait(crate::tool::LIMIT);
    let done = done.exits(0);
    assert_eq!(validate(done.out().as_bytes()).as_deref(), Ok("record"), "{done:?}");
    let report: RecordReport = serde_json::from_str(&done.out()).unwrap();
    assert_eq!((report.stop, report.processes), (RecordStop::Interrupted, 1));
    let recording = Recording::read(&file);
    assert!(recording.end().is_some());
    assert_eq!(report.file_bytes.get(), fs::metadata(&file).unwrap().len());
}

#[test]
fn a_recording_goes_through_a_pipe_if_stdout_is_free() {
    let workload = Workload::start("gups --footprint 16MiB");
    let pid = workload.pid().to_string();
    let done = hugepilot(["record", "--pid", &pid, "--duration", "500ms", "-o", "-"]);
    done.exits(0);
    let folder = Folder::new();
    fs::write(folder.file(), &done.stdout).unwrap();
    let recording = Recording::read(&folder.file());
    assert!(recording.end().is_some() && recording.slices().count() >= 3);
    hugepilot(["record", "-o", "-", "--", "true"])
        .exits(2)
        .says(&["stdout", "name a file: -o FILE"]);
}

#[test]
fn a_killed_recording_is_readable() {
    let folder = Folder::new();
    let mut running = folder.start("--no-stalls", &["sleep", "60"]);
    let file = folder.file();
    // The reader accepts a file that is cut anywhere.
    let slices = || {
        let text = fs::read(&file).unwrap_or_default();
        let reader = RecordingReader::new(&text[..], RecordingLimits::default()).ok();
        let lines = reader.into_iter().flatten().filter_map(Result::ok);
        lines.filter(|line| matches!(line, Line::Slice(_))).count()
    };
    running.until("slices", || slices() > 5);
    running.signal(Signal::KILL);
    running.wait(crate::tool::LIMIT);
    let recording = Recording::read(&file);
    assert!(recording.end().is_none() && recording.slices().count() > 5);
}

#[test]
fn a_recording_cut_anywhere_is_reported_and_an_empty_file_has_help() {
    let folder = Folder::new();
    folder.run("--no-stalls", &["sleep", "0.3"]).exits(0);
    let whole = fs::read(folder.file()).unwrap();
    let report = |path: &Path| hugepilot(["report", path.to_str().unwrap()]);
    let late = hugepilot(["report", "--from", "60", folder.file().to_str().unwrap()]);
    late.exits(2).says(&["no slice ends after --from: the recording ends after 0."]);
    let file = folder.file().display().to_string();
    let absent = hugepilot(["report", &file, "-o", "/nonexistent/x.html"]);
    absent.exits(2).says(&["help: create it: mkdir -p /nonexistent"]);
    for bytes in [1, 5, 300] {
        fs::write(folder.file(), &whole[..bytes]).unwrap();
        report(&folder.file()).exits(2).says(&["has no slice: it was cut in its header"]);
    }
    fs::write(folder.file(), &whole[..whole.len() - 200]).unwrap();
    report(&folder.file()).exits(0).shows(&["the recording has no end"]);
    fs::write(folder.file(), "").unwrap();
    report(&folder.file()).exits(2).says(&["the file is empty", "help: name a file that"]);
    report(folder.0.path()).exits(2).says(&["a directory", "help: name a file in the directory"]);
    report(Path::new("/dev/null")).exits(2).says(&["a device", "help: name a regular file"]);
    hugepilot(["record"]).exits(2).says(&["no target", "record -p PID", "record -- CMD"]);
}

#[test]
fn a_file_that_exists_stays_and_a_missing_program_makes_none() {
    let folder = Folder::new();
    folder.run("", &["/no/such/program"]).exits(2);
    assert!(!folder.file().exists());
    fs::write(folder.file(), "old").unwrap();
    folder.run("", &["true"]).exits(2).says(&["the file exists", "--force"]);
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), "old");
    folder.run("--force", &["true"]).exits(0);
    assert!(Recording::read(&folder.file()).end().is_some());
    hugepilot(["record", "--every", "1ms", "--", "true"]).exits(2).says(&["10ms"]);
}
