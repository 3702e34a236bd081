//! Report of `hugepilot tune`, schema `hugepilot.tune/4`.

mod certainty;
mod empty;
mod exec;
mod gain;
mod load;
mod metric;
mod sampler;
mod schedule;
mod trial;
mod tried;
mod unknown;
mod verdict;
mod warning;
mod work_metric;

use std::collections::BTreeMap;

use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use certainty::{Certainty, Interval};
pub use exec::{ExecReport, FreedBy};
pub use gain::{Gain, GainSource, MIN_GAIN, MIN_STALLS, PredictedBy, Prediction};
pub use load::{Load, LoadNumber, LoadReading, LoadReport, judge_load};
pub use metric::{Metric, NoMetric};
pub use sampler::SamplerReport;
pub use schedule::{PlannedEvent, ScheduleReport};
pub use trial::{NoTrial, TrialReport, TrialVerdict};
pub use unknown::MAX_UNKNOWN;
pub use verdict::{TuneVerdict, block};
pub use warning::{NoVerdict, RateSign, TuneWarning, Variant};
pub use work_metric::{FoundMetric, WorkReading, find_metric};

use crate::undo::UndoneProcess;
use crate::{Obstacle, Pid, PolicyName, SkipReason, Skips, Stop};

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.tune/4";

/// Speed of one variant, in each unit in which it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
    /// Wall time of whole runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
    /// Throughput that the demonstration's workload prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_second: Option<Spread>,
    /// Progress metric, as matched by `--progress-regex`, in the unit of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Spread>,
    /// Work for each second of CPU time, in the unit of a metric that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_per_cpu_second: Option<Spread>,
    /// Number of values of which these are the summaries: runs, windows, or progress metrics.
    #[serde(default)]
    pub values: u64,
}

impl Performance {
    /// Speedup over `base`, by medians in the first unit that both have: the progress metric, then
    /// throughput, then time, then work that was found.
    pub fn speedup_over(&self, base: Self, larger_is_better: bool) -> Option<f64> {
        let ratio = |this: Option<Spread>, base: Option<Spread>, larger: bool| {
            let (this, base) = (this?.median, base?.median);
            Some(if larger { this / base } else { base / this })
        };
        ratio(self.progress, base.progress, larger_is_better)
            .or_else(|| ratio(self.ops_per_second, base.ops_per_second, true))
            .or_else(|| ratio(self.seconds, base.seconds, false))
            .or_else(|| ratio(self.work_per_cpu_second, base.work_per_cpu_second, true))
            .filter(|ratio| ratio.is_finite())
    }

    /// Summaries of both in the first unit that both have.
    fn common(&self, other: Self) -> Option<(Spread, Spread)> {
        self.progress
            .zip(other.progress)
            .or_else(|| self.ops_per_second.zip(other.ops_per_second))
            .or_else(|| self.seconds.zip(other.seconds))
            .or_else(|| self.work_per_cpu_second.zip(other.work_per_cpu_second))
    }
}

/// Process that a report is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetInfo {
    /// Process ID.
    pub pid: Pid,
    /// Name, control characters escaped.
    pub command: String,
}

/// Region that a plan selected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedRegion {
    /// First address.
    pub start: VirtAddr,
    /// Label of its mapping.
    pub mapping: String,
    /// Share of all stall samples.
    pub heat_ratio: f64,
    /// Distinct base pages with samples.
    pub sampled_pages: u32,
    /// Whether the pagemap showed a huge page afterwards; `None` if nothing was done.
    pub verified: Option<bool>,
    /// State at the end; `None` if it was never verified.
    #[serde(default)]
    pub state: Option<RegionState>,
}

/// State of a promoted region at the end of a tune, or of its process, if that ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegionState {
    /// On a huge page, as far as is known.
    Huge,
    /// Returned to base pages by the tune.
    Demoted,
    /// On base pages for another cause.
    Lost,
}

/// Samples and hardware counters over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Share of samples that stall on scattered memory, streams excluded; `None` without samples,
    /// or if too little is known of them.
    pub stall_ratio: Option<f64>,
    /// Instructions per cycle; `None` without counters.
    pub instructions_per_cycle: Option<f64>,
    /// Page walks per thousand instructions; `None` without counters.
    pub walks_per_kiloinstruction: Option<f64>,
}

/// Comparison of the selected regions with the announced hot regions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroundTruth {
    /// Hot regions.
    pub hot_regions: u64,
    /// Selected regions that are hot.
    pub selected_hot_regions: u64,
    /// Share of the hot regions that was selected.
    pub recall_ratio: f64,
    /// Share of the selected regions that is hot.
    pub precision_ratio: f64,
}

