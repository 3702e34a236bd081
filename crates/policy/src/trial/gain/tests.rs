//! Trials of simulated programs, whose truth is known.

use hugepilot_testkit::Rng;
use hugepilot_units::Region;

use super::*;
use crate::trial::{PairCounts, assign};

/// A program whose regions have different heat, in windows of `samples` samples on all of them. The
/// second window is `drift` times as busy.
struct Program {
    ratio: f64,
    drift: f64,
    samples: f64,
    heat: Vec<f64>,
}

impl Program {
    fn new(rng: &mut Rng, ratio: f64) -> Self {
        let heat: Vec<f64> = (0..256).map(|_| -(1.0 - rng.unit()).ln()).collect();
        let sum: f64 = heat.iter().sum();
        Self { ratio, drift: 1.4, samples: 1500.0, heat: heat.iter().map(|h| h / sum).collect() }
    }

    fn counts(&self, rng: &mut Rng, seed: u64) -> Vec<PairCounts> {
        let before: Vec<u32> =
            self.heat.iter().map(|heat| rng.poisson(heat * self.samples)).collect();
        let regions = before.iter().zip(0..).map(|(&count, i)| (Region::new(i), count.into()));
        let pairs = assign(&regions.collect::<Vec<_>>(), seed);
        let of = |region: Region| usize::try_from(region.get()).unwrap();
        pairs
            .iter()
            .map(|pair| {
                let (a, b) = (of(pair.promoted), of(pair.control));
                let after = |i: usize| self.heat[i] * self.samples * self.drift;
                PairCounts {
                    promoted_before: before[a],
                    control_before: before[b],
                    promoted_after: rng.poisson(after(a) * self.ratio),
                    control_after: rng.poisson(after(b)),
                }
            })
            .collect()
    }
}

const SHARES: StallShares =
    StallShares { eligible: 0.9, unknown: 0.05, chased: 0.0, hottest_pair: 0.05 };

fn trials(ratio: f64) -> Vec<Estimate> {
    let mut rng = Rng::new(17);
    let program = Program::new(&mut rng, ratio);
    (0..300).map(|seed| Estimate::of(&program.counts(&mut rng, seed)).unwrap()).collect()
}

#[test]
fn estimates_are_unbiased_and_their_errors_honest() {
    for ratio in [1.0, 0.8, 0.5] {
        let all = trials(ratio);
        let n = f64::from(u32::try_from(all.len()).unwrap());
        let mean = all.iter().map(|e| e.log_ratio).sum::<f64>() / n;
        assert!((mean - f64::ln(ratio)).abs() < 0.01, "{ratio}: {mean}");
        let inside = |e: &&Estimate| (e.log_ratio - f64::ln(ratio)).abs() < 1.96 * e.standard_error;
        let coverage = all.iter().filter(inside).count();
        assert!((270..=300).contains(&coverage), "{ratio}: {coverage} of 300");
    }
}

/// The same data without a coin: the hottest half against the rest, nothing promoted.
#[test]
fn without_a_coin_a_gain_is_invented() {
    let mut rng = Rng::new(5);
    let program = Program::new(&mut rng, 1.0);
    let before: Vec<u32> =
        program.heat.iter().map(|heat| rng.poisson(heat * program.samples)).collect();
    let mut order: Vec<usize> = (0..before.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(before[i]));
    let mut after = |half: &[usize]| -> f64 {
        half.iter().map(|&i| f64::from(rng.poisson(program.heat[i] * program.samples))).sum()
    };
    let sum = |half: &[usize]| -> f64 { half.iter().map(|&i| f64::from(before[i])).sum() };
    let (hot, cold) = order.split_at(128);
    let ratio = (after(hot) / after(cold)) / (sum(hot) / sum(cold));
    assert!(ratio < 0.9, "{ratio}");
}

#[test]
fn verdicts_have_the_sign_of_the_truth() {
    let rules = TrialRules::default();
    let count = |ratio, verdict| {
        trials(ratio).iter().filter(|e| rules.verdict(e, SHARES) == verdict).count()
    };
    assert!(count(0.5, TrialVerdict::Gain) > 290);
    assert!(count(1.0, TrialVerdict::Gain) <= 3);
    assert_eq!(count(0.5, TrialVerdict::NoGain), 0);
    // A small gain stays open with so few samples.
    assert!(count(0.97, TrialVerdict::Open) > 250);
}

