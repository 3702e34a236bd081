//! Tests of the engine in a simulated world.

mod live;
mod policies;
mod random;
mod schedule;
mod splits;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::TargetState;
use hugepilot_kernel::fake::{FakeTarget, Script};
use hugepilot_policy::Guard;
use hugepilot_policy::explain::{Explainer, Shown};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::{Goal, ProcessOutcome, Round, Row, is_split};
use hugepilot_policy::tune::{PccRules, Policy, ProcessState, Selection, TuneGoal};
use hugepilot_record::{
    ActOutcome, Errno, Headroom, Mapping, Pid, ProcessDecision, ProcessId, ProcessSnapshot, Stop,
    VmFlags,
};
use hugepilot_reports::tune::{NoTrial, TrialVerdict};
use hugepilot_testkit::Rng;
use hugepilot_units::{AddrRange, Amount, Bytes, Region, Share, VirtAddr};

use world::{FIRST, Program, SIZES, Simulated};

use super::*;

/// End of the simulation of a random machine.
const END: Nanos = Nanos::seconds(60);

/// A number in an environment variable.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn engine(world: Simulated, goal: TuneGoal) -> Engine<Simulated> {
    Engine::new(world, goal, Guard::default(), false)
}

/// Runs all rounds until `end`.
fn run(engine: &mut Engine<Simulated>, end: Nanos) -> Vec<Round> {
    let mut rounds = Vec::new();
    while let Some(round) = engine.round(end, end).unwrap() {
        rounds.push(round);
    }
    rounds
}

fn state(engine: &Engine<Simulated>, pid: i32) -> ProcessState {
    let id = engine.world.program(pid).target.id.clone();
    engine.state().of(&id).cloned().unwrap()
}

#[test]
fn a_gain_is_found_and_spread_within_fifteen_seconds() {
    let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 800])]), TuneGoal::default());
    let rounds = run(&mut engine, Nanos::seconds(16));
    assert_eq!(engine.world.program(1).huge().len(), 800);
    let trial = state(&engine, 1).trial.unwrap();
    assert_eq!((trial.verdict, trial.confirmed), (TrialVerdict::Gain, Some(true)));
    assert!(rounds.len() > 4);
    assert!(engine.controller.claims.contains_key(&(Pid(1), 7)));
}

#[test]
fn the_first_observation_is_short_if_it_is_sampled_closely() {
    let begun = Nanos::seconds(1);
    let whole = TuneGoal { enough_addresses: None, ..TuneGoal::default() };
    let daily = TuneGoal { policy: Policy::Pcc(PccRules::default()), ..TuneGoal::default() };
    for (goal, rate, took) in
        [(TuneGoal::default(), 2000, 1500), (whole, 500, 3000), (daily, 500, 3000)]
    {
        let world = Simulated::of([Program::new(1, vec![1.0; 800])]);
        let mut engine = engine(world, goal);
        let round = engine.round(Nanos::seconds(9), Nanos::seconds(9)).unwrap().unwrap();
        let window = &round.rows[0].seen.window;
        assert!(!round.rows[0].decision.promote.is_empty());
        assert_eq!(window.until - begun, Nanos::millis(took));
        let samples = rate * took / 1000;
        assert!((samples * 4 / 5..samples * 6 / 5).contains(&window.samples), "{window:?}");
    }
}

#[test]
fn only_processes_from_the_start_are_sampled_closely_and_until_their_decision() {
    let large = |pid| Program::new(pid, vec![1.0; 800]);
    let mut engine = engine(Simulated::of([large(1)]), TuneGoal::default());
    assert_eq!(engine.world.boosted, [Pid(1)]);
    engine.world.programs.insert(Pid(2), large(2));
    let mut begun = BTreeMap::new();
    while begun.len() < 2 {
        let round = engine.round(Nanos::seconds(9), Nanos::seconds(9)).unwrap().unwrap();
        for decided in round.decisions() {
            begun.entry(decided.process.pid).or_insert(round.time);
        }
    }
    assert_eq!(begun[&Pid(1)], Nanos::millis(2500));
    assert!(begun[&Pid(2)] >= Nanos::seconds(4), "{begun:?}");
    run(&mut engine, Nanos::seconds(25));
    assert!(engine.world.boosted.is_empty());
}

