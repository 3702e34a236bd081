//! `tune -- CMD`: a program from its start to its end, alone or compared.

mod refused; // what the system cannot run
mod unwatched; // whose watcher is killed

use std::process::{Command, Stdio};

use hugepilot_reports::tune::{NoMetric, NoVerdict, Performance, TuneReport};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::look::{huge_now, tunable};
use crate::tool::{ANYWHERE, Done, HUGEPILOT, LIMIT, Running, hugepilot};
use crate::workload::sizes;

/// `hugepilot tune FLAGS -- hugepilot lab workload WORDS`.
fn tune_command(flags: &str, words: &str) -> Done {
    let flags = format!(
        "tune --json --calibration off {ANYWHERE} --rate 1000 --max-collapse 2s \
         {flags} -- {HUGEPILOT} lab workload {words}"
    );
    hugepilot(flags.split_whitespace())
}

const WORK: &str = "hot-set --footprint 512MiB --hot 128MiB";

#[test]
fn a_program_is_tuned_from_its_start_and_its_output_goes_to_stderr() {
    requires!(tunable());
    let done = tune_command("--budget 50%", &format!("{WORK} --seconds 4"));
    let report = done.exits(0).report();
    assert!(report.acts.verified_regions > 30, "{done:?}");
    let own = |line: &&str| line.starts_with("ready ") || line.contains("hugepilot.workload/1");
    assert_eq!(done.err().lines().filter(own).count(), 2, "{done:?}");
    assert!(report.measured.tuned.and_then(|figure| figure.seconds).is_some(), "{done:?}");
}

#[test]
fn a_comparison_measures_all_three_variants() {
    requires!(tunable());
    let done = tune_command("--budget 50% --baseline --all-huge", &format!("{WORK} --seconds 4"));
    let report = done.exits(0).report();
    let seconds = |performance: Option<Performance>| {
        performance.and_then(|performance| performance.seconds).unwrap().median
    };
    let measured = &report.measured;
    let times = [measured.baseline, measured.tuned, measured.all_huge].map(seconds);
    assert!(times.iter().all(|time| (0.5..60.0).contains(time)), "{times:?}");
    assert!((measured.speedup.unwrap() - times[0] / times[1]).abs() < 1e-6, "{done:?}");
    assert!((measured.all_huge_speedup.unwrap() - times[0] / times[2]).abs() < 1e-6, "{done:?}");
    assert!(report.acts.verified_regions > 30, "{done:?}");
    eprintln!("seconds untuned, tuned, all huge: {times:?}");
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
    let child = format!("{HUGEPILOT} lab workload {WORK} --seconds 0 >&2");
    let mut tool = start("--json --budget 10%", &format!("{child}; {child}; true"));
    for number in 0..2 {
        end_when_promoted(&mut tool, number, 22);
    }
    let done = tool.wait(LIMIT);
    let all = of_workloads(done.exits(0).reports());
    let pids: Vec<String> = all.iter().map(|report| report.target.pid.to_string()).collect();
    assert_eq!(pids, ready(&done), "{done:?}");
    for report in all {
        // A tenth of a child's 256 regions, in each of them: the first one had ended.
        let made = report.acts.huge_bytes_after.unwrap() - report.acts.huge_bytes_before.unwrap();
        assert!((20..=26).contains(&(made.get() >> 21)), "{made} {done:?}");
        assert_eq!(report.acts.verified_regions, made.get() >> 21, "{done:?}");
        assert!(report.plan.budget_bytes < Some(Bytes::mib(60)), "not of both: {done:?}");
    }
}

#[test]
fn children_that_end_before_a_decision_are_the_cause_of_a_missing_verdict() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let child = format!("timeout 1 {HUGEPILOT} lab workload {WORK} --seconds 0 >&2");
    let flags = "tune --json --dry-run --calibration off --rate 1000 --observe 2s -- sh -c";
    let words = flags.split(' ').map(str::to_owned);
    let done = hugepilot(words.chain([format!("{child}; {child}; {child}; true")]));
    let report = done.exits(3).says(&["no process ran until its first decision"]).report();
    let Some(NoVerdict::ShortLived { processes, longest_seconds, .. }) = report.no_verdict else {
        panic!("{done:?}")
    };
    assert!(processes >= 3 && (0.3..1.5).contains(&longest_seconds), "{done:?}");
}

#[test]
fn each_working_process_of_a_program_has_a_report() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(3)));
    let child = format!("{HUGEPILOT} lab workload {WORK} --seconds 0 >&2");
    let tune = |flags: &str| {
        let mut tool = start(flags, &format!("{child} & {child} & wait"));
        for number in 0..2 {
            end_when_promoted(&mut tool, number, 16);
        }
        tool.wait(LIMIT)
    };
    let done = tune("--json");
    let all = done.exits(0).reports();
    // The time of a run is that of the program, and stands in one report. The shell has a report if
    // the clock found it at work in its few milliseconds.
    let timed = |one: &TuneReport| one.measured.tuned.is_some_and(|one| one.seconds.is_some());
    let (first, others) = all.split_first().expect("reports");
    assert!(timed(first) && !others.iter().any(timed), "{done:?}");
    let other = Some(NoMetric::OfProgram { pid: first.target.pid });
    assert!(others.iter().all(|report| report.measured.no_metric == other), "{done:?}");
    let all = of_workloads(all);
    let mut pids: Vec<String> = all.iter().map(|report| report.target.pid.to_string()).collect();
    let mut started = ready(&done);
    pids.sort_unstable();
    started.sort_unstable();
    assert_eq!(pids, started, "{done:?}");
    assert!(all.iter().all(|report| report.acts.verified_regions > 10), "{done:?}");
    assert!(all.iter().all(|report| report.sampler.samples > 0), "{done:?}");

    let done = tune("");
    let out = done.exits(0).out();
    for pid in ready(&done) {
        assert!(out.contains(&format!("hugepilot (pid {pid}): ")), "{done:?}");
    }
    let total = |processes: u32| out.contains(&format!("total of {processes} processes: "));
    assert!(total(2) || total(3), "with the shell or without: {done:?}");
}

/// Starts `hugepilot tune FLAGS -- sh -c SCRIPT`.
fn start(flags: &str, script: &str) -> Running {
    let mut command = Command::new(HUGEPILOT);
    let line = "tune --calibration off --rate 1000 --max-collapse 2s";
    command.args(line.split(' ').chain(ANYWHERE.split(' ')).chain(flags.split_whitespace()));
    command.args(["--", "sh", "-c", script]);
    Running::start(command)
}

/// Kills a workload once it has this number of huge pages. Killed, it has its memory until its end.
/// By itself, it would free the memory first, and a reading after that shows no huge page.
#[track_caller]
fn end_when_promoted(tool: &mut Running, number: usize, regions: u64) {
    let pid: i32 = tool.until_line("ready ", number).parse().expect("a pid");
    let is_promoted = || huge_now(pid.unsigned_abs()) >= sizes().huge.times(regions);
    tool.until("promotions", is_promoted);
    let pid = Pid::from_raw(pid).expect("not 0");
    kill_process(pid, Signal::KILL).expect("it works until it is killed");
}

/// The reports without that of the shell, on which the policy acts, too.
fn of_workloads(mut all: Vec<TuneReport>) -> Vec<TuneReport> {
    all.retain(|report| report.target.command == "hugepilot");
    all
}

/// The pids of the workloads that a program started, in order.
fn ready(done: &Done) -> Vec<String> {
    let err = done.err();
    err.lines().filter_map(|line| line.strip_prefix("ready ").map(str::to_owned)).collect()
}
