//! Kernels and permissions that forbid splits: injected faults, and users without capabilities.

use std::collections::BTreeMap;

use hugepilot_reports::debloat::DebloatWarning;
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

use super::{Bloat, args, debloat, injectable, possible, report};
use crate::injected::{Injected, calls, under_strace};
use crate::tool::{Done, LIMIT};
use crate::unprivileged::Nobody;

/// Debloats `victim` with `inject` applied to each split; the first is the probe's. Also returns
/// the number of splits.
#[track_caller]
fn faulty(victim: &Bloat, inject: &str, more: &str) -> (Done, usize) {
    let Injected { tool, log } = under_strace(&args(&[victim.pid()], more), inject);
    let done = tool.wait(LIMIT);
    (done, calls(&log))
}

#[test]
fn a_kernel_whose_splits_free_nothing_is_detected_first() {
    requires!(injectable());
    let victim = Bloat::start(&["16x16"]);
    for inject in ["retval=4096", "error=EPERM", "error=EINVAL", "error=ENOSYS"] {
        let (done, calls) = faulty(&victim, inject, "");
        done.exits(3).says(&["hugepilot: cannot free memory by splitting huge pages: "]);
        assert!(done.out().contains("hugepilot.error"), "{done:?}");
        // The probe's, and an impossible request, which distinguishes a filter from the kernel.
        assert!(calls <= 2, "{calls}: {done:?}");
        assert_eq!(victim.split_regions(), 0);
    }
    // A dry run splits nothing.
    let (done, calls) = faulty(&victim, "error=ENOSYS", "--dry-run");
    assert_eq!(report(done.exits(0)).huge_pages_split, 16);
    assert_eq!(calls, 0);
    victim.ends_intact();
}

#[test]
fn failures_are_counted_by_name_and_end() {
    requires!(injectable());
    let victim = Bloat::start(&["16x80"]);
    let huge = victim.total("AnonHugePages");
    // What is injected, how it is counted, how often it is tried, exit status.
    let cases = [
        ("error=EAGAIN", "EAGAIN", 64, 1),
        ("error=ENOMEM", "ENOMEM", 64, 1),
        ("error=EINVAL", "EINVAL", 64, 1),
        ("error=ESRCH", "ESRCH", 1, 1),
        ("error=EPERM", "EPERM", 1, 3),
        ("retval=4096", "still_huge", 64, 1), // "done", and nothing was
    ];
    for (inject, name, tried, exit) in cases {
        let (done, calls) = faulty(&victim, &format!("{inject}:when=2+"), "");
        let report = report(done.exits(exit));
        assert_eq!(report.failed, BTreeMap::from([(name.to_owned(), tried)]), "{inject}: {done:?}");
        assert_eq!(
            (report.freed_bytes, report.huge_pages_split),
            (Bytes::ZERO, 0),
            "{inject}: {done:?}"
        );
        assert_eq!(report.huge_pages_after, 80, "{inject}: {done:?}");
        assert_eq!(calls as u64, tried + 1, "{inject}");
        let is_excluded = |warning: &_| matches!(warning, DebloatWarning::ProcessExcluded { .. });
        assert!(report.warnings.iter().any(is_excluded), "{done:?}");
        assert_eq!(victim.total("AnonHugePages"), huge, "{inject}: something was split after all");
    }
    victim.ends_intact();
}

#[test]
fn one_false_success_is_counted_as_one() {
    requires!(injectable());
    let victim = Bloat::start(&["16x16"]).quiet();
    let rss = victim.total("Rss");
    let (done, _) = faulty(&victim, "retval=4096:when=4", "");
    let report = report(done.exits(0));
    assert_eq!(report.failed, BTreeMap::from([("still_huge".to_owned(), 1)]), "{done:?}");
    assert_eq!((report.huge_pages_split, victim.split_regions()), (15, 15), "{done:?}");
    assert_eq!(rss - victim.total("Rss"), report.freed_bytes);
    victim.ends_intact();
}

#[test]
fn a_dry_run_of_an_own_process_needs_no_capability_but_a_split_does() {
    requires!(possible());
    requires!(need::program("setpriv"));
    let nobody = Nobody::new();
    let victim = Bloat::is(nobody.victim("bloat.c", &["16x16"]));
    let done = nobody.runs(args(&[victim.pid()], "--dry-run"));
    let plan = report(done.exits(0));
    assert_eq!(
        (plan.huge_pages_split, plan.freed_bytes),
        (16, Bytes::kib(16 * 496 * 4)),
        "{done:?}"
    );

    let refused = nobody.runs(args(&[victim.pid()], ""));
    refused.exits(3).says(&["cap_sys_nice", "help:", "cannot free memory"]);
    assert!(refused.out().contains("hugepilot.error"), "{refused:?}");
    assert_eq!(victim.split_regions(), 0);
    victim.ends_intact();
}

#[test]
fn unreadable_memory_is_reported_with_the_missing_capability() {
    requires!(possible());
    requires!(need::program("setpriv"));
    let (nobody, victim) = (Nobody::new(), Bloat::start(&["16x4"]));
    let none = nobody.runs(args(&[victim.pid()], "--dry-run"));
    none.exits(3).says(&["ermission denied", "help:", "doctor"]);

    // Sufficient to inspect and to split, but not to read.
    let rights = "+sys_nice,+perfmon,+dac_read_search";
    for more in ["", "--dry-run"] {
        let done = nobody.runs_with(rights, args(&[victim.pid()], more));
        done.exits(3).says(&[
            "process_vm_readv",
            "EPERM",
            "help:",
            "cap_sys_ptrace",
            "sudo hugepilot debloat --cgroup",
            "--backend shrinker",
        ]);
        assert!(!done.err().contains("before Linux 6.15"), "no kernel reads without it: {done:?}");
        assert!(done.out().contains("hugepilot.error"), "{done:?}");
    }
    assert_eq!(victim.split_regions(), 0);
    let done = nobody.runs_with(&format!("{rights},+sys_ptrace"), args(&[victim.pid()], ""));
    assert_eq!(report(done.exits(0)).huge_pages_split, 4, "{done:?}");
    victim.ends_intact();
}

#[test]
fn invalid_values_are_errors_with_the_valid_ones() {
    requires!(need::live());
    let ours = [std::process::id()];
    debloat(&ours, "--order density").exits(2).says(&["hawkeye", "emd", "exact", "heat"]);
    debloat(&ours, "--amount 101%").exits(2).says(&["101%"]);
    debloat(&ours, "--weight x=0").exits(2).says(&["x=0"]);
    debloat(&ours, "--sample 5").exits(2).says(&["--sample"]);
}