#[test]
fn a_few_hot_regions_are_observed_for_the_whole_time() {
    let world = Simulated::of([Program::new(1, vec![1.0; 10])]);
    let mut engine = engine(world, TuneGoal::default());
    let rounds = run(&mut engine, Nanos::millis(4100));
    let seen: Vec<_> = rounds
        .iter()
        .map(|round| (round.time, round.rows[0].decision.promote.is_empty()))
        .collect();
    assert_eq!(seen, [(Nanos::millis(2500), true), (Nanos::millis(4000), false)]);
    assert!(engine.world.boosted.is_empty(), "the model has decided");
}

#[test]
fn a_trial_without_a_verdict_is_taken_back_if_its_best_guess_is_no_gain() {
    let mut futile = 0;
    for pid in 1..=8 {
        let mut program = Program::new(pid, vec![1.0; 800]);
        program.ratio = 1.0;
        let mut engine = engine(Simulated::of([program]), TuneGoal::default());
        run(&mut engine, Nanos::seconds(16));
        let trial = state(&engine, pid).trial.unwrap();
        let is_kept = !engine.world.program(pid).huge().is_empty();
        assert_ne!(trial.verdict, TrialVerdict::Gain);
        let guess = trial.estimate.unwrap().ratio();
        assert_eq!(is_kept, trial.verdict == TrialVerdict::Open && guess < 0.99, "{trial:?}");
        futile += u32::from(trial.verdict == TrialVerdict::Open && !is_kept);
    }
    assert!(futile > 0);
}

#[test]
fn without_a_gain_everything_is_taken_back_and_the_engine_is_done() {
    let mut program = Program::new(1, vec![1.0; 300]);
    program.ratio = 1.0;
    // The time for a verdict that does not depend on chance.
    let goal = TuneGoal { trial_time: Nanos::seconds(30), ..TuneGoal::default() };
    let mut engine = engine(Simulated::of([program]), goal);
    let rounds = run(&mut engine, Nanos::seconds(60));
    assert!(engine.world.program(1).huge().is_empty());
    assert!(engine.is_done() && engine.world.now() < Nanos::seconds(40));
    let demoted: u64 = rounds.iter().flat_map(Round::outcomes).map(ProcessOutcome::demoted).sum();
    assert_eq!(demoted, 128);
}

#[test]
fn a_dry_run_changes_nothing() {
    let world = Simulated::of([Program::new(1, vec![1.0; 800])]);
    let goal = TuneGoal { model_only: true, ..TuneGoal::default() };
    let mut engine = Engine::new(world, goal, Guard::default(), true);
    let rounds = run(&mut engine, Nanos::seconds(20));
    assert_eq!(rounds.len(), 1);
    assert!(
        rounds[0].rows[0].decision.promote.len() > 600 && engine.is_done(),
        "all rounds in one"
    );
    assert!(engine.world.program(1).target.asked.borrow().is_empty());
    assert!(engine.controller.claims.is_empty());
}

/// The hottest regions get the budget, whichever verdict comes last: the first process has 400 hot
/// regions, the second 100 that are four times as hot.
#[test]
fn several_processes_share_one_budget_and_the_hottest_regions_get_it() {
    let hot = |regions: usize, hot: usize| {
        (0..regions).map(|i| f64::from(u8::from(i < hot))).collect::<Vec<_>>()
    };
    for [cold, hotter] in [[1, 2], [2, 1]] {
        let programs = [Program::new(cold, hot(600, 400)), Program::new(hotter, hot(600, 100))];
        let budget = Some(Amount::Bytes(SIZES.huge.times(300)));
        let goal = TuneGoal { budget, ..TuneGoal::default() };
        let mut engine = engine(Simulated::of(programs), goal);
        run(&mut engine, Nanos::seconds(30));
        let [first, second] = [cold, hotter].map(|pid| engine.world.program(pid).huge().len());
        assert!(first + second <= 300, "{first} + {second}");
        assert!(second >= 95, "{second} of 100 hotter regions");
        assert!(first > 150, "{first}");
    }
}

