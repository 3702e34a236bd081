//! Predicted gain of a plan, from the sampled share of time and a calibration of this machine.
//!
//! Amdahl's law: if a share `s` of the time is stalls on regions that become huge, and such a stall
//! then takes `r` of its former time, the speedup is 1 / (1 − s·(1 − r)). `s` comes from the
//! samples. `r` was measured on this machine at the size of the hot set, for dependent and for
//! independent loads without other work.
//!
//! Page walks of a real program overlap with other work and other misses. A sample shows where the
//! program stalls, not which part of the stall is the page walk. So the measured saving is an upper
//! bound. The exposed part of it is an assumption, stated here: nearly all in a pointer chase, down
//! to a tenth elsewhere.

use hugepilot_record::Prediction;
use hugepilot_stats::share_margin;
use hugepilot_units::Bytes;
use serde::{Deserialize, Serialize};

/// Time of one access on huge pages over its time on base pages, at one size of the hot set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationPoint {
    /// Memory accessed at random.
    pub hot: Bytes,
    /// Ratio for dependent loads.
    pub chase_ratio: f64,
    /// Ratio for independent loads.
    pub gather_ratio: f64,
}

/// Calibration of one machine, ordered by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration(pub Vec<CalibrationPoint>);

impl Calibration {
    /// Returns the point at `hot`, interpolated over the logarithm of the size; beyond the ends,
    /// the end.
    fn at(&self, hot: Bytes) -> Option<CalibrationPoint> {
        let after = self.0.partition_point(|point| point.hot < hot);
        let (Some(low), Some(high)) = (self.0.get(after.saturating_sub(1)), self.0.get(after))
        else {
            return self.0.last().copied();
        };
        let span = high.hot.as_f64().log2() - low.hot.as_f64().log2();
        let part = if span > 0.0 {
            (hot.as_f64().max(1.0).log2() - low.hot.as_f64().log2()) / span
        } else {
            0.0
        };
        let mix = |a: f64, b: f64| a + (b - a) * part.clamp(0.0, 1.0);
        Some(CalibrationPoint {
            hot,
            chase_ratio: mix(low.chase_ratio, high.chase_ratio),
            gather_ratio: mix(low.gather_ratio, high.gather_ratio),
        })
    }
}

impl Calibration {
    /// Returns the smallest ratio at `hot` or any larger size: other traffic evicts a small hot set
    /// from the caches, and then it behaves like a larger one.
    fn best_from(&self, hot: Bytes) -> Option<f64> {
        let larger = self.0.iter().filter(|point| point.hot >= hot).copied();
        let ratios =
            larger.chain(self.at(hot)).map(|point| point.chase_ratio.min(point.gather_ratio));
        ratios.reduce(f64::min)
    }
}

/// Known facts about a plan, from which its effect is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionInput {
    /// Share of all samples in the selected regions.
    pub heat_ratio: f64,
    /// Number of samples.
    pub samples: u64,
    /// Memory that is accessed at random, selected or not.
    pub hot: Bytes,
    /// Share of addressed samples that are pointer chases.
    pub chased_ratio: f64,
}

