//! Rounds in scripted processes.

use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_record::{Errno, Pid, ProcessId};
use hugepilot_units::Bytes;

use super::*;
use crate::act::split::tests::planned;
use crate::act::tests::picks;

/// Process of a round.
struct Acted {
    target: FakeTarget,
    changes: Changes,
}

impl Acted {
    fn new(pid: i32, mut target: FakeTarget) -> Self {
        target.id = ProcessId { pid: Pid(pid), ..target.id };
        Self { target, changes: Changes::default() }
    }

    fn stopped(&self) -> Option<Stop> {
        self.changes.outcome.attempts.stopped
    }
}

impl ChangedProcess for Acted {
    fn parts(&mut self) -> (&dyn Target, &mut Changes) {
        (&self.target, &mut self.changes)
    }
}

/// Rule that allows `left` acts, then returns `end`.
struct Allowed {
    left: usize,
    end: Result<bool, &'static str>,
    rests: bool,
    /// Acts by pid and region, and their rests.
    log: Vec<(Pid, u64)>,
    rested: Nanos,
}

impl Default for Allowed {
    fn default() -> Self {
        Self { left: 99, end: Ok(false), rests: false, log: Vec::new(), rested: Nanos::ZERO }
    }
}

impl StopRule<Acted> for Allowed {
    type Error = &'static str;

    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, &'static str> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return self.end,
        }
        Ok(true)
    }

    fn rest(&mut self, time: Nanos) -> bool {
        self.rested = self.rested + time;
        self.rests
    }

    fn acted(&mut self, process: &Acted, done: &DoneAct<'_>) {
        let region = match done {
            DoneAct::Promotion(_, act) => act.region,
            DoneAct::Split(act) => act.region,
        };
        self.log.push((process.target.id.pid, region.get()));
    }
}

/// Two processes with two bloated regions each, whose splits alternate.
fn alternating(rule: &mut Allowed, script: Script) -> (Result<bool, &'static str>, [Acted; 2]) {
    let bloated = || FakeTarget::with_bloat([(7, 400), (8, 400)]);
    let mut processes = [Acted::new(1, bloated().scripted([script])), Acted::new(2, bloated())];
    let splits = [planned(7), planned(8)];
    let plan = splits.iter().flat_map(|split| [0, 1].map(|one| (one, PlannedAct::Split(split))));
    (carry_out(plan, &mut processes, rule), processes)
}

#[test]
fn acts_alternate_between_processes_and_what_ends_one_ends_no_other() {
    let mut rule = Allowed::default();
    let (done, processes) = alternating(&mut rule, Script::Succeed);
    assert_eq!(done, Ok(true));
    assert_eq!(rule.log, [(Pid(1), 7), (Pid(2), 7), (Pid(1), 8), (Pid(2), 8)]);
    assert!(processes.iter().all(|one| one.stopped().is_none() && one.changes.claim.is_some()));
    let mut rule = Allowed::default();
    let (done, [denied, other]) = alternating(&mut rule, Script::Fail(Errno::EPERM));
    assert_eq!((done, rule.left), (Ok(true), 96), "not asked for a process that is over");
    assert_eq!(rule.log, [(Pid(1), 7), (Pid(2), 7), (Pid(2), 8)]);
    assert_eq!([denied.stopped(), other.stopped()], [Some(Stop::NotPermitted), None]);
}

#[test]
fn the_rule_ends_the_round_before_any_act() {
    for left in 0..4 {
        for end in [Ok(false), Err("no reading")] {
            let mut rule = Allowed { left, end, ..Allowed::default() };
            let (done, processes) = alternating(&mut rule, Script::Succeed);
            assert_eq!((done, rule.log.len()), (end, left));
            let asked: usize = processes.iter().map(|one| one.target.asked.borrow().len()).sum();
            assert_eq!(asked, left);
            // Nothing is claimed that is not changed.
            let claims = processes.iter().filter(|one| one.changes.claim.is_some()).count();
            assert_eq!(claims, left.min(2));
        }
    }
}

