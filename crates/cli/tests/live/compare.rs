//! `compare`: every mode has a row or a reason, and the figures are those of the runs.

use hugepilot_record::compare::CompareReport;
use hugepilot_record::run::Mode;
use hugepilot_testkit::{need, requires};
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
    assert!(
        !report.verdict.is_empty() && report.modes.iter().all(|mode| !mode.reason.is_empty()),
        "{report:?}"
    );
    report
}

#[test]
fn each_mode_has_its_figures_or_the_reason_why_not() {
    requires!(need::live());
    requires!(need::memory(Bytes::gib(1)));
    let command = [HUGEPILOT, "lab", "workload", "hash-insert", "--entries", "1000000"];
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
        absent.runs == 0 && absent.wall_seconds.is_none() && absent.reason.contains("/no/such"),
        "{absent:?}"
    );
    let (base, glibc) = (&report.modes[0], &report.modes[1]);
    assert!(base.took_effect == Some(true) && base.thp_peak_bytes == Some(Bytes::ZERO), "{base:?}");
    if glibc.took_effect == Some(true) {
        assert!(glibc.page_faults.unwrap() * 5 < base.page_faults.unwrap(), "{report:?}");
    }
    assert_eq!(base.dtlb_miss_ratio.is_none(), report.counters_unavailable.is_some(), "{report:?}");
}

#[test]
fn a_command_that_fails_is_told_and_one_that_is_not_there_is_an_error() {
    requires!(need::live());
    let done = compare("--rounds 2 --modes glibc-thp --no-stalls", &["sh", "-c", "exit 3"]);
    let report = report(&done);
    assert_eq!((done.status.code(), report.modes[0].failed_runs), (Some(1), 2));
    assert!(
        report.warnings.iter().any(|warning| warning.contains("2 of 2 base runs")),
        "{report:?}"
    );
    assert!(report.verdict.contains("fails"), "{report:?}");
    compare("", &["/no/such/program"]).exits(2).says(&["/no/such/program"]);
}

#[test]
fn where_only_base_is_to_be_had_that_is_said() {
    requires!(need::live());
    let done = compare(
        "--rounds 1 --modes mimalloc --no-stalls --library /no/such/libmimalloc.so",
        &["true"],
    );
    let report = report(&done);
    assert_eq!((done.status.code(), report.modes.len()), (Some(3), 2), "{done:?}");
    done.says(&["mimalloc is unavailable"]);
}