/// Five trials of 128 pairs exceed the regions of a round, 512. A region of the last process saves
/// least, so its wishes come last.
#[test]
fn many_processes_have_their_trials_at_once() {
    let regions = |pid| if pid == 6 { 900 } else { 300 };
    let programs = (1..=6).map(|pid| Program::new(pid, vec![1.0; regions(pid)]));
    let mut engine = engine(Simulated::of(programs), TuneGoal::default());
    run(&mut engine, Nanos::seconds(30));
    for pid in 1..=6 {
        assert_eq!(engine.world.program(pid).huge().len(), regions(pid), "pid {pid}");
        let trial = state(&engine, pid).trial.unwrap();
        assert!(trial.estimate.unwrap().pairs > 120, "pid {pid}: {trial:?}");
    }
}

#[test]
fn a_trial_goes_on_with_the_pairs_that_it_has_after_equal_failures() {
    let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 300])]), TuneGoal::default());
    let script = &engine.world.program(1).target.script;
    script.borrow_mut().extend(vec![Script::Succeed; 60]);
    script.borrow_mut().extend(vec![Script::Fail(Errno::EAGAIN); 2 * 8]);
    let rounds = run(&mut engine, Nanos::seconds(30));
    assert_eq!(rounds[0].rows[0].outcome.attempts.stopped, Some(Stop::RepeatedFailure));
    let trial = state(&engine, 1).trial.unwrap();
    assert_eq!((trial.verdict, trial.estimate.unwrap().pairs), (TrialVerdict::Gain, 60));
    assert_eq!(engine.world.program(1).huge().len(), 300);
}

/// Huge pages of two processes after one interval of the policy `pcc`. The second process has a
/// quarter as many regions, each four times as hot.
fn after_an_interval(selection: Selection, bias: &[i32]) -> [usize; 2] {
    let bias = bias.iter().map(ToString::to_string).collect();
    let policy = Policy::Pcc(PccRules { selection, bias, ..PccRules::default() });
    let goal = TuneGoal { policy, ..TuneGoal::default() };
    let programs = [Program::new(1, vec![1.0; 400]), Program::new(2, vec![1.0; 100])];
    let mut engine = engine(Simulated::of(programs), goal);
    engine.round(END, END).unwrap().unwrap();
    [1, 2].map(|pid| engine.world.program(pid).huge().len())
}

#[test]
fn pcc_shares_an_interval_by_frequency_in_turn_or_by_bias() {
    let [cold, hot] = after_an_interval(Selection::HighestFrequency, &[]);
    assert!(cold + hot == 128 && hot >= 90, "{cold}, {hot}");
    assert_eq!(after_an_interval(Selection::RoundRobin, &[]), [64, 64]);
    assert_eq!(after_an_interval(Selection::RoundRobin, &[1]), [128, 0]);
    let [cold, hot] = after_an_interval(Selection::HighestFrequency, &[2]);
    assert!(cold + hot == 128 && hot >= 99, "{cold}, {hot}");
}

#[test]
fn pcc_takes_turns_beyond_an_interval() {
    let rules = PccRules { selection: Selection::RoundRobin, promotions: 1, ..PccRules::default() };
    let goal = TuneGoal { policy: Policy::Pcc(rules), ..TuneGoal::default() };
    let programs = [Program::new(1, vec![1.0; 400]), Program::new(2, vec![1.0; 100])];
    let mut engine = engine(Simulated::of(programs), goal);
    for _ in 0..10 {
        engine.round(END, END).unwrap().unwrap();
    }
    assert_eq!([1, 2].map(|pid| engine.world.program(pid).huge().len()), [5, 5]);
}

