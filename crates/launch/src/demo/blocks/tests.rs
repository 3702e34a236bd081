//! Comparisons on a simulated machine whose speed drifts.

use hugepilot_reports::tune::{Certainty, Measured};
use hugepilot_stats::Orders;
use hugepilot_testkit::Rng;

use super::*;

/// Length of a window with its lead, in seconds.
const WINDOW: f64 = 0.1;

/// Machine that slows down by 40 % within three seconds, and whose speed swings by 15 % each
/// 1.7 seconds. Copy `i` has `speeds[i]` on it, with 5 % of noise for each window.
struct Machine {
    seconds: f64,
    rng: Rng,
    orders: Orders,
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self { seconds: 0.0, rng: Rng::new(seed), orders: Orders::random(COPIES, seed) }
    }

    fn blocks(&mut self, count: usize, speeds: [f64; COPIES]) -> Rounds<f64> {
        let mut blocks = Rounds::default();
        for order in self.orders.by_ref().take(count) {
            let window = |copy: usize| {
                let slow = 1.0 - 0.4 * (self.seconds / 3.0).min(1.0);
                let swing = 1.0 + 0.15 * (self.seconds * std::f64::consts::TAU / 1.7).sin();
                let noise = 1.0 + 0.05 * self.rng.normal();
                self.seconds += WINDOW;
                Ok::<_, ()>(1e6 * speeds[copy] * slow * swing * noise)
            };
            blocks.measure(order, window).unwrap();
        }
        blocks
    }
}

fn measured(alike: &Rounds<f64>, blocks: &Rounds<f64>, is_all_huge: bool) -> Measured {
    Measured::default().with_runs(compared(alike, blocks, is_all_huge).0)
}

fn contains(interval: Option<Interval>, value: f64) -> bool {
    interval.is_some_and(|Interval { low, high }| (low..=high).contains(&value))
}

#[test]
fn drift_of_the_machine_does_not_move_the_ratios() {
    let mut missed = 0;
    for seed in 0..40 {
        let report =
            measured(&Rounds::default(), &Machine::new(seed).blocks(140, [1.0, 1.24, 1.3]), true);
        let (speedup, all_huge) = (report.speedup.unwrap(), report.all_huge_speedup.unwrap());
        assert!((speedup - 1.24).abs() < 0.04, "{seed}: {speedup}");
        assert!((all_huge - 1.3).abs() < 0.04, "{seed}: {all_huge}");
        assert!(contains(report.speedup_interval, speedup), "{seed}: {speedup}");
        assert_eq!(report.all_huge_speedup_certainty, Some(Certainty::Certain), "{seed}");
        let share = report.all_huge_gain_ratio.unwrap();
        assert!((share - 0.8).abs() < 0.1, "{seed}: {share}");
        assert!(contains(report.all_huge_gain_interval, share), "{seed}");
        missed += u32::from(!contains(report.all_huge_gain_interval, 0.8));
    }
    assert!(missed <= 4, "{missed} of 40 intervals miss the share");
}

#[test]
fn the_reference_is_the_mean_of_all_copies_on_base_pages() {
    // The base copy has a placement that makes it a tenth slower than the others.
    let alike = Machine::new(1).blocks(60, [0.9, 1.0, 1.0]);
    let report = measured(&alike, &Machine::new(2).blocks(140, [0.9, 1.3, 1.3]), true);
    let mean = 0.9_f64.cbrt();
    assert!((report.speedup.unwrap() - 1.3 / mean).abs() < 0.03, "{:?}", report.speedup);
    assert!(contains(report.speedup_interval, report.speedup.unwrap()));
    assert!(contains(report.all_huge_speedup_interval, report.all_huge_speedup.unwrap()));
    assert!((report.all_huge_gain_ratio.unwrap() - 1.0).abs() < 0.1);
}

#[test]
fn an_uncertain_share_is_a_warning() {
    let of = |count, speeds| {
        let blocks = Machine::new(3).blocks(count, speeds);
        let uncertain =
            compared(&Rounds::default(), &blocks, true).1.map(|warning| match warning {
                TuneWarning::UncertainShare { interval } => interval,
                other => panic!("{other:?}"),
            });
        (measured(&Rounds::default(), &blocks, true), uncertain)
    };
    assert_eq!(of(140, [1.0, 1.4, 1.4]).1, None);
    let (few, uncertain) = of(9, [1.0, 1.4, 1.4]);
    assert_eq!(uncertain, Some(few.all_huge_gain_interval));
    assert!(few.all_huge_gain_interval.is_some() && few.all_huge_gain_ratio.is_some());
    assert_eq!(of(5, [1.0, 1.4, 1.4]).1, Some(None), "too few blocks for an interval");
    let (none, uncertain) = of(140, [1.0; 3]);
    assert_eq!(uncertain, Some(None), "no gain to have a share of");
    assert_eq!((none.all_huge_gain_ratio, none.all_huge_gain_interval), (None, None));
}

#[test]
fn a_copy_that_is_not_all_huge_is_not_the_ideal() {
    let blocks = Machine::new(4).blocks(140, [1.0, 1.3, 1.1]);
    let report = measured(&Rounds::default(), &blocks, false);
    assert!((report.speedup.unwrap() - 1.3).abs() < 0.04);
    assert!(report.all_huge.is_none() && report.all_huge_speedup.is_none());
    assert_eq!(report.all_huge_speedup_certainty, None);
    assert!(report.baseline.is_some() && report.tuned.is_some());
    assert_eq!(compared(&Rounds::default(), &blocks, false).1, None);
}

#[test]
fn a_block_in_which_a_copy_stood_still_does_not_count() {
    let of = |blocks: &[[f64; COPIES]]| {
        let blocks = blocks.iter().map(|block| block.to_vec()).collect();
        measured(&blocks, &blocks, true)
    };
    for none in [of(&[]), of(&[[0.0, 1.0, 1.0]; 8])] {
        assert_eq!((none.speedup, none.all_huge_speedup, none.baseline), (None, None, None));
    }
    let blocks = [[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [1.0, 0.0, 3.0], [1.0, 0.0, 3.0]];
    assert_eq!(of(&blocks), of(&blocks[..1]));
}
