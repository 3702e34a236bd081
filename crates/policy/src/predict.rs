//! What a plan should gain, from the sampled share of time and a calibration of this machine.
//!
//! Amdahl's law: when a share `s` of the time is spent waiting on regions that become huge, and such a wait then takes
//! `r` of its former time, the program is faster by 1 / (1 − s·(1 − r)). `s` comes from the samples; `r` was measured on
//! this machine at the size of the hot set, once with dependent loads (each waits for the one before) and once with
//! independent ones, and real programs lie between or near these.

use hugepilot_record::tune::Prediction;
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
        let (Some(low), Some(high)) = (self.0.get(after.saturating_sub(1)), self.0.get(after)) else {
            return self.0.last().copied();
        };
        let span = high.hot.as_f64().log2() - low.hot.as_f64().log2();
        let part =
            if span > 0.0 { (hot.as_f64().max(1.0).log2() - low.hot.as_f64().log2()) / span } else { 0.0 };
        let mix = |a: f64, b: f64| a + (b - a) * part.clamp(0.0, 1.0);
        Some(CalibrationPoint {
            hot,
            chase_ratio: mix(low.chase_ratio, high.chase_ratio),
            gather_ratio: mix(low.gather_ratio, high.gather_ratio),
        })
    }
}

/// What promoting regions with `heat_ratio` of all `samples` should gain, when the hot set is `hot` in size.
/// `None` without a calibration or samples.
#[allow(clippy::cast_precision_loss)]
pub fn predict(heat_ratio: f64, samples: u64, hot: Bytes, calibration: &Calibration) -> Option<Prediction> {
    if samples == 0 {
        return None;
    }
    let point = calibration.at(hot)?;
    // Two standard errors of a share found in `samples` draws.
    let error = 2.0 * (heat_ratio * (1.0 - heat_ratio) / samples as f64).max(0.0).sqrt();
    let speedup = |share: f64, ratio: f64| 1.0 / (1.0 - share.clamp(0.0, 1.0) * (1.0 - ratio)).max(0.01);
    let (less, more) = (point.chase_ratio.max(point.gather_ratio), point.chase_ratio.min(point.gather_ratio));
    Some(Prediction {
        low: speedup(heat_ratio - error, less),
        median: speedup(heat_ratio, f64::midpoint(less, more)),
        high: speedup(heat_ratio + error, more),
    })
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

    #[test]
    fn amdahl_holds_at_the_ends() {
        let calibration = calibration();
        let none = predict(0.0, 1000, Bytes::mib(256), &calibration).unwrap();
        assert_eq!((none.low, none.median, none.high), (1.0, 1.0, 1.0));
        let all = predict(1.0, 1000, Bytes::gib(4), &calibration).unwrap();
        assert!((all.low - 1.25).abs() < 1e-9 && (all.high - 1.0 / 0.6).abs() < 1e-9);
        assert!((all.median - 1.0 / 0.7).abs() < 1e-9);
    }

    #[test]
    fn between_two_sizes_it_interpolates() {
        let half = predict(1.0, 1000, Bytes::mib(128), &calibration()).unwrap();
        assert!((half.low - 1.0 / 0.9).abs() < 1e-9, "{half:?}");
        let small = predict(1.0, 1000, Bytes::mib(1), &calibration()).unwrap();
        assert_eq!(small.high, 1.0);
    }

    #[test]
    fn few_samples_widen_the_range() {
        let width = |samples| {
            let p = predict(0.5, samples, Bytes::mib(256), &calibration()).unwrap();
            p.high - p.low
        };
        assert!(width(10) > width(10_000));
    }

    #[test]
    fn without_measurements_there_is_no_prediction() {
        assert_eq!(predict(0.5, 1000, Bytes::mib(256), &Calibration::default()), None);
        assert_eq!(predict(0.5, 0, Bytes::mib(256), &calibration()), None);
    }
}