/// Huge pages of a phase that ended are cold. Accessed bits would show it, stalls do not: a huge
/// page that does its work has few.
#[test]
fn pcc_keeps_its_huge_pages_within_its_budget_in_another_phase() {
    let policy = Policy::Pcc(PccRules::default());
    let budget = Some(Amount::Bytes(SIZES.huge.times(100)));
    let goal = TuneGoal { policy, budget, ..TuneGoal::default() };
    let hot = |first: usize| {
        let is_hot = |i: usize| (first..first + 100).contains(&i);
        (0..400).map(|i| if is_hot(i) { 0.01 } else { 0.0 }).collect::<Vec<_>>()
    };
    let mut engine = engine(Simulated::of([Program::new(1, hot(0))]), goal);
    let mut changes = BTreeMap::new();
    for phase in [0, 300] {
        engine.world.programs.get_mut(&Pid(1)).unwrap().heat = hot(phase);
        let end = engine.world.now() + END;
        for round in run(&mut engine, end) {
            count_changes(&round, &mut changes);
            assert!(engine.world.program(1).huge().len() <= 100);
        }
        let range = Region::new(FIRST)..Region::new(FIRST + 100);
        let found = engine.world.program(1).huge().range(range).count();
        assert!(found >= 95, "{found} of the 100 regions that were hot first");
    }
    assert!(changes.values().all(|&[_, times]| times <= 1), "{changes:?}");
}

#[test]
fn a_process_that_ends_is_forgotten_and_the_others_go_on() {
    let programs = [Program::new(1, vec![1.0; 300]), Program::new(2, vec![1.0; 300])];
    let mut engine = engine(Simulated::of(programs), TuneGoal::default());
    let first = engine.world.program(1).target.id.clone();
    engine.world.program(1).target.script.borrow_mut().push_back(Script::Die);
    let rounds = run(&mut engine, Nanos::seconds(20));
    let stops: Vec<Stop> = rounds
        .iter()
        .flat_map(Round::outcomes)
        .filter_map(|outcome| outcome.attempts.stopped)
        .collect();
    assert_eq!(stops, [Stop::TargetGone]);
    assert!(engine.state().of(&first).is_none());
    assert_eq!(engine.world.program(2).huge().len(), 300);
}

#[test]
fn a_process_that_another_run_changes_is_left_alone() {
    let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 300])]), TuneGoal::default());
    engine.world.program(1).target.claimed.set(true);
    let rounds = run(&mut engine, Nanos::seconds(20));
    assert_eq!(rounds[0].rows[0].outcome.attempts.stopped, Some(Stop::InUse));
    assert!(engine.is_done() && engine.world.program(1).huge().is_empty());
}

#[test]
fn the_claim_of_a_process_ends_with_its_program_unless_the_user_named_it() {
    for (script, are_named, claims) in [
        (Script::Die, false, 0),
        (Script::Exec, false, 0),
        (Script::Exec, true, 1),
        (Script::Succeed, false, 1),
    ] {
        let world = Simulated::of([Program::new(1, vec![1.0; 300])]);
        let mut engine = engine(Simulated { are_named, ..world }, TuneGoal::default());
        engine.world.program(1).target.script.borrow_mut().push_back(script);
        engine.round(END, END).unwrap().unwrap();
        assert_eq!(engine.controller.claims.len(), claims, "{script:?}");
        // It starts another program between two rounds.
        engine.world.restarted.push(Pid(1));
        engine.round(Nanos::ZERO, END).unwrap();
        assert_eq!(engine.controller.claims.len(), usize::from(are_named), "{script:?}");
    }
}

