//! Verdict of a report of `tune`.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Certainty, FreedBy, NoTrial, TrialVerdict, TuneReport};
use crate::{PolicyName, SkipReason};

/// Reasons that say that memory is short.
const LACKS_MEMORY: [SkipReason; 3] =
    [SkipReason::CgroupHeadroom, SkipReason::SystemHeadroom, SkipReason::MemoryPressure];

/// Result of a tune in a word. JSON carries it as `verdict`: the `code`, and a sentence with the
/// facts as `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TuneVerdict {
    /// Nothing is known of the target's stalls; `no_verdict` has the cause.
    Unknown,
    /// A dry run selected regions.
    WouldPromote,
    /// The tune stopped before the first promotion, or in a trial, whose regions it returned to
    /// base pages, or an exec or the end of the process freed its regions: `freed_by`, or else
    /// `stopped`, has the cause.
    Stopped,
    /// The budget allows no huge page, or too few for a gain.
    BudgetTooSmall,
    /// Other processes, which come first by the policy, got the budget, or left too little for a
    /// gain.
    BudgetTaken,
    /// Free memory allows no huge page, or too few for a gain.
    MemoryShort,
    /// A policy that does not judge the gain selected none of the regions that may be promoted, or
    /// a schedule promoted none.
    NoneSelected,
    /// No region is worth a huge page.
    NothingToGain,
    /// A trial showed no gain, was open or had no result, and its regions are on base pages again.
    NoGain,
    /// Regions were promoted, and all have lost their huge pages since.
    Lost,
    /// Regions were tried.
    Promoted,
}

impl TuneReport {
    /// The verdict that follows from the facts.
    pub fn verdict(&self) -> TuneVerdict {
        if self.no_verdict.is_some() {
            TuneVerdict::Unknown
        } else if self.trial.is_some_and(|trial| trial.verdict == TrialVerdict::NoGain) {
            TuneVerdict::NoGain
        } else if self.attempted_regions > 0 && !self.is_returned() && !self.is_lost() {
            TuneVerdict::Promoted
        } else if self.dry_run && !self.selected.is_empty() {
            TuneVerdict::WouldPromote
        } else if self.is_lost() && self.freed_by.is_none() {
            TuneVerdict::Lost
        } else if self.is_lost() || self.stopped.is_some() {
            TuneVerdict::Stopped
        } else if self.is_returned() {
            TuneVerdict::NoGain
        } else if self.skipped.contains_key(&SkipReason::OverBudget) {
            match self.budget_of_others_bytes {
                Some(bytes) if bytes > Bytes::ZERO => TuneVerdict::BudgetTaken,
                _ => TuneVerdict::BudgetTooSmall,
            }
        } else if LACKS_MEMORY.iter().any(|reason| self.skipped.contains_key(reason)) {
            TuneVerdict::MemoryShort
        } else if self.schedule.is_some()
            || self.policy != PolicyName::Heat
                && self.eligible_regions.is_some_and(|regions| regions > 0)
        {
            TuneVerdict::NoneSelected
        } else {
            TuneVerdict::NothingToGain
        }
    }

    /// Whether the measured gain is certainly a loss.
    pub fn is_certainly_slower(&self) -> bool {
        let is_certain = self.speedup_certainty == Some(Certainty::Certain);
        is_certain && self.speedup.is_some_and(|speedup| speedup < 1.0)
    }

    /// Promoted regions that are huge at the end.
    pub const fn kept_regions(&self) -> u64 {
        self.verified_regions.saturating_sub(self.demoted_regions + self.lost_regions)
    }

    /// Whether the tune returned every promoted region that had not lost its huge page, but for a
    /// schedule that says so.
    fn is_returned(&self) -> bool {
        let has_no_gain = self.trial.is_some_and(|trial| trial.verdict != TrialVerdict::Gain)
            || matches!(self.no_trial, Some(NoTrial::PairsChanged { .. }));
        let is_all = self.kept_regions() == 0 && (self.lost_regions == 0 || has_no_gain);
        self.schedule.is_none() && self.demoted_regions > 0 && is_all
    }

    /// Whether every promoted region lost its huge page, but for those that the tune returned. A
    /// schedule that returns regions says so, and the gain of a whole run counts until its end.
    fn is_lost(&self) -> bool {
        let is_all = self.lost_regions > 0 && self.kept_regions() == 0 && !self.is_returned();
        let is_planned = self.schedule.is_some() && self.demoted_regions > 0;
        let is_measured = self.freed_by == Some(FreedBy::End) && self.speedup.is_some();
        is_all && !is_planned && !is_measured
    }
}
