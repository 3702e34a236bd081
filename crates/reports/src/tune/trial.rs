//! Trial: the comparison, inside a process, of regions on huge pages with like regions on base
//! pages.

use hugepilot_record::sentence::{Sentence, counted, whole_percent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cause why no trial was possible. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum NoTrial {
    /// The samples are of page walks, not of time: regions on huge pages have none, whatever they
    /// gain.
    #[text(
        "the samples count page walks, not time, because the CPU clock could not be sampled \
         beside them"
    )]
    NoClock,
    /// Stalls are pointer chases: their sampled address is that of the next access, so the arms
    /// look alike whatever huge pages do.
    #[text(
        "{} of the stalls are pointer chases, whose sampled address is that of the next access",
        whole_percent(*ratio)
    )]
    PointerChases {
        /// Share of the stalls.
        ratio: f64,
    },
    /// Too few pairs have samples and fit into the budget and the free memory.
    #[text(
        "{} of hot regions{}; a trial requires {required}",
        counted(*pairs, "pair", "pairs"),
        if *limited { " within the limits" } else { "" }
    )]
    FewPairs {
        /// Pairs with samples.
        pairs: u64,
        /// Required.
        required: u64,
        /// Whether the budget or the free memory excluded others.
        #[serde(default)]
        limited: bool,
    },
    /// The program hardly stalls on eligible memory.
    #[text(
        "{} of the samples are stalls on memory that can be promoted; a trial requires {}",
        whole_percent(*ratio), whole_percent(*required_ratio)
    )]
    FewStalls {
        /// Share of all samples.
        ratio: f64,
        /// Required share of all samples.
        #[serde(default = "five_percent")]
        required_ratio: f64,
    },
    /// A single pair has most of the samples, so chance decides.
    #[text(
        "one pair of regions has {} of the samples of all pairs, so chance would decide",
        whole_percent(*ratio)
    )]
    DominantPair {
        /// Share of the samples of all pairs.
        ratio: f64,
    },
    /// No promotion of a trial succeeded, so there was nothing to compare.
    #[text("none of the {pairs} promotions of the trial succeeded")]
    NonePromoted {
        /// Pairs of which a region should have been promoted.
        pairs: u64,
    },
    /// Too few pairs were left with one region on a huge page and one on base pages: the program
    /// freed memory, or the kernel or another program promoted or split regions.
    #[text(
        "{left} of {pairs} pairs were left to compare, since the program freed memory, or the \
         kernel or another program promoted or split regions"
    )]
    PairsChanged {
        /// Pairs of the trial.
        pairs: u64,
        /// Pairs left.
        left: u64,
    },
}

/// The share that was required when journals did not have it.
const fn five_percent() -> f64 {
    0.05
}

/// Verdict of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// Huge pages gain.
    Gain,
    /// Huge pages gain at most 5 %.
    NoGain,
    /// More samples are needed.
    Open,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialReport {
    /// Verdict; `open` if the time of the trial was over.
    pub verdict: TrialVerdict,
    /// Stall time on huge pages over that on base pages; `None` if too few samples fell on the
    /// pairs.
    pub ratio: Option<f64>,
    /// Lower bound of `ratio`, at 95 %.
    pub low_ratio: Option<f64>,
    /// Upper bound of `ratio`.
    pub high_ratio: Option<f64>,
    /// Highest speedup that the trial leaves possible, if all eligible memory is huge.
    pub high_speedup: Option<f64>,
    /// Pairs of regions: a coin decided which of two was promoted. `None` if that is unknown.
    pub pairs: Option<u64>,
    /// Samples on the pairs during the trial; `None` if it ended before its first reading.
    pub samples: Option<u64>,
    /// Time from the first promotion to the verdict.
    pub seconds: f64,
    /// Whether the regions of each pair stalled alike once both were huge. If not, the program
    /// changed its phase, and the trial is void. `None` if that was not checked.
    pub confirmed: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_without_the_required_share_are_read() {
        let read = |text| serde_json::from_str::<NoTrial>(text).unwrap();
        let old = read(r#"{"code": "few_stalls", "ratio": 0.01}"#);
        assert_eq!(old, NoTrial::FewStalls { ratio: 0.01, required_ratio: 0.05 });
        let new = read(r#"{"code": "few_stalls", "ratio": 0.01, "required_ratio": 0.1}"#);
        assert_eq!(new, NoTrial::FewStalls { ratio: 0.01, required_ratio: 0.1 });
    }

    #[test]
    fn limits_are_named_only_where_they_excluded_pairs() {
        let text = |required, limited| NoTrial::FewPairs { pairs: 7, required, limited }.text();
        assert_eq!(text(20, false), "7 pairs of hot regions; a trial requires 20");
        assert_eq!(text(64, true), "7 pairs of hot regions within the limits; a trial requires 64");
    }
}
