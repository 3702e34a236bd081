//! Report of `explain`: the rounds of a journal, each decided again.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::{Pid, Sentence, SkipReason, Skips, Stop};
use hugepilot_units::{Bytes, Share, VirtAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::daemon::WorkCause;
use crate::tune::{NoTrial, TrialVerdict};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.explain/1";

/// Report of `explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of hugepilot that wrote the journal.
    pub version: String,
    /// Time from which `seconds` of the rounds count.
    #[serde(default)]
    pub origin: TimeOrigin,
    /// Rounds of the journal.
    pub rounds: u64,
    /// Decisions of these rounds: one for each process of a round, for each plan of splits, or for
    /// each decision of the daemon about itself.
    pub decisions: u64,
    /// Decisions that came out the same when decided again, with the same next state.
    pub reproduced_decisions: u64,
    /// Rounds with a decision that came out otherwise.
    pub differing_rounds: Vec<u64>,
    /// Bytes of an incomplete last line, which is skipped; 0 without one.
    pub cut_bytes: u64,
    /// The rounds that were asked for.
    pub shown: Vec<ExplainedRound>,
}

impl ExplainReport {
    /// Whether every decision came out the same.
    pub fn is_reproduced(&self) -> bool {
        self.reproduced_decisions == self.decisions
    }
}

/// Time from which the times of a journal count, in `explain` and in `report`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeOrigin {
    /// Start of the recording with the journal.
    RecordingStart,
    /// First observation of a journal alone.
    #[default]
    FirstObservation,
}

/// A round of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedRound {
    /// Position in the journal, from 1.
    pub round: u64,
    /// Time of the decision, since `origin`.
    pub seconds: f64,
    /// The processes for which a decision was due; empty for a debloat.
    pub processes: Vec<ExplainedProcess>,
    /// Splits of a debloat; `null` for a tune.
    pub splits: Option<ExplainedSplits>,
    /// Decision of the daemon about itself; `null` for others.
    #[serde(default)]
    pub daemon: Option<ExplainedDaemon>,
}

/// Decision of the daemon about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedDaemon {
    /// The decision.
    #[serde(flatten)]
    pub decision: DaemonDecision,
    /// Whether it and the next state came out the same when decided again.
    pub reproduced: bool,
}

/// The decision, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum DaemonDecision {
    /// The step between the watermarks.
    Step {
        /// Memory use as a share of the limit.
        use_ratio: f64,
        /// Share of the last ten seconds in which some task stalled on memory; `null` without PSI.
        psi_some_ratio: Option<f64>,
        /// Use that starts work.
        high_ratio: Share,
        /// Use below which work ends.
        low_ratio: Share,
        /// `psi_some_ratio` that starts work from `low_ratio` on.
        psi_start_ratio: Share,
        /// The result.
        step: DaemonStep,
    },
    /// The processes to tune next.
    Turns {
        /// Processes of the scan.
        processes: u64,
        /// Those whose turn it is, in order.
        in_turn: Vec<ExplainedTurn>,
        /// Allowed processes that hardly run.
        idle: u64,
        /// Allowed processes that were tried and rest.
        resting: u64,
        /// Allowed processes that no earlier scan found.
        new: u64,
    },
}

/// Step of the daemon between the watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DaemonStep {
    /// Rest.
    Rest,
    /// Start to split.
    Begin(WorkCause),
    /// Split on.
    GoOn,
    /// End.
    End,
}

/// Process whose turn it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedTurn {
    /// Its pid.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// Number of the rule that allows it, from 1.
    pub rule: u64,
    /// CPU time per second of time.
    pub cpus: f64,
}

/// Round of a debloat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedSplits {
    /// Order of the plan.
    pub order: String,
    /// Whether it was a dry run, which splits nothing.
    pub dry_run: bool,
    /// Memory to free.
    pub requested_bytes: Bytes,
    /// Huge pages of the plan.
    pub candidates: u64,
    /// Huge pages skipped by the plan, by reason.
    pub skipped: Skips,
    /// The processes.
    pub processes: Vec<ExplainedSplitProcess>,
    /// Cause of an early end.
    pub stopped: Option<Stop>,
    /// Whether the plan came out the same when made again.
    pub reproduced: bool,
}

/// Process of a debloat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedSplitProcess {
    /// Its pid.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// Whether the user protected it.
    pub protected: bool,
    /// Its huge pages that may be split.
    pub huge_pages: u64,
    /// Those that were read: fewer for a sample.
    pub read_huge_pages: u64,
    /// Zero-filled bytes in the huge pages that were read.
    pub bloat_bytes: Bytes,
    /// Stall samples that huge pages avoid; `null` if it was not sampled.
    pub stalls: Option<u64>,
    /// Its huge pages in the plan.
    pub candidates: u64,
    /// Huge pages verified on base pages.
    pub huge_pages_split: u64,
    /// Memory freed, verified.
    pub freed_bytes: Bytes,
    /// Huge pages skipped because they had changed since the plan, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Splits that failed, by errno; `still_huge` counts successful calls without a change.
    pub failed: BTreeMap<String, u64>,
    /// Cause of an end before the plan was done.
    pub stopped: Option<Stop>,
    /// The regions that were asked for.
    pub regions: Vec<ExplainedSplit>,
}

