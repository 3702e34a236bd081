use hugepilot_kernel::fake::FakeTarget;
use hugepilot_policy::CalibrationPoint;
use hugepilot_policy::round::ProcessOutcome;
use hugepilot_policy::tune::Place;
use hugepilot_record::{
    Act, ActOutcome, Errno, Headroom, Mapping, Next, Pressure, ProcessMemory, Promotion, SplitAct,
    SplitOutcome,
};
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::*;

pub(crate) const HUGE: Bytes = PageSizes::X86_64.huge;

/// A process of which nothing was huge when its memory was read.
pub(crate) fn seen(pid: i32, read: Nanos) -> ProcessSnapshot {
    let memory = ProcessMemory {
        time: read,
        sizes: PageSizes::X86_64,
        mappings: vec![Mapping::anonymous(AddrRange::at(VirtAddr::new(0), HUGE.times(100)))],
        heat: Vec::new(),
        stacks: Default::default(),
        pages: BTreeMap::new(),
        thp_disabled: false,
        untouched: Bytes::ZERO,
        headroom: Headroom {
            cgroup: Bytes::MAX,
            cgroup_limit: Bytes::MAX,
            system: Bytes::gib(1),
            system_total: Bytes::gib(2),
            free_huge: Bytes::MAX,
        },
        pressure: Pressure::default(),
    };
    let id = ProcessId { pid: Pid(pid), start_ticks: 7, command: "db".into() };
    ProcessSnapshot { id, window: Window::starting(Nanos::ZERO), memory }
}

/// A round that promotes `count` regions of each process.
pub(crate) fn round(processes: Vec<ProcessSnapshot>, count: u64, end: Nanos) -> Round {
    let promotion = |number| Promotion {
        region: Region::new(number),
        heat_ratio: 0.1,
        sampled_pages: 3,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: "[anon]".to_owned(),
    };
    let act = |number| Act {
        region: Region::new(number),
        took: Nanos::millis(1),
        calls: 1,
        outcome: ActOutcome::Verified,
    };
    let decision = |seen: &ProcessSnapshot| ProcessDecision {
        process: seen.id.clone(),
        promote: (0..count).map(promotion).collect(),
        demote: Vec::new(),
        eligible: count,
        skipped: Skips::new(),
        skipped_stalls: BTreeMap::new(),
        expected: None,
        next: Next::End,
    };
    let attempts = || Attempts { acts: (0..count).map(act).collect(), ..Attempts::default() };
    let times = (count > 0).then_some(end);
    let mut state = State::default();
    for seen in &processes {
        state.of_mut(&seen.id);
    }
    let row = |seen: ProcessSnapshot| Row {
        decision: decision(&seen),
        seen,
        outcome: ProcessOutcome {
            begun: times,
            ended: times,
            attempts: attempts(),
            demotions: Vec::new(),
        },
        after: None,
    };
    let (rows, place) = (processes.into_iter().map(row).collect(), Place::default());
    Round { number: 1, time: end, interrupted: false, state, rows, place }
}

/// A round that returns `count` regions of the first process.
pub(crate) fn undoing(processes: Vec<ProcessSnapshot>, count: u64, end: Nanos) -> Round {
    let split = |number| SplitAct {
        region: Region::new(number),
        took: Nanos::millis(1),
        outcome: SplitOutcome::Freed(Bytes::ZERO),
    };
    let mut undone = round(processes, 0, end);
    undone.rows[0].outcome.demotions = (0..count).map(split).collect();
    undone.rows[0].outcome.ended = Some(end);
    undone
}

#[test]
fn one_of_several_targets_counts_only_its_own_acts() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let both = round(vec![seen(1, read), seen(2, read)], 5, end);
    let (mut all, mut second) = (Fold::default(), Fold::default());
    all.add(&both, &State::default(), None, false);
    second.add(&both, &State::default(), Some(Pid(2)), false);
    second.add(&round(vec![seen(1, end)], 3, end), &State::default(), Some(Pid(2)), false);
    let counts = |fold: &Fold| (fold.counts().verified, fold.selected().count(), fold.shown);
    assert_eq!(counts(&all), (10, 10, Some(Pid(2))));
    assert_eq!(counts(&second), (5, 5, Some(Pid(2))));
    assert_eq!(second.shown().unwrap().huge_after, HUGE.times(5));
}

