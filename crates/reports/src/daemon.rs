//! The log of `hugepilot daemon`, schema `hugepilot.daemon/4`: one JSON object per event and line.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::sentence::Sentence;
use hugepilot_record::{
    AccessError, Pid, Prediction, RecollapseCause, RecollapseRisk, SkipReason, Stop,
};
use hugepilot_units::{Bytes, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tune::{NoTrial, TrialReport};

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.daemon/4";

/// Line of the log: an event and the memory use at its decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonLine {
    /// [`SCHEMA`].
    pub schema: String,
    /// Time in seconds since 1970.
    pub unix_seconds: f64,
    /// Directory of the cgroup that the event is about; absent for the whole scope of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Memory use just before.
    #[serde(flatten)]
    pub memory: MemoryUse,
}

/// Memory use and the watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// `used_bytes` of `limit_bytes`.
    pub use_ratio: f64,
    /// Memory that cannot be reclaimed without swapping or killing.
    pub used_bytes: Bytes,
    /// Memory of the system, or the limit of the cgroup; 2^64 − 1 without a limit.
    pub limit_bytes: Bytes,
    /// Use of the limit at which processes are killed: of a cgroup, without `memory.high`.
    pub hard_limit_use_ratio: f64,
    /// Share of the last ten seconds in which some task stalled on memory; `None` without PSI.
    pub psi_some_ratio: Option<f64>,
    /// High watermark: use that starts work.
    pub high_ratio: Share,
    /// Low watermark: work ends below this use.
    pub low_ratio: Share,
    /// `hard_limit_use_ratio` from which the CPU budget may be exceeded.
    pub critical_ratio: Share,
    /// `psi_some_ratio` from which work starts below `high_ratio` already.
    pub psi_start_ratio: Share,
    /// Whether splits are only simulated.
    pub dry_run: bool,
}

/// An event with its facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon starts to watch.
    Started {
        /// `system`, or the directory of the cgroup.
        scope: String,
        /// Order of huge pages, as on the command line.
        order: String,
        /// Interval between reads of memory use.
        interval_seconds: f64,
        /// CPU budget, as a share of one core.
        cpu_budget_ratio: Share,
        /// Rest of a region after a split.
        cool_down_seconds: f64,
        /// Re-collapses after which a region is excluded.
        max_recollapses: u32,
        /// Rules that allow promotion.
        promotion_rules: u64,
    },
    /// A process was tuned: its memory is promoted where that pays.
    Promoted(Promoted),
    /// The same in a dry run, which promotes nothing.
    WouldPromote(Promoted),
    /// A rule allows promotion, and no process is tuned. Logged when the cause changes.
    Waiting {
        /// Cause.
        cause: WaitingCause,
    },
    /// Splitting starts.
    Working {
        /// Cause.
        cause: WorkCause,
    },
    /// The census of all processes is complete.
    Planned {
        /// Order in use: `exact` instead of `heat` if sampling was impossible.
        order: String,
        /// Processes with something to free.
        processes: u64,
        /// Number of these that were not sampled and count as cold: the smallest, or those without
        /// permission.
        not_sampled: u64,
        /// Huge pages that were read.
        huge_pages: u64,
        /// Huge pages that could not be read, so that their bloat is unknown.
        #[serde(default)]
        unread_huge_pages: u64,
        /// Huge pages that could be split.
        candidates: u64,
        /// Bytes that splitting all of these would free.
        reclaimable_bytes: Bytes,
        /// Bytes to free to reach the low watermark.
        requested_bytes: Bytes,
        /// Skipped huge pages by reason.
        skipped: BTreeMap<String, u64>,
        /// Duration, including pauses for the CPU budget.
        seconds: f64,
        /// Whether the CPU budget was exceeded at the critical watermark.
        over_budget: bool,
    },
    /// Huge pages were split since the last such line. At most one line a second.
    Freed(Freed),
    /// The same in a dry run, which splits nothing.
    WouldFree(Freed),
    /// Use is below the low watermark.
    Idle(Totals),
    /// Nothing is left to free that is worth a scan. Logged once, until 1 % of the requested bytes
    /// are freed or use falls below the low watermark.
    Exhausted {
        /// Cause.
        cause: ExhaustedCause,
        /// Time until the next attempt; doubles with each failure, up to five minutes.
        retry_seconds: f64,
    },
    /// Split regions were re-collapsed.
    Recollapsed {
        /// The process.
        pid: Pid,
        /// Name of the process.
        command: String,
        /// Re-collapsed regions.
        regions: u64,
        /// Number of these that are excluded from now on.
        excluded: u64,
        /// Possible causes.
        cause: RecollapseCause,
    },
    /// A process is excluded. Logged once for each process.
    Skipped {
        /// The process.
        pid: Pid,
        /// Name of the process; empty if it cannot be read.
        command: String,
        /// Cause.
        cause: ExclusionCause,
    },
    /// The limit of the cgroup was removed or set again.
    Limit {
        /// Whether the cgroup has no limit now, so that the daemon rests.
        lifted: bool,
    },
    /// The configuration was read again.
    Reloaded {
        /// Cause for which it was rejected and the old one kept; `None` if it was accepted.
        error: Option<ReloadError>,
    },
    /// The daemon ends.
    Stopped(Totals),
}