/// A bloated huge page in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedSplit {
    /// First address.
    pub start: VirtAddr,
    /// Its zero-filled bytes.
    pub bloat_bytes: Bytes,
    /// Its stall samples; `null` if the process was not sampled.
    pub stalls: Option<u32>,
    /// Place in the plan, from 1; `null` if it is not in the plan.
    pub rank: Option<u64>,
    /// `split`, or the errno or reason of a failure; `null` if it was not tried.
    pub outcome: Option<String>,
}

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// First observation.
    Observing,
    /// Observation of the pairs, of which one region each is huge.
    Trial,
    /// The rest is promoted.
    Spread,
    /// Both regions of each pair are huge, and are observed once more.
    Check,
    /// New hot memory is promoted as it appears.
    Watching,
    /// Nothing more can change.
    Ended,
}

/// A process in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedProcess {
    /// Its pid.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// Phase before the decision.
    pub phase_before: PhaseName,
    /// Phase after it.
    pub phase_after: PhaseName,
    /// Samples of the window.
    pub samples: u64,
    /// Length of the window.
    pub window_seconds: f64,
    /// Regions that may be promoted; `null` if the round selects none.
    pub candidate_regions: Option<u64>,
    /// Regions to promote.
    pub promote: RegionShare,
    /// Regions to return to base pages.
    pub demote_regions: u64,
    /// Regions skipped, by reason.
    pub skipped: BTreeMap<SkipReason, RegionShare>,
    /// Reading of the trial, in the phases that compare the regions of its pairs.
    pub trial: Option<TrialReading>,
    /// Cause why there is no trial, in the round that found it.
    pub no_trial: Option<NoTrial>,
    /// Outcome of the round.
    pub outcome: RoundOutcome,
    /// Whether the decision and the next state came out the same when decided again.
    pub reproduced: bool,
    /// The regions that were asked for.
    pub regions: Vec<ExplainedRegion>,
}

/// Regions, and their stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionShare {
    /// Number of regions.
    pub regions: u64,
    /// Share of the stalls of the process; expected stalls, for regions to promote. `null` without
    /// stalls.
    pub stall_ratio: Option<f64>,
}

/// Reading of a trial in a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialReading {
    /// Stall time of the promoted regions over that of their partners; `null` without samples on
    /// either.
    pub ratio: Option<f64>,
    /// Lower bound of `ratio`.
    pub low_ratio: Option<f64>,
    /// Upper bound of `ratio`.
    pub high_ratio: Option<f64>,
    /// Pairs.
    pub pairs: u64,
    /// Samples on the pairs.
    pub samples: u64,
    /// Whether this reading suffices, and the next round decides on pages that are read again:
    /// others may have changed them.
    #[serde(default)]
    pub rereads_pages: bool,
    /// Verdict, in the round that ends the trial.
    pub verdict: Option<TrialVerdict>,
    /// Whether both regions of each pair stall alike once both are huge, in the round that ends the
    /// check.
    pub confirmed: Option<bool>,
}

/// Outcome of a round for a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundOutcome {
    /// Time of all acts; `null` without acts, as in a dry run.
    pub seconds: Option<f64>,
    /// Regions verified on huge pages.
    pub verified_regions: u64,
    /// Promotions that failed, by errno; `not_verified` counts successful calls without a huge
    /// page.
    pub failed: BTreeMap<String, u64>,
    /// Regions skipped because they had changed since the decision, by reason.
    pub changed: Skips,
    /// Planned promotions that were not tried, because the time was over or the round stopped.
    #[serde(default)]
    pub untried_regions: u64,
    /// Regions verified on base pages.
    pub demoted_regions: u64,
    /// Demotions that failed, by errno or reason; `still_huge` counts successful calls without a
    /// change.
    pub failed_demotions: BTreeMap<String, u64>,
    /// Cause of an early end.
    pub stopped: Option<Stop>,
}

/// Decision about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RegionChoice {
    /// Promoted.
    #[text("it is promoted")]
    Promote,
    /// Returned to base pages.
    #[text("it returns to base pages")]
    Demote,
    /// On base pages for comparison, as the partner of a promoted region of the trial.
    #[text("it stays on base pages, as the partner of a promoted region of the trial")]
    Control,
    /// A candidate that is not promoted now: it pays too little, a limit is reached, or its turn
    /// is in a later round.
    #[text(
        "it may be promoted, and pays too little, exceeds a limit, or has its turn in a later \
         round"
    )]
    Wait,
    /// Eligible, with too few stalls.
    #[text("it may be promoted, and too few stalls fall on it")]
    Cold,
    /// Not eligible.
    #[text("it may not be promoted: {reason}")]
    Skip {
        /// Reason.
        reason: SkipReason,
    },
    /// The round selects no regions.
    #[text("the round selects no regions")]
    NotJudged,
}

/// A region in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedRegion {
    /// First address.
    pub start: VirtAddr,
    /// Label of its mapping; empty if no mapping holds it.
    pub mapping: String,
    /// Stalls in the window.
    pub stalls: u32,
    /// Their share of the stalls of the process; `null` without stalls.
    pub stall_ratio: Option<f64>,
    /// Memory that a huge page adds; `null` unless the region is promoted.
    pub added_bytes: Option<Bytes>,
    /// Decision.
    pub choice: RegionChoice,
    /// `verified`, `demoted`, or the errno or reason of a failure; `null` if it was not tried.
    pub outcome: Option<String>,
}
