//! Journals of a tune: explained, and undone.

use std::fs;

use hugepilot_record::Answer;
use hugepilot_recording::{Line, RecordingLimits, RecordingReader};
use hugepilot_reports::explain::ExplainReport;
use hugepilot_reports::undo::{UndoReport, UndoState};
use hugepilot_testkit::requires;
use hugepilot_units::{AddrRange, Bytes, VirtAddr};
use rustix::process::{Pid, Signal, kill_process};

use crate::look::{contents, huge_now, tunable};
use crate::tool::{ANYWHERE, Done, HUGEPILOT, Running, hugepilot, tune, tune_args};
use crate::workload::{HOT_SET, Workload, sizes};

fn run(line: &str) -> Done {
    hugepilot(line.split_whitespace())
}

/// Addresses of the regions that the journal shows as verified.
fn verified(report: &ExplainReport) -> Vec<u64> {
    let processes = report.shown.iter().flat_map(|round| &round.processes);
    let regions = processes.flat_map(|process| &process.regions);
    let verified = regions.filter(|region| region.outcome.as_deref() == Some("verified"));
    verified.map(|region| region.start.get()).collect()
}

#[test]
fn a_tune_is_explained_by_its_journal_and_undone() {
    requires!(tunable());
    let workload = Workload::start(HOT_SET);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.ndjson").display().to_string();
    let tuned = tune(workload.pid(), &format!("{ANYWHERE} --budget 10% --journal {path}"));
    let report = tuned.exits(0).report();
    let huge = huge_now(workload.pid());
    assert_eq!(huge, sizes().huge.times(report.acts.verified_regions));

    let explained = run(&format!("explain {path} --json --region all"));
    let explained: ExplainReport = explained.exits(0).json();
    assert!(explained.is_reproduced() && explained.decisions > 0, "{explained:?}");
    let regions = verified(&explained);
    assert_eq!(regions.len() as u64, report.acts.verified_regions);
    let text = run(&format!("explain {path}"));
    let all = explained.decisions;
    assert!(text.exits(0).out().ends_with(&format!("\n{all} of {all} decisions reproduced\n")));

    // Another process with this pid is unchanged.
    let journal = fs::read_to_string(&path).unwrap();
    let (before, after) = journal.split_once("\"start_ticks\":").unwrap();
    let ticks: String = after.chars().take_while(char::is_ascii_digit).collect();
    assert!(before.contains(&format!("\"pid\":{}", workload.pid())));
    let number = |ticks: &str| format!("\"start_ticks\":{ticks}");
    let other = journal.replace(&number(&ticks), &number(&format!("1{ticks}")));
    let reused = folder.path().join("reused.ndjson").display().to_string();
    fs::write(&reused, other).unwrap();
    let undone: UndoReport = run(&format!("tune --undo {reused} --json")).exits(1).json();
    assert_eq!(undone.processes[0].state, UndoState::PidReused);
    assert_eq!(huge_now(workload.pid()), huge);

    let dry: UndoReport = run(&format!("tune --undo {path} --dry-run --json")).exits(0).json();
    assert_eq!((dry.returned(), huge_now(workload.pid())), (regions.len() as u64, huge));
    returned(&workload, &path, &regions);
}

/// Undoes the tune while the workload is stopped, so that its contents can be compared.
fn returned(workload: &Workload, path: &str, regions: &[u64]) {
    let pid = Pid::from_raw(workload.pid().cast_signed()).unwrap();
    let bytes = || -> Vec<Vec<u8>> {
        let range = |&start| AddrRange::at(VirtAddr::new(start), sizes().huge);
        regions.iter().map(|start| contents(workload.pid(), range(start))).collect()
    };
    kill_process(pid, Signal::STOP).unwrap();
    let before = bytes();
    let undone: UndoReport = run(&format!("tune --undo {path} --json")).exits(0).json();
    assert!(before == bytes(), "contents changed");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!((undone.returned(), undone.processes.len()), (regions.len() as u64, 1));
    assert_eq!(undone.processes[0].state, UndoState::Running);
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
    let again: UndoReport = run(&format!("tune --undo {path} --json")).exits(1).json();
    assert_eq!(again.processes[0].not_huge_regions, regions.len() as u64);
}

#[test]
fn a_journal_of_a_process_that_has_ended_is_no_error() {
    requires!(tunable());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.ndjson").display().to_string();
    let workload = Workload::start(HOT_SET);
    tune(workload.pid(), &format!("{ANYWHERE} --budget 10% --journal {path}")).exits(0);
    drop(workload);
    let undone = run(&format!("tune --undo {path}"));
    assert!(undone.exits(1).out().contains("it has ended"), "{undone:?}");
    run(&format!("explain {path}")).exits(0);
}

/// The lines of the recording of a command, and whether it was cut.
fn recorded(path: &str) -> (Vec<Line>, bool) {
    let file = fs::read(path).unwrap();
    let mut reader = RecordingReader::new(&file[..], RecordingLimits::default()).unwrap();
    assert!(!reader.head().metrics.is_empty() && reader.head().machine.cpus > 0);
    let lines = reader.by_ref().map(|line| line.unwrap()).collect();
    (lines, reader.is_cut())
}