#[test]
fn a_list_promotes_demotes_and_splits() {
    let target = FakeTarget::with_bloat([(5, 0), (6, 100), (7, 400)]);
    target.pages.borrow_mut().get_mut(&Region::new(5)).unwrap().huge = false;
    let (mut process, promotions) = ([Acted::new(1, target)], picks(5..7));
    let split = planned(7);
    let plan = [
        PlannedAct::Demote(Region::new(6)),
        PlannedAct::Promote(&promotions[0]),
        PlannedAct::Split(&split),
        PlannedAct::Promote(&promotions[1]),
    ];
    let mut rule = Allowed::default();
    assert_eq!(carry_out(plan.map(|act| (0, act)), &mut process, &mut rule), Ok(true));
    let ProcessOutcome { attempts, demotions, .. } = &process[0].changes.outcome;
    assert_eq!(rule.log, [6, 5, 7, 6].map(|region| (Pid(1), region)));
    assert_eq!((attempts.verified(), attempts.stopped), (2, None));
    let freed = demotions.iter().map(|act| act.outcome).collect::<Vec<_>>();
    assert_eq!(freed, [100, 400].map(|pages| SplitOutcome::Freed(Bytes::kib(4 * pages))));
}

#[test]
fn after_a_slow_collapse_the_rule_rests_or_ends_the_process() {
    for (rests, verified, stopped) in [(true, 4, None), (false, 1, Some(Stop::SlowCollapse))] {
        let slow = Script::Slow(Nanos::millis(40));
        let target = FakeTarget::with_regions(0..4).scripted([slow, slow]);
        let (mut process, promotions) = ([Acted::new(1, target)], picks(0..4));
        let plan = promotions.iter().map(|promotion| (0, PlannedAct::Promote(promotion)));
        let mut rule = Allowed { rests, ..Allowed::default() };
        assert_eq!(carry_out(plan, &mut process, &mut rule), Ok(true));
        let attempts = &process[0].changes.outcome.attempts;
        assert_eq!((attempts.verified(), attempts.stopped), (verified, stopped));
        // Ten times as long as the collapse, of 42 ms.
        assert_eq!(rule.rested, Nanos::millis(if rests { 2 * 420 } else { 420 }));
    }
}

#[test]
fn no_rest_is_left_after_a_last_collapse_that_is_slow() {
    let slow = [Script::Succeed, Script::Slow(Nanos::millis(40))];
    let target = FakeTarget::with_regions(0..2).scripted(slow);
    let (mut process, promotions) = ([Acted::new(1, target)], picks(0..2));
    let plan = promotions.iter().map(|promotion| (0, PlannedAct::Promote(promotion)));
    let mut rule = Allowed { rests: true, ..Allowed::default() };
    assert_eq!(carry_out(plan, &mut process, &mut rule), Ok(true));
    assert_eq!((process[0].stopped(), process[0].changes.outcome.attempts.verified()), (None, 2));
}

#[test]
fn an_exec_during_an_act_is_not_the_end_of_the_process() {
    for (script, stop) in [(Script::Exec, Stop::TargetExeced), (Script::Die, Stop::TargetGone)] {
        let (_, [split, _]) = alternating(&mut Allowed::default(), script);
        assert_eq!(split.stopped(), Some(stop));
        let target = FakeTarget::with_regions([1]).scripted([script]);
        let mut changes = Changes::default();
        changes.make(&target, &PlannedAct::Promote(&picks(1..2)[0]));
        assert_eq!(changes.outcome.attempts.stopped, Some(stop));
    }
}

#[test]
fn a_dry_run_says_what_was_planned_and_changes_nothing() {
    let target = FakeTarget::with_bloat([(7, 400)]);
    let mut changes = Changes { dry_run: true, ..Changes::default() };
    assert_eq!(split_at(&mut changes, &target, 7), Some(SplitOutcome::Freed(Bytes::mib(1))));
    assert!(target.asked.borrow().is_empty() && changes.outcome.demotions.is_empty());
    assert!(changes.claim.is_none());
}