/// Predicts the speedup of a plan. `None` without a calibration or samples.
///
/// ```
/// use hugepilot_policy::{Calibration, CalibrationPoint, PredictionInput, predict};
/// use hugepilot_units::Bytes;
///
/// // On this machine, random accesses to 1 GiB take 0.6 to 0.8 of their time on huge pages.
/// let point = CalibrationPoint { hot: Bytes::gib(1), chase_ratio: 0.8, gather_ratio: 0.6 };
/// // Half of 4,000 samples are stalls in the regions to promote.
/// let input =
///     PredictionInput { heat_ratio: 0.5, samples: 4000, hot: Bytes::gib(1), chased_ratio: 0.0 };
/// let speedup = predict(input, &Calibration(vec![point])).expect("there are samples");
/// assert!(1.0 < speedup.low && speedup.low < speedup.median);
/// assert!(speedup.high < 1.27, "at most about 1 / (1 - 0.5 * 0.4)");
/// ```
pub fn predict(input: PredictionInput, calibration: &Calibration) -> Option<Prediction> {
    let PredictionInput { heat_ratio, samples, .. } = input;
    if samples == 0 {
        return None;
    }
    let range = SavingRange::of(input, calibration)?;
    let error = share_margin(heat_ratio, samples);
    let speedup = |share: f64, (ratio, exposed): (f64, f64)| {
        1.0 / (1.0 - share.clamp(0.0, 1.0) * (1.0 - ratio) * exposed).max(0.01)
    };
    Some(Prediction {
        low: speedup(heat_ratio - error, range.low),
        median: speedup(heat_ratio, range.median),
        high: speedup(heat_ratio + error, range.high),
    })
}

/// Whether the measured time of a stall on huge pages over its time on base pages, between the
/// bounds `low` and `high`, lies far outside of what `calibration` allows.
pub fn contradicts(
    input: PredictionInput,
    calibration: &Calibration,
    (low, high): (f64, f64),
) -> bool {
    /// Distance of the bounds from the range, so that programs that the simple loops of a
    /// calibration describe badly do not count.
    const WIDELY: f64 = 0.1;
    let Some(range) = SavingRange::of(input, calibration) else { return false };
    let ratio = |(ratio, exposed): (f64, f64)| 1.0 - (1.0 - ratio) * exposed;
    high < ratio(range.high) - WIDELY || low > ratio(range.low) + WIDELY
}

/// Predicts the slowdown if the regions of that share are split: the reverse of [`predict`], with
/// the same assumptions. `None` without a calibration or samples.
pub fn predict_slowdown(input: PredictionInput, calibration: &Calibration) -> Option<Prediction> {
    let PredictionInput { heat_ratio, samples, .. } = input;
    if samples == 0 {
        return None;
    }
    let range = SavingRange::of(input, calibration)?;
    let error = share_margin(heat_ratio, samples);
    let slowdown = |share: f64, (ratio, exposed): (f64, f64)| {
        1.0 + share.clamp(0.0, 1.0) * (1.0 / ratio.max(0.01) - 1.0).max(0.0) * exposed
    };
    Some(Prediction {
        low: slowdown(heat_ratio - error, range.low),
        median: slowdown(heat_ratio, range.median),
        high: slowdown(heat_ratio + error, range.high),
    })
}

/// Ratio of access times on huge pages and on base pages, and the exposed part of the difference:
/// smallest, middle and largest.
struct SavingRange {
    low: (f64, f64),
    median: (f64, f64),
    high: (f64, f64),
}

