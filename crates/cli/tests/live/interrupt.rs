//! Ctrl-C and SIGTERM at bad moments: a complete report, and no harm to the target.

use std::thread;
use std::time::{Duration, Instant};

use hugepilot_record::Stop;
use hugepilot_testkit::{need, requires};
use rustix::process::Signal;

use crate::injected::{strace, under_strace};
use crate::look::{huge_now, stat, ticks, tunable};
use crate::tool::{HUGEPILOT, LIMIT, Running, tune_args};
use crate::workload::{HOT_SET, Workload, sizes};

/// A first observation of half a second, or longer until it has samples for a trial.
const TRIAL: &str = "--rate 2000 --observe 1s --for 30s";

/// Checks that the process lives, is not stopped, and works.
#[track_caller]
fn is_unharmed(workload: &Workload) {
    let state = stat(workload.pid()).expect("it lives")[0].clone();
    assert!(state == "R" || state == "S", "{state}");
    let (before, begun) = (ticks(workload.pid()), Instant::now());
    while ticks(workload.pid()) == before {
        assert!(begun.elapsed() < Duration::from_secs(1), "it does nothing");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_during_a_trial_takes_its_promotions_back_and_leaves_a_complete_report() {
    requires!(strace());
    for (signal, keep) in [(Signal::INT, ""), (Signal::TERM, "--keep")] {
        let workload = Workload::start(HOT_SET);
        let mut slow = under_strace(
            &tune_args(workload.pid(), &format!("{TRIAL} --max-collapse 60s --budget 50% {keep}")),
            "delay_enter=100000",
        );
        slow.tool.until("the first promotion", || huge_now(workload.pid()).get() > 0);
        slow.tool.signal(signal);
        let done = slow.tool.wait(Duration::from_secs(10));
        let report = done.exits(i32::from(keep.is_empty())).report();
        assert_eq!(report.stopped, Some(Stop::Interrupted), "{done:?}");
        assert!((1..30).contains(&report.acts.verified_regions), "{done:?}");
        let taken_back = if keep.is_empty() { report.acts.verified_regions } else { 0 };
        assert_eq!(report.acts.demoted_regions, taken_back, "{done:?}");
        let kept = report.acts.verified_regions - report.acts.demoted_regions;
        assert_eq!(huge_now(workload.pid()), sizes().huge.times(kept), "{done:?}");
        assert_eq!(Some(huge_now(workload.pid())), report.acts.huge_bytes_after, "{done:?}");
        is_unharmed(&workload);
    }
}

#[test]
fn a_tune_that_gets_no_processor_until_its_time_is_up_decides_all_the_same() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let workload = Workload::start("hot-set --footprint 64MiB --hot 32MiB");
    let mut command = std::process::Command::new(HUGEPILOT);
    let flags = "--policy linux --dry-run --observe 200ms --for 200ms";
    command.args(tune_args(workload.pid(), flags));
    let mut tool = Running::start(command);
    tool.until_it_says("sampling ");
    tool.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(800));
    tool.signal(Signal::CONT);
    let report = tool.wait(LIMIT).exits(0).report();
    assert!(!report.plan.selected.is_empty(), "{report:?}");
}

#[test]
fn a_trial_that_is_killed_leaves_no_huge_page_unless_they_are_kept() {
    requires!(tunable());
    let mut limit = Duration::from_secs(10);
    for keep in ["", "--keep"] {
        let workload = Workload::start(HOT_SET);
        let mut command = std::process::Command::new(HUGEPILOT);
        command.args(tune_args(workload.pid(), &format!("{TRIAL} {keep}")));
        let mut tool = Running::start(command);
        tool.until_it_says("trial: ");
        assert!(huge_now(workload.pid()) > sizes().huge.times(16));
        tool.signal(Signal::KILL);
        tool.wait(LIMIT);
        let begun = Instant::now();
        let is_returned = || huge_now(workload.pid()).get() == 0;
        while !is_returned() && begun.elapsed() < limit {
            thread::sleep(Duration::from_millis(20));
        }
        let took = begun.elapsed();
        assert_eq!(is_returned(), keep.is_empty(), "{took:?}");
        // Ten times as long as the first run took to return them.
        limit = 10 * took + Duration::from_millis(500);
        is_unharmed(&workload);
    }
}

