//! `compare`: every mode has its figures, or the cause why it is unavailable.

use hugepilot_record::Mode;
use hugepilot_recording::{Line, RecordingLimits, RecordingReader};
use hugepilot_reports::compare::{CompareReport, Conclusion, ModeReport};
use hugepilot_reports::run::{CompareWarning, EffectCause, RunWarning};
use hugepilot_testkit::{make_room, need, requires};
use hugepilot_units::Bytes;

use crate::tool::{Done, HUGEPILOT, hugepilot};

fn compare(flags: &str, command: &[&str]) -> Done {
    let flags = format!("compare --json {flags} --");
    hugepilot(flags.split_whitespace().chain(command.iter().copied()))
}

#[track_caller]
fn report(done: &Done) -> CompareReport {
    let report: CompareReport =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    assert_eq!(done.status.code() == Some(0), report.pays, "{done:?}");
    let json: serde_json::Value = done.json();
    let text = |pointer: &str| json.pointer(pointer).is_some_and(serde_json::Value::is_string);
    assert!(text("/verdict/text"), "{done:?}");
    for index in 0..report.modes.len() {
        assert!(text(&format!("/modes/{index}/cause/text")), "{done:?}");
    }
    report
}

/// Whether the mode is unavailable, with an error about `what`.
fn is_unavailable(mode: &ModeReport, what: &str) -> bool {
    matches!(
        &mode.effect.cause,
        EffectCause::Unavailable { reason } if reason.to_string().contains(what)
    )
}

#[test]
fn each_mode_has_its_figures_or_a_cause() {
    requires!(need::live());
    requires!(need::memory(Bytes::gib(1)));
    make_room();
    let line = format!("{HUGEPILOT} lab workload hash-insert --entries 1000000 --seconds 250ms");
    let command: Vec<&str> = line.split(' ').collect();
    let done = compare(
        "--rounds 3 --modes glibc-thp,advised,mimalloc --library /no/such/libmimalloc.so",
        &command,
    );
    let report = report(&done);
    let names: Vec<Mode> = report.modes.iter().map(|mode| mode.mode).collect();
    assert_eq!(names, [Mode::Base, Mode::GlibcThp, Mode::Advised, Mode::Mimalloc]);
    for mode in &report.modes[..3] {
        let wall = mode.wall_seconds.unwrap();
        assert_eq!((mode.runs, mode.failed_runs), (3, 0));
        assert!(wall.min <= wall.median && wall.median <= wall.max && wall.min > 0.01, "{mode:?}");
        assert!(mode.rss_peak_bytes.unwrap() > Bytes::mib(30), "{mode:?}");
        assert_eq!(mode.speedup_over_base.is_some(), mode.mode != Mode::Base);
    }
    let absent = &report.modes[3];
    assert!(
        absent.runs == 0 && absent.wall_seconds.is_none() && is_unavailable(absent, "/no/such"),
        "{absent:?}"
    );
    let (base, glibc) = (&report.modes[0], &report.modes[1]);
    let without = base.effect.took_effect == Some(true);
    assert!(without && base.thp_peak_bytes == Some(Bytes::ZERO), "{base:?}");
    if glibc.effective_runs == glibc.runs {
        // How many huge pages are free changes from run to run.
        assert!(glibc.page_faults.unwrap() * 5 < base.page_faults.unwrap(), "{report:?}");
    }
    assert_eq!(base.dtlb_miss_ratio.is_none(), report.counters_unavailable.is_some(), "{report:?}");
}

#[test]
fn failing_runs_are_a_warning_and_a_missing_program_an_error() {
    requires!(need::live());
    let done = compare("--rounds 2 --modes glibc-thp --no-stalls", &["sh", "-c", "exit 3"]);
    let report = report(&done);
    assert_eq!((done.status.code(), report.modes[0].failed_runs), (Some(1), 2));
    let warning = RunWarning::RunsFailed { failed_runs: 2, runs: 2 };
    let warning = CompareWarning { mode: Some(Mode::Base), warning };
    assert!(report.warnings.contains(&warning), "{report:?}");
    assert_eq!(report.verdict.conclusion, Conclusion::CommandFails);
    compare("", &["/no/such/program"]).exits(2).says(&["/no/such/program"]);
}

#[test]
fn only_base_available_is_exit_status_3() {
    requires!(need::live());
    let done = compare(
        "--rounds 1 --modes mimalloc --no-stalls --library /no/such/libmimalloc.so",
        &["true"],
    );
    let report = report(&done);
    assert_eq!((done.status.code(), report.modes.len()), (Some(3), 2), "{done:?}");
    done.says(&["mimalloc is unavailable"]);
}

#[test]
fn a_recorded_comparison_has_each_run_and_the_report() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compare.rec");
    let file = path.display().to_string();
    let command = [HUGEPILOT, "lab", "workload", "hash-insert", "--entries", "100000"];
    let flags = format!("--rounds 2 --modes glibc-thp --no-stalls --record {file}");
    let done = compare(&flags, &command);
    let (printed, report) = (done.json::<serde_json::Value>(), report(&done));
    let bytes = std::fs::read(&path).unwrap();
    let reader = RecordingReader::new(&bytes[..], RecordingLimits::default()).unwrap();
    let lines: Vec<Line> = reader.map(|line| line.unwrap()).collect();
    let runs = lines.iter().filter_map(|line| match line {
        Line::Trial(trial) => Some((trial.name.as_str(), trial.number)),
        _ => None,
    });
    let expected = [("base", 1), ("glibc-thp", 1), ("glibc-thp", 2), ("base", 2)];
    assert_eq!(runs.collect::<Vec<_>>(), expected);
    assert!(matches!(&lines[..], [.., Line::Report(last), Line::End(_)] if *last == printed));
    assert_eq!(report.modes[0].runs, 2);
    let text = hugepilot(["report", &file]);
    text.exits(0).shows(&["Page modes of ", ": compare.rec", "Time by mode", "Time of each run"]);
}
