//! The goal in simulated programs, whose gain is known.

mod exchange;
mod hawkeye;
mod journal;
mod older_pages;
mod pcc;
mod policies;
mod program;
mod rules;
mod schedule;

use std::collections::BTreeSet;

use hugepilot_reports::tune::{NoTrial, TrialVerdict};
use hugepilot_testkit::Rng;
use hugepilot_units::{Amount, Bytes, Nanos, Region, Share};

use program::{Change, FIRST, Program, SIZES};

use super::*;

#[test]
fn a_uniform_heap_is_promoted_whole() {
    for regions in [300, 1000, 4000] {
        let mut program = Program::uniform(1, regions);
        let state = program.run(&TuneGoal::default(), Nanos::seconds(15));
        let share = program.share_of_gain();
        assert!(share > 0.95, "{regions} regions: {share}, {:?}", state.trial);
        let trial = state.trial.unwrap();
        // 128 pairs of 4000 regions have too few samples for a verdict.
        let wanted = if regions > 2000 { TrialVerdict::Open } else { TrialVerdict::Gain };
        assert_eq!(trial.verdict, wanted);
        let bracket = TrialRules::default().bracket(&trial.estimate.unwrap(), trial.shares);
        let gain = program.speedup();
        assert!(bracket.low <= gain && gain <= bracket.high, "{gain} in {bracket:?}");
    }
}

#[test]
fn without_a_gain_everything_is_taken_back() {
    let mut program = Program::uniform(2, 256);
    (program.ratio, program.rate) = (1.0, 4000.0);
    let state = program.run(&TuneGoal::default(), Nanos::seconds(15));
    assert_eq!(state.trial.unwrap().verdict, TrialVerdict::NoGain);
    assert!(program.huge.is_empty());
    assert!(program.changes.values().all(|&changes| changes == 2));
}

#[test]
fn kept_if_the_user_says_so() {
    let mut program = Program::uniform(2, 256);
    (program.ratio, program.rate) = (1.0, 4000.0);
    program.run(&TuneGoal { keep: true, ..TuneGoal::default() }, Nanos::seconds(15));
    assert_eq!(program.huge.len(), 128);
}

#[test]
fn only_hot_regions_of_a_sparse_heap_are_promoted() {
    let mut rng = Rng::new(3);
    let heat: Vec<f64> = (0..2048).map(|_| f64::from(u8::from(rng.unit() < 0.1))).collect();
    let hot: BTreeSet<Region> = (FIRST..)
        .zip(&heat)
        .filter(|(_, heat)| **heat > 0.0)
        .map(|(number, _)| Region::new(number))
        .collect();
    let mut program = Program::new(3, heat);
    program.run(&TuneGoal::default(), Nanos::seconds(15));
    assert!(program.huge.is_subset(&hot));
    assert!(program.share_of_gain() > 0.95, "{}", program.share_of_gain());
}

#[test]
fn few_samples_are_observed_longer_and_many_shorter() {
    // 100 samples a second are enough after about 4 s, and many are after half the usual time.
    for (rate, seconds) in [
        (0.0, 3.0..=3.0),
        (20.0, 5.0..=5.0),
        (100.0, 3.6..=4.6),
        (500.0, 3.0..=3.0),
        (2000.0, 1.5..=1.5),
    ] {
        let mut program = Program::uniform(4, 300);
        (program.rate, program.stalls) = (rate, 1.0);
        let begun = program.time;
        // The first decision is the last.
        let goal = TuneGoal { model_only: true, ..TuneGoal::default() };
        program.run(&goal, Nanos::seconds(60));
        let took = (program.time - begun).as_seconds() - program.huge.len() as f64 / 1000.0;
        let (least, most) = (seconds.start() - 0.01, seconds.end() + 0.01);
        assert!((least..=most).contains(&took), "{rate} Hz: {took} s");
    }
}

#[test]
fn a_trial_in_which_no_promotion_succeeds_ends_at_once() {
    let mut program = Program::uniform(4, 300);
    program.fails = (FIRST..FIRST + 300).map(Region::new).collect();
    let begun = program.time;
    let state = program.run(&TuneGoal::default(), Nanos::seconds(60));
    assert_eq!(state.no_trial, Some(NoTrial::NonePromoted { pairs: 128 }));
    assert!(program.time - begun < Nanos::seconds(4), "{:?}", program.time - begun);
    assert!(program.tries.values().all(|&tries| tries == 1));
}

#[test]
fn pairs_that_others_change_do_not_count() {
    let run = |change: Change| {
        let mut program = Program::uniform(8, 300);
        (program.ratio, program.rate) = (0.5, 4000.0);
        program.others = Some((program.time + Nanos::millis(1700), change));
        let state = program.run(&TuneGoal::default(), Nanos::seconds(15));
        (state, program.huge)
    };
    // The kernel promotes controls, or splits the huge pages of the trial, or memory is freed.
    let changes: [Change; 3] = [
        |huge, _| huge.extend((FIRST..FIRST + 150).map(Region::new)),
        |huge, _| huge.retain(|region| region.get() >= FIRST + 150),
        |huge, resident| {
            huge.retain(|region| region.get() >= FIRST + 150);
            resident[..150].fill(0);
        },
    ];
    for change in changes {
        let (state, huge) = run(change);
        let trial = state.trial.unwrap();
        let estimate = trial.estimate.unwrap();
        assert!((20..100).contains(&estimate.pairs), "{estimate:?}");
        assert!((0.35..0.7).contains(&estimate.ratio()), "{estimate:?}");
        assert_eq!((trial.verdict, trial.confirmed), (TrialVerdict::Gain, Some(true)));
        let second = huge.iter().filter(|region| region.get() >= FIRST + 150);
        assert_eq!(second.count(), 150);
    }
    // A few pairs decide nothing, and are demoted. The regions of the others stay.
    for (count, others) in [(300, 0..=0), (275, 1..=19)] {
        let change: Change = match count {
            300 => |huge, _| huge.extend((FIRST..FIRST + 300).map(Region::new)),
            _ => |huge, _| huge.extend((FIRST..FIRST + 275).map(Region::new)),
        };
        let (state, huge) = run(change);
        let Some(NoTrial::PairsChanged { pairs: 128, left }) = state.no_trial else {
            panic!("{:?}", state.no_trial)
        };
        assert!(state.trial.is_none() && others.contains(&left), "{left}");
        let kept = huge.iter().filter(|region| region.get() < FIRST + count).count() as u64;
        assert!(kept + left >= count, "{kept}");
    }
}