/// Splits one more region of a process.
fn split_at(changes: &mut Changes, target: &FakeTarget, region: u64) -> Option<SplitOutcome> {
    match changes.make(target, &PlannedAct::Split(&planned(region))) {
        Some(DoneAct::Split(act)) => Some(act.outcome),
        _ => None,
    }
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
    let (target, mut changes) = (locked(), Changes::default());
    let freed = SplitOutcome::Freed(Bytes::kib(1600));
    assert_eq!(split_at(&mut changes, &target, 8), Some(freed));
    target.unreadable.set(Some(Errno::EMFILE));
    target.sleep(Nanos::seconds(10));
    let mlocked = SplitOutcome::Skipped(SkipReason::Mlocked);
    assert_eq!(split_at(&mut changes, &target, 7), Some(mlocked));
    for (errno, stop) in [(Errno::EMFILE, Stop::Unreadable), (Errno::EACCES, Stop::NotPermitted)] {
        let mut new = Changes::default();
        target.unreadable.set(Some(errno));
        assert_eq!(split_at(&mut new, &target, 7), None);
        assert_eq!(new.outcome.attempts.stopped, Some(stop));
    }
}

#[test]
fn a_process_of_another_run_is_not_changed() {
    for (claimed, unknown, stop) in
        [(true, None, Stop::InUse), (false, Some(Errno::EMFILE), Stop::Unreadable)]
    {
        let target = FakeTarget::with_bloat([(7, 400)]);
        target.claimed.set(claimed);
        target.unknown.set(unknown);
        let mut changes = Changes::default();
        assert_eq!(split_at(&mut changes, &target, 7), None);
        assert_eq!(changes.outcome.attempts.stopped, Some(stop));
        assert!(target.asked.borrow().is_empty());
    }
}

#[test]
fn a_look_that_takes_long_is_rarely_taken() {
    let (target, mut changes) = (locked(), Changes::default());
    // Each look takes 200 ms, so the next one is 4 s away.
    target.mappings_take.set(Nanos::millis(200));
    let looks = (0..100).filter(|_| {
        let begun = target.now();
        split_at(&mut changes, &target, 7);
        let took = target.now() - begun;
        target.sleep(Nanos::millis(100));
        took >= Nanos::millis(200)
    });
    assert_eq!(looks.count(), 3, "in 10 s");
}

#[test]
fn a_promoted_region_returns_to_base_pages_unless_that_is_forbidden() {
    let (target, mut changes) = (locked(), Changes::default());
    let outcomes = [7, 8, 9].map(|region| {
        match changes.make(&target, &PlannedAct::Demote(Region::new(region))) {
            Some(DoneAct::Split(act)) => act.outcome,
            other => panic!("{other:?}"),
        }
    });
    let [mlocked, split] =
        [SkipReason::Mlocked, SkipReason::AlreadySplit].map(SplitOutcome::Skipped);
    assert_eq!(outcomes, [mlocked, SplitOutcome::Freed(Bytes::kib(1600)), split]);
    target.unreadable.set(Some(Errno::EACCES));
    let mut changes = Changes::default();
    assert!(changes.make(&target, &PlannedAct::Demote(Region::new(8))).is_none());
    assert_eq!(changes.outcome.attempts.stopped, Some(Stop::NotPermitted));
}

#[test]
fn memory_that_is_locked_after_the_plan_is_left_alone() {
    let (target, mut changes) = (locked(), Changes::default());
    let mlocked = SplitOutcome::Skipped(SkipReason::Mlocked);
    assert_eq!(split_at(&mut changes, &target, 7), Some(mlocked));
    assert!(target.asked.borrow().is_empty());
}

#[test]
fn demotions_that_free_nothing_are_not_futile() {
    let target = FakeTarget::with_bloat((0..200).map(|region| (region, 0)));
    let mut process = [Acted::new(1, target)];
    let plan = (0..200).map(|region| (0, PlannedAct::Demote(Region::new(region))));
    assert_eq!(
        carry_out(plan, &mut process, &mut Allowed { left: 200, ..Allowed::default() }),
        Ok(true)
    );
    assert_eq!((process[0].changes.outcome.demoted(), process[0].stopped()), (200, None));
}
