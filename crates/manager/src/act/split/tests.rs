//! Splits of scripted processes.

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_record::Stranded;
use hugepilot_units::PageSizes;

use super::*;

pub(in crate::act) fn planned(region: u64) -> Split {
    let range = Region::new(region).range(PageSizes::X86_64);
    Split {
        process: 0,
        region: Region::new(region),
        page: range.start,
        frees: Bytes::mib(1),
        stalls: 0.0,
        stranded: false,
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
fn stranded_memory_is_freed_once_and_only_if_the_page_is_split() {
    let page = planned(7).page;
    let target = |script: Option<Script>| {
        let target = FakeTarget::with_regions([7]).scripted(script);
        target.stranded.borrow_mut().push(Stranded { page, bytes: Bytes::mib(1) });
        target
    };
    let freed =
        |target: &FakeTarget| split(target, &Split { stranded: true, ..planned(7) }).outcome;
    let whole = target(None);
    assert_eq!(freed(&whole), SplitOutcome::Freed(Bytes::mib(1)));
    assert_eq!(freed(&whole), SplitOutcome::Skipped(SkipReason::Changed));
    assert_eq!(whole.asked.borrow().len(), 1);
    assert_eq!(freed(&target(Some(Script::FakeSuccess))), SplitOutcome::StillHuge);
    let refused = target(Some(Script::Fail(Errno::EINVAL)));
    assert_eq!(freed(&refused), SplitOutcome::Failed(Errno::EINVAL));
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
    assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::ESRCH));
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

#[test]
fn out_of_descriptors_is_not_gone() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    target.unknown.set(Some(Errno::EMFILE));
    assert_eq!(outcome(&target), SplitOutcome::Failed(Errno::EMFILE));
    assert!(target.asked.borrow().is_empty());
}
