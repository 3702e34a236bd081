//! Estimate of the stall ratio from the samples of both arms.

use hugepilot_stats::sequence_margin;
use serde::{Deserialize, Serialize};

/// Samples of one pair: stalls on scattered memory with an address, without those of provenance
/// `next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCounts {
    /// Promoted region, before its promotion.
    pub promoted_before: u32,
    /// Control region, in the same window.
    pub control_before: u32,
    /// Promoted region, after its promotion.
    pub promoted_after: u32,
    /// Control region, in the same window.
    pub control_after: u32,
}

/// Stall time on huge pages over that on base pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Natural logarithm of the ratio.
    pub log_ratio: f64,
    /// Standard error of `log_ratio`.
    pub standard_error: f64,
    /// Samples on both arms after the promotion.
    pub samples: u64,
    /// Pairs.
    pub pairs: u64,
}

impl Estimate {
    /// Estimates the ratio; `None` if an arm has no sample in a window.
    ///
    /// The samples after the promotion give the ratio of the arms. Those before it are a control
    /// variate: they remove chance differences of the arms as far as they predict them. The
    /// variance is that of the pairs, and at least Poisson's. It also holds bursts and unequal
    /// pairs.
    #[allow(clippy::cast_precision_loss)]
    pub fn of(pairs: &[PairCounts]) -> Option<Self> {
        let sum = |count: fn(&PairCounts) -> u32| -> u64 {
            pairs.iter().map(|pair| u64::from(count(pair))).sum()
        };
        let sums = [
            sum(|pair| pair.promoted_before),
            sum(|pair| pair.control_before),
            sum(|pair| pair.promoted_after),
            sum(|pair| pair.control_after),
        ];
        if sums.contains(&0) {
            return None;
        }
        let [a1, b1, a2, b2] = sums.map(|sum| sum as f64);
        let differences: Vec<(f64, f64)> = pairs
            .iter()
            .map(|pair| {
                let before = f64::from(pair.promoted_before) / a1;
                let after = f64::from(pair.promoted_after) / a2;
                (
                    before - f64::from(pair.control_before) / b1,
                    after - f64::from(pair.control_after) / b2,
                )
            })
            .collect();
        let (xy, xx) =
            differences.iter().fold((0.0, 0.0), |(xy, xx), &(x, y)| (xy + x * y, xx + x * x));
        let beta = if xx > 0.0 { (xy / xx).clamp(0.0, 1.0) } else { 0.0 };
        let scatter: f64 = differences.iter().map(|&(x, y)| (y - beta * x).powi(2)).sum();
        Some(Self {
            log_ratio: (a2 / b2).ln() - beta * (a1 / b1).ln(),
            standard_error: scatter.max(1.0 / a2 + 1.0 / b2).sqrt(),
            samples: sums[2] + sums[3],
            pairs: pairs.len() as u64,
        })
    }

    /// Stall time on huge pages over that on base pages.
    pub fn ratio(&self) -> f64 {
        self.log_ratio.exp()
    }

    /// Interval of the ratio that holds with probability `1 - alpha` at all readings at once.
    #[allow(clippy::cast_precision_loss)]
    pub fn interval(&self, alpha: f64) -> (f64, f64) {
        let margin = sequence_margin(self.standard_error, self.samples as f64, alpha);
        ((self.log_ratio - margin).exp(), (self.log_ratio + margin).exp())
    }

    /// Whether the ratio is 1 within three standard errors: what a check finds when both arms are
    /// huge, unless the program changed its phase.
    pub fn is_one(&self) -> bool {
        self.log_ratio.abs() < 3.0 * self.standard_error
    }

    /// Whether this check, with both arms huge, agrees with its trial; `None` if it is too short to
    /// distinguish the ratio of the trial from 1.
    pub fn confirms(&self, trial: &Self) -> Option<bool> {
        let distinguishes = 3.0 * self.standard_error < trial.log_ratio.abs();
        (distinguishes || !self.is_one()).then(|| self.is_one())
    }
}