#[test]
fn a_trial_spends_a_budget_on_the_hottest_regions_only() {
    // A hundred regions are four times as hot as three hundred others.
    let heat: Vec<f64> = (0..400).map(|region| if region % 4 == 0 { 4.0 } else { 1.0 }).collect();
    let hot = |huge: &BTreeSet<Region>| {
        huge.iter().filter(|region| (region.get() - FIRST).is_multiple_of(4)).count()
    };
    for (pages, least, has_trial) in
        [(0, 0, false), (30, 27, false), (100, 85, false), (160, 90, true)]
    {
        let mut program = Program::new(5, heat.clone());
        let budget = Amount::Bytes(SIZES.huge.times(pages));
        let goal = TuneGoal { budget: Some(budget), ..TuneGoal::default() };
        let state = program.run(&goal, Nanos::seconds(15));
        assert!(hot(&program.huge) >= least, "{} of {pages}", hot(&program.huge));
        assert!(program.huge.len() as u64 <= pages);
        assert_eq!(state.trial.is_some(), has_trial, "{pages}");
        let few =
            matches!(state.no_trial, Some(NoTrial::FewPairs { required: 64, limited: true, .. }));
        assert_eq!(few, !has_trial, "{pages}: {:?}", state.no_trial);
    }
}

#[test]
fn pointer_chases_are_promoted_by_the_model() {
    let mut program = Program::uniform(4, 300);
    program.chased = 0.6;
    let state = program.run(&TuneGoal::default(), Nanos::seconds(15));
    assert!(matches!(state.no_trial, Some(NoTrial::PointerChases { .. })), "{:?}", state.no_trial);
    assert!(program.share_of_gain() > 0.9);
}

#[test]
fn a_program_that_hardly_stalls_is_left_on_base_pages() {
    let mut program = Program::uniform(5, 300);
    program.stalls = 0.02;
    let state = program.run(&TuneGoal::default(), Nanos::seconds(15));
    assert!(matches!(state.no_trial, Some(NoTrial::FewStalls { .. })));
    assert!(program.huge.is_empty());
}

#[test]
fn a_budget_goes_to_the_hottest() {
    let heat: Vec<f64> = (0..1000_u32).map(|i| if i < 40 { 20.0 } else { 1.0 }).collect();
    let mut program = Program::new(6, heat);
    program.rate = 2000.0;
    let budget = Some(Amount::Share(Share::percent(20.0)));
    program.run(&TuneGoal { budget, ..TuneGoal::default() }, Nanos::seconds(15));
    assert!(program.huge.len() <= 200);
    let hottest = (FIRST..FIRST + 40).filter(|n| program.huge.contains(&Region::new(*n))).count();
    assert!(hottest >= 38, "{hottest} of 40");
}

#[test]
fn memory_added_stays_within_its_share() {
    let mut program = Program::uniform(7, 500);
    program.resident = vec![500; 500];
    program.run(&TuneGoal::default(), Nanos::seconds(15));
    let added = program.huge.len() as u64 * 12;
    assert!(added * 100 <= 512 * 500, "{added}");
}

/// Whatever the program: limits hold, no region changes more than twice, and none that fails is
/// tried more often than allowed.
#[test]
fn no_limit_is_broken() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let regions = 1 + usize::try_from(rng.bits() % 400).unwrap();
        let skew = 6.0 * rng.unit();
        let heat = (0..regions).map(|_| rng.unit().powf(skew)).collect();
        let mut program = Program::new(seed, heat);
        (program.ratio, program.stalls) = (0.3 + 0.8 * rng.unit(), 0.99 * rng.unit());
        program.resident = (0..regions).map(|_| 100 + rng.bits() % 413).collect();
        program.fails = (FIRST..FIRST + rng.bits() % 400).map(Region::new).collect();
        program.headroom.system = Bytes::gib(4 + rng.bits() % 66);
        let budget = (seed % 2 == 0).then(|| Share::percent(100.0 * rng.unit()));
        check_limits(&mut program, budget);
    }
}

fn check_limits(program: &mut Program, budget: Option<Share>) {
    let before: u64 = program.resident.iter().sum();
    let goal = TuneGoal { budget: budget.map(Amount::Share), ..TuneGoal::default() };
    let state = program.run(&goal, Nanos::seconds(20));
    let (after, huge): (u64, u64) = (program.resident.iter().sum(), program.huge.len() as u64);
    if let Some(budget) = budget {
        // The budget is a share of the resident memory, which promotions increase.
        assert!(SIZES.huge.times(huge) <= budget.of(SIZES.base.times(after)) + SIZES.huge);
    }
    // Promoted regions are whole; the share of memory that this may add holds in each round.
    assert!((after - before) * 99 <= before + 512 * 100, "{before} to {after} pages");
    assert!(program.changes.values().all(|&changes| changes <= 2));
    assert!(program.tries.values().all(|&tries| tries <= 3));
    assert!(state.added >= SIZES.base.times(after - before));
}
