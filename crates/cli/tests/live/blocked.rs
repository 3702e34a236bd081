//! Programs that stall on memory that `tune` does not promote: each command names the same cause.
//! `remedies` tries the help.

use hugepilot_record::status::StatusReport;
use hugepilot_record::top::TopReport;
use hugepilot_record::tune::{TuneReport, TuneVerdict};
use hugepilot_record::{Answer, Obstacle, Pid, SkipReason};
use hugepilot_testkit::{Need, Ready, Victim, need, requires};
use hugepilot_units::Bytes;

use crate::look::tunable;
use crate::tool::{hugepilot, tune};
use crate::workload::SOON;

fn possible() -> Need {
    need::all([need::live(), need::c_compiler(), need::root(), tunable()])
}

/// Starts the victim in a mode; `None` if the kernel lacks what the mode needs.
fn start(kind: &str) -> Option<(Victim, Ready, u32)> {
    let victim = Victim::c("blocked.c", &[kind]);
    let line = victim.line(SOON).expect("a first line");
    let words: Vec<&str> = line.split(' ').collect();
    let ["ready", start, len, pid] = words[..] else { return None };
    let ready = Ready::read(&[start, len].map(str::to_owned)).expect("an address");
    Some((victim, ready, pid.parse().expect("a process number")))
}

#[track_caller]
fn dry_run(pid: u32) -> TuneReport {
    tune(pid, "--dry-run --observe 400ms").sane().report()
}

#[track_caller]
fn status(pid: u32) -> StatusReport {
    hugepilot(["status", "--json", "--no-contents", "-p", &pid.to_string()]).exits(0).json()
}

#[track_caller]
fn names(kind: &str, reason: SkipReason) {
    let (mut victim, _, pid) = start(kind).expect("every kernel has it");
    let report = dry_run(pid);
    assert_eq!(report.answer(), Answer::Blocked, "{kind}: {report:?}");
    assert_eq!(report.block().map(|(reason, _)| reason), Some(reason), "{kind}: {report:?}");
    let status = status(pid);
    let most = status.skips.first().map(|share| share.code);
    assert_eq!(most, Some(reason), "{kind}: {:?}", status.skips);
    assert_eq!(status.totals.eligible_bytes, Bytes::ZERO, "{kind}: {:?}", status.totals);
    assert!(victim.finish(SOON).success(), "{kind}");
}

#[test]
fn tune_and_status_name_the_same_cause() {
    requires!(possible());
    for (kind, reason) in [
        ("locked", SkipReason::Mlocked),
        ("forked", SkipReason::SharedAfterFork),
        ("shared", SkipReason::SharedMemory),
        ("file", SkipReason::File),
        ("forbidden", SkipReason::Nohugepage),
        ("small", SkipReason::Unaligned),
        ("disabled", SkipReason::ThpDisabled),
    ] {
        names(kind, reason);
    }
}

#[test]
fn top_answers_as_tune_does() {
    requires!(possible());
    let started = ["locked", "forked", "shared"].map(|kind| start(kind).expect("a victim"));
    let pids = started.each_ref().map(|(_, _, pid)| format!("--pid={pid}"));
    let line = ["top", "--json", "--interval", "3s"].map(str::to_owned);
    let report: TopReport = hugepilot(line.into_iter().chain(pids)).exits(0).json();
    let reasons = [SkipReason::Mlocked, SkipReason::SharedAfterFork, SkipReason::SharedMemory];
    for ((_, _, pid), reason) in started.iter().zip(reasons) {
        let process = report.processes.iter().find(|one| one.pid.0.unsigned_abs() == *pid);
        let process = process.expect("it runs");
        let answer = (process.answer, process.blocked_by);
        assert_eq!(answer, (Some(Answer::Blocked), Some(reason)), "{process:?}");
    }
}

#[test]
fn guard_pages_are_named_and_stay() {
    requires!(possible());
    let started = start("guards");
    requires!(started.is_some().then_some(()).ok_or("no MADV_GUARD_INSTALL (Linux 6.13)"));
    let (mut victim, _, pid) = started.expect("it started");
    let report = tune(pid, "--policy all").sane().report();
    let are_shown = report.skipped.contains_key(&SkipReason::GuardPages);
    requires!(are_shown.then_some(()).ok_or("the pagemap shows no guards (Linux 6.15)"));
    assert_eq!(report.verified_regions, 0, "{report:?}");
    assert_eq!(report.skipped.get(&SkipReason::GuardPages), Some(&64), "{report:?}");
    let report = dry_run(pid);
    let block = report.block().map(|(reason, _)| reason);
    assert_eq!(block, Some(SkipReason::GuardPages), "{report:?}");
    let status = status(pid);
    assert_eq!(status.skips.first().map(|share| share.code), Some(SkipReason::GuardPages));
    assert!(victim.finish(SOON).success(), "a guard is lost");
}

#[test]
fn pinned_memory_is_named_before_and_after_the_kernel_refuses() {
    requires!(possible());
    let started = start("pinned");
    requires!(started.is_some().then_some(()).ok_or("no io_uring"));
    let (mut victim, ready, pid) = started.expect("it started");
    let pinned = [Obstacle::PinnedMemory { pinned_bytes: ready.memory.len() }];
    assert_eq!(dry_run(pid).obstacles, pinned);
    assert_eq!(status(pid).obstacles, pinned);
    let report = tune(pid, "--policy all").sane().report();
    assert_eq!((report.verdict(), report.answer()), (TuneVerdict::Refused, Answer::Blocked));
    assert!(report.failed.contains_key("EAGAIN"), "{report:?}");
    assert_eq!(report.obstacles, pinned);
    assert!(victim.finish(SOON).success());
}

#[test]
fn the_ancestor_that_disabled_huge_pages_is_named() {
    requires!(possible());
    let (mut victim, _, pid) = start("disabled").expect("every kernel has it");
    let parent = Pid(victim.pid().cast_signed());
    let by = |one: &Obstacle| matches!(one, Obstacle::ThpDisabledBy { pid, .. } if *pid == parent);
    let disabled = |all: &[Obstacle]| all.len() == 1 && all.iter().all(by);
    let (report, status) = (dry_run(pid), status(pid));
    assert!(disabled(&report.obstacles), "{report:?}");
    assert!(disabled(&status.obstacles), "{:?}", status.obstacles);
    assert_eq!(status.summary.answer(), Answer::Blocked, "{:?}", status.summary);
    assert!(victim.finish(SOON).success());
}
