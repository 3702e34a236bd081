use std::cell::Cell;
use std::collections::BTreeMap;

use hugepilot_kernel::TargetState;
use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_record::{Headroom, Pid, Pressure};
use hugepilot_units::{Bytes, Nanos, Region};

use super::*;

pub(super) fn picks(regions: std::ops::Range<u64>) -> Vec<Promotion> {
    let pick = |region| Promotion {
        region: Region::new(region),
        heat_ratio: 0.01,
        sampled_pages: 9,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: "[anon]".into(),
    };
    regions.map(pick).collect()
}

fn run(target: &FakeTarget, regions: std::ops::Range<u64>) -> Attempts {
    promote(target, &picks(regions), &Guard::default(), &|| false, &mut |_| {})
}

fn failing(errno: Errno, times: usize) -> FakeTarget {
    FakeTarget::with_regions(0..20).scripted(vec![Script::Fail(errno); times])
}

#[test]
fn verified_regions_count() {
    let target = FakeTarget::with_regions(0..5);
    let attempts = run(&target, 0..5);
    assert_eq!((attempts.attempted(), attempts.verified(), attempts.stopped), (5, 5, None));
    assert!(attempts.failed().is_empty());
}

#[test]
fn a_success_without_a_huge_page_does_not_count() {
    let target = FakeTarget::with_regions(0..3).scripted([Script::Succeed, Script::FakeSuccess]);
    let attempts = run(&target, 0..3);
    assert_eq!((attempts.attempted(), attempts.verified()), (3, 2));
    assert_eq!(attempts.failed(), BTreeMap::from([("not_verified".into(), 1)]));
}

/// Checks each errno at the first, a middle and the last call: its name, and no endless retry.
#[test]
fn every_errno_is_counted_under_its_name() {
    let table = [
        (Errno::EAGAIN, None),
        (Errno::ENOMEM, None),
        (Errno::EINVAL, None),
        (Errno(4), None),
        (Errno(14), None),
        (Errno::EBUSY, Some(Stop::CgroupFull)),
        (Errno::EPERM, Some(Stop::NotPermitted)),
        (Errno::EACCES, Some(Stop::NotPermitted)),
        (Errno::ENOSYS, Some(Stop::NotPermitted)),
        (Errno::ESRCH, Some(Stop::TargetGone)),
    ];
    for (errno, stop) in table {
        for position in [0_u64, 2, 4] {
            // EAGAIN is tried twice.
            let fails = if errno == Errno::EAGAIN { 2 } else { 1 };
            let script = vec![Script::Succeed; usize::try_from(position).unwrap()];
            let target =
                FakeTarget::with_regions(0..5)
                    .scripted(script)
                    .scripted(vec![Script::Fail(errno); fails]);
            let attempts = run(&target, 0..5);
            assert_eq!(
                attempts.failed(),
                BTreeMap::from([(errno.to_string(), 1)]),
                "{errno} at {position}"
            );
            assert_eq!(attempts.stopped, stop, "{errno} at {position}");
            let attempted = if stop.is_some() { position + 1 } else { 5 };
            assert_eq!(attempts.attempted(), attempted, "{errno} at {position}");
            assert_eq!(attempts.verified(), attempted - 1);
            assert!(target.asked.borrow().len() as u64 <= attempted + 1, "no endless retry");
        }
    }
}

#[test]
fn eagain_is_retried_once() {
    let target = failing(Errno::EAGAIN, 1);
    let attempts = run(&target, 0..1);
    assert_eq!((attempts.verified(), attempts.acts[0].calls), (1, 2));
}

#[test]
fn without_huge_pages_it_stops_soon() {
    let attempts = run(&failing(Errno::ENOMEM, 20), 0..20);
    assert_eq!((attempts.attempted(), attempts.stopped), (3, Some(Stop::NoHugePages)));
}

#[test]
fn the_same_failure_again_and_again_ends_the_round() {
    let attempts = run(&failing(Errno::EINVAL, 20), 0..20);
    assert_eq!((attempts.attempted(), attempts.stopped), (8, Some(Stop::RepeatedFailure)));
}

#[test]
fn a_slow_collapse_ends_the_round_and_still_counts() {
    let target = FakeTarget::with_regions(0..5).scripted([Script::Slow(Nanos::millis(40))]);
    let attempts = run(&target, 0..5);
    assert_eq!((attempts.verified(), attempts.stopped), (1, Some(Stop::SlowCollapse)));
}

#[test]
fn waiting_for_a_processor_is_not_a_slow_collapse() {
    let target = FakeTarget::with_regions(0..5).scripted([Script::Queued(Nanos::millis(40))]);
    let attempts = run(&target, 0..5);
    assert_eq!((attempts.verified(), attempts.stopped), (5, None));
    assert!(attempts.acts[0].took < Nanos::millis(30));
}