/// Report of one tune.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process.
    pub target: TargetInfo,
    /// Sampler.
    pub sampler: SamplerReport,
    /// Comparison with the hot regions that the workload announced; `None` if it announced none.
    pub ground_truth: Option<GroundTruth>,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
    /// Policy that selected the regions.
    pub policy: PolicyName,
    /// Events of the schedule; `None` with another policy.
    #[serde(default)]
    pub schedule: Option<ScheduleReport>,
    /// Resident memory of the target at the last plan, otherwise when it was first read; `None` if
    /// it was never read.
    pub footprint_bytes: Option<Bytes>,
    /// Limit of huge pages, of several targets together; `None` without `--budget`, and with
    /// `footprint_bytes`.
    pub budget_bytes: Option<Bytes>,
    /// Huge pages that other processes got of a budget that they share with this one, or would get;
    /// `None` without a budget, and for a single process.
    #[serde(default)]
    pub budget_of_others_bytes: Option<Bytes>,
    /// Selected regions of all rounds, hottest first.
    pub selected: Vec<SelectedRegion>,
    /// Skipped regions by reason, at the last plan, without those promoted in this run.
    pub skipped: Skips,
    /// Share of all samples of the target that are stalls on skipped regions, by reason, at the
    /// last plan. Divided by `before.stall_ratio`, it is the share of the stalls that the text
    /// prints, at most 100 %.
    pub skipped_stall_ratio: BTreeMap<SkipReason, f64>,
    /// Regions of the target that an unlimited budget would have selected; `None` without a plan.
    pub eligible_regions: Option<u64>,
    /// Distinct regions tried: a retry after a failure does not count again.
    pub attempted_regions: u64,
    /// Regions of the last plan that were not tried, because the tune ended or stopped before.
    #[serde(default)]
    pub untried_regions: u64,
    /// Distinct regions verified on huge pages. They are huge but for those of the next two counts,
    /// until the process ends.
    pub verified_regions: u64,
    /// Verified regions that the tune returned to base pages, and did not promote again.
    pub demoted_regions: u64,
    /// Verified regions that lost their huge page otherwise, and have none at the end: the program
    /// freed the memory, also by an exec, or the program or the kernel split the page.
    #[serde(default)]
    pub lost_regions: u64,
    /// Verified promotions: a region counts each time. With `demotions`, they show whether regions
    /// swing.
    #[serde(default)]
    pub promotions: u64,
    /// Verified returns to base pages by the tune: a region counts each time.
    #[serde(default)]
    pub demotions: u64,
    /// Forks of the process while it was sampled, without those of children that started another
    /// program.
    #[serde(default)]
    pub forks: u64,
    /// Cause that freed every promoted region at once; `None` if one is left, or they were lost
    /// otherwise.
    #[serde(default)]
    pub freed_by: Option<FreedBy>,
    /// Programs of the process before an exec, if regions of these were promoted. All other values
    /// are of the program that runs now, unless it was not decided about.
    #[serde(default)]
    pub exec: Option<ExecReport>,
    /// Failures by errno name; `not_verified` for calls that succeeded without a huge page.
    pub failed: BTreeMap<String, u64>,
    /// Memory of the target on huge pages before; `None` if it was never read.
    pub huge_bytes_before: Option<Bytes>,
    /// Memory of the target on huge pages after; the last value read, if it ended.
    pub huge_bytes_after: Option<Bytes>,
    /// Memory that the promotions added and that was not returned: base pages that were not
    /// resident, and those that the program had freed lazily (`MADV_FREE`).
    #[serde(default)]
    pub added_bytes: Bytes,
    /// The second of these. Neither `tune --undo` nor `debloat` returns it.
    #[serde(default)]
    pub lazily_freed_bytes: Bytes,
    /// Time in promotion calls.
    pub promotion_seconds: f64,
    /// Time of all acts of the rounds that promoted: the checks before, the calls and the
    /// verification. `None` without one.
    #[serde(default)]
    pub acts_seconds: Option<f64>,
    /// Time from attaching to the last promotion; `None` without one.
    pub last_promotion_seconds: Option<f64>,
    /// Time from attaching until regions with 90 % of the stalls of all promoted regions were huge;
    /// `None` without a promotion that stays.
    pub most_promoted_seconds: Option<f64>,
    /// Selected regions' share of the target's samples, each as its last plan counted it, together
    /// at most 1, without regions that are on base pages again. Samples after a promotion do not
    /// count: they show its effect. `None` without a plan or samples.
    pub coverage_ratio: Option<f64>,
    /// Trial in the target; `None` if there was none.
    pub trial: Option<TrialReport>,
    /// Cause why there was no trial.
    pub no_trial: Option<NoTrial>,
    /// Speedup of the selected regions as predicted before a measurement, by the trial, or else by
    /// the model; `None` without both. `gain` is the figure that counts.
    pub predicted_speedup: Option<Prediction>,
    /// Source of `predicted_speedup`.
    pub predicted_by: Option<PredictedBy>,
    /// Predicted speedup of all eligible memory, by the model; `None` if too little is known of the
    /// samples.
    pub eligible_speedup: Option<Prediction>,
    /// Speedup that the model predicts if the stalls on memory that cannot get huge pages, or must
    /// not, were on huge pages; `None` as `eligible_speedup`, and without such stalls.
    #[serde(default)]
    pub blocked_speedup: Option<Prediction>,
    /// Activity before the first plan.
    pub before: Activity,
    /// Activity after the last promotion; `None` if nothing was done.
    pub after: Option<Activity>,
    /// Metric of the performance, and thereby of `speedup`; `None` without a progress metric, and
    /// for runs and throughputs.
    #[serde(default)]
    pub metric: Option<Metric>,
    /// Cause why no metric was found; `None` if none was looked for.
    #[serde(default)]
    pub no_metric: Option<NoMetric>,
    /// Load of the machine before the promotions and after them; `None` if nothing was measured, or
    /// if untuned and tuned windows or runs are interleaved.
    #[serde(default)]
    pub load: Option<LoadReport>,
    /// Performance untuned.
    pub baseline: Option<Performance>,
    /// Performance tuned.
    pub tuned: Option<Performance>,
    /// Performance with all memory on huge pages.
    pub all_huge: Option<Performance>,
    /// Tuned over baseline, above 1 is faster; `None` if not measured.
    pub speedup: Option<f64>,
    /// 95 % confidence interval of `speedup`; `None` outside the demonstration, as are those of the
    /// next two.
    pub speedup_interval: Option<Interval>,
    /// Whether `speedup` can be chance; `None` without it.
    #[serde(default)]
    pub speedup_certainty: Option<Certainty>,
    /// All huge over baseline.
    pub all_huge_speedup: Option<f64>,
    /// 95 % confidence interval of `all_huge_speedup`.
    pub all_huge_speedup_interval: Option<Interval>,
    /// Whether `all_huge_speedup` can be chance; `None` without it.
    #[serde(default)]
    pub all_huge_speedup_certainty: Option<Certainty>,
    /// (speedup − 1) / (all-huge speedup − 1): 1 means as fast as with all memory on huge pages.
    pub all_huge_gain_ratio: Option<f64>,
    /// Confidence interval of `all_huge_gain_ratio`, at least 95 %; `None` if the all-huge gain may
    /// be zero.
    pub all_huge_gain_interval: Option<Interval>,
    /// Cause of an early end of the tune, or else of its last round; `None` if both were complete.
    pub stopped: Option<Stop>,
    /// Cause, if nothing is known of the target's stalls.
    pub no_verdict: Option<NoVerdict>,
    /// Processes whose regions `--try` returned to base pages after the measurement, which the
    /// other values describe; `None` without it.
    #[serde(default)]
    pub tried: Option<Vec<UndoneProcess>>,
    /// Obstacles to huge pages that concern the whole process.
    #[serde(default)]
    pub obstacles: Vec<Obstacle>,
    /// Whether the running process that was given ended before the tune did.
    pub target_ended: bool,
    /// Doubts about this report.
    pub warnings: Vec<TuneWarning>,
}