#[test]
fn regions_are_not_tried_if_the_time_is_over_before_the_first() {
    let goal = TuneGoal::default();
    let world = Simulated::of([Program::new(1, vec![1.0; 800])]);
    let mut engine = engine(world, goal.clone());
    let round = engine.round(END, Nanos::ZERO).unwrap().unwrap();
    assert!(engine.controller.claims.is_empty() && round.rows[0].outcome.attempts.acts.is_empty());
    let mut explainer = Explainer::new(Shown::default(), None);
    explainer.add(&Goal::Tune(Box::new(goal)), &JournalRound::Tune(Box::new(round)));
    let rounds = explainer.finish(0).shown;
    assert_eq!(rounds[0].processes[0].outcome.untried_regions, 128);
}

#[test]
fn slow_collapses_are_followed_by_rests_and_the_round_goes_on() {
    let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 300])]), TuneGoal::default());
    let slow = Script::Slow(Nanos::millis(40));
    engine.world.program(1).target.script.borrow_mut().extend([slow, slow, Script::Succeed, slow]);
    let rounds = run(&mut engine, Nanos::seconds(20));
    let outcome = &rounds[0].rows[0].outcome;
    assert_eq!(outcome.attempts.stopped, None);
    assert_eq!(outcome.attempts.verified(), 128);
    let took = outcome.ended.unwrap() - outcome.begun.unwrap();
    assert!(took > Nanos::millis(3 * 10 * 40), "{took:?}");
}

#[test]
fn the_verdict_of_a_trial_is_about_pages_read_at_its_time() {
    let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 300])]), TuneGoal::default());
    let end = Nanos::seconds(16);
    assert!(!engine.round(end, end).unwrap().unwrap().rows[0].decision.promote.is_empty());
    let target = engine.world.program(1).target.clone();
    target.pages.borrow_mut().values_mut().for_each(|pages| pages.huge = true);
    run(&mut engine, end);
    let no_trial = state(&engine, 1).no_trial;
    assert!(matches!(no_trial, Some(NoTrial::PairsChanged { .. })), "{no_trial:?}");
}

#[test]
fn without_free_huge_pages_the_trial_has_fewer_pairs_and_the_tune_ends() {
    // While the kernel compacts memory, a failure is slow.
    for fails in [Script::Fail(Errno::ENOMEM), Script::SlowFail(Errno::ENOMEM, Nanos::millis(40))] {
        let world = Simulated::of([Program::new(1, vec![1.0; 300])]);
        let mut engine = engine(world, TuneGoal::default());
        let script = &engine.world.program(1).target.script;
        script.borrow_mut().extend(vec![Script::Succeed; 60]);
        script.borrow_mut().extend(vec![fails; 2000]);
        let rounds = run(&mut engine, Nanos::seconds(30));
        assert_eq!(rounds[0].rows[0].outcome.attempts.stopped, Some(Stop::NoHugePages));
        assert_eq!(rounds[0].rows[0].outcome.attempts.acts.len(), 63);
        assert_eq!(engine.world.program(1).huge().len(), 60);
        let trial = state(&engine, 1).trial.unwrap();
        assert_eq!(trial.estimate.unwrap().pairs, 60);
        assert!(engine.is_done());
    }
}

/// A program of which the first `huge` regions are on huge pages, on a system with `free` ones.
fn scarce(heat: Vec<f64>, huge: u64, free: u64, flags: &str) -> Engine<Simulated> {
    let mut target = FakeTarget::with_regions(FIRST..FIRST + heat.len() as u64);
    target.id = ProcessId { pid: Pid(1), start_ticks: 7, command: "simulated".into() };
    let mapping = Mapping::anonymous(AddrRange::at(VirtAddr::new(FIRST << 21), SIZES.huge));
    target.mappings.push(Mapping { flags: VmFlags::parse(flags), ..mapping });
    for region in FIRST..FIRST + huge {
        target.make_huge_again(Region::new(region), 0);
    }
    let free_huge = SIZES.huge.times(free);
    target.headroom.set(Headroom { free_huge, ..target.headroom.get() });
    engine(Simulated::of([Program::on(Rc::new(target), heat)]), TuneGoal::default())
}