#[test]
fn no_gain_is_found_with_enough_samples() {
    let mut rng = Rng::new(9);
    let program = Program { samples: 60_000.0, ..Program::new(&mut rng, 1.0) };
    let verdicts = (0..50).map(|seed| {
        let estimate = Estimate::of(&program.counts(&mut rng, seed)).unwrap();
        TrialRules::default().verdict(&estimate, SHARES)
    });
    let verdicts: Vec<TrialVerdict> = verdicts.collect();
    let count = |wanted| verdicts.iter().filter(|&&verdict| verdict == wanted).count();
    assert_eq!(count(TrialVerdict::Gain), 0);
    assert!(count(TrialVerdict::NoGain) > 40, "{}", count(TrialVerdict::NoGain));
}

/// The bracket of a published row: r = 0.741 [0.724, 0.759], shares 0.86 and 0.98 give 1.15 to 1.34
/// around 1.29 (measurements of a prototype; its intervals are for one reading).
#[test]
fn the_formulas_give_the_measured_brackets() {
    assert!((speedup(0.86, 0.741) - 1.29).abs() < 0.01);
    assert!((speedup(0.86, 2.0 * 0.759 / 1.759) - 1.13).abs() < 0.025);
    assert!((speedup(0.98, 0.741) - 1.34).abs() < 0.01);
    assert!((speedup(0.99, 0.3) - 3.25).abs() < 0.05);
    assert!((speedup(0.0, 0.3) - 1.0).abs() < 1e-12);
}

#[test]
fn the_bracket_holds_the_middle() {
    for estimate in trials(0.7) {
        let bracket = TrialRules::default().bracket(&estimate, SHARES);
        assert!(bracket.low <= bracket.median && bracket.median <= bracket.high);
        assert!((0.98..1.6).contains(&bracket.low) && bracket.high < 2.5, "{bracket:?}");
    }
}

#[test]
fn trials_that_can_show_nothing_are_refused() {
    let rules = TrialRules::default();
    let check = |change: fn(&mut StallShares), pairs| {
        let mut shares = SHARES;
        change(&mut shares);
        rules.check(shares, pairs)
    };
    assert_eq!(check(|_| (), 20), Ok(()));
    assert_eq!(
        check(|_| (), 19),
        Err(NoTrial::FewPairs { pairs: 19, required: 20, limited: false })
    );
    let chased = check(|shares| shares.chased = 0.4, 90);
    assert_eq!(chased, Err(NoTrial::PointerChases { ratio: 0.4 }));
    let few = check(|shares| shares.eligible = 0.04, 90);
    assert_eq!(few, Err(NoTrial::FewStalls { ratio: 0.04, required_ratio: 0.05 }));
    let one = check(|shares| shares.hottest_pair = 0.3, 90);
    assert_eq!(one, Err(NoTrial::DominantPair { ratio: 0.3 }));
}

#[test]
fn arms_without_samples_give_no_estimate() {
    assert_eq!(Estimate::of(&[]), None);
    let one =
        PairCounts { promoted_before: 3, control_before: 2, promoted_after: 0, control_after: 4 };
    assert_eq!(Estimate::of(&[one; 50]), None);
    let same = PairCounts { promoted_after: 4, ..one };
    assert!(Estimate::of(&[same; 50]).unwrap().is_one());
}

/// A check of few samples says nothing of a trial whose gain is within its error.
#[test]
fn a_short_check_confirms_no_trial() {
    let of = |ratio: f64, standard_error: f64| Estimate {
        log_ratio: ratio.ln(),
        standard_error,
        samples: 100,
        pairs: 50,
    };
    let trial = of(0.65, 0.1);
    assert_eq!(of(1.02, 0.05).confirms(&trial), Some(true));
    assert_eq!(of(0.82, 0.3).confirms(&trial), None);
    assert_eq!(of(0.65, 0.05).confirms(&trial), Some(false));
}