/// The child of a process that guards its trials.
fn guard_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let is_guard = |pid: &&str| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("guard-trials")
    };
    children.split_whitespace().find(is_guard).expect("a guard").parse().unwrap()
}

#[test]
fn a_trial_that_is_killed_with_its_guard_is_taken_back_at_the_next_start() {
    requires!(tunable());
    let command = |state: &std::path::Path, words: &[&str]| {
        let mut command = std::process::Command::new(HUGEPILOT);
        command.args(words).env("STATE_DIRECTORY", state);
        command
    };
    for next in [&["daemon", "--once"][..], &["doctor"]] {
        let state = tempfile::tempdir().unwrap();
        let workload = Workload::start(HOT_SET);
        let words = tune_args(workload.pid(), "--observe 2s --for 30s");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let journal = state.path().join("trials-0.ndjson");
        let is_written = || std::fs::metadata(&journal).is_ok_and(|file| file.len() > 0);
        let pages = sizes().huge.times(16);
        let is_open = || is_written() && huge_now(workload.pid()) > pages;
        // On a busy machine, a window may have too few samples for a trial.
        let begun = Instant::now();
        let tool = loop {
            let mut tool = Running::start(command(state.path(), &words));
            let has_ended = |pid| stat(pid).is_none_or(|stat| stat[0] == "Z");
            let pid = tool.pid();
            tool.until("a trial or its end", || is_open() || has_ended(pid));
            if is_open() {
                break tool;
            }
            assert!(begun.elapsed() < 10 * LIMIT, "no trial: {:?}", tool.wait(LIMIT));
        };
        // As at the end of a container, neither outlives the other. A stopped process
        // reaps no child, so that no other process has the pid of the guard.
        tool.signal(Signal::STOP);
        let guard = rustix::process::Pid::from_raw(guard_of(tool.pid()).cast_signed()).unwrap();
        rustix::process::kill_process(guard, Signal::KILL).unwrap();
        tool.signal(Signal::KILL);
        tool.wait(LIMIT);
        let huge = huge_now(workload.pid());
        assert!(huge > pages, "{huge}: what is to be returned");

        // Of another boot, no process is the same.
        let text = std::fs::read_to_string(&journal).unwrap();
        let (head, lines) = text.split_once('\n').unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(head.contains(boot.trim()), "{head}");
        let other = tempfile::tempdir().unwrap();
        let head = head.replace(boot.trim(), "another-boot");
        std::fs::write(other.path().join("trials-0.ndjson"), format!("{head}\n{lines}")).unwrap();
        Running::start(command(other.path(), next)).wait(LIMIT).sane();
        assert_eq!(huge_now(workload.pid()), huge);

        let done = Running::start(command(state.path(), next)).wait(LIMIT);
        done.sane().says(&["hugepilot: killed in a trial; ", "on base pages again"]);
        assert_eq!(huge_now(workload.pid()).get(), 0, "{done:?}");
        assert_eq!(std::fs::read(&journal).unwrap().len(), 0);
        let done = Running::start(command(state.path(), next)).wait(LIMIT);
        assert!(!done.err().contains("killed in a trial"), "{done:?}");
        is_unharmed(&workload);
    }
}

#[test]
fn a_signal_while_looking_ends_it_soon_and_harms_nobody() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let workload = Workload::start(HOT_SET);
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut command = std::process::Command::new(HUGEPILOT);
        command.args(tune_args(workload.pid(), "--observe 60s --for 60s"));
        let mut tool = Running::start(command);
        tool.until_it_says("sampling ");
        // Of fewer samples there is no plan, and nothing to be stopped.
        thread::sleep(Duration::from_millis(700));
        tool.signal(signal);
        let done = tool.wait(LIMIT);
        assert!(done.took < Duration::from_secs(3), "{:?}: {done:?}", done.took);
        if signal != Signal::KILL {
            let report = done.exits(1).report();
            assert_eq!(
                (report.stopped, report.acts.attempted_regions),
                (Some(Stop::Interrupted), 0),
                "{done:?}"
            );
        }
        is_unharmed(&workload);
    }
    assert_eq!(huge_now(workload.pid()).get(), 0);
}
