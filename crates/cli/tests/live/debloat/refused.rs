//! Kernels and rights that forbid it: injected faults, and users who may not.

use std::collections::BTreeMap;

use hugepilot_record::debloat::DebloatWarning;
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

use super::{Bloat, args, debloat, injectable, possible, report};
use crate::injected::{Injected, calls, under_strace};
use crate::tool::{Done, LIMIT};
use crate::unprivileged::Nobody;

/// De-bloats `victim` with `inject` done to each split, the probe's being the first; how many there were.
#[track_caller]
fn faulty(victim: &Bloat, inject: &str, more: &str) -> (Done, usize) {
    let Injected { tool, log } = under_strace(&args(&[victim.pid()], more), inject);
    let done = tool.wait(LIMIT);
    (done, calls(&log))
}

#[test]
fn a_kernel_that_frees_nothing_is_found_out_and_nothing_is_split() {
    requires!(injectable());
    let victim = Bloat::start(&["16x16"]);
    for inject in ["retval=4096", "error=EPERM", "error=EINVAL", "error=ENOSYS"] {
        let (done, calls) = faulty(&victim, inject, "");
        done.exits(3).says(&["hugepilot: cannot free memory by splitting huge pages: "]);
        assert!(done.out().contains("hugepilot.error"), "{done:?}");
        // The probe's, and one that asks for the impossible, to tell a filter from the kernel.
        assert!(calls <= 2, "{calls}: {done:?}");
        assert_eq!(victim.split_regions(), 0);
    }
    // What only looks needs none of it.
    let (done, calls) = faulty(&victim, "error=ENOSYS", "--dry-run");
    assert_eq!(report(done.exits(0)).huge_pages_split, 16);
    assert_eq!(calls, 0);
    victim.ends_intact();
}

#[test]
fn failures_are_counted_by_name_and_not_repeated_for_ever() {
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
fn one_lie_among_truths_is_counted_as_one() {
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
fn ones_own_process_can_be_looked_at_but_acting_takes_a_right() {
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
fn memory_that_may_not_be_read_is_named_with_the_right_that_is_missing() {
    requires!(possible());
    requires!(need::program("setpriv"));
    let (nobody, victim) = (Nobody::new(), Bloat::start(&["16x4"]));
    let none = nobody.runs(args(&[victim.pid()], "--dry-run"));
    none.exits(3).says(&["ermission denied", "help:", "doctor"]);

    // Enough to see and to split, and not to read.
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
fn what_there_is_no_such_thing_of_is_refused_with_words() {
    requires!(need::live());
    let ours = [std::process::id()];
    debloat(&ours, "--order density").exits(2).says(&["hawkeye", "emd", "exact", "heat"]);
    debloat(&ours, "--amount 101%").exits(2).says(&["101%"]);
    debloat(&ours, "--weight x=0").exits(2).says(&["x=0"]);
    debloat(&ours, "--sample 5").exits(2).says(&["--sample"]);
}