#[test]
fn a_region_that_is_selected_again_is_one_region() {
    let mut first = round(vec![seen(1, Nanos::seconds(1))], 3, Nanos::seconds(2));
    first.rows[0].outcome.attempts.acts[2].outcome = ActOutcome::Failed(Errno::ENOMEM);
    let mut again = round(vec![seen(1, Nanos::seconds(3))], 3, Nanos::seconds(4));
    again.rows[0].decision.promote.drain(..2);
    again.rows[0].outcome.attempts.acts.drain(..2);
    let (mut fold, mut dry) = (Fold::default(), Fold::default());
    for round in [&first, &again] {
        fold.add(round, &State::default(), None, false);
        dry.add(round, &State::default(), None, true);
    }
    let counts = fold.counts();
    assert_eq!((counts.attempted, counts.verified, fold.selected().count()), (3, 3, 3));
    assert!(fold.selected().all(|selected| selected.verified == Some(true)));
    assert_eq!(dry.selected().count(), 3);
}

/// A state in which a process is in a trial.
fn in_trial(id: &ProcessId) -> State {
    let mut state = State::default();
    let (pairs, shares, before) = (Vec::new(), Default::default(), Window::default());
    state.of_mut(id).phase = TunePhase::Trial { pairs, shares, before, since: Nanos::ZERO };
    state
}

#[test]
fn after_an_exec_the_counts_are_those_of_the_new_program() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let mut fold = Fold::default();
    let mut first = round(vec![seen(1, read), seen(2, read)], 5, end);
    first.rows[0].outcome.attempts.acts[4].outcome = ActOutcome::Failed(Errno::ENOMEM);
    first.rows[1].outcome.attempts.stopped = Some(Stop::SlowCollapse);
    fold.add(&first, &in_trial(&seen(1, read).id), None, false);
    assert_eq!((fold.counts().attempted, fold.counts().verified), (10, 9));
    let mut new = round(vec![seen(1, end)], 0, end);
    new.state = State::default();
    fold.add(&new, &State::default(), None, false);
    let (counts, failed) = (fold.counts(), fold.acts().failed.len());
    assert_eq!((counts.attempted, failed), (5, 0));
    assert_eq!(fold.stopped, Some(Stop::SlowCollapse), "of the other process");
    let exec = ExecReport { programs: 1, freed_regions: 4, trials: 1 };
    assert_eq!(fold.exec, Some(exec));
    fold.add(&round(vec![seen(1, end)], 3, end), &State::default(), None, false);
    assert_eq!((fold.counts().verified, fold.exec), (8, Some(exec)));
}

#[test]
fn the_pages_are_read_at_the_end_and_an_exec_has_freed_them() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let target = Rc::new(FakeTarget::with_regions(0..5));
    target.pages.borrow_mut().get_mut(&Region::new(3)).unwrap().huge = true;
    let mut fold = Fold::default();
    fold.add(&round(vec![seen(1, read)], 5, end), &in_trial(&seen(1, read).id), None, false);
    assert_eq!((fold.counts().kept, fold.counts().lost), (5, 0));
    let find = |_| -> Option<Rc<dyn Target>> { Some(target.clone()) };
    fold.read_end(&find);
    assert_eq!((fold.counts().kept, fold.counts().lost), (1, 4));
    assert_eq!((fold.counts().freed_by(), fold.stopped), (None, None));
    target.state.set(TargetState::Execed);
    fold.read_end(&find);
    let exec = (Some(FreedBy::Exec), Some(Stop::TargetExeced));
    assert_eq!((fold.counts().lost, fold.counts().freed_by(), fold.stopped), (5, exec.0, exec.1));
    assert_eq!(fold.exec, Some(ExecReport { programs: 1, freed_regions: 5, trials: 1 }));
}