/// Result of splits. In a dry run, what it would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Freed {
    /// Bytes freed, according to the pagemap.
    pub freed_bytes: Bytes,
    /// Verified splits.
    pub huge_pages_split: u64,
    /// Huge pages skipped after planning, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Failed splits by errno; `still_huge` if the call succeeded and the page stayed huge.
    pub failed: BTreeMap<String, u64>,
    /// The processes.
    pub processes: Vec<ProcessFreed>,
    /// Duration, including pauses.
    pub seconds: f64,
    /// CPU time of the daemon.
    pub cpu_seconds: f64,
    /// Whether the CPU budget was exceeded at the critical watermark.
    pub over_budget: bool,
    /// Settings by which khugepaged may re-collapse these huge pages: in the first such line only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recollapse_risk: Option<RecollapseRisk>,
}

/// Result of tuning a process. In a dry run, what it would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Promoted {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub command: String,
    /// Number of the rule that allowed it, from 1.
    pub rule: u64,
    /// Huge pages that remain of the promotions, verified by the pagemap.
    pub huge_pages_promoted: u64,
    /// Their size.
    pub promoted_bytes: Bytes,
    /// Verified returns to base pages, by a trial without a gain or in exchange for hotter regions:
    /// a region counts each time.
    pub huge_pages_demoted: u64,
    /// Failed promotions by errno.
    pub failed: BTreeMap<String, u64>,
    /// The trial; `None` without one.
    pub trial: Option<TrialReport>,
    /// Cause why there was none.
    pub no_trial: Option<NoTrial>,
    /// Speedup by the model, before the trial; `None` without a calibration.
    pub expected_speedup: Option<Prediction>,
    /// Reason why the memory with most of its stalls gets no huge pages, if nothing was promoted
    /// for it; `None` otherwise.
    pub blocked_by: Option<BlockedStalls>,
    /// Cause for which the promotions ended early.
    pub stopped: Option<Stop>,
    /// Duration.
    pub seconds: f64,
}

/// Memory that gets no huge pages, and has most of the stalls of a process. JSON also has the
/// sentence as `text`, and `help`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("sentence" = true))]
pub struct BlockedStalls {
    /// The reason.
    pub code: SkipReason,
    /// Stalls there as a share of all samples.
    pub stall_ratio: f64,
}

impl Sentence for BlockedStalls {
    fn text(&self) -> String {
        format!("most stalls are {}", self.code.place())
    }
    fn help(&self) -> Vec<String> {
        self.code.help()
    }
}

/// Cause for which no process is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum WaitingCause {
    /// Memory use is not below the low watermark.
    #[text("no process is tuned, because memory use is not below the low watermark")]
    #[help("raise the low watermark (--low)")]
    MemoryScarce,
    /// No process that a rule allows has enough memory.
    #[text("no process that a rule allows has {min_resident_bytes} of resident memory")]
    #[help("set a smaller min_huge, or check cgroup, user and command of the rules")]
    NoProcess {
        /// Least resident memory of a process.
        min_resident_bytes: Bytes,
    },
    /// The processes are idle, new, or were tried a short time ago.
    #[text("{}", none_in_turn(*idle, *resting, *new))]
    NoneInTurn {
        /// Processes that hardly run.
        idle: u64,
        /// Processes that were tried, and rest.
        resting: u64,
        /// Processes that were found for the first time.
        new: u64,
    },
}

