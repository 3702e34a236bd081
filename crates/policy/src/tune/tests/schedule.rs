//! The policy `schedule` in simulated programs.

use std::collections::{BTreeMap, BTreeSet};

use ScheduleAction::{Demote, Promote};
use hugepilot_record::schedule::{
    FoundBy, Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime,
    ScheduledMapping,
};
use hugepilot_record::{Next, ProcessSnapshot, SkipReason, Snapshot, Window};
use hugepilot_reports::tune::ScheduleReport;
use hugepilot_testkit::Rng;
use hugepilot_units::{Amount, Bytes, Nanos, Region, Share};
use proptest::prelude::*;

use super::super::*;
use super::program::{FIRST, Program, SIZES};
use crate::explain::{Explainer, Shown};
use crate::journal::JournalRound;
use crate::round::Goal;

/// Schedule of events by second, for the only mapping of a program with `regions`.
fn schedule(regions: u64, events: &[(f64, ScheduleAction, u64)]) -> Schedule {
    let header = ScheduleHeader { seconds: Some(100.0), ..ScheduleHeader::default() };
    let mut schedule = Schedule::new(header).unwrap();
    let bytes = SIZES.huge.times(regions);
    let mapping = ScheduledMapping { name: "[anon]".to_owned(), ordinal: 0, bytes };
    for &(seconds, action, index) in events {
        let at = ScheduleTime { seconds: Some(seconds), ..ScheduleTime::default() };
        schedule.push(ScheduleEvent { at, action, mapping: mapping.clone(), index }).unwrap();
    }
    schedule
}

fn goal(schedule: &Schedule) -> TuneGoal {
    let rules = ScheduleRules::new(schedule, None).unwrap();
    let policy = Policy::Schedule(Box::new(rules));
    TuneGoal { policy, observe: Nanos::millis(50), ..TuneGoal::default() }
}

fn rules(goal: &TuneGoal) -> &ScheduleRules {
    let Policy::Schedule(rules) = &goal.policy else { panic!("another policy") };
    rules
}

fn report(goal: &TuneGoal, past: &ProcessState) -> ScheduleReport {
    past.schedule.report(rules(goal), past, goal)
}

fn region(index: u64) -> Region {
    Region::new(FIRST + index)
}

/// Decision about `program` as it is.
fn decide(goal: &TuneGoal, program: &Program, state: &State) -> Decision {
    let window = Window::starting(program.time);
    let process = ProcessSnapshot { id: program.id(), window, memory: program.memory() };
    let snapshot = Snapshot { time: program.time, processes: vec![process], interrupted: false };
    goal.decide(&snapshot, state)
}

#[test]
fn regions_are_promoted_and_demoted_at_their_times() {
    let events = [
        (2.0, Promote, 5),
        (0.5, Promote, 7),
        (4.0, Demote, 7),
        (6.0, Promote, 7),
        (6.0, Promote, 9),
    ];
    let schedule = schedule(20, &events);
    let goal = goal(&schedule);
    let mut program = Program::uniform(1, 20);
    let begun = program.time;
    let past = program.run(&goal, Nanos::seconds(30));
    assert_eq!(program.huge, [5, 7, 9].map(region).into());
    assert_eq!(program.changes, [(5, 1), (7, 3), (9, 1)].map(|(at, n)| (region(at), n)).into());
    for (index, seconds) in [(5, 2.0), (7, 6.0), (9, 6.0)] {
        let late = (past.regions[&region(index)].promoted.unwrap() - begun).as_seconds() - seconds;
        assert!((0.0..0.1).contains(&late), "region {index}: {late} s late");
    }
    let report = report(&goal, &past);
    assert_eq!((report.events, report.due_events, report.promoted_events), (5, 5, 4));
    assert_eq!((report.demoted_events, report.found_by_ordinal), (1, 5));
    assert!(program.time - begun < Nanos::seconds(7), "it ends after the last event");
}

#[test]
fn shares_of_the_run_are_times_of_the_expected_duration() {
    let schedule = schedule(20, &[(50.0, Promote, 3), (100.0, Demote, 3)]);
    let rules = ScheduleRules::new(&schedule, Some(Nanos::seconds(10))).unwrap();
    assert_eq!(rules.end(), Nanos::seconds(10));
    assert_eq!((rules.events[0].0, rules.events()), (Nanos::seconds(5), 2));
    let without = |event: ScheduleTime| {
        let mut schedule = Schedule::new(ScheduleHeader::default()).unwrap();
        let mapping = ScheduledMapping { name: "x".into(), ordinal: 0, bytes: SIZES.huge };
        schedule.push(ScheduleEvent { at: event, action: Promote, mapping, index: 0 }).unwrap();
        schedule
    };
    let share = without(ScheduleTime { share: Some(0.5), ..ScheduleTime::default() });
    assert_eq!(ScheduleRules::new(&share, None), Err(NoTime::NoSeconds(1)));
    let seconds = without(ScheduleTime { seconds: Some(0.5), ..ScheduleTime::default() });
    let with = ScheduleRules::new(&seconds, Some(Nanos::seconds(9)));
    assert_eq!(with, Err(NoTime::NoShare(1)));
}

