//! Schedules in the simulated world.

use hugepilot_policy::tune::ScheduleRules;
use hugepilot_record::schedule::{
    Schedule, ScheduleAction, ScheduleEvent, ScheduleHeader, ScheduleTime, ScheduledMapping,
};

use super::*;

use ScheduleAction::{Demote, Promote};

/// Rules for the regions of `program`, by index.
pub(super) fn rules(program: &Program, events: &[(f64, ScheduleAction, u64)]) -> Policy {
    let mut schedule = Schedule::new(ScheduleHeader::default()).unwrap();
    for &(seconds, action, index) in events {
        let bytes = SIZES.huge.times(program.heat.len() as u64);
        let mapping = ScheduledMapping { name: "[anon]".to_owned(), ordinal: 0, bytes };
        let at = ScheduleTime { seconds: Some(seconds), ..ScheduleTime::default() };
        schedule.push(ScheduleEvent { at, action, mapping, index }).unwrap();
    }
    Policy::Schedule(Box::new(ScheduleRules::new(&schedule, None).unwrap()))
}

fn goal(program: &Program, events: &[(f64, ScheduleAction, u64)]) -> TuneGoal {
    TuneGoal { policy: rules(program, events), ..TuneGoal::default() }
}

fn huge(engine: &Engine<Simulated>) -> Vec<u64> {
    engine.world.program(1).huge().into_iter().map(|region| region.get() - FIRST).collect()
}

/// Times of the verified acts on each region, in order, since the start of the world.
fn acts(rounds: &[Round]) -> Vec<(f64, ScheduleAction, u64)> {
    let mut acts = Vec::new();
    for outcome in rounds.iter().flat_map(Round::outcomes) {
        let begun = outcome.begun.unwrap_or_default().as_seconds() - 1.0;
        let promoted = outcome.attempts.acts.iter().map(|act| (Promote, act.region));
        let demoted = outcome.demotions.iter().map(|act| (Demote, act.region));
        acts.extend(demoted.chain(promoted).map(|(action, at)| (begun, action, at.get() - FIRST)));
    }
    acts
}

#[test]
fn events_are_applied_at_their_times_without_samples() {
    let events = [(0.5, Promote, 7), (2.0, Promote, 3), (3.0, Demote, 7), (4.5, Promote, 7)];
    let mut program = Program::new(1, vec![1.0; 30]);
    program.is_sampled = false;
    let goal = goal(&program, &events);
    let mut engine = engine(Simulated::of([program]), goal);
    let rounds = run(&mut engine, END);
    let acts = acts(&rounds);
    let places: Vec<_> = acts.iter().map(|&(_, action, at)| (action, at)).collect();
    assert_eq!(places, events.map(|(_, action, at)| (action, at)));
    for (&(begun, ..), (seconds, ..)) in acts.iter().zip(events) {
        // Two clocks: the process was first seen 50 ms before its first decision.
        assert!((begun - seconds).abs() < 0.06, "{begun} for {seconds}");
    }
    assert_eq!((huge(&engine), engine.is_done()), (vec![3, 7], true));
    assert!(engine.world.now() < Nanos::seconds(7));
}

#[test]
fn a_process_that_starts_another_program_starts_the_schedule_again() {
    let program = Program::new(1, vec![1.0; 30]);
    let goal = goal(&program, &[(0.5, Promote, 2), (5.0, Promote, 4)]);
    let mut engine = engine(Simulated::of([program]), goal);
    run(&mut engine, Nanos::seconds(3));
    assert_eq!(huge(&engine), [2]);
    for pages in engine.world.program(1).target.pages.borrow_mut().values_mut() {
        pages.huge = false;
    }
    let now = engine.world.now();
    engine.world.restart(Pid(1), now);
    engine.world.restarted.push(Pid(1));
    run(&mut engine, now + Nanos::seconds(4));
    assert_eq!(huge(&engine), [2], "the second event is 5 s after the start");
    run(&mut engine, now + Nanos::seconds(7));
    assert_eq!(huge(&engine), [2, 4]);
}

#[test]
fn memory_that_comes_late_is_promoted_when_it_comes() {
    let program = Program::new(1, vec![1.0; 30]);
    let goal = goal(&program, &[(0.5, Promote, 2), (1.0, Promote, 3)]);
    let resident = |program: &Program, resident| {
        program.target.pages.borrow_mut().get_mut(&Region::new(FIRST + 2)).unwrap().resident =
            resident;
    };
    resident(&program, 10);
    let mut engine = engine(Simulated::of([program]), goal);
    let rounds = run(&mut engine, Nanos::seconds(20));
    assert_eq!(huge(&engine), [3]);
    assert!((8..40).contains(&rounds.len()), "{} rounds in 19 s", rounds.len());
    resident(engine.world.program(1), 512);
    run(&mut engine, Nanos::seconds(25));
    assert_eq!(huge(&engine), [2, 3]);
}

#[test]
fn a_dry_run_changes_nothing_and_follows_a_launched_program() {
    for persistent in [false, true] {
        let program = Program::new(1, vec![1.0; 30]);
        let goal = goal(&program, &[(0.5, Promote, 2), (3.0, Promote, 3), (4.0, Demote, 2)]);
        let goal = TuneGoal { model_only: true, persistent, ..goal };
        let mut engine = Engine::new(Simulated::of([program]), goal, Guard::default(), true);
        let rounds = run(&mut engine, Nanos::seconds(20));
        assert!(engine.is_done() && engine.world.program(1).target.asked.borrow().is_empty());
        let planned: Vec<_> = rounds
            .iter()
            .flat_map(|round| &round.rows[0].decision.promote)
            .map(|promotion| promotion.region.get() - FIRST)
            .collect();
        // A plan as a whole ends with the demotion of the first region.
        assert_eq!(planned, if persistent { vec![2, 3] } else { vec![3] });
        assert_eq!(rounds.len() == 1, !persistent);
    }
}