#[test]
fn scarce_huge_pages_go_to_the_hottest_regions() {
    let heat = |index| if index % 5 == 0 { 8.0 } else { 1.0 };
    let mut engine = scarce((0..300).map(heat).collect(), 0, 60, "");
    run(&mut engine, Nanos::seconds(40));
    let huge = engine.world.program(1).huge();
    let first = *huge.iter().min().unwrap();
    assert_eq!(huge.len(), 60);
    let hottest = huge.iter().filter(|one| (one.get() - first.get()).is_multiple_of(5)).count();
    assert_eq!(hottest, 60, "a trial of more pairs gives half of them to colder regions");
}

#[test]
fn a_reserve_is_freed_for_the_hottest_regions() {
    let heat = |index| if index < 20 { 8.0 } else { 1.0 };
    let mut engine = scarce((0..300).map(heat).collect(), 0, 0, "");
    engine.world.reserve = SIZES.huge.times(16);
    run(&mut engine, Nanos::seconds(40));
    let huge = engine.world.program(1).huge();
    assert_eq!(huge.len(), 16);
    assert!(huge.iter().all(|one| one.get() < FIRST + 20), "{huge:?}");
}

/// The kernel gave the first memory all huge pages; the hot memory came later.
#[test]
fn cold_huge_pages_that_nobody_requested_make_room_for_hot_regions() {
    let heat = |index| if index < 100 { 0.01 } else { 8.0 };
    let hot = |engine: &Engine<Simulated>| {
        let huge = engine.world.program(1).huge();
        assert_eq!(huge.len(), 100, "each huge page is used");
        huge.iter().filter(|one| one.get() >= FIRST + 100).count()
    };
    for (flags, least, most) in [("", 57, 60), ("hg", 0, 0), ("lo", 0, 0)] {
        let mut engine = scarce((0..160).map(heat).collect(), 100, 0, flags);
        run(&mut engine, Nanos::seconds(60));
        assert!((least..=most).contains(&hot(&engine)), "{flags}: {}", hot(&engine));
        assert_eq!(engine.world.compactions > 0, most > 0, "{flags}");
    }
    // Equal regions stay as they are, and so do all if their base pages cannot move.
    for (heat, may_compact) in [(vec![1.0; 160], true), ((0..160).map(heat).collect(), false)] {
        let mut engine = scarce(heat, 100, 0, "");
        engine.world.may_compact = may_compact;
        run(&mut engine, Nanos::seconds(60));
        assert_eq!(hot(&engine), 0);
    }
}

#[test]
fn a_tune_waits_for_huge_pages_and_takes_those_that_come() {
    let world = Simulated::of([Program::new(1, vec![1.0; 300])]);
    let mut engine = engine(world, TuneGoal::default());
    let script = &engine.world.program(1).target.script;
    script.borrow_mut().extend(vec![Script::Succeed; 60]);
    // The end of the trial's round, and two attempts after it.
    script.borrow_mut().extend(vec![Script::Fail(Errno::ENOMEM); 9]);
    let rounds = run(&mut engine, Nanos::seconds(60));
    assert_eq!(engine.world.program(1).huge().len(), 300, "no region is given up");
    let lacked = |round: &&Round| round.rows[0].outcome.attempts.stopped == Some(Stop::NoHugePages);
    let ended: Vec<Nanos> =
        rounds.iter().filter(lacked).filter_map(|round| round.rows[0].outcome.ended).collect();
    assert_eq!(ended.len(), 3, "{ended:?}");
    let next = rounds.iter().map(|round| round.time).find(|&time| time > ended[2]).unwrap();
    assert!(ended[2] - ended[1] >= Nanos::seconds(1), "{ended:?}");
    assert!(next - ended[2] >= Nanos::seconds(2), "{next:?} {ended:?}");
}

