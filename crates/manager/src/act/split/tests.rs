//! Splits of scripted processes.

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_units::PageSizes;

use super::*;

fn planned(region: u64) -> Split {
    let range = Region::new(region).range(PageSizes::X86_64);
    Split {
        process: 0,
        region: Region::new(region),
        page: range.start,
        frees: Bytes::mib(1),
        stalls: 0.0,
    }
}

fn outcome(target: &FakeTarget) -> SplitOutcome {
    split(target, &planned(7)).outcome
}

#[test]
fn what_is_seen_freed_counts() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    let act = split(&target, &planned(7));
    assert_eq!(act.outcome, SplitOutcome::Freed(Bytes::kib(1600)));
    assert_eq!(act.took, Nanos::millis(2));
    assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::AlreadySplit));
    assert_eq!(target.asked.borrow().len(), 1);
}

#[test]
fn a_success_that_split_nothing_frees_nothing() {
    let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::FakeSuccess]);
    assert_eq!(outcome(&target), SplitOutcome::StillHuge);
}

#[test]
fn a_huge_page_that_another_user_held_is_tried_again() {
    let held = |times| {
        let script = std::iter::repeat_n(Script::SplitNotFreed, times);
        FakeTarget::with_bloat([(7, 400)]).scripted(script)
    };
    let target = held(2);
    let act = split(&target, &planned(7));
    assert_eq!(act.outcome, SplitOutcome::Freed(Bytes::kib(1600)));
    assert_eq!(act.took, Nanos::millis(6));
    let target = held(9);
    assert_eq!(outcome(&target), SplitOutcome::Freed(Bytes::ZERO));
    assert_eq!(target.asked.borrow().len(), 3);
}

#[test]
fn errors_go_under_their_names() {
    for errno in [Errno::EINVAL, Errno::EPERM, Errno::EAGAIN, Errno::ENOMEM] {
        let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::Fail(errno)]);
        assert_eq!(outcome(&target), SplitOutcome::Failed(errno));
    }
    let target = FakeTarget::with_bloat([(7, 400)]).scripted([Script::SucceedAndDie]);
    assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::ESRCH));
}

#[test]
fn what_a_target_gave_back_by_becoming_another_program_is_not_freed() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    target.state.set(TargetState::Execed);
    assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::ESRCH));
}

#[test]
fn what_changed_since_the_plan_is_left_alone() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    target.pages.borrow_mut().get_mut(&Region::new(7)).unwrap().shared = 512;
    assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::SharedAfterFork));
    target.pages.borrow_mut().get_mut(&Region::new(7)).unwrap().shared = 0;
    target.dirtied.set(Some(planned(7).page));
    assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::Changed));
    target.state.set(TargetState::Gone);
    assert_eq!(outcome(&target), SplitOutcome::Skipped(SkipReason::Special));
    assert!(target.asked.borrow().is_empty());
}

#[test]
fn every_outcome_is_counted_once_under_its_name() {
    let (mut skipped, mut failed) = (BTreeMap::new(), BTreeMap::new());
    let mut count = |outcome| count(outcome, &mut skipped, &mut failed);
    assert_eq!(count(SplitOutcome::Freed(Bytes::kib(4))), Some(Bytes::kib(4)));
    assert_eq!(count(SplitOutcome::StillHuge), None);
    assert_eq!(count(SplitOutcome::Failed(Errno::EAGAIN)), None);
    assert_eq!(count(SplitOutcome::Skipped(SkipReason::Changed)), None);
    assert_eq!(count(SplitOutcome::Skipped(SkipReason::Changed)), None);
    assert_eq!(skipped, [("changed".to_owned(), 2)].into());
    assert_eq!(failed, [("EAGAIN".to_owned(), 1), ("still_huge".to_owned(), 1)].into());
}

/// A process with two bloated regions, of which the first is locked.
fn locked() -> FakeTarget {
    let mut target = FakeTarget::with_bloat([(7, 400), (8, 400)]);
    let line = "00e00000-01000000 rw-p 00000000 00:00 0\n\
                Size: 2048 kB\nVmFlags: rd wr mr mw me ac lo\n";
    target.mappings =
        hugepilot_kernel::proc::parse_smaps(line.as_bytes(), std::path::Path::new("smaps"))
            .unwrap();
    target
}

#[test]
fn a_look_that_fails_forgets_nothing_and_the_first_must_not() {
    let (target, mut splits) = (locked(), Splits::default());
    assert_eq!(splits.split(&target, &planned(8)), Some(SplitOutcome::Freed(Bytes::kib(1600))));
    target.unreadable.set(Some(Errno::EMFILE));
    target.sleep(Nanos::seconds(10));
    assert_eq!(
        splits.split(&target, &planned(7)),
        Some(SplitOutcome::Skipped(SkipReason::Mlocked))
    );
    for (errno, stop) in [(Errno::EMFILE, Stop::Unreadable), (Errno::EACCES, Stop::NotPermitted)] {
        let mut new = Splits::default();
        target.unreadable.set(Some(errno));
        assert_eq!((new.split(&target, &planned(7)), new.ended()), (None, Some(stop)));
    }
}

#[test]
fn out_of_descriptors_is_not_gone_and_what_another_run_changes_is_left_alone() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    target.unknown.set(Some(Errno::EMFILE));
    assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::EMFILE));
    let mut splits = Splits::default();
    assert_eq!(
        (splits.split(&target, &planned(7)), splits.ended()),
        (None, Some(Stop::Unreadable))
    );
    target.unknown.set(None);
    target.claimed.set(true);
    let mut splits = Splits::default();
    assert_eq!((splits.split(&target, &planned(7)), splits.ended()), (None, Some(Stop::InUse)));
    assert!(target.asked.borrow().is_empty());
}

#[test]
fn a_look_that_takes_long_is_rarely_taken() {
    let (target, mut splits) = (locked(), Splits::default());
    // Each look takes 200 ms, so the next one is 4 s away.
    target.mappings_take.set(Nanos::millis(200));
    let looks = (0..100).filter(|_| {
        let begun = target.now();
        splits.split(&target, &planned(7));
        let took = target.now() - begun;
        target.sleep(Nanos::millis(100));
        took >= Nanos::millis(200)
    });
    assert_eq!(looks.count(), 3, "in 10 s");
}

#[test]
fn a_promoted_region_returns_to_base_pages_unless_that_is_forbidden() {
    let target = locked();
    let acts = demote(&target, &[7, 8, 9].map(Region::new)).unwrap();
    let outcomes: Vec<_> = acts.iter().map(|act| act.outcome).collect();
    let skipped = SplitOutcome::Skipped;
    assert_eq!(
        outcomes,
        [
            skipped(SkipReason::Mlocked),
            SplitOutcome::Freed(Bytes::kib(1600)),
            skipped(SkipReason::AlreadySplit)
        ]
    );
    target.unreadable.set(Some(Errno::EACCES));
    assert_eq!(demote(&target, &[Region::new(8)]), Err(Stop::NotPermitted));
}

#[test]
fn memory_that_is_locked_after_the_plan_is_left_alone() {
    let target = locked();
    let outcome = Splits::default().split(&target, &planned(7));
    assert_eq!(outcome, Some(SplitOutcome::Skipped(SkipReason::Mlocked)));
    assert!(target.asked.borrow().is_empty());
}
