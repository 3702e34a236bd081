//! Programs that stall on memory that `tune` does not promote: each command names the same cause.
//! `remedies` tries the help.

use hugepilot_record::{Answer, Obstacle, Pid, SkipReason};
use hugepilot_reports::status::StatusReport;
use hugepilot_reports::top::TopReport;
use hugepilot_reports::tune::{TuneReport, TuneVerdict, TuneWarning};
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
    let are_shown = report.plan.skipped.contains_key(&SkipReason::GuardPages);
    requires!(are_shown.then_some(()).ok_or("the pagemap shows no guards (Linux 6.15)"));
    assert_eq!(report.acts.verified_regions, 0, "{report:?}");
    assert_eq!(report.plan.skipped.get(&SkipReason::GuardPages), Some(&64), "{report:?}");
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
    assert!(report.acts.failed.contains_key("EAGAIN"), "{report:?}");
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

#[test]
fn code_that_exceeds_the_tlb_is_named_until_it_is_dense() {
    requires!(possible());
    let of = |kind| {
        let mut victim = Victim::c("codes.c", &[kind]);
        assert_eq!(victim.line(SOON).as_deref(), Some("ready"));
        let report = tune(victim.pid(), "--dry-run --observe 2s").sane().report();
        assert!(victim.finish(SOON).success());
        report
    };
    let wide = of("wide");
    assert!(wide.sampler.fetch_ratio > Some(0.1), "{:?}", wide.sampler);
    let block = wide.block().map(|(reason, _)| reason);
    assert_eq!((wide.answer(), block), (Answer::Blocked, Some(SkipReason::Code)), "{wide:?}");
    let dense = of("dense");
    assert!(dense.sampler.fetch_ratio < Some(0.02), "{:?}", dense.sampler);
    assert!(dense.block().is_none(), "{dense:?}");
}

#[test]
fn forks_are_counted_and_named_as_the_cause_of_lost_pages() {
    requires!(possible());
    let (mut victim, _, pid) = start("forking").expect("every kernel has it");
    let report = tune(pid, "--policy all --for 3s --observe 1s").sane().report();
    let warns = |report: &TuneReport| {
        report.warnings.iter().any(|one| matches!(one, TuneWarning::Forks { .. }))
    };
    assert!(report.acts.forks >= 3 && warns(&report), "{report:?}");
    assert!(report.acts.verified_regions > 0 && report.acts.lost_regions > 0, "{report:?}");
    let (mut other, _, other_pid) = start("plain").expect("every kernel has it");
    assert!(!warns(&dry_run(other_pid)), "it forks nothing");
    assert!(victim.finish(SOON).success() && other.finish(SOON).success());
}

/// A dry run is too short for the next fork.
#[test]
fn a_process_that_had_children_before_may_fork_again() {
    requires!(possible());
    for (kind, may_fork) in [("snapshot", true), ("plain", false)] {
        let (mut victim, _, pid) = start(kind).expect("every kernel has it");
        let report = dry_run(pid);
        let warns = report.warnings.contains(&TuneWarning::MayFork);
        assert_eq!((warns, report.acts.forks), (may_fork, 0), "{kind}: {report:?}");
        assert!(victim.finish(SOON).success(), "{kind}");
    }
}

/// Memory that a child shares since a fork counts once.
#[test]
fn several_processes_are_one_report_by_pss() {
    requires!(possible());
    let (mut victim, ready, pid) = start("forked").expect("every kernel has it");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let child = children.expect("the children").trim().to_owned();
    let done = hugepilot(["status", "--no-contents", "-p", &pid.to_string(), "-p", &child]);
    let text = done.exits(0).out();
    let first = text.lines().next().expect("a line");
    let pss: Bytes = first.split(' ').nth(2).and_then(|word| word.parse().ok()).expect("a size");
    let memory = ready.memory.len();
    assert!(first.starts_with("2 processes: ") && memory <= pss, "{text}");
    assert!(pss < memory + Bytes::mib(8), "{text}");
    assert!(text.lines().count() < 25 && text.contains("shared_after_fork"), "{text}");
    assert!(victim.finish(SOON).success());
}
