//! What a plan should gain, from the sampled share of time and a calibration of this machine.
//!
//! Amdahl's law: when a share `s` of the time is spent waiting on regions that become huge, and such a wait then takes
//! `r` of its former time, the program is faster by 1 / (1 − s·(1 − r)). `s` comes from the samples; `r` was measured on
//! this machine at the size of the hot set, with dependent and with independent loads that do nothing else.
//!
//! A real program does something else, and its page walks overlap with other work and other misses. A sample tells where
//! it waits, not how much of the wait is the walk. So the measured saving is the *most* there can be, and what part of it
//! is exposed is an assumption, stated here: nearly all in a pointer chase, anything down to a tenth elsewhere.

use hugepilot_record::tune::Prediction;
use hugepilot_stats::share_margin;
use hugepilot_units::Bytes;

/// Time of one access on huge pages over its time on base pages, at one size of the hot set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationPoint {
    /// Memory accessed at random.
    pub hot: Bytes,
    /// Ratio for dependent loads.
    pub chase_ratio: f64,
    /// Ratio for independent loads.
    pub gather_ratio: f64,
}

/// The points of one machine, by size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration(pub Vec<CalibrationPoint>);

impl Calibration {
    /// The point at `hot`, interpolated over the logarithm of the size; beyond the ends, the end.
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
    /// The smallest ratio at `hot` or any larger size: other traffic drives a small hot set out of the caches, and then
    /// it behaves like a larger one.
    fn best_from(&self, hot: Bytes) -> Option<f64> {
        let larger = self.0.iter().filter(|point| point.hot >= hot).copied();
        let ratios =
            larger.chain(self.at(hot)).map(|point| point.chase_ratio.min(point.gather_ratio));
        ratios.reduce(f64::min)
    }
}

/// What is known of a plan's effect before it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The picks' share of all samples.
    pub heat_ratio: f64,
    /// The samples.
    pub samples: u64,
    /// Memory that is accessed at random, picked or not.
    pub hot: Bytes,
    /// The share of addressed samples that are pointer chases.
    pub chased_ratio: f64,
}

