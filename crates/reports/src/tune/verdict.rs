//! Verdict of a report of `tune`.

use std::collections::BTreeMap;

use hugepilot_record::{Answer, PolicyName, SkipReason, Stop};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Certainty, FreedBy, MIN_GAIN, MIN_STALLS, NoTrial, TrialVerdict, TuneReport};

/// Reasons that say that memory is short.
const LACKS_MEMORY: [SkipReason; 3] =
    [SkipReason::CgroupHeadroom, SkipReason::SystemHeadroom, SkipReason::MemoryPressure];

/// Result of a tune. JSON carries it as `verdict`: the `code`, and a sentence with the
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
    /// No region could be selected, and most stalls that huge pages might shorten are on memory
    /// that cannot get one, or must not.
    Blocked,
    /// Regions were tried, and none got a huge page.
    Refused,
    /// A trial showed no gain, was open or had no result, and its regions are on base pages again.
    NoGain,
    /// Regions were promoted, and all have lost their huge pages since.
    Lost,
    /// Regions were tried.
    Promoted,
}

/// Whether huge pages would not pay there. Huge pages say nothing about the rest.
const fn is_judged(reason: SkipReason) -> bool {
    !reason.is_block() && !matches!(reason, SkipReason::AlreadyHuge)
}

/// The reason that keeps the most stalls from huge pages, by the shares of skipped stalls among the
/// samples; see [`TuneReport::block`].
pub fn block(skipped: &BTreeMap<SkipReason, f64>) -> Option<(SkipReason, f64)> {
    let all = skipped.iter().map(|(&reason, &ratio)| (reason, ratio));
    let blocked = all.clone().filter(|(reason, _)| reason.is_block());
    let top = blocked.clone().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let sum: f64 = blocked.map(|(_, ratio)| ratio).sum();
    let of_others: f64 = all.filter(|(reason, _)| is_judged(*reason)).map(|(_, ratio)| ratio).sum();
    (sum >= MIN_STALLS && sum > of_others).then_some(top)
}

impl TuneReport {
    /// The verdict that follows from the facts.
    pub fn verdict(&self) -> TuneVerdict {
        if self.no_verdict.is_some() {
            TuneVerdict::Unknown
        } else if self.forecast.trial.is_some_and(|trial| trial.verdict == TrialVerdict::NoGain) {
            TuneVerdict::NoGain
        } else if self.is_refused() {
            TuneVerdict::Refused
        } else if self.acts.attempted_regions > 0 && !self.is_returned() && !self.is_lost() {
            TuneVerdict::Promoted
        } else if self.dry_run && !self.plan.selected.is_empty() {
            TuneVerdict::WouldPromote
        } else if self.is_lost() && self.acts.freed_by.is_none() {
            TuneVerdict::Lost
        } else if self.is_lost() || self.stopped.is_some() {
            TuneVerdict::Stopped
        } else if self.is_returned() {
            TuneVerdict::NoGain
        } else if self.plan.skipped.contains_key(&SkipReason::OverBudget) {
            match self.plan.budget_of_others_bytes {
                Some(bytes) if bytes > Bytes::ZERO => TuneVerdict::BudgetTaken,
                _ => TuneVerdict::BudgetTooSmall,
            }
        } else if LACKS_MEMORY.iter().any(|reason| self.plan.skipped.contains_key(reason)) {
            TuneVerdict::MemoryShort
        } else if self.schedule.is_some()
            || self.policy != PolicyName::Heat
                && self.plan.eligible_regions.is_some_and(|regions| regions > 0)
        {
            TuneVerdict::NoneSelected
        } else if self.block().is_some() {
            TuneVerdict::Blocked
        } else {
            TuneVerdict::NothingToGain
        }
    }

    /// The verdict in a word that all commands share.
    pub fn answer(&self) -> Answer {
        match self.verdict() {
            TuneVerdict::Unknown | TuneVerdict::Stopped | TuneVerdict::Lost => Answer::CannotTell,
            // Other policies select without a judgement of the gain.
            TuneVerdict::WouldPromote if self.policy != PolicyName::Heat => self.predicted(),
            TuneVerdict::WouldPromote => Answer::Gain,
            TuneVerdict::BudgetTooSmall
            | TuneVerdict::BudgetTaken
            | TuneVerdict::MemoryShort
            | TuneVerdict::Blocked
            | TuneVerdict::Refused => Answer::Blocked,
            TuneVerdict::NothingToGain => Answer::NoGain,
            TuneVerdict::NoneSelected => self.predicted(),
            // A trial that was open says neither.
            TuneVerdict::NoGain => match self.forecast.trial.map(|trial| trial.verdict) {
                Some(TrialVerdict::NoGain) => Answer::NoGain,
                _ => Answer::CannotTell,
            },
            TuneVerdict::Promoted => self.answer_of_promotions(),
        }
    }

