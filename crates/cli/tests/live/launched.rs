//! `tune -- CMD`: a program from its start to its end, alone or compared.

use hugepilot_record::tune::Figure;
use hugepilot_testkit::{need, requires};

use crate::look::base_pages_by_default;
use crate::tool::{Done, HUGEPILOT, hugepilot};

/// `hugepilot tune FLAGS -- hugepilot lab workload WORDS`.
fn tune_command(flags: &str, words: &str) -> Done {
    let flags = format!(
        "tune --json --calibration off --observe 1s --max-collapse 2s {flags} -- {HUGEPILOT} lab workload {words}"
    );
    hugepilot(flags.split_whitespace())
}

const WORK: &str = "hot-set --footprint 512MiB --hot 128MiB";

#[test]
fn a_program_is_tuned_from_its_start_and_its_output_goes_to_stderr() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(base_pages_by_default());
    let done = tune_command("--budget 50%", &format!("{WORK} --seconds 4"));
    let report = done.exits(0).report();
    assert!(report.verified_regions > 30, "{done:?}");
    let own = |line: &&str| line.starts_with("ready ") || line.contains("hugepilot.workload/1");
    assert_eq!(done.err().lines().filter(own).count(), 2, "{done:?}");
    assert!(report.tuned.and_then(|figure| figure.seconds).is_some(), "{done:?}");
}

#[test]
fn a_comparison_gives_all_three_figures() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(base_pages_by_default());
    let done = tune_command("--budget 50% --baseline --all-huge", &format!("{WORK} --ops 150000000"));
    let report = done.exits(0).report();
    let seconds = |figure: Option<Figure>| figure.and_then(|figure| figure.seconds).unwrap().median;
    let times = [report.baseline, report.tuned, report.all_huge].map(seconds);
    assert!(times.iter().all(|time| (0.5..60.0).contains(time)), "{times:?}");
    assert!((report.speedup.unwrap() - times[0] / times[1]).abs() < 1e-6, "{done:?}");
    assert!((report.all_huge_speedup.unwrap() - times[0] / times[2]).abs() < 1e-6, "{done:?}");
    assert!(report.verified_regions > 30, "{done:?}");
    eprintln!("seconds untouched, tuned, all huge: {times:?}");
}

#[test]
fn a_command_that_does_not_exist_is_an_error_with_its_name() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    for flags in [&[][..], &["--baseline"]] {
        let line = [&["tune", "--calibration", "off"], flags, &["--", "/no/such/program", "x"]].concat();
        let done = hugepilot(line);
        done.exits(2).says(&["/no/such/program", "No such file"]);
        assert!(done.stdout.is_empty(), "{done:?}");
    }
    // A folder is there, and cannot be run.
    hugepilot(["tune", "--calibration", "off", "--", "/proc"]).exits(2).says(&["/proc", "ermission denied"]);
}