#[test]
fn a_region_that_is_not_resident_waits_until_half_of_it_is() {
    let goal = goal(&schedule(4, &[(0.0, Promote, 2)]));
    let mut program = Program::uniform(1, 4);
    program.resident = vec![512, 512, 100, 512];
    let mut state = State::default();
    for resident in [0, 100, 255] {
        program.resident[2] = resident;
        let decision = decide(&goal, &program, &state);
        let one = &decision.processes[0];
        assert!(one.promote.is_empty() && matches!(one.next, Next::Until(_)), "{one:?}");
        assert_eq!(one.skipped, [(SkipReason::TooFewResident, 1)].into());
        state = decision.state;
        program.time = program.time + Nanos::seconds(1);
    }
    let past = state.of(&program.id()).unwrap();
    assert_eq!(report(&goal, past).waiting, [(SkipReason::TooFewResident, 1)].into());
    program.resident[2] = 500;
    // The huge page adds 12 base pages: 2.2 % of the resident memory, above the usual limit.
    let limited = TuneGoal { max_added: Some(Share::percent(0.1)), ..goal.clone() };
    let decision = decide(&limited, &program, &state);
    assert_eq!(decision.processes[0].skipped, [(SkipReason::OverBudget, 1)].into());
    assert_eq!(decide(&goal, &program, &state).processes[0].promote.len(), 1);
}

#[test]
fn a_region_beyond_its_mapping_waits_and_one_of_another_mapping_is_not_found() {
    let mut schedule = schedule(4, &[(0.0, Promote, 3)]);
    let mapping = ScheduledMapping { name: "[heap]".into(), ordinal: 0, bytes: SIZES.huge };
    let at = ScheduleTime { seconds: Some(0.0), ..ScheduleTime::default() };
    schedule.push(ScheduleEvent { at, action: Promote, mapping, index: 0 }).unwrap();
    let goal = goal(&schedule);
    let mut program = Program::uniform(1, 3);
    let decision = decide(&goal, &program, &State::default());
    assert_eq!(decision.processes[0].skipped, [(SkipReason::Unaligned, 2)].into());
    let past = decision.state.of(&program.id()).cloned().unwrap();
    let waits = report(&goal, &past);
    // One region is within the tolerance.
    assert_eq!((waits.not_found, waits.found_by_ordinal, waits.resized), (1, 1, 0));
    program.heat.push(1.0);
    program.resident.push(512);
    program.time = program.time + Nanos::seconds(1);
    let decision = decide(&goal, &program, &decision.state);
    assert_eq!(decision.processes[0].promote[0].region, region(3));
}

#[test]
fn a_later_event_of_the_same_region_replaces_one_that_waits() {
    let goal = goal(&schedule(4, &[(0.0, Promote, 1), (1.0, Demote, 1), (2.0, Promote, 0)]));
    let mut program = Program::uniform(1, 4);
    program.resident[1] = 3;
    let past = program.run(&goal, Nanos::seconds(30));
    let report = report(&goal, &past);
    assert_eq!((report.superseded_events, report.promoted_events), (1, 1));
    assert_eq!(report.skipped, [(SkipReason::AlreadySplit, 1)].into());
    assert_eq!(program.huge, [region(0)].into());
}

#[test]
fn a_promotion_that_fails_is_tried_three_times() {
    let goal = goal(&schedule(4, &[(0.0, Promote, 1), (0.0, Promote, 2)]));
    let mut program = Program::uniform(1, 4);
    program.fails = [region(1)].into();
    let past = program.run(&goal, Nanos::seconds(30));
    let report = report(&goal, &past);
    assert_eq!((report.promoted_events, report.failed_events), (1, 1));
    assert_eq!(program.tries, [(region(1), 3), (region(2), 1)].into());
}

