//! Failing system calls, and one false success: faults injected into the command by strace.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use hugepilot_reports::tune::TuneWarning;
use hugepilot_testkit::{Need, need, requires};
use tempfile::NamedTempFile;

use crate::look::{huge_now, tunable};
use crate::tool::{ANYWHERE, HUGEPILOT, LIMIT, Running, tune_args};
use crate::workload::{HOT_SET, Workload};

/// `hugepilot` under strace, with a fault injected into its calls on other processes' memory.
pub(crate) struct Injected {
    pub(crate) tool: Running,
    /// Log of these calls by strace, which creates it again if it is dropped before that.
    pub(crate) log: NamedTempFile,
}

/// Starts `tune` on `pid` for `time`, with `inject` applied to each promotion.
pub(crate) fn injected(pid: u32, time: &str, inject: &str) -> Injected {
    // Under strace every call is slow, which must not end a round.
    let line = format!("{ANYWHERE} --for {time} --max-collapse 60s --budget 25%");
    under_strace(&tune_args(pid, &line), inject)
}

/// Starts the command with `args`, and `inject` applied to each `process_madvise`. With `-D`, the
/// started process is the command itself, not strace.
pub(crate) fn under_strace(args: &[String], inject: &str) -> Injected {
    let log = NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "-e", "trace=process_madvise", "-e"]);
    command.arg(format!("inject=process_madvise:{inject}")).arg("-o").arg(log.path());
    command.arg(HUGEPILOT).args(args);
    Injected { tool: Running::start(command), log }
}

/// Returns the requirements of these tests.
pub(crate) fn strace() -> Need {
    need::all([tunable(), need::program("strace")])
}

/// Returns the number of calls in the log.
pub(crate) fn calls(log: &NamedTempFile) -> usize {
    let text = fs::read_to_string(log.path()).expect("strace's log");
    text.lines().filter(|line| line.contains("process_madvise(")).count()
}

#[test]
fn failures_are_distinguished_counted_and_not_repeated_for_ever() {
    requires!(strace());
    let workload = Workload::start(HOT_SET);
    // The fault; its name in the report; attempted regions; calls; exit status.
    let cases = [
        ("error=EAGAIN", "EAGAIN", 8, 16, 1), // tried twice
        ("error=ENOMEM", "ENOMEM", 3, 3, 1),
        ("error=EBUSY", "EBUSY", 1, 1, 1),
        ("error=EINVAL", "EINVAL", 8, 8, 1),
        ("error=ESRCH", "ESRCH", 1, 1, 1),
        ("error=EPERM", "EPERM", 1, 1, 3),
        ("retval=2097152", "not_verified", 8, 8, 1), // a false success
    ];
    for (inject, name, regions, expected_calls, exit) in cases {
        // The first two calls test the permission, on no memory: before calibration and sampling.
        let inject_all = format!("{inject}:when=3+");
        let Injected { tool, log } = injected(workload.pid(), "2s", &inject_all);
        let done = tool.wait(LIMIT);
        let report = done.exits(exit).report();
        assert_eq!(
            report.acts.failed,
            BTreeMap::from([(name.to_owned(), regions)]),
            "{inject}: {done:?}"
        );
        assert_eq!(
            (report.acts.verified_regions, report.acts.attempted_regions),
            (0, regions),
            "{inject}"
        );
        assert!(report.stopped.is_some(), "{inject}");
        assert!(
            report.plan.selected.iter().all(|candidate| candidate.verified == Some(false)),
            "{inject}"
        );
        assert_eq!(report.acts.huge_bytes_after, report.acts.huge_bytes_before, "{inject}");
        assert_eq!(calls(&log), 2 + expected_calls, "{inject}");
        assert_eq!(huge_now(workload.pid()).get(), 0, "{inject}: a region was promoted");
    }
}

#[test]
fn one_false_success_is_counted_as_one() {
    requires!(strace());
    let workload = Workload::start(HOT_SET);
    let Injected { tool, log: _log } = injected(workload.pid(), "3s", "retval=2097152:when=4");
    let done = tool.wait(LIMIT);
    let report = done.exits(0).report();
    assert_eq!(report.acts.failed, BTreeMap::from([("not_verified".to_owned(), 1)]), "{done:?}");
    // A later round tries the region again, and verifies it. It counts once, without a warning.
    assert_eq!(report.acts.attempted_regions, report.acts.verified_regions);
    let is_unverified = |warning: &TuneWarning| matches!(warning, TuneWarning::NotVerified { .. });
    assert!(!report.warnings.iter().any(is_unverified), "{:?}", report.warnings);
    let huge = huge_now(workload.pid()).get();
    assert_eq!(huge, report.acts.verified_regions * crate::workload::sizes().huge.get());
    assert_eq!(huge, report.acts.huge_bytes_after.unwrap().get());
}