/// What the plan should gain. `None` without a calibration or samples.
pub fn predict(expected: Expected, calibration: &Calibration) -> Option<Prediction> {
    let Expected { heat_ratio, samples, .. } = expected;
    if samples == 0 {
        return None;
    }
    let range = Range::of(expected, calibration)?;
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

/// By what factor it should take longer when the regions of that share are put on base pages again: the reverse of
/// [`predict`], with the same assumptions. `None` without a calibration or samples.
pub fn predict_slowdown(expected: Expected, calibration: &Calibration) -> Option<Prediction> {
    let Expected { heat_ratio, samples, .. } = expected;
    if samples == 0 {
        return None;
    }
    let range = Range::of(expected, calibration)?;
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

/// Time of an access on huge pages over its time on base pages, and what part of the difference is exposed: at least, about
/// and at most.
struct Range {
    low: (f64, f64),
    median: (f64, f64),
    high: (f64, f64),
}

impl Range {
    fn of(expected: Expected, calibration: &Calibration) -> Option<Self> {
        let point = calibration.at(expected.hot)?;
        let chased = expected.chased_ratio.clamp(0.0, 1.0);
        let exposed = |elsewhere: f64, in_chase: f64| elsewhere + (in_chase - elsewhere) * chased;
        let (less, more) =
            (point.chase_ratio.max(point.gather_ratio), calibration.best_from(expected.hot)?);
        Some(Self {
            low: (less, exposed(0.1, 0.7)),
            median: (f64::midpoint(less, more), exposed(0.5, 0.9)),
            high: (more, 1.0),
        })
    }
}

/// Samples in one stretch of time, and how many of them waited for scattered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Waiting for scattered memory.
    pub scattered: u64,
    /// All.
    pub all: u64,
}

impl Share {
    /// The scattered ones' share, from 0 to 1; `None` of no samples.
    #[allow(clippy::cast_precision_loss)]
    pub fn ratio(self) -> Option<f64> {
        (self.all > 0).then(|| self.scattered as f64 / self.all as f64)
    }
}

/// Fewer samples elsewhere are no yardstick.
const MIN_YARDSTICK: u64 = 40;

/// What promotion did gain, from samples before and after alone.
///
/// What a program does besides waiting for scattered memory is the yardstick: huge pages change little of it, so when its
/// share of the time grows from `a` to `b`, the whole became faster by b / a. Holds for a program that does the same
/// before and after. `None` with too little of a yardstick.
#[allow(clippy::cast_precision_loss)]
pub fn sampled_speedup(before: Share, after: Share) -> Option<Prediction> {
    let rest = |share: Share| (share.all - share.scattered.min(share.all)) as f64;
    if rest(before).min(rest(after)) < MIN_YARDSTICK as f64 {
        return None;
    }
    let part = |share: Share| rest(share) / share.all as f64;
    let median = part(after) / part(before);
    // Two standard errors of the logarithm of a ratio of two shares.
    let variance = |share: Share| (1.0 - part(share)) / rest(share);
    let error = 2.0 * (variance(before) + variance(after)).sqrt();
    Some(Prediction { low: median * (-error).exp(), median, high: median * error.exp() })
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
        predict(Expected { heat_ratio, samples, hot, chased_ratio: 1.0 }, &calibration())
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
    fn a_slowdown_undoes_the_speedup() {
        let all =
            Expected { heat_ratio: 1.0, samples: 1000, hot: Bytes::gib(4), chased_ratio: 1.0 };
        let (up, down) =
            (predict(all, &calibration()).unwrap(), predict_slowdown(all, &calibration()).unwrap());
        assert!((up.high - down.high).abs() < 1e-9, "all of the time waits, all of it is exposed");
        assert!(down.low > 1.0 && down.low < down.median && down.median < down.high);
        let none = Expected { heat_ratio: 0.0, ..all };
        assert_eq!(predict_slowdown(none, &calibration()).unwrap().median, 1.0);
    }

    #[test]
    fn overlapped_walks_save_less() {
        let other =
            Expected { heat_ratio: 1.0, samples: 1000, hot: Bytes::gib(4), chased_ratio: 0.0 };
        let (other, chase) =
            (predict(other, &calibration()).unwrap(), expect(1.0, 1000, Bytes::gib(4)).unwrap());
        assert!(other.low < chase.low && other.median < chase.median);
        assert!((other.high - chase.high).abs() < 1e-9);
    }

    #[test]
    fn between_two_sizes_it_interpolates() {
        let half = expect(1.0, 1000, Bytes::mib(128)).unwrap();
        assert!((half.low - 1.0 / (1.0 - 0.1 * 0.7)).abs() < 1e-9, "{half:?}");
        let small = expect(1.0, 1000, Bytes::mib(1)).unwrap();
        assert_eq!(small.low, 1.0, "a small hot set alone gains nothing");
        assert!(
            (small.high - 1.0 / 0.6).abs() < 1e-9,
            "driven out of the caches it gains as a large one"
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
        let some =
            Expected { heat_ratio: 0.5, samples: 1000, hot: Bytes::mib(256), chased_ratio: 0.0 };
        assert_eq!(predict(some, &Calibration::default()), None);
        assert_eq!(predict(Expected { samples: 0, ..some }, &calibration()), None);
    }

    /// A program of 100 units of work elsewhere and 900 of waits that then take `r` of the time.
    #[test]
    fn the_rest_of_the_program_is_the_yardstick() {
        for r in [1.0, 0.75, 0.5, 0.1] {
            let truth = 1000.0 / (100.0 + 900.0 * r);
            let after =
                Share { scattered: (9_000.0 * r) as u64, all: (1_000.0 + 9_000.0 * r) as u64 };
            let found = sampled_speedup(Share { scattered: 9_000, all: 10_000 }, after).unwrap();
            assert!((found.median - truth).abs() < 0.01 * truth, "{r}: {found:?}");
            assert!(found.low < truth && truth < found.high);
        }
        assert_eq!(
            sampled_speedup(
                Share { scattered: 995, all: 1000 },
                Share { scattered: 995, all: 1000 }
            ),
            None
        );
        assert_eq!(sampled_speedup(Share::default(), Share::default()), None);
    }
}