/// Counts the processes by the cause for which it is not their turn.
fn none_in_turn(idle: u64, resting: u64, new: u64) -> String {
    let counts = [
        (idle, "hardly runs", "hardly run"),
        (resting, "was tried and rests", "were tried and rest"),
        (new, "is new", "are new"),
    ];
    let causes: Vec<String> = counts
        .into_iter()
        .filter(|&(count, ..)| count > 0)
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    match causes.is_empty() {
        true => "no process is tuned now".to_owned(),
        false => format!("no process is tuned: {}", causes.join(", ")),
    }
}

/// Cause of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkCause {
    /// Use reached the high watermark.
    High,
    /// Tasks stall on memory, and use is not below the low watermark.
    Pressure,
}

/// Cause for which nothing is left to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ExhaustedCause {
    /// No huge page has enough bloat and may be split now.
    #[text("no huge page has enough bloat and may be split now")]
    NoCandidates,
    /// All candidates were tried.
    #[text("all {candidates} candidates were tried")]
    AllTried {
        /// Number of candidates.
        candidates: u64,
    },
    /// The kernel reports broken memory, which a split would read.
    #[text(
        "{corrupted_bytes} of memory are broken (HardwareCorrupted in /proc/meminfo), and a split \
         reads every page"
    )]
    #[help("find the module, and replace it: sudo dmesg | grep -iE 'edac|mce'")]
    BrokenMemory {
        /// `HardwareCorrupted` of `/proc/meminfo`.
        corrupted_bytes: Bytes,
    },
}

/// Cause for which a process is excluded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ExclusionCause {
    /// The configuration protects it.
    #[text("protected by the configuration")]
    Protected,
    /// The system needs it: its `oom_score_adj` forbids the kernel to kill it.
    #[text("the system needs it (oom_score_adj {oom_score_adj})")]
    OomProtected {
        /// Its `oom_score_adj`.
        oom_score_adj: i32,
    },
    /// A failed read.
    #[text(of = a)]
    Unreadable(AccessError),
    /// Forks, after which the huge pages of the process end with the next write: it is promoted
    /// after ten minutes without a fork.
    #[text("{}; its turn comes after ten minutes without a fork", forks(*seen))]
    #[help("promote it nevertheless: forks = \"ignore\" in its [[rule]]")]
    Forks {
        /// Whether a fork was seen; else the process had children, and is watched first.
        seen: bool,
    },
    /// Splitting it ended early.
    #[text("{stop}")]
    Stopped {
        /// Cause.
        stop: Stop,
    },
}

/// Names the forks of a process, which were seen or are only possible.
const fn forks(seen: bool) -> &'static str {
    match seen {
        true => "forks, which ends its huge pages at the next write to each",
        false => "had children, which may have been forks",
    }
}

/// Cause for which a new configuration is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ReloadError {
    /// The file cannot be read, or has an error.
    #[text("{error}")]
    Config {
        /// The error, with file, line and key.
        error: String,
    },
    /// `cgroup` cannot change while the daemon runs.
    #[text("cgroup cannot change while the daemon runs")]
    #[help("stop the daemon and start it again")]
    CgroupChanged,
}

/// Memory freed of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessFreed {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub command: String,
    /// Bytes freed, according to the pagemap.
    pub freed_bytes: Bytes,
    /// Verified splits.
    pub huge_pages_split: u64,
}

/// Sums since work started, or since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Bytes freed, according to the pagemap; with `dry_run`, bytes that would be freed.
    pub freed_bytes: Bytes,
    /// Verified splits.
    pub huge_pages_split: u64,
    /// Split regions that were re-collapsed.
    pub recollapses: u64,
    /// Huge pages that remained of promotions.
    pub huge_pages_promoted: u64,
    /// Their size.
    pub promoted_bytes: Bytes,
    /// Duration.
    pub seconds: f64,
    /// CPU time of the daemon.
    pub cpu_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_that_wait_are_counted_without_zeros() {
        let text = |idle, resting, new| WaitingCause::NoneInTurn { idle, resting, new }.text();
        assert_eq!(text(1, 0, 1), "no process is tuned: 1 hardly runs, 1 is new");
        assert_eq!(
            text(3, 1, 2),
            "no process is tuned: 3 hardly run, 1 was tried and rests, 2 are new"
        );
        assert_eq!(text(0, 2, 0), "no process is tuned: 2 were tried and rest");
        assert_eq!(text(0, 0, 0), "no process is tuned now");
    }
}