#[test]
fn an_end_in_a_trial_frees_its_regions_and_a_later_one_does_not_count() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let target = Rc::new(FakeTarget::with_regions(0..5));
    target.state.set(TargetState::Gone);
    let find = |_| -> Option<Rc<dyn Target>> { Some(target.clone()) };
    let ended = |state: &State| {
        let mut fold = Fold::default();
        fold.add(&round(vec![seen(1, read)], 5, end), state, None, false);
        fold.read_end(&find);
        (fold.counts().lost, fold.counts().freed_by(), fold.stopped)
    };
    let in_trial = in_trial(&seen(1, read).id);
    assert_eq!(ended(&in_trial), (5, Some(FreedBy::End), Some(Stop::TargetGone)));
    assert_eq!(ended(&State::default()), (0, None, None));
    // Many programs free their memory just before they end.
    let mut fold = Fold::default();
    fold.add(&round(vec![seen(1, read)], 5, end), &State::default(), None, false);
    let mut unmapped = seen(1, Nanos::seconds(3));
    unmapped.memory.mappings.clear();
    fold.add(&round(vec![unmapped], 0, end), &State::default(), None, false);
    assert_eq!(fold.counts().lost, 5);
    fold.read_end(&find);
    assert_eq!((fold.counts().lost, fold.counts().kept), (0, 5));
}

#[test]
fn the_time_of_acts_is_that_of_the_rounds_that_promoted() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let mut fold = Fold::default();
    for (count, millis) in [(5, 300), (0, 700), (3, 200)] {
        let mut round = round(vec![seen(1, read)], count, end);
        let outcome = &mut round.rows[0].outcome;
        (outcome.begun, outcome.ended) = (Some(end), Some(end + Nanos::millis(millis)));
        fold.add(&round, &State::default(), None, false);
    }
    let acts = fold.acts();
    assert_eq!((acts.promoting, acts.promotion), (Nanos::millis(500), Nanos::millis(8)));
}

#[test]
fn memory_that_was_not_read_again_keeps_what_was_promoted_since() {
    let mut fold = Fold::default();
    let (read, later) = (Nanos::seconds(1), Nanos::seconds(9));
    for (count, read) in [(5, read), (0, read), (2, read)] {
        fold.add(&round(vec![seen(1, read)], count, later), &State::default(), None, false);
    }
    assert_eq!(fold.shown().unwrap().huge_after, HUGE.times(7));
    fold.add(&round(vec![seen(1, later)], 0, later), &State::default(), None, false);
    assert_eq!(fold.shown().unwrap().huge_after, Bytes::ZERO, "read again");
}

#[test]
fn most_is_promoted_when_regions_with_nine_tenths_of_the_stalls_are_huge() {
    let mut fold = Fold::default();
    assert_eq!(fold.most_promoted(), None);
    let at = |second| Nanos::seconds(second);
    // All regions are equally hot. The second process comes later, with a tenth of the regions.
    for (pid, count, end) in [(1, 19, 5), (2, 2, 7), (1, 0, 8)] {
        fold.add(&round(vec![seen(pid, at(1))], count, at(end)), &State::default(), None, false);
    }
    assert_eq!(fold.most_promoted(), Some(at(5)));
    fold.add(&round(vec![seen(2, at(1))], 3, at(9)), &State::default(), None, false);
    assert_eq!(fold.most_promoted(), Some(at(9)));
    let undone = undoing(vec![seen(1, at(1))], 19, at(10));
    let mut failed = undone.clone();
    failed.rows[0]
        .outcome
        .demotions
        .iter_mut()
        .for_each(|act| act.outcome = SplitOutcome::StillHuge);
    fold.add(&round(vec![seen(1, at(1))], 19, at(9)), &State::default(), None, false);
    fold.add(&failed, &State::default(), None, false);
    assert_eq!(fold.counts().kept, 22, "they are still huge");
    fold.add(&undone, &State::default(), None, false);
    assert_eq!(fold.most_promoted(), Some(at(9)), "those of the second process are left");
}

#[test]
fn skipped_stalls_are_shares_of_the_samples_by_which_they_were_judged() {
    let stalls = |count| BTreeMap::from([(SkipReason::AlreadyHuge, count)]);
    let mut fold = Fold::default();
    let mut first = round(vec![seen(1, Nanos::seconds(1))], 2, Nanos::seconds(2));
    first.rows[0].seen.window.samples = 100;
    fold.add(&first, &State::default(), None, false);
    // Two of the three huge regions are its own, with 50 of the 90 stalls there.
    let mut later = round(vec![seen(1, Nanos::seconds(3))], 0, Nanos::seconds(4));
    let mut window = Window::starting(Nanos::ZERO);
    window.samples = 200;
    window.stalls = [(Region::new(0), 20), (Region::new(1), 30)].into();
    later.rows[0].seen.window.samples = 10;
    let id = later.rows[0].seen.id.clone();
    later.state.of_mut(&id).phase = TunePhase::Spread { pairs: Vec::new(), window };
    (later.rows[0].decision.skipped, later.rows[0].decision.skipped_stalls) =
        (stalls(3), stalls(90));
    fold.add(&later, &State::default(), None, false);
    let shown = fold.shown().unwrap();
    assert_eq!(shown.skipped, stalls(1));
    assert_eq!(shown.skipped_stall_ratio, BTreeMap::from([(SkipReason::AlreadyHuge, 0.2)]));
}