    /// The answer by the gain alone.
    fn predicted(&self) -> Answer {
        match self.gain() {
            Some(gain) if gain.speedup >= MIN_GAIN => Answer::Gain,
            Some(_) => Answer::NoGain,
            None => Answer::CannotTell,
        }
    }

    /// The answer if regions are on huge pages: by the measurement if that is certain, otherwise by
    /// the prediction that led to them.
    fn answer_of_promotions(&self) -> Answer {
        match (self.measured.speedup, self.measured.speedup_certainty) {
            (Some(speedup), Some(Certainty::Certain)) if speedup < 1.0 => Answer::NoGain,
            (Some(_), Some(Certainty::Certain)) => Answer::Gain,
            // What the trial showed has ended since.
            _ if self.acts.lost_regions > self.acts.kept_regions() => Answer::CannotTell,
            _ if self.forecast.trial.is_some_and(|trial| trial.verdict == TrialVerdict::Gain) => {
                Answer::Gain
            }
            (Some(_), _) => Answer::CannotTell,
            (None, _) => match self.forecast.predicted_speedup {
                Some(predicted) if predicted.median >= MIN_GAIN => Answer::Gain,
                _ => Answer::CannotTell,
            },
        }
    }

    /// The reason that keeps the most stalls from huge pages although these might shorten them, and
    /// its share of the samples; `None` if others that would not pay are more, or these are few.
    pub fn block(&self) -> Option<(SkipReason, f64)> {
        let predicted = self.forecast.blocked_speedup;
        let may_gain = predicted.is_none_or(|predicted| predicted.high >= MIN_GAIN);
        block(&self.plan.skipped_stall_ratio).filter(|_| may_gain)
    }

    /// Whether no promotion succeeded, and neither the user nor the program's end is the cause.
    fn is_refused(&self) -> bool {
        use Stop::{Interrupted, TargetExeced, TargetGone};
        let is_cut = matches!(self.stopped, Some(Interrupted | TargetExeced | TargetGone));
        self.acts.attempted_regions > 0 && self.acts.verified_regions == 0 && !is_cut
    }

    /// Whether the measured gain is certainly a loss.
    pub fn is_certainly_slower(&self) -> bool {
        let is_certain = self.measured.speedup_certainty == Some(Certainty::Certain);
        is_certain && self.measured.speedup.is_some_and(|speedup| speedup < 1.0)
    }

    /// Whether the tune returned every promoted region that had not lost its huge page, but for a
    /// schedule that says so.
    fn is_returned(&self) -> bool {
        let (acts, forecast) = (&self.acts, &self.forecast);
        let has_no_gain = forecast.trial.is_some_and(|trial| trial.verdict != TrialVerdict::Gain)
            || matches!(forecast.no_trial, Some(NoTrial::PairsChanged { .. }));
        let is_all = acts.kept_regions() == 0 && (acts.lost_regions == 0 || has_no_gain);
        self.schedule.is_none() && acts.demoted_regions > 0 && is_all
    }

