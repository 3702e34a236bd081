//! Exchanges of a spent budget: never among equal regions, and soon where hot memory moves.

use super::*;

/// Programs whose regions are equally hot, at all sizes, rates and ratios, over ten horizons.
#[test]
fn equal_regions_never_change_places() {
    let (mut trials, mut watched) = (0, 0);
    for seed in 0..80 {
        let mut rng = Rng::new(seed);
        let regions = 10 + (rng.bits() % 400) as usize;
        let mut program = Program::uniform(seed, regions);
        program.ratio = 0.2 + 0.8 * rng.unit();
        program.rate = 10.0_f64.powf(2.0 + 1.6 * rng.unit());
        program.stalls = 0.1 + 0.9 * rng.unit();
        let horizon = Nanos::millis(2000 + rng.bits() % 10_000);
        let budget = Some(Amount::Share(Share::ratio(0.1 + 0.8 * rng.unit())));
        let persistent = rng.bits().is_multiple_of(2);
        let goal = TuneGoal { budget, horizon, persistent, ..TuneGoal::default() };
        let (ratio, rate) = (program.ratio, program.rate);
        let state = program.run(&goal, Nanos::new(10 * horizon.get()) + Nanos::seconds(15));
        trials += u32::from(state.trial.is_some());
        // After its end a tune exchanges nothing: it demoted a trial without a gain.
        if state.phase != TunePhase::Ended {
            let times = |count| program.changes.values().filter(|&&times| times == count).count();
            watched += u32::from(times(1) > 0);
            assert_eq!(times(1), program.changes.len(), "seed {seed}, {ratio}, {rate} Hz");
        }
    }
    assert!(trials >= 20 && watched >= 50, "{trials} trials, {watched} watched");
}

#[test]
fn a_spent_budget_follows_the_heat() {
    let heat = |hot: std::ops::Range<usize>| -> Vec<f64> {
        (0..300).map(|region| if hot.contains(&region) { 20.0 } else { 1.0 }).collect()
    };
    let mut program = Program::new(6, heat(0..60));
    let budget = Some(Amount::Bytes(SIZES.huge.times(60)));
    let goal = TuneGoal { budget, persistent: true, ..TuneGoal::default() };
    program.later = Some((program.time + Nanos::seconds(30), heat(100..160)));
    program.run(&goal, Nanos::seconds(300));
    assert!(program.huge.len() <= 60);
    let within = |hot: std::ops::Range<u64>| {
        program.huge.iter().filter(|region| hot.contains(&(region.get() - FIRST))).count()
    };
    let (new, old) = (within(100..160), within(0..60));
    assert!(new >= 54, "{new} of the new hot regions, {old} of the former");
    assert!(program.changes.values().all(|&changes| changes <= 2), "{:?}", program.changes);
}

/// With a trial, regions that are four times as hot suffice.
#[test]
fn a_moved_hot_set_gets_the_huge_pages_and_gains() {
    let heat = |hot: std::ops::Range<usize>| -> Vec<f64> {
        (0..400).map(|region| if hot.contains(&region) { 4.0 } else { 1.0 }).collect()
    };
    let regions = |numbers: std::ops::Range<u64>| -> BTreeSet<Region> {
        numbers.map(|number| Region::new(FIRST + number)).collect()
    };
    for (seed, ratio) in [(1, 0.3), (2, 0.5), (3, 0.7), (4, 0.5), (5, 0.3)] {
        let mut program = Program::new(seed, heat(0..150));
        (program.ratio, program.rate) = (ratio, 1500.0);
        program.later = Some((program.time + Nanos::seconds(100), heat(200..350)));
        let budget = Some(Amount::Bytes(SIZES.huge.times(150)));
        let goal = TuneGoal { budget, ..TuneGoal::default() };
        let state = program.run(&goal, Nanos::seconds(140));
        assert!(state.trial.is_some(), "seed {seed}: {:?}", state.no_trial);
        let new = program.huge.intersection(&regions(200..350)).count();
        assert!(new >= 140 && program.huge.len() == 150, "seed {seed}, {ratio}: {new} of 150");
        assert!(program.changes.values().all(|&changes| changes <= 2), "seed {seed}");
        let fast = program.speedup();
        program.huge = regions(0..150);
        let slow = program.speedup();
        assert!(fast > slow + 0.05, "seed {seed}, {ratio}: {slow} to {fast}");
    }
}

/// Memory whose heat comes and goes is exchanged ever more rarely.
#[test]
fn each_demotion_doubles_the_time_that_a_promotion_stays() {
    let (region, horizon) = (Region::new(7), Nanos::seconds(60));
    let mut state = ProcessState::default();
    let act = hugepilot_record::Act {
        region,
        took: Nanos::millis(1),
        calls: 1,
        outcome: hugepilot_record::ActOutcome::Verified,
    };
    let promotion = hugepilot_record::Promotion {
        region,
        heat_ratio: 0.1,
        sampled_pages: 1,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: String::new(),
    };
    let mut now = Nanos::seconds(1);
    for stays in [60, 120, 240, 480] {
        state.note(&act, &promotion, SIZES.huge, now);
        let past = state.regions[&region];
        assert!(!past.has_stayed(now + Nanos::seconds(stays - 1), horizon));
        now = now + Nanos::seconds(stays);
        assert!(past.has_stayed(now, horizon));
        state.note_demoted(region, SIZES.huge, now);
        assert!(!state.regions[&region].has_stayed(now + Nanos::seconds(10_000), horizon));
    }
}
