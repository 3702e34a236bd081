//! Samples of which nothing is known.

use super::{PredictedBy, SamplerReport, TuneReport};

/// Largest share of them that still allows a verdict.
pub const MAX_UNKNOWN: f64 = 0.5;

impl SamplerReport {
    /// Shares of the samples without decoded code, and of those at an access whose address the
    /// registers do not give.
    pub fn unknown(&self) -> [f64; 2] {
        [self.undecoded_ratio, self.unresolved_ratio].map(Option::unwrap_or_default)
    }

    /// Whether nothing is known of most samples.
    pub fn is_mostly_unknown(&self) -> bool {
        self.unknown().iter().sum::<f64>() > MAX_UNKNOWN
    }
}

impl TuneReport {
    /// Removes the values that unknown samples would make zero: the stalls, and the predictions of
    /// the model from them.
    pub fn remove_unknown(&mut self) {
        if self.no_verdict.is_some() {
            (self.no_trial, self.coverage_ratio) = (None, None);
            self.skipped_stall_ratio.clear();
        } else if !self.sampler.is_mostly_unknown() {
            return;
        }
        self.before.stall_ratio = None;
        if let Some(after) = &mut self.after {
            after.stall_ratio = None;
        }
        (self.eligible_speedup, self.blocked_speedup) = (None, None);
        if self.predicted_by == Some(PredictedBy::Model) {
            (self.predicted_speedup, self.predicted_by) = (None, None);
        }
    }
}