impl TuneReport {
    /// Sets the speedups that follow from the performance. `larger_is_better`: whether a larger
    /// progress metric is better.
    pub fn conclude(&mut self, larger_is_better: bool) {
        let over = |this: Option<Performance>, base| this?.speedup_over(base?, larger_is_better);
        self.set_speedups(over(self.tuned, self.baseline), over(self.all_huge, self.baseline));
    }

    /// Sets both speedups with their certainty, and the share of the all-huge gain that follows
    /// from them.
    pub fn set_speedups(&mut self, tuned: Option<f64>, all_huge: Option<f64>) {
        (self.speedup, self.all_huge_speedup) = (tuned, all_huge);
        let certainty = |speedup: Option<f64>, this: Option<Performance>, interval| {
            let (base, this) = speedup.and(self.baseline.zip(this))?;
            Some(Certainty::of(base, this, interval, self.load.as_ref()))
        };
        (self.speedup_certainty, self.all_huge_speedup_certainty) = (
            certainty(tuned, self.tuned, self.speedup_interval),
            certainty(all_huge, self.all_huge, self.all_huge_speedup_interval),
        );
        self.all_huge_gain_ratio = match (self.speedup, self.all_huge_speedup) {
            // Below 2 %, the quotient would be noise.
            (Some(tuned), Some(all_huge)) if all_huge > 1.02 => {
                Some((tuned - 1.0) / (all_huge - 1.0))
            }
            _ => None,
        };
    }

