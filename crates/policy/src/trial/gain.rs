//! Verdict and bracket of a trial.

use hugepilot_record::Prediction;
use hugepilot_reports::tune::{MIN_STALLS, NoTrial, TrialVerdict};
use serde::{Deserialize, Serialize};

use super::Estimate;

/// Stalls of a process before the trial, as shares of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallShares {
    /// Stalls on scattered memory of eligible regions, with an address.
    pub eligible: f64,
    /// Samples without an address.
    pub unknown: f64,
    /// Share of the stalls whose address is that of the next access (pointer chases).
    pub chased: f64,
    /// Share of the samples of the pairs that fell on the hottest pair.
    pub hottest_pair: f64,
}

/// Limits and levels of trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRules {
    /// Probability of a wrong verdict.
    pub alpha: f64,
    /// Speedup that the pessimistic end must exceed for a gain.
    pub gain: f64,
    /// Speedup that the optimistic end must stay below for no gain.
    pub no_gain: f64,
    /// Best guess of the speedup below which an open trial counts as no gain; `None` for the least
    /// gain of the goal, as in journals that do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_gain: Option<f64>,
    /// Samples on both arms after the promotion before the first verdict.
    pub min_samples: u64,
    /// Pairs with samples.
    pub min_pairs: u64,
    /// Most pairs.
    pub max_pairs: usize,
    /// Least share of eligible stalls.
    pub min_eligible: f64,
    /// Largest share of pointer chases.
    pub max_chased: f64,
    /// Largest share of the hottest pair.
    pub max_hottest_pair: f64,
}

impl Default for TrialRules {
    fn default() -> Self {
        Self {
            alpha: 0.05,
            gain: 1.02,
            no_gain: 1.05,
            open_gain: Some(1.01),
            min_samples: 100,
            min_pairs: 20,
            max_pairs: 128,
            min_eligible: MIN_STALLS,
            max_chased: 1.0 / 3.0,
            max_hottest_pair: 0.2,
        }
    }
}

impl TrialRules {
    /// Checks whether a trial can show anything. `pairs` is the number of pairs with samples.
    ///
    /// # Errors
    /// The first cause that forbids it.
    pub fn check(&self, shares: StallShares, pairs: u64) -> Result<(), NoTrial> {
        if shares.eligible < self.min_eligible {
            Err(NoTrial::FewStalls { ratio: shares.eligible, required_ratio: self.min_eligible })
        } else if shares.chased > self.max_chased {
            Err(NoTrial::PointerChases { ratio: shares.chased })
        } else if pairs < self.min_pairs {
            Err(NoTrial::FewPairs { pairs, required: self.min_pairs, limited: false })
        } else if shares.hottest_pair > self.max_hottest_pair {
            Err(NoTrial::DominantPair { ratio: shares.hottest_pair })
        } else {
            Ok(())
        }
    }

    /// Verdict after any number of samples.
    pub fn verdict(&self, estimate: &Estimate, shares: StallShares) -> TrialVerdict {
        if estimate.samples < self.min_samples {
            return TrialVerdict::Open;
        }
        let (low, high) = estimate.interval(self.alpha);
        if speedup(shares.eligible, high) > self.gain {
            TrialVerdict::Gain
        } else if speedup(shares.with_unknown(), low) < self.no_gain {
            TrialVerdict::NoGain
        } else {
            TrialVerdict::Open
        }
    }

    /// Bracket of the speedup if all eligible memory is huge.
    ///
    /// The low end assumes that stalls overlap wholly, at the upper limit of the ratio. The high
    /// end assumes that samples without an address are divided as the others are, at its lower
    /// limit.
    pub fn bracket(&self, estimate: &Estimate, shares: StallShares) -> Prediction {
        let (low, high) = estimate.interval(self.alpha);
        let overlapped = 2.0 * high / (1.0 + high);
        Prediction {
            low: speedup(shares.eligible, overlapped),
            median: speedup(shares.eligible, estimate.ratio()),
            high: speedup(shares.with_unknown(), low),
        }
    }
}

impl StallShares {
    /// Share of eligible stalls, if samples without an address are divided as the others are.
    fn with_unknown(self) -> f64 {
        (self.eligible / (1.0 - self.unknown).max(f64::MIN_POSITIVE)).min(1.0)
    }
}

/// Speedup of a program that spends `share` of its time in stalls that take `ratio` of their time
/// on huge pages.
pub fn speedup(share: f64, ratio: f64) -> f64 {
    1.0 / (1.0 - share.clamp(0.0, 1.0) * (1.0 - ratio)).max(0.01)
}

#[cfg(test)]
mod tests;