#[test]
fn a_trial_without_a_free_huge_page_begins_again() {
    let world = Simulated::of([Program::new(1, vec![1.0; 300])]);
    let mut engine = engine(world, TuneGoal::default());
    let script = &engine.world.program(1).target.script;
    script.borrow_mut().extend(vec![Script::Fail(Errno::ENOMEM); 6]);
    run(&mut engine, Nanos::seconds(60));
    assert_eq!(engine.world.program(1).huge().len(), 300);
    assert!(state(&engine, 1).trial.is_some());
}

#[test]
fn an_interruption_ends_the_round_at_once() {
    let mut world = Simulated::of([Program::new(1, vec![1.0; 300])]);
    world.observe(Nanos::seconds(5));
    world.interrupted = true;
    let mut engine = engine(world, TuneGoal::default());
    assert!(engine.round(Nanos::seconds(20), Nanos::seconds(20)).unwrap().is_none());
    assert!(engine.world.program(1).target.asked.borrow().is_empty());
}

#[test]
fn an_interruption_takes_back_what_a_trial_promoted() {
    for keep in [false, true] {
        let world = Simulated::of([Program::new(1, vec![1.0; 800])]);
        let mut engine = engine(world, TuneGoal { keep, ..TuneGoal::default() });
        while !engine.is_settling() {
            engine.round(END, END).unwrap();
        }
        assert_eq!(engine.world.program(1).huge().len(), 128);
        engine.world.interrupted = true;
        let round = engine.abandon().unwrap().unwrap();
        assert_eq!(engine.world.program(1).huge().len(), if keep { 128 } else { 0 });
        assert_eq!(round.rows[0].outcome.demoted(), if keep { 0 } else { 128 });
        assert!(state(&engine, 1).trial.is_some() && engine.is_done());
        assert!(engine.abandon().unwrap().is_none());
    }
}

#[test]
fn an_idle_process_counts_for_the_budget_that_it_shares() {
    for (idle, promoted) in [(Bytes::ZERO, 30), (Bytes::gib(1), 81)] {
        let budget = Some(Amount::Share(Share::percent(10.0)));
        let goal = TuneGoal { budget, ..TuneGoal::default() };
        let mut engine = engine(Simulated::of([Program::new(1, vec![1.0; 300])]), goal);
        let id = ProcessId { pid: Pid(2), start_ticks: 7, command: "idle".into() };
        engine.note_resident(&id, idle);
        run(&mut engine, Nanos::seconds(16));
        assert_eq!(engine.world.program(1).huge().len(), promoted);
    }
}

/// A tenth of each program is 26.5 huge pages. The half page that the first one leaves is not added
/// to the half page of the second one.
#[test]
fn an_ended_process_counts_for_no_budget() {
    let budget = Some(Amount::Share(Share::percent(10.0)));
    let goal = TuneGoal { budget, policy: Policy::All, ..TuneGoal::default() };
    let programs = [Program::new(1, vec![1.0; 265]), Program::new(2, vec![1.0; 265])];
    let mut simulated = Simulated::of(programs);
    let second = simulated.programs.remove(&Pid(2));
    let mut engine = engine(simulated, goal);
    run(&mut engine, Nanos::seconds(16));
    assert_eq!(engine.world.program(1).huge().len(), 26);
    engine.world.program(1).target.state.set(TargetState::Gone);
    engine.world.programs.extend(second.map(|program| (Pid(2), program)));
    run(&mut engine, Nanos::seconds(32));
    assert_eq!(engine.world.program(2).huge().len(), 26);
}

/// Counts tries and changes of each region.
fn count_changes(round: &Round, changes: &mut BTreeMap<(Pid, Region), [u32; 2]>) {
    for Row { decision, outcome, .. } in &round.rows {
        let pid = decision.process.pid;
        for act in &outcome.attempts.acts {
            let counts = changes.entry((pid, act.region)).or_default();
            counts[0] += u32::from(act.outcome != ActOutcome::Verified);
            counts[1] += u32::from(act.outcome == ActOutcome::Verified);
        }
        for act in outcome.demotions.iter().filter(|act| is_split(act)) {
            changes.entry((pid, act.region)).or_default()[1] += 1;
        }
    }
}
