//! Report of `hugepilot tune`, schema `hugepilot.tune/4`.

pub(crate) mod text;

mod certainty;
mod exec;
mod gain;
mod load;
mod measured;
mod metric;
mod sampler;
mod schedule;
mod trial;
mod tried;
mod verdict;
mod warning;
mod work_metric;

use std::collections::BTreeMap;

use hugepilot_record::Prediction;
use hugepilot_units::{Bytes, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use certainty::{Certainty, Interval, SpeedRatio};
pub use exec::{ExecReport, FreedBy};
pub use gain::{Gain, GainSource, MIN_GAIN, MIN_STALLS, PredictedBy};
pub use load::{Load, LoadNumber, LoadReading, LoadReport, judge_load};
pub use measured::{Measured, Performance, Runs};
pub use metric::{Metric, NoMetric};
pub use sampler::{MAX_UNKNOWN, SamplerReport};
pub use schedule::{PlannedEvent, ScheduleReport};
pub use trial::{NoTrial, TrialReport, TrialVerdict};
pub use verdict::{TuneVerdict, block};
pub use warning::{NoVerdict, RateSign, TuneWarning, Variant};
pub use work_metric::{FoundMetric, WorkReading, find_metric};

use hugepilot_record::{Obstacle, Pid, PolicyName, SkipReason, Skips, Stop};

use crate::undo::UndoneProcess;

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.tune/4";

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

/// Report of one tune. JSON has the fields of its parts beside its own.
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
    pub schedule: Option<ScheduleReport>,
    /// Memory, budget and regions of the plans.
    #[serde(flatten)]
    pub plan: TunePlan,
    /// Acts, and what became of the regions.
    #[serde(flatten)]
    pub acts: TuneActs,
    /// Stalls, the trial and the predictions before a measurement.
    #[serde(flatten)]
    pub forecast: Forecast,
    /// Measured speeds.
    #[serde(flatten)]
    pub measured: Measured,
    /// Cause of an early end of the tune, or else of its last round; `None` if both were complete.
    pub stopped: Option<Stop>,
    /// Cause, if nothing is known of the target's stalls.
    pub no_verdict: Option<NoVerdict>,
    /// Processes whose regions `--try` returned to base pages after the measurement, which the
    /// other values describe; `None` without it.
    pub tried: Option<Vec<UndoneProcess>>,
    /// Obstacles to huge pages that concern the whole process.
    #[serde(default)]
    pub obstacles: Vec<Obstacle>,
    /// Whether the running process that was given ended before the tune did.
    pub target_ended: bool,
    /// Doubts about this report.
    pub warnings: Vec<TuneWarning>,
}

/// Memory, budget and regions of the plans of a tune.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunePlan {
    /// Resident memory of the target at the last plan, otherwise when it was first read; `None` if
    /// it was never read.
    pub footprint_bytes: Option<Bytes>,
    /// Limit of huge pages, of several targets together; `None` without `--budget`, and with
    /// `footprint_bytes`.
    pub budget_bytes: Option<Bytes>,
    /// Huge pages that other processes got of a budget that they share with this one, or would get;
    /// `None` without a budget, and for a single process.
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
}

/// Acts of a tune, and what became of the regions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneActs {
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
    pub freed_by: Option<FreedBy>,
    /// Programs of the process before an exec, if regions of these were promoted. All other values
    /// are of the program that runs now, unless it was not decided about.
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
    pub acts_seconds: Option<f64>,
    /// Time from attaching to the last promotion; `None` without one.
    pub last_promotion_seconds: Option<f64>,
    /// Time from attaching until regions with 90 % of the stalls of all promoted regions were huge;
    /// `None` without a promotion that stays.
    pub most_promoted_seconds: Option<f64>,
}

impl TuneActs {
    /// Promoted regions that are huge at the end.
    pub const fn kept_regions(&self) -> u64 {
        self.verified_regions.saturating_sub(self.demoted_regions + self.lost_regions)
    }
}

/// Stalls before the first plan, the trial and the predictions from both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
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
    pub blocked_speedup: Option<Prediction>,
    /// Activity before the first plan.
    pub before: Activity,
}

impl TuneReport {
    /// With the measured speeds of several runs, and doubts about them.
    #[must_use]
    pub fn with_runs(self, runs: Runs, doubts: impl IntoIterator<Item = TuneWarning>) -> Self {
        Self { measured: self.measured.with_runs(runs), ..self }.with_doubts(doubts)
    }

    /// With further doubts.
    #[must_use]
    pub fn with_doubts(mut self, doubts: impl IntoIterator<Item = TuneWarning>) -> Self {
        self.warnings.extend(doubts);
        self
    }

    /// With the cause of its end, if the user interrupted after the tune.
    #[must_use]
    pub fn with_interruption(self, is_interrupted: bool) -> Self {
        Self { stopped: cause_of_end(self.stopped, self.target_ended, is_interrupted), ..self }
    }
}

/// Cause of the end of a tune: the interruption, unless another cause `stopped` it before.
/// `target_ended`: as in the report.
pub fn cause_of_end(
    stopped: Option<Stop>,
    target_ended: bool,
    is_interrupted: bool,
) -> Option<Stop> {
    let went_on = match stopped {
        // These end a round.
        None | Some(Stop::SlowCollapse | Stop::TargetExeced) => true,
        // A process that the target started ended, or the interruption ended a started program.
        Some(Stop::TargetGone) => !target_ended,
        Some(_) => false,
    };
    if is_interrupted && went_on { Some(Stop::Interrupted) } else { stopped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_is_noted_unless_another_cause_ended_the_tune() {
        let interrupted = Some(Stop::Interrupted);
        for round in [None, Some(Stop::SlowCollapse), Some(Stop::TargetExeced)] {
            assert_eq!(cause_of_end(round, false, true), interrupted, "{round:?}");
            assert_eq!(cause_of_end(round, false, false), round);
        }
        assert_eq!(cause_of_end(Some(Stop::TargetGone), false, true), interrupted);
        for end in [Stop::TargetGone, Stop::NoHugePages, Stop::NotPermitted, Stop::Interrupted] {
            assert_eq!(cause_of_end(Some(end), true, true), Some(end));
        }
    }
}