    /// Notes that the user interrupted the tune, unless another cause ended it before.
    pub fn note_interruption(&mut self) {
        let went_on = match self.stopped {
            // These end a round.
            None | Some(Stop::SlowCollapse | Stop::TargetExeced) => true,
            // A process that the target started ended, or the interruption ended a started program.
            Some(Stop::TargetGone) => !self.target_ended,
            Some(_) => false,
        };
        if went_on {
            self.stopped = Some(Stop::Interrupted);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(super) fn report() -> TuneReport {
        serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "target": {"pid": 4711, "command": "db"},
            "sampler": {"source": "cpu-clock", "samples": 9, "lost": 0, "throttled": 0,
                "unavailable": {}},
            "dry_run": false, "policy": "heat", "selected": [], "skipped": {},
            "skipped_stall_ratio": {}, "attempted_regions": 0, "verified_regions": 0,
            "demoted_regions": 0, "failed": {}, "promotion_seconds": 0.0, "before": {},
            "target_ended": false, "warnings": [],
        }))
        .unwrap()
    }

    #[test]
    fn both_speedups_have_a_certainty() {
        let performance = |value: f64| {
            let ops_per_second = Spread::of(&[value]);
            Some(Performance { ops_per_second, values: 6, ..Performance::default() })
        };
        let mut report = report();
        (report.baseline, report.all_huge) = (performance(10.0), performance(12.0));
        report.conclude(false);
        assert_eq!((report.speedup, report.speedup_certainty), (None, None));
        assert_eq!(report.all_huge_speedup, Some(1.2));
        assert_eq!(report.all_huge_speedup_certainty, Some(Certainty::Certain));
        report.all_huge_speedup_interval = Some(Interval { low: 0.9, high: 1.3 });
        report.conclude(false);
        assert_eq!(report.all_huge_speedup_certainty, Some(Certainty::Uncertain));
        report.tuned = performance(9.0);
        report.conclude(false);
        assert_eq!(report.speedup_certainty, Some(Certainty::Certain), "it is slower");
        report.baseline = None;
        report.conclude(false);
        assert_eq!((report.speedup_certainty, report.all_huge_speedup_certainty), (None, None));
    }

    #[test]
    fn an_interruption_is_noted_unless_another_cause_ended_the_tune() {
        let noted = |stopped, target_ended| {
            let mut report = TuneReport { stopped, target_ended, ..report() };
            report.note_interruption();
            report.stopped
        };
        for round in [None, Some(Stop::SlowCollapse), Some(Stop::TargetExeced)] {
            assert_eq!(noted(round, false), Some(Stop::Interrupted), "{round:?}");
        }
        assert_eq!(noted(Some(Stop::TargetGone), false), Some(Stop::Interrupted));
        for end in [Stop::TargetGone, Stop::NoHugePages, Stop::NotPermitted, Stop::Interrupted] {
            assert_eq!(noted(Some(end), true), Some(end));
        }
    }

    #[test]
    fn performance_is_compared_in_a_unit_that_both_have() {
        let spread = |value| Spread::of(&[value]);
        let base =
            Performance { seconds: spread(10.0), progress: spread(4.0), ..Performance::default() };
        let both =
            Performance { seconds: spread(5.0), progress: spread(1.0), ..Performance::default() };
        assert_eq!(both.speedup_over(base, false), Some(4.0), "a metric that is a time");
        assert_eq!(both.speedup_over(base, true), Some(0.25), "a metric that is a throughput");
        let only_time = Performance { seconds: spread(5.0), ..Performance::default() };
        assert_eq!(only_time.speedup_over(base, true), Some(2.0), "less time is better");
        assert_eq!(only_time.speedup_over(Performance::default(), false), None);
    }
}