    /// Whether every promoted region lost its huge page, but for those that the tune returned. A
    /// schedule that returns regions says so, and the gain of a whole run counts until its end.
    fn is_lost(&self) -> bool {
        let acts = &self.acts;
        let is_all = acts.lost_regions > 0 && acts.kept_regions() == 0 && !self.is_returned();
        let is_planned = self.schedule.is_some() && acts.demoted_regions > 0;
        let is_measured = acts.freed_by == Some(FreedBy::End) && self.measured.speedup.is_some();
        is_all && !is_planned && !is_measured
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Prediction;

    use super::super::{NoVerdict, SelectedRegion};
    use super::*;

    fn stalls(all: &[(SkipReason, f64)]) -> TuneReport {
        let mut report = TuneReport::default();
        report.plan.skipped_stall_ratio = all.iter().copied().collect();
        report
    }

    #[test]
    fn stalls_on_memory_that_cannot_be_huge_are_blocked_and_not_without_gain() {
        use SkipReason::{AlreadyHuge, File, Mlocked, Streamed, TooCold};
        let of = |all: &[_]| {
            let report = stalls(all);
            (report.answer(), report.block().map(|(reason, _)| reason))
        };
        assert_eq!(of(&[]), (Answer::NoGain, None));
        assert_eq!(of(&[(Mlocked, 0.3), (Streamed, 0.1)]), (Answer::Blocked, Some(Mlocked)));
        let both = [(Mlocked, 0.1), (File, 0.2), (Streamed, 0.25), (AlreadyHuge, 0.4)];
        assert_eq!(of(&both), (Answer::Blocked, Some(File)), "together they are most");
        assert_eq!(of(&[(Mlocked, 0.1), (TooCold, 0.2)]), (Answer::NoGain, None));
        assert_eq!(of(&[(Mlocked, 0.04)]), (Answer::NoGain, None), "few");
        let mut report = stalls(&[(Mlocked, 0.3)]);
        report.forecast.blocked_speedup = Some(Prediction { low: 1.0, median: 1.0, high: 1.01 });
        assert_eq!(report.answer(), Answer::NoGain, "they would gain nothing");
    }

    #[test]
    fn each_verdict_has_its_answer() {
        let of = |change: fn(&mut TuneReport)| {
            let mut report = TuneReport::default();
            change(&mut report);
            report.answer()
        };
        assert_eq!(of(|r| r.no_verdict = Some(NoVerdict::TargetIdle)), Answer::CannotTell);
        assert_eq!(of(|r| r.plan.skipped = [(SkipReason::OverBudget, 1)].into()), Answer::Blocked);
        let promoted =
            |r: &mut TuneReport| (r.acts.attempted_regions, r.acts.verified_regions) = (4, 4);
        let with = |speedup, certainty| {
            let mut report = TuneReport::default();
            promoted(&mut report);
            (report.measured.speedup, report.measured.speedup_certainty) =
                (Some(speedup), Some(certainty));
            report.answer()
        };
        assert_eq!(with(1.2, Certainty::Certain), Answer::Gain);
        assert_eq!(with(0.9, Certainty::Certain), Answer::NoGain);
        assert_eq!(with(0.9, Certainty::Uncertain), Answer::CannotTell);
        let predicted = |r: &mut TuneReport| {
            (r.acts.attempted_regions, r.acts.verified_regions) = (4, 4);
            r.forecast.predicted_speedup = Some(Prediction { low: 1.1, median: 1.2, high: 1.3 });
        };
        assert_eq!(of(predicted), Answer::Gain);
        let lost = |r: &mut TuneReport| {
            (r.acts.attempted_regions, r.acts.verified_regions, r.acts.lost_regions) = (4, 4, 3);
            r.forecast.predicted_speedup = Some(Prediction { low: 1.1, median: 1.2, high: 1.3 });
        };
        assert_eq!(of(lost), Answer::CannotTell, "most of it is on base pages again");
        let refused = |r: &mut TuneReport| {
            r.acts.attempted_regions = 4;
            r.acts.failed = [("EAGAIN".to_owned(), 4)].into();
        };
        assert_eq!(of(refused), Answer::Blocked);
        let full = |r: &mut TuneReport| {
            (r.acts.attempted_regions, r.stopped) = (3, Some(Stop::NoHugePages));
            r.forecast.predicted_speedup = Some(Prediction { low: 1.1, median: 1.2, high: 1.3 });
        };
        assert_eq!(of(full), Answer::Blocked, "nothing got a huge page");
        let dry = |policy| {
            let mut report = TuneReport::default();
            (report.dry_run, report.policy) = (true, policy);
            report.plan.selected = vec![SelectedRegion {
                start: hugepilot_units::VirtAddr::new(0),
                mapping: String::new(),
                heat_ratio: 0.1,
                sampled_pages: 1,
                verified: None,
                state: None,
            }];
            report.answer()
        };
        assert_eq!(dry(PolicyName::Heat), Answer::Gain);
        assert_eq!(dry(PolicyName::All), Answer::CannotTell, "it does not judge the gain");
    }
}
