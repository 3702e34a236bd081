//! Policies besides `heat` in the simulated world.

use hugepilot_policy::tune::{HawkeyeRules, KhugepagedRules};

use super::*;

fn goal(policy: Policy) -> TuneGoal {
    TuneGoal { policy, ..TuneGoal::default() }
}

/// Huge pages of two processes of 100 regions that share a budget of 50, after this time. The
/// second process is hotter, and is not sampled unless samples decide.
fn shared_budget(policy: Policy, seconds: u64) -> [usize; 2] {
    let mut programs = [1, 2].map(|pid| Program::new(pid, vec![1.0; 100]));
    programs[0].stalls = 0.2;
    programs[1].is_sampled = policy.needs_samples();
    let budget = Some(Amount::Bytes(SIZES.huge.times(50)));
    let mut engine = engine(Simulated::of(programs), TuneGoal { budget, ..goal(policy) });
    let mut changes = BTreeMap::new();
    for round in run(&mut engine, Nanos::seconds(seconds)) {
        count_changes(&round, &mut changes);
    }
    assert!(changes.values().all(|&[tries, made]| (tries, made) == (0, 1)), "{changes:?}");
    [1, 2].map(|pid| engine.world.program(pid).huge().len())
}

#[test]
fn two_processes_share_a_budget_as_each_policy_says() {
    assert_eq!(shared_budget(Policy::All, 20), [50, 0]);
    assert_eq!(shared_budget(Policy::Linux, 20), [50, 0]);
    assert_eq!(shared_budget(Policy::Never, 20), [0, 0]);
    // Scans at 4 s and 14 s, of eight regions each.
    assert_eq!(shared_budget(Policy::Khugepaged(KhugepagedRules::default()), 20), [16, 0]);
    let rules = KhugepagedRules { pages_to_scan: 60 * 512, ..KhugepagedRules::default() };
    assert_eq!(shared_budget(Policy::Khugepaged(rules), 20), [50, 0]);
    // At 4 s, all regions are in the lowest bucket, in which processes take turns.
    assert_eq!(shared_budget(Policy::Hawkeye(HawkeyeRules::default()), 5), [4, 4]);
    let rules = HawkeyeRules { promotions: 11, ..HawkeyeRules::default() };
    assert_eq!(shared_budget(Policy::Hawkeye(rules), 5), [6, 5]);
    // Later, those of the second process are in a higher one.
    let [first, second] = shared_budget(Policy::Hawkeye(HawkeyeRules::default()), 21);
    assert!(first < 16 && first + second > 40, "{first}, {second}");
}

#[test]
fn linux_serves_memory_in_the_order_of_its_first_touch() {
    let program = Program::new(1, vec![1.0; 90]);
    let touch = |program: &Program, numbers: std::ops::Range<u64>, resident: u64| {
        let mut pages = program.target.pages.borrow_mut();
        for number in numbers {
            pages.get_mut(&Region::new(FIRST + number)).unwrap().resident = resident;
        }
    };
    touch(&program, 0..60, 0);
    let budget = Some(Amount::Bytes(SIZES.huge.times(45)));
    let goal = TuneGoal { budget, ..goal(Policy::Linux) };
    let mut engine = engine(Simulated::of([program]), goal);
    let after = |engine: &mut Engine<Simulated>| {
        engine.round(END, END).unwrap().unwrap();
        let huge = engine.world.program(1).huge();
        huge.into_iter().map(|region| region.get() - FIRST).collect::<Vec<_>>()
    };
    assert_eq!(after(&mut engine), (60..90).collect::<Vec<_>>());
    // Seen, and not eligible yet: their place is kept.
    touch(engine.world.program(1), 40..50, 1);
    after(&mut engine);
    touch(engine.world.program(1), 0..50, 512);
    let expected: Vec<u64> = (0..5).chain(40..50).chain(60..90).collect();
    assert_eq!(after(&mut engine), expected);
}

#[test]
fn an_idle_process_is_promoted_whole_by_a_policy_without_samples() {
    for (policy, regions) in [(Policy::All, 700), (Policy::Linux, 700), (Policy::Heat, 0)] {
        let mut program = Program::new(1, vec![1.0; 700]);
        program.is_sampled = false;
        let mut engine = engine(Simulated::of([program]), goal(policy));
        let rounds = run(&mut engine, Nanos::seconds(9));
        assert_eq!(engine.world.program(1).huge().len(), regions);
        // More regions than one round promotes follow at once.
        let last = rounds.iter().filter_map(|round| round.rows[0].outcome.ended).max();
        assert!(last.is_none_or(|last| last < Nanos::seconds(6)), "{last:?}");
    }
}

#[test]
fn a_dry_run_of_each_policy_decides_once_and_changes_nothing() {
    for policy in [
        Policy::Pcc(PccRules::default()),
        Policy::Hawkeye(HawkeyeRules::default()),
        Policy::Khugepaged(KhugepagedRules::default()),
        Policy::Linux,
        Policy::All,
        Policy::Never,
    ] {
        let world = Simulated::of([Program::new(1, vec![1.0; 100])]);
        let goal = TuneGoal { model_only: true, ..goal(policy) };
        let promotes = goal.policy != Policy::Never;
        let mut engine = Engine::new(world, goal, Guard::default(), true);
        let rounds = run(&mut engine, Nanos::seconds(20));
        assert!(rounds.len() == 1 && engine.is_done());
        assert_eq!(!rounds[0].rows[0].decision.promote.is_empty(), promotes);
        assert!(engine.world.program(1).target.asked.borrow().is_empty());
    }
}

/// Two programs share a budget for one of them. The hot one grows cold, and the other gets its huge
/// pages.
#[test]
fn a_budget_follows_the_heat_from_one_process_to_another() {
    let mut programs = [1, 2].map(|pid| Program::new(pid, vec![1.0; 100]));
    (programs[0].stalls, programs[1].stalls) = (0.9, 0.02);
    let budget = Some(Amount::Bytes(SIZES.huge.times(100)));
    let horizon = Nanos::seconds(20);
    let goal = TuneGoal { budget, horizon, persistent: true, ..TuneGoal::default() };
    let mut engine = engine(Simulated::of(programs), goal);
    let huge =
        |engine: &Engine<Simulated>| [1, 2].map(|pid| engine.world.program(pid).huge().len());
    run(&mut engine, Nanos::seconds(40));
    assert_eq!(huge(&engine), [100, 0]);
    for (pid, stalls) in [(1, 0.02), (2, 0.9)] {
        engine.world.programs.get_mut(&Pid(pid)).unwrap().stalls = stalls;
    }
    let mut changes = BTreeMap::new();
    for round in run(&mut engine, Nanos::seconds(120)) {
        count_changes(&round, &mut changes);
    }
    let [first, second] = huge(&engine);
    assert!(second >= 90 && first + second <= 100, "{first}, {second}");
    assert!(changes.values().all(|&[_, made]| made <= 1), "{changes:?}");
}