#[test]
fn a_target_that_ends_stops_the_round() {
    let target = FakeTarget::with_regions(0..5).scripted([Script::Succeed, Script::Die]);
    let attempts = run(&target, 0..5);
    assert_eq!((attempts.verified(), attempts.stopped), (1, Some(Stop::TargetGone)));
    let execed = FakeTarget::with_regions(0..5);
    execed.state.set(TargetState::Execed);
    assert_eq!(run(&execed, 0..5).stopped, Some(Stop::TargetExeced));
    assert!(execed.asked.borrow().is_empty());
}

#[test]
fn short_memory_stops_the_round() {
    let pressed = FakeTarget::with_regions(0..5);
    pressed.pressure.set(Some(Pressure { some_avg10: 20.0, full_avg10: 0.0 }));
    assert_eq!(run(&pressed, 0..5).stopped, Some(Stop::MemoryPressure));
    let tight = FakeTarget::with_regions(0..5);
    tight.headroom.set(Headroom {
        cgroup: Bytes::mib(9),
        cgroup_limit: Bytes::mib(12),
        ..tight.headroom.get()
    });
    assert_eq!(run(&tight, 0..5).stopped, Some(Stop::MemoryPressure));
    assert!(pressed.asked.borrow().is_empty() && tight.asked.borrow().is_empty());
}

#[test]
fn a_region_that_changed_since_the_plan_is_skipped() {
    let target = FakeTarget::with_regions(0..4);
    target.pages.borrow_mut().get_mut(&Region::new(1)).unwrap().shared = 512;
    target.pages.borrow_mut().get_mut(&Region::new(2)).unwrap().huge = true;
    let attempts = run(&target, 0..4);
    assert_eq!(attempts.attempted(), 2);
    assert_eq!(
        attempts.skipped,
        BTreeMap::from([(SkipReason::SharedAfterFork, 1), (SkipReason::AlreadyHuge, 1)])
    );
}

#[test]
fn an_interrupt_leaves_all_attempts() {
    let target = FakeTarget::with_regions(0..5);
    let asked = Cell::new(0);
    let interrupted = || asked.replace(asked.get() + 1) == 3;
    let attempts = promote(&target, &picks(0..5), &Guard::default(), &interrupted, &mut |_| {});
    assert_eq!((attempts.verified(), attempts.stopped), (3, Some(Stop::Interrupted)));
}

#[test]
fn a_target_that_ends_before_it_is_verified_is_gone() {
    let target = FakeTarget::with_regions(0..3).scripted([Script::Succeed, Script::SucceedAndDie]);
    let attempts = run(&target, 0..3);
    assert_eq!((attempts.verified(), attempts.stopped), (1, Some(Stop::TargetGone)));
    assert_eq!(attempts.failed(), BTreeMap::from([("ESRCH".into(), 1)]));
}

#[test]
fn a_region_counts_only_if_this_call_promoted_it() {
    // During the preparation, another process promoted it.
    let target = FakeTarget::with_regions(0..3);
    target.taken.set(Some(Region::new(0)));
    let attempts = run(&target, 0..3);
    assert_eq!((attempts.attempted(), attempts.verified()), (2, 2));
    assert_eq!(attempts.skipped, BTreeMap::from([(SkipReason::AlreadyHuge, 1)]));
    // The call failed, and the region is huge nevertheless.
    let target = FakeTarget::with_regions(0..3).scripted([Script::FailAndHuge(Errno::EINVAL)]);
    let attempts = run(&target, 0..3);
    assert_eq!((attempts.attempted(), attempts.verified()), (3, 2));
    assert_eq!(attempts.failed(), BTreeMap::from([("EINVAL".into(), 1)]));
}

#[test]
fn an_unreadable_target_is_neither_gone_nor_short_of_memory() {
    for errno in [Errno::EMFILE, Errno::ENFILE, Errno::EIO] {
        let target = FakeTarget::with_regions(0..3);
        target.unknown.set(Some(errno));
        let attempts = run(&target, 0..3);
        assert_eq!(
            (attempts.stopped, attempts.attempted()),
            (Some(Stop::Unreadable), 0),
            "{errno}"
        );
        assert!(target.asked.borrow().is_empty());
    }
}

#[test]
fn a_target_that_became_a_zombie_is_gone() {
    let error = KernelError::NoMemory { pid: Pid(1), command: "program".into(), what: "a zombie" };
    assert_eq!(unreadable(&error), Stop::TargetGone);
}
