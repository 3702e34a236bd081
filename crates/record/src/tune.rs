//! The report of `hugepilot tune`, schema `hugepilot.tune/3`.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use std::collections::BTreeMap;

use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, Nanos, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{Pid, ProvenanceCounts, Stop};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.tune/3";

/// What was measured of one way to run, in each unit it was measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Wall time of whole runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
    /// Throughput that a workload of ours printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_second: Option<Spread>,
    /// The program's own figure of merit, as `--progress-regex` found it, in its own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Spread>,
}

impl Figure {
    /// How many times as fast this is as `base`, by medians in the first unit that both have: the program's own figure,
    /// then throughput, then time.
    pub fn speedup_over(&self, base: Self, larger_is_better: bool) -> Option<f64> {
        let ratio = |ours: Option<Spread>, theirs: Option<Spread>, larger: bool| {
            let (ours, theirs) = (ours?.median, theirs?.median);
            Some(if larger { ours / theirs } else { theirs / ours })
        };
        ratio(self.progress, base.progress, larger_is_better)
            .or_else(|| ratio(self.ops_per_second, base.ops_per_second, true))
            .or_else(|| ratio(self.seconds, base.seconds, false))
            .filter(|ratio| ratio.is_finite())
    }
}

/// A speed-up that is expected or estimated: 1.25 means a quarter more work in the same time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The least.
    pub low: f64,
    /// The best guess.
    pub median: f64,
    /// The most.
    pub high: f64,
}

/// Whom it was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Process number.
    pub pid: Pid,
    /// Name, control characters escaped.
    pub command: String,
}

/// How the addresses were found, and how far they can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerReport {
    /// Name of the source, such as `cpu-clock`.
    pub source: String,
    /// Samples that arrived.
    pub samples: u64,
    /// Share of [`crate::Provenance::Exact`]; `None` without samples, as are the next three.
    pub exact_ratio: Option<f64>,
    /// Share of [`crate::Provenance::Recomputed`].
    pub recomputed_ratio: Option<f64>,
    /// Share of [`crate::Provenance::Next`].
    pub next_ratio: Option<f64>,
    /// Share of [`crate::Provenance::None`].
    pub none_ratio: Option<f64>,
    /// Share of samples whose code could not be read or is not 64-bit code, part of `none_ratio`.
    pub undecoded_ratio: Option<f64>,
    /// Samples the kernel could not deliver.
    pub lost: u64,
    /// Times the kernel slowed the event down.
    pub throttled: u64,
    /// Part of the target's CPU time that sampling cost, from the measured cost of one sample; `None` where that was not
    /// measured.
    pub overhead_ratio: Option<f64>,
    /// Measured cost of one sample to the target; `None` where it was not measured.
    pub sample_cost_ns: Option<Nanos>,
    /// Why better sources were not used.
    pub unavailable: BTreeMap<String, String>,
}

impl SamplerReport {
    /// With the shares of `counts`.
    #[must_use]
    pub fn with_counts(mut self, counts: &ProvenanceCounts) -> Self {
        self.samples = counts.total();
        self.exact_ratio = counts.ratio(counts.exact);
        self.recomputed_ratio = counts.ratio(counts.recomputed);
        self.next_ratio = counts.ratio(counts.next);
        self.none_ratio = counts.ratio(counts.none);
        self.undecoded_ratio = counts.ratio(counts.undecoded);
        self.lost = counts.lost;
        self.throttled = counts.throttled;
        self
    }
}

/// A region that was picked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectedRegion {
    /// Its first address.
    pub start: VirtAddr,
    /// Label of its mapping.
    pub mapping: String,
    /// Its share of all stall samples.
    pub heat_ratio: f64,
    /// Distinct base pages seen hot in it.
    pub sampled_pages: u32,
    /// Whether it was seen on a huge page afterwards; `None` when nothing was done.
    pub verified: Option<bool>,
}

/// What sampling and counters said over one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Share of samples that waited for scattered memory (streams left out); `None` without samples.
    pub stall_ratio: Option<f64>,
    /// Instructions per cycle, where counters exist.
    pub instructions_per_cycle: Option<f64>,
    /// Page walks per thousand instructions, where counters exist.
    pub walks_per_kiloinstruction: Option<f64>,
}