#[test]
fn a_promotion_beyond_the_budget_waits_for_a_demotion() {
    let goal = goal(&schedule(8, &[(0.0, Promote, 1), (0.1, Promote, 2), (3.0, Demote, 1)]));
    let budget = Some(Amount::Bytes(SIZES.huge));
    let goal = TuneGoal { budget, ..goal };
    let mut program = Program::uniform(1, 8);
    let past = program.run(&goal, Nanos::seconds(30));
    assert_eq!(program.huge, [region(2)].into());
    assert!(past.regions[&region(2)].promoted > past.regions[&region(1)].demoted);
    let report = report(&goal, &past);
    assert_eq!((report.promoted_events, report.demoted_events), (2, 1));
}

#[test]
fn a_dry_run_of_a_running_process_plans_all_events_at_once() {
    let goal = goal(&schedule(8, &[(9.0, Promote, 1), (99.0, Demote, 1), (50.0, Promote, 7)]));
    let goal = TuneGoal { model_only: true, ..goal };
    let mut program = Program::uniform(1, 8);
    program.resident[7] = 9;
    let decision = decide(&goal, &program, &State::default());
    assert_eq!(decision.processes[0].next, Next::End);
    let (before, after) =
        (ProcessState::default(), decision.state.of(&program.id()).cloned().unwrap());
    let window = Window::starting(program.time);
    let process = ProcessSnapshot { id: program.id(), window, memory: program.memory() };
    let planned = after.schedule.planned(&before.schedule, rules(&goal), &process, &before, &goal);
    let planned: Vec<_> =
        planned.iter().map(|one| (one.seconds, one.action, one.index, one.skip)).collect();
    let waits = Some(SkipReason::TooFewResident);
    assert_eq!(
        planned,
        [(9.0, Promote, 1, None), (50.0, Promote, 7, waits), (99.0, Demote, 1, None)]
    );
}

/// The promotions of a tune by `pcc` are made again, in the same order, and the journal of the
/// replay has the same schedule.
#[test]
fn a_journal_is_replayed() {
    let heat: Vec<f64> = (0..400_u32).map(|at| f64::from(u8::from(at % 9 == 0))).collect();
    let mut program = Program::new(3, heat.clone());
    program.rounds = Some(Vec::new());
    let pcc = TuneGoal { policy: Policy::Pcc(PccRules::default()), ..TuneGoal::default() };
    program.run(&pcc, Nanos::seconds(10));
    let from_journal = |goal: &TuneGoal, program: &mut Program| {
        let goal = Goal::Tune(Box::new(goal.clone()));
        let mut events = JournalSchedule::default();
        let mut explainer = Explainer::new(Shown::default(), None);
        for round in program.rounds.take().unwrap() {
            let round = JournalRound::Tune(Box::new(round));
            events.add(&goal, &round);
            explainer.add(&goal, &round);
        }
        assert!(explainer.finish(0).is_reproduced());
        let (schedule, others) = events.finish().unwrap();
        assert_eq!(others, 0);
        schedule
    };
    let first = from_journal(&pcc, &mut program);
    assert_eq!(first.events().len(), program.huge.len());
    assert_eq!((first.header().policy.as_str(), first.mappings().len()), ("pcc", 1));
    let goal = goal(&first);
    let mut second = Program::new(77, heat);
    second.rounds = Some(Vec::new());
    let past = second.run(&goal, Nanos::seconds(30));
    assert_eq!((&second.huge, second.huge.len()), (&program.huge, 45));
    assert_eq!(report(&goal, &past).promoted_events, 45);
    let again = from_journal(&goal, &mut second);
    let places = |schedule: &Schedule| -> Vec<u64> {
        schedule.events().iter().map(|event| event.index).collect()
    };
    assert_eq!((places(&again), again.mappings()), (places(&first), first.mappings()));
    assert_eq!(JournalSchedule::default().finish(), Err(NoSchedule::NoPromotion));
}

/// A simulated trace may have no mappings.
#[test]
fn a_journal_without_mappings_has_no_schedule() {
    let mut program = Program::uniform(3, 40);
    program.rounds = Some(Vec::new());
    let pcc = TuneGoal { policy: Policy::Pcc(PccRules::default()), ..TuneGoal::default() };
    program.run(&pcc, Nanos::seconds(10));
    let goal = Goal::Tune(Box::new(pcc));
    let mut events = JournalSchedule::default();
    for mut round in program.rounds.take().unwrap() {
        for row in &mut round.rows {
            row.seen.memory.mappings[0].unmapped = true;
        }
        events.add(&goal, &JournalRound::Tune(Box::new(round)));
    }
    assert_eq!(events.finish(), Err(NoSchedule::NoMapping));
}