impl SavingRange {
    fn of(input: PredictionInput, calibration: &Calibration) -> Option<Self> {
        let point = calibration.at(input.hot)?;
        let chased = input.chased_ratio.clamp(0.0, 1.0);
        let exposed = |elsewhere: f64, in_chase: f64| elsewhere + (in_chase - elsewhere) * chased;
        let (less, more) =
            (point.chase_ratio.max(point.gather_ratio), calibration.best_from(input.hot)?);
        Some(Self {
            low: (less, exposed(0.1, 0.7)),
            median: (f64::midpoint(less, more), exposed(0.5, 0.9)),
            high: (more, 1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        let point = |mib, chase_ratio, gather_ratio| CalibrationPoint {
            hot: Bytes::mib(mib),
            chase_ratio,
            gather_ratio,
        };
        Calibration(vec![point(64, 1.0, 1.0), point(256, 0.8, 0.6)])
    }

    fn expect(heat_ratio: f64, samples: u64, hot: Bytes) -> Option<Prediction> {
        predict(PredictionInput { heat_ratio, samples, hot, chased_ratio: 1.0 }, &calibration())
    }

    fn input(heat_ratio: f64, chased_ratio: f64) -> PredictionInput {
        PredictionInput { heat_ratio, samples: 1000, hot: Bytes::gib(4), chased_ratio }
    }

    #[test]
    fn amdahl_holds_at_the_ends() {
        let none = expect(0.0, 1000, Bytes::mib(256)).unwrap();
        assert_eq!((none.low, none.median, none.high), (1.0, 1.0, 1.0));
        let all = expect(1.0, 1000, Bytes::gib(4)).unwrap();
        assert!((all.high - 1.0 / 0.6).abs() < 1e-9, "the whole measured saving, at most");
        assert!((all.median - 1.0 / (1.0 - 0.3 * 0.9)).abs() < 1e-9);
        assert!((all.low - 1.0 / (1.0 - 0.2 * 0.7)).abs() < 1e-9);
    }

    #[test]
    fn a_trial_far_outside_of_the_range_contradicts_the_calibration() {
        // 256 MiB and more allow 0.6 to 1 - 0.2 * 0.7 = 0.86 in a pointer chase, and 0.6 to
        // 1 - 0.2 * 0.1 = 0.98 elsewhere.
        let chase = |low, high| contradicts(input(0.5, 1.0), &calibration(), (low, high));
        assert!(chase(0.3, 0.49) && chase(0.97, 1.1));
        for (low, high) in [(0.3, 0.51), (0.95, 1.1), (0.6, 0.86), (0.1, 2.0)] {
            assert!(!chase(low, high), "{low} {high}");
        }
        assert!(!contradicts(input(0.5, 0.0), &calibration(), (0.97, 1.1)));
        let none = Calibration::default();
        assert!(!contradicts(input(0.5, 1.0), &none, (0.1, 0.2)), "nothing is predicted");
    }

    #[test]
    fn a_slowdown_undoes_the_speedup() {
        let all = input(1.0, 1.0);
        let (up, down) =
            (predict(all, &calibration()).unwrap(), predict_slowdown(all, &calibration()).unwrap());
        assert!((up.high - down.high).abs() < 1e-9, "all of the time is stalls, all of it exposed");
        assert!(down.low > 1.0 && down.low < down.median && down.median < down.high);
        let none = PredictionInput { heat_ratio: 0.0, ..all };
        assert_eq!(predict_slowdown(none, &calibration()).unwrap().median, 1.0);
    }

    #[test]
    fn overlapped_walks_save_less() {
        let other = input(1.0, 0.0);
        let (other, chase) =
            (predict(other, &calibration()).unwrap(), expect(1.0, 1000, Bytes::gib(4)).unwrap());
        assert!(other.low < chase.low && other.median < chase.median);
        assert!((other.high - chase.high).abs() < 1e-9);
    }

    #[test]
    fn ratios_between_two_sizes_are_interpolated() {
        let half = expect(1.0, 1000, Bytes::mib(128)).unwrap();
        assert!((half.low - 1.0 / (1.0 - 0.1 * 0.7)).abs() < 1e-9, "{half:?}");
        let small = expect(1.0, 1000, Bytes::mib(1)).unwrap();
        assert_eq!(small.low, 1.0, "a small hot set alone gains nothing");
        assert!(
            (small.high - 1.0 / 0.6).abs() < 1e-9,
            "evicted from the caches, it gains as a large one"
        );
    }

    #[test]
    fn few_samples_widen_the_range() {
        let width = |samples| {
            let p = expect(0.5, samples, Bytes::mib(256)).unwrap();
            p.high - p.low
        };
        assert!(width(10) > width(10_000));
    }

    #[test]
    fn without_measurements_there_is_no_prediction() {
        let some = input(0.5, 0.0);
        assert_eq!(predict(some, &Calibration::default()), None);
        assert_eq!(predict(PredictionInput { samples: 0, ..some }, &calibration()), None);
    }
}