/// Picks against the truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroundTruth {
    /// Regions that are truly hot.
    pub hot_regions: u64,
    /// Picks that are.
    pub picked_hot_regions: u64,
    /// Hot regions picked, of all that are hot.
    pub recall_ratio: f64,
    /// Hot regions picked, of all picked.
    pub precision_ratio: f64,
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// The cause.
    pub reason: String,
    /// What to change.
    pub fix: String,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whom: the process last acted on, or else last planned for.
    pub target: TargetInfo,
    /// How.
    pub sampler: SamplerReport,
    /// How well the picks met the hot regions that the workload announced; `None` where nobody announced any.
    pub ground_truth: Option<GroundTruth>,
    /// Whether this was a dry run: nothing was changed.
    pub dry_run: bool,
    /// Resident memory of the target at the last plan, or else when it was first looked at; `None` if nobody could look.
    pub footprint_bytes: Option<Bytes>,
    /// Huge pages that might be made; `None` if `footprint_bytes` is.
    pub budget_bytes: Option<Bytes>,
    /// What was picked, hottest first, all rounds together.
    pub selected: Vec<SelectedRegion>,
    /// What was passed over, and why; as of the last plan, without what we promoted.
    pub skipped: BTreeMap<String, u64>,
    /// Regions of the target that could have been picked, had the budget been endless; `None` without a plan.
    pub eligible_regions: Option<u64>,
    /// Regions tried, in all processes together; so with the next two.
    pub attempted_regions: u64,
    /// Regions seen on a huge page afterwards.
    pub verified_regions: u64,
    /// Failures by errno name; `not_verified` for successes that a look did not confirm.
    pub failed: BTreeMap<String, u64>,
    /// Bytes of the target on huge pages before; `None` if nobody could look.
    pub huge_bytes_before: Option<Bytes>,
    /// The same after; as last seen if it ended.
    pub huge_bytes_after: Option<Bytes>,
    /// Time spent promoting.
    pub promotion_seconds: f64,
    /// Time from attaching to the last promotion; `None` without one.
    pub last_promotion_seconds: Option<f64>,
    /// The picks' share of the target's samples, as planned: the sum of what each had when its last plan was made, at most
    /// 1. Samples from after a promotion do not count: they would show what it changed. `None` without a plan.
    pub coverage_ratio: Option<f64>,
    /// What it should gain; `None` without a calibration.
    pub predicted_speedup: Option<Prediction>,
    /// What it did gain, from samples before and after alone: what the program does besides waiting for scattered memory
    /// is the yardstick. `None` with too little of that, or when the source samples page walks.
    pub sampled_speedup: Option<Prediction>,
    /// Before, as sampled.
    pub before: Activity,
    /// After, as sampled; `None` when nothing was done.
    pub after: Option<Activity>,
    /// Without us.
    pub baseline: Option<Figure>,
    /// With us.
    pub tuned: Option<Figure>,
    /// With everything on huge pages.
    pub all_huge: Option<Figure>,
    /// Tuned over baseline, above 1 is faster; `None` where no figure was measured.
    pub speedup: Option<f64>,
    /// All-huge over baseline.
    pub all_huge_speedup: Option<f64>,
    /// (speedup − 1) / (all-huge speedup − 1): 1 means as good as all memory on huge pages.
    pub all_huge_gain_ratio: Option<f64>,
    /// Why acting ended early, if it did.
    pub stopped: Option<Stop>,
    /// Why nothing is known of the target's stalls, with what to change; `None` if enough is known for a verdict.
    pub cannot_tell: Option<Unknown>,
    /// Whether the process that was attached to (`-p PID`) ended before the tune did.
    pub target_ended: bool,
    /// What makes this report less trustworthy, and what to do about it.
    pub warnings: Vec<String>,
}

impl TuneReport {
    /// Fills in the ratios from the figures. `larger_is_better` says which way the program's own figures point.
    pub fn conclude(&mut self, larger_is_better: bool) {
        let faster = |figure: Option<Figure>, base| figure?.speedup_over(base?, larger_is_better);
        self.set_speedups(faster(self.tuned, self.baseline), faster(self.all_huge, self.baseline));
    }

    /// Sets both speed-ups, and the share of the ideal that follows from them.
    pub fn set_speedups(&mut self, tuned: Option<f64>, all_huge: Option<f64>) {
        (self.speedup, self.all_huge_speedup) = (tuned, all_huge);
        self.all_huge_gain_ratio = match (self.speedup, self.all_huge_speedup) {
            // Below 2 % there is no ideal to have a share of: the quotient would be noise.
            (Some(tuned), Some(ideal)) if ideal > 1.02 => Some((tuned - 1.0) / (ideal - 1.0)),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_in_a_unit_that_both_have() {
        let spread = |value| Spread::of(&[value]);
        let base = Figure { seconds: spread(10.0), progress: spread(4.0), ..Figure::default() };
        let both = Figure { seconds: spread(5.0), progress: spread(1.0), ..Figure::default() };
        assert_eq!(
            both.speedup_over(base, false),
            Some(4.0),
            "a trial takes a quarter of the time"
        );
        assert_eq!(both.speedup_over(base, true), Some(0.25));
        let only_time = Figure { seconds: spread(5.0), ..Figure::default() };
        assert_eq!(only_time.speedup_over(base, true), Some(2.0), "of seconds, fewer are better");
        assert_eq!(only_time.speedup_over(Figure::default(), false), None);
    }
}