/// Number of changes that a schedule allows of each region.
fn allowed(schedule: &Schedule) -> BTreeMap<Region, u32> {
    let mut allowed = BTreeMap::new();
    for event in schedule.events() {
        *allowed.entry(region(event.index)).or_insert(0) += 1;
    }
    allowed
}

fn events() -> impl Strategy<Value = Vec<(f64, ScheduleAction, u64)>> {
    let event = (0.0..12.0, any::<bool>(), 0_u64..60);
    let event = event.prop_map(|(seconds, promotes, index)| {
        (seconds, if promotes { Promote } else { Demote }, index)
    });
    prop::collection::vec(event, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Without limits, the regions end as their last event says, and each changes as often as the
    /// schedule says, at most.
    #[test]
    fn the_last_event_of_each_region_holds(events in events(), seed in any::<u64>()) {
        let schedule = schedule(60, &events);
        let goal = goal(&schedule);
        let mut program = Program::uniform(seed, 60);
        let past = program.run(&goal, Nanos::seconds(60));
        let mut last: Vec<(f64, ScheduleAction, u64)> = events.clone();
        last.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut expected = BTreeSet::new();
        for (_, action, index) in last {
            match action {
                Promote => expected.insert(region(index)),
                Demote => expected.remove(&region(index)),
            };
        }
        prop_assert_eq!(&program.huge, &expected);
        let allowed = allowed(&schedule);
        prop_assert!(program.changes.iter().all(|(at, &n)| n <= allowed[at]));
        let report = report(&goal, &past);
        let skipped: u64 = report.skipped.values().sum();
        let ends = report.promoted_events + report.demoted_events + report.superseded_events;
        prop_assert_eq!(ends + skipped, report.due_events);
        prop_assert_eq!(report.due_events, events.len() as u64);
    }

    /// Whatever the limits: they hold, no region changes more often than the schedule says, and all
    /// events are counted once.
    #[test]
    fn limits_hold(events in events(), seed in any::<u64>(), budget in 0_u64..50) {
        let mut rng = Rng::new(seed);
        let schedule = schedule(60, &events);
        let mut program = Program::uniform(seed, 60);
        program.resident = (0..60).map(|_| 200 + rng.bits() % 313).collect();
        program.fails = (0..rng.bits() % 20).map(region).collect();
        let before: u64 = program.resident.iter().sum();
        let goal = TuneGoal {
            budget: Some(Amount::Bytes(SIZES.huge.times(budget))),
            max_added: Some(Share::percent(5.0)),
            ..goal(&schedule)
        };
        // Some events wait until the end, and each round tries them.
        let past = program.run(&goal, Nanos::seconds(20));
        prop_assert!(program.huge.len() as u64 <= budget);
        let most = goal.max_added.unwrap().of(SIZES.base.times(before));
        prop_assert!(past.added <= most + Bytes::mib(1));
        let allowed = allowed(&schedule);
        prop_assert!(program.changes.iter().all(|(at, &n)| n <= allowed[at]));
        prop_assert!(program.tries.iter().all(|(at, &n)| n <= 3 * allowed[at]));
        let report = report(&goal, &past);
        let skipped: u64 = report.skipped.values().chain(report.waiting.values()).sum();
        let ends = report.promoted_events
            + report.demoted_events
            + report.superseded_events
            + report.failed_events
            + report.pending_events;
        prop_assert_eq!(ends + skipped, report.due_events);
        let found = report.found_by_ordinal + report.found_by_size + report.not_found;
        prop_assert_eq!(found + report.superseded_events, report.due_events);
        prop_assert_eq!(report.not_found, 0);
    }

    /// Any size of the mapping in the live run: never a panic, and found within 2 %.
    #[test]
    fn another_size_is_found_within_its_tolerance(events in events(), regions in 1_usize..120) {
        let goal = goal(&schedule(60, &events));
        let program = Program::uniform(1, regions);
        let whole = TuneGoal { model_only: true, ..goal };
        let decision = decide(&whole, &program, &State::default());
        let planned = {
            let after = decision.state.of(&program.id()).cloned().unwrap();
            let window = Window::starting(program.time);
            let process = ProcessSnapshot { id: program.id(), window, memory: program.memory() };
            let before = ProcessState::default();
            after.schedule.planned(&before.schedule, rules(&whole), &process, &before, &whole)
        };
        let is_found = (59..=61).contains(&regions);
        let found = is_found.then_some(FoundBy::Ordinal);
        prop_assert!(planned.iter().all(|one| one.found_by == found), "{planned:?}");
    }
}