#[test]
fn a_recorded_tune_is_explained_reported_and_undone() {
    requires!(tunable());
    let workload = Workload::start(HOT_SET);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, html) = (path("tune.rec"), path("tune.html"));
    let done = tune(workload.pid(), &format!("{ANYWHERE} --budget 10% --record {file}"));
    let (done, report) = (done.exits(0).json(), done.report());
    let (lines, is_cut) = recorded(&file);
    let reports = lines.iter().filter_map(|line| match line {
        Line::Report(report) => Some(report),
        _ => None,
    });
    let printed: serde_json::Value = done;
    assert_eq!(reports.collect::<Vec<_>>(), [&printed], "the report is what --json prints");
    assert!(matches!(lines.last(), Some(Line::End(_))) && !is_cut, "{lines:?}");

    let explained: ExplainReport =
        run(&format!("explain {file} --json --region all")).exits(0).json();
    assert!(explained.is_reproduced() && explained.decisions > 0, "{explained:?}");
    assert_eq!(verified(&explained).len() as u64, report.acts.verified_regions);
    let text = run(&format!("report {file}"));
    text.exits(0).shows(&["Tune of", "Rounds, a row for each process", "Heat by address and time"]);
    run(&format!("report {file} -o {html}")).exits(0);
    assert!(fs::read_to_string(&html).unwrap().contains(" promoted"));

    let undone: UndoReport = run(&format!("tune --undo {file} --json")).exits(0).json();
    assert_eq!(undone.returned(), report.acts.verified_regions);
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

#[test]
fn a_recording_of_a_killed_tune_is_read_and_undone() {
    requires!(tunable());
    let workload = Workload::start(HOT_SET);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tune.rec").display().to_string();
    let words = tune_args(workload.pid(), &format!("{ANYWHERE} --for 50s --record {file}"));
    let mut command = std::process::Command::new(HUGEPILOT);
    command.args(words);
    let mut running = Running::start(command);
    running.until("promotes", || huge_now(workload.pid()) > Bytes::ZERO);
    let has_acts = |line: &Line| matches!(line, Line::Journal(round) if is_act(round));
    running.until("records a round", || recorded(&file).0.iter().any(has_acts));
    running.signal(Signal::KILL);
    drop(running);
    run(&format!("explain {file}")).exits(0);
    let text = run(&format!("report {file}"));
    text.exits(0).shows(&["Rounds, a row for each process", "the recording has no end"]);
    run(&format!("tune --undo {file}")).exits(0);
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

/// Whether a round verified a promotion.
fn is_act(round: &serde_json::Value) -> bool {
    round["rows"].to_string().contains("\"verified\"")
}

/// A command whose saved journals are in `folder`.
fn saving(folder: &tempfile::TempDir, arguments: &[String]) -> Done {
    let mut command = std::process::Command::new(HUGEPILOT);
    command.args(arguments).env("STATE_DIRECTORY", folder.path());
    Running::start(command).wait(crate::tool::LIMIT)
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_tune_without_a_journal_is_undone_by_its_pid() {
    requires!(tunable());
    let (workload, folder) = (Workload::start(HOT_SET), tempfile::tempdir().unwrap());
    let pid = workload.pid();
    let none = saving(&folder, &words(&format!("tune --undo -p {pid}")));
    none.exits(2).says(&["no promotions of process", "--journal or --record"]);
    let arguments = tune_args(pid, &format!("{ANYWHERE} --budget 10%"));
    let report = saving(&folder, &arguments).exits(0).report();
    assert_eq!(huge_now(pid), sizes().huge.times(report.acts.verified_regions));
    let undone = saving(&folder, &words(&format!("tune --undo -p {pid} --json")));
    let undone: UndoReport = undone.exits(0).json();
    assert_eq!((undone.returned(), huge_now(pid)), (report.acts.verified_regions, Bytes::ZERO));
    assert_eq!(report.left_regions(), report.acts.verified_regions);
    // What was returned is not saved any more.
    saving(&folder, &words(&format!("tune --undo -p {pid}"))).exits(2);
}

#[test]
fn a_try_returns_its_regions_and_not_those_of_earlier_tunes() {
    requires!(tunable());
    let (workload, folder) = (Workload::start(HOT_SET), tempfile::tempdir().unwrap());
    let pid = workload.pid();
    let arguments = tune_args(pid, &format!("{ANYWHERE} --budget 4%"));
    let first = saving(&folder, &arguments).exits(0).report().acts.verified_regions;
    let arguments = tune_args(pid, &format!("{ANYWHERE} --budget 10% --try"));
    let done = saving(&folder, &arguments);
    let report = done.sane().report();
    assert!(report.acts.verified_regions > 0, "{report:?}");
    let tried = report.tried.as_ref().expect("it returned them");
    assert_eq!(
        tried.iter().map(|one| one.returned_regions).sum::<u64>(),
        report.acts.verified_regions
    );
    assert_eq!((report.left_regions(), huge_now(pid)), (0, sizes().huge.times(first)));
    let undo = words(&format!("tune --undo -p {pid} --json"));
    let undone: UndoReport = saving(&folder, &undo).exits(0).json();
    assert_eq!((undone.returned(), huge_now(pid)), (first, Bytes::ZERO));
    saving(&folder, &undo).exits(2);
    let expected = match report.answer() {
        Answer::Gain => 0,
        Answer::NoGain | Answer::Blocked => 1,
        Answer::CannotTell => 3,
    };
    done.exits(expected);
}