#[test]
fn the_coverage_is_at_most_the_stalls_and_the_prediction_is_that_of_the_selected_regions() {
    let (early, late) = (Nanos::seconds(1), Nanos::seconds(2));
    let mut fold = Fold::default();
    let point = CalibrationPoint { hot: Bytes::gib(1), chase_ratio: 0.5, gather_ratio: 0.5 };
    let calibration = Calibration(vec![point]);
    let some = Prediction { low: 1.0, median: 2.0, high: 3.0 };
    // Each region has a tenth of the samples in the window of its own round. Four tenths stall.
    let mut first = round(vec![seen(1, early)], 2, late);
    let window = &mut first.rows[0].seen.window;
    (window.samples, window.cpu) = (1000, Some(Nanos::seconds(1)));
    window.stalls = (0..40).map(|number| (Region::new(number), 10)).collect();
    first.rows[0].decision.expected = Some(Expected { eligible: some, chosen: some });
    fold.add(&first, &State::default(), None, false);
    let median = |fold: &Fold| fold.shown().unwrap().predicted(&calibration).unwrap().median;
    let two = median(&fold);
    assert!((fold.shown().unwrap().coverage() - 0.2).abs() < 1e-9);
    assert!((two - 1.0 / (1.0 - 0.2 * 0.5 * 0.5)).abs() < 1e-9, "{two}");
    let mut second = first.clone();
    for (number, promotion) in (10..).zip(&mut second.rows[0].decision.promote) {
        promotion.region = Region::new(number);
        promotion.heat_ratio = 0.3;
    }
    for (number, act) in (10..).zip(&mut second.rows[0].outcome.attempts.acts) {
        act.region = Region::new(number);
    }
    fold.add(&second, &State::default(), None, false);
    assert!((fold.shown().unwrap().coverage() - 0.4).abs() < 1e-9, "not 0.8");
    assert!(median(&fold) > two);
    let mut none = Fold::default();
    (first.rows[0].decision.promote, first.rows[0].outcome.attempts) =
        (Vec::new(), Attempts::default());
    none.add(&first, &State::default(), None, false);
    assert_eq!(none.shown().unwrap().predicted(&calibration), None, "nothing is selected");
}

#[test]
fn a_process_whose_time_was_over_before_its_first_act_was_not_acted_on() {
    let (read, end) = (Nanos::seconds(1), Nanos::seconds(2));
    let mut fold = Fold::default();
    fold.add(&round(vec![seen(1, read)], 2, end), &State::default(), None, false);
    let mut cut = round(vec![seen(2, read)], 2, end);
    cut.rows[0].outcome.attempts.acts.clear();
    fold.add(&cut, &State::default(), None, false);
    assert_eq!((fold.shown, fold.untried()), (Some(Pid(1)), 2));
}

#[test]
fn regions_that_the_end_of_the_time_left_are_counted_and_not_selected() {
    let mut fold = Fold::default();
    let mut cut = round(vec![seen(1, Nanos::seconds(1))], 5, Nanos::seconds(2));
    cut.rows[0].outcome.attempts.acts.truncate(2);
    fold.add(&cut, &State::default(), None, false);
    assert_eq!((fold.untried(), fold.selected().count()), (3, 2));
    let mut dry = Fold::default();
    dry.add(&cut, &State::default(), None, true);
    assert_eq!((dry.untried(), dry.selected().count()), (0, 5));
    let rest = round(vec![seen(1, Nanos::seconds(3))], 3, Nanos::seconds(4));
    fold.add(&rest, &State::default(), None, false);
    assert_eq!(fold.untried(), 0);
}
