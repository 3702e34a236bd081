//! `tune -- CMD`: a program from its start to its end, alone or compared.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use hugepilot_record::tune::Performance;
use hugepilot_testkit::{need, requires};

use crate::look::tunable;
use crate::tool::{Done, HUGEPILOT, hugepilot};

/// `hugepilot tune FLAGS -- hugepilot lab workload WORDS`.
fn tune_command(flags: &str, words: &str) -> Done {
    let flags = format!(
        "tune --json --calibration off --rate 1000 --observe 1s --max-collapse 2s {flags} -- \
         {HUGEPILOT} lab workload {words}"
    );
    hugepilot(flags.split_whitespace())
}

const WORK: &str = "hot-set --footprint 512MiB --hot 128MiB";

#[test]
fn a_program_is_tuned_from_its_start_and_its_output_goes_to_stderr() {
    requires!(tunable());
    let done = tune_command("--budget 50%", &format!("{WORK} --seconds 4"));
    let report = done.exits(0).report();
    assert!(report.verified_regions > 30, "{done:?}");
    let own = |line: &&str| line.starts_with("ready ") || line.contains("hugepilot.workload/1");
    assert_eq!(done.err().lines().filter(own).count(), 2, "{done:?}");
    assert!(report.tuned.and_then(|figure| figure.seconds).is_some(), "{done:?}");
}

#[test]
fn a_comparison_measures_all_three_variants() {
    requires!(tunable());
    let done =
        tune_command("--budget 50% --baseline --all-huge", &format!("{WORK} --ops 100000000"));
    let report = done.exits(0).report();
    let seconds = |performance: Option<Performance>| {
        performance.and_then(|performance| performance.seconds).unwrap().median
    };
    let times = [report.baseline, report.tuned, report.all_huge].map(seconds);
    assert!(times.iter().all(|time| (0.5..60.0).contains(time)), "{times:?}");
    assert!((report.speedup.unwrap() - times[0] / times[1]).abs() < 1e-6, "{done:?}");
    assert!((report.all_huge_speedup.unwrap() - times[0] / times[2]).abs() < 1e-6, "{done:?}");
    assert!(report.verified_regions > 30, "{done:?}");
    eprintln!("seconds untuned, tuned, all huge: {times:?}");
}

#[test]
fn a_command_that_does_not_exist_is_an_error_with_its_name() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    for flags in [&[][..], &["--baseline"]] {
        let line =
            [&["tune", "--calibration", "off"], flags, &["--", "/no/such/program", "x"]].concat();
        let done = hugepilot(line);
        done.exits(2).says(&["/no/such/program", "No such file"]);
        assert!(done.stdout.is_empty(), "{done:?}");
    }
    // A folder is there, and cannot be run.
    hugepilot(["tune", "--calibration", "off", "--", "/proc"])
        .exits(2)
        .says(&["/proc", "ermission denied"]);
}

#[test]
fn only_what_the_system_cannot_run_is_called_so() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage");
    std::fs::write(&garbage, b"\x7fELF, but no program").unwrap();
    std::fs::set_permissions(&garbage, Permissions::from_mode(0o755)).unwrap();
    for flags in [&[][..], &["--baseline"]] {
        let tune = |command: &[&str]| {
            hugepilot([&["tune", "--calibration", "off"], flags, &["--"], command].concat())
        };
        let refused = tune(&[garbage.to_str().unwrap()]);
        refused.exits(2).says(&["cannot start", "garbage", "Exec format error"]);
        assert_eq!(refused.err().matches("cannot start").count(), 1, "{refused:?}");
        let ended = tune(&["sh", "-c", "exit 127"]);
        assert!(!ended.exits(3).err().contains("cannot start"), "{ended:?}");
    }
}

#[test]
fn a_launched_program_inherits_nothing_of_ours() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let script = ["sh", "-c", "ls /proc/$$/fd; grep SigIgn /proc/$$/status"];
    let alone = Command::new(script[0]).args(&script[1..]).stdin(Stdio::null()).output().unwrap();
    let alone = String::from_utf8(alone.stdout).unwrap();
    let done = hugepilot([&["tune", "--calibration", "off", "--"], &script[..]].concat());
    assert!(done.exits(3).err().contains(&alone), "{alone:?}, and with us {done:?}");
}

#[test]
fn the_children_of_a_program_share_its_budget() {
    requires!(tunable());
    // Killed, a child has its memory until its end. By itself, it would free the memory first, and
    // a reading after that shows no huge page.
    let child = format!("timeout 3 {HUGEPILOT} lab workload {WORK} --seconds 0 >&2");
    let flags = "tune --json --calibration off --rate 1000 --observe 500ms --for 60s \
                 --max-collapse 2s --budget 10%";
    let words = flags.split(' ').chain(["--", "sh", "-c"]).map(str::to_owned);
    let done = hugepilot(words.chain([format!("{child}; {child}; true")]));
    let report = done.exits(0).report();
    let second: Vec<String> = done
        .err()
        .lines()
        .filter_map(|line| line.strip_prefix("ready ").map(str::to_owned))
        .collect();
    assert_eq!(report.target.pid.to_string(), second[1], "{done:?}");
    // A tenth of a child's 256 regions, in each of them: the first one has ended.
    let made = report.huge_bytes_after.unwrap() - report.huge_bytes_before.unwrap();
    assert!((20..=26).contains(&(made.get() >> 21)), "{made} {done:?}");
    assert!((40..=52).contains(&report.verified_regions), "{done:?}");
    assert!(
        report.eligible_regions < Some(80),
        "of 64 hot regions, not of both children's: {done:?}"
    );
}
