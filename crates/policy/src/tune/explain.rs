//! Explanation of a round of a tune: decided again, compared with what was decided, and summed up.

mod region;

use std::collections::BTreeMap;

use hugepilot_record::{Next, SkipReason, Window};
use hugepilot_reports::explain::{
    ExplainedProcess, PhaseName, RegionShare, RoundOutcome, TrialReading,
};
use hugepilot_units::Nanos;

use super::pairs::{compared, estimate, whole};
use super::{Policy, ProcessState, TuneGoal, TunePhase};
use crate::explain::{Explained, ShownRegions};
use crate::round::{Round, Row, outcome_name};

/// Decides a round again, and explains each of its processes. A decision is reproduced if it and
/// the next state come out the same.
pub(crate) fn explain(goal: &TuneGoal, round: &Round, regions: Option<ShownRegions>) -> Explained {
    let again = round.again(goal);
    let rows = round.rows.iter().zip(again.rows);
    let processes: Vec<ProcessRecord<'_>> = rows
        .map(|(row, Row { decision, after, .. })| {
            let is_same =
                (&decision, &after, &again.place) == (&row.decision, &row.after, &round.place);
            let before = round.state.of(&row.seen.id).cloned().unwrap_or_default();
            ProcessRecord { goal, row, before, after: after.unwrap_or_default(), is_same }
        })
        .collect();
    Explained {
        time: round.time,
        decisions: processes.len() as u64,
        reproduced: processes.iter().filter(|process| process.is_same).count() as u64,
        processes: processes.iter().map(|process| process.explain(regions)).collect(),
        splits: None,
        daemon: None,
    }
}

/// A process in a round, with everything that the journal has about it.
struct ProcessRecord<'a> {
    goal: &'a TuneGoal,
    row: &'a Row,
    before: ProcessState,
    after: ProcessState,
    is_same: bool,
}

impl ProcessRecord<'_> {
    fn explain(&self, regions: Option<ShownRegions>) -> ExplainedProcess {
        let Row { seen, decision, .. } = self.row;
        let selects = self.selects();
        ExplainedProcess {
            pid: seen.id.pid,
            command: seen.id.command.clone(),
            phase_before: name(&self.before.phase),
            phase_after: name(&self.after.phase),
            samples: seen.window.samples,
            window_seconds: seen.window.length().as_seconds(),
            candidate_regions: selects.then_some(decision.eligible),
            promote: self.promoted(),
            demote_regions: decision.demote.len() as u64,
            skipped: self.skipped(),
            trial: self.trial(),
            no_trial: self.after.no_trial.filter(|_| self.before.no_trial.is_none()),
            outcome: outcome(self.row),
            reproduced: self.is_same,
            regions: regions.map_or_else(Vec::new, |shown| self.regions(shown)),
        }
    }

    /// Samples to which the decision refers.
    fn window(&self) -> &Window {
        match &self.before.phase {
            TunePhase::Spread { window, .. } => window,
            _ => &self.row.seen.window,
        }
    }

    /// Whether the round selects regions.
    fn selects(&self) -> bool {
        match (&self.goal.policy, &self.before.phase) {
            (Policy::Heat, phase) => self.selects_by_heat(phase),
            (Policy::Never, _) => false,
            _ => true,
        }
    }

    fn selects_by_heat(&self, phase: &TunePhase) -> bool {
        match phase {
            // A window with few addresses goes on.
            TunePhase::Observing => !matches!(self.after.phase, TunePhase::Observing),
            TunePhase::Spread { .. } | TunePhase::Watching { .. } => true,
            TunePhase::Trial { .. } | TunePhase::Check { .. } | TunePhase::Ended => false,
        }
    }

    /// The share of `stalls` in those of the window; `None` if it has none.
    #[allow(clippy::cast_precision_loss)]
    fn share(&self, stalls: f64) -> Option<f64> {
        let all = self.window().stalled() + self.window().chased();
        (all > 0).then(|| stalls / all as f64)
    }

    #[allow(clippy::cast_precision_loss)]
    fn promoted(&self) -> RegionShare {
        let expected = self.row.decision.heat_ratio() * self.window().samples as f64;
        let stall_ratio = self.share(expected).map(|ratio| ratio.clamp(0.0, 1.0));
        RegionShare { regions: self.row.decision.promote.len() as u64, stall_ratio }
    }

    #[allow(clippy::cast_precision_loss)]
    fn skipped(&self) -> BTreeMap<SkipReason, RegionShare> {
        let share = |(&reason, &regions): (&SkipReason, &u64)| {
            let stalls = self.row.decision.skipped_stalls.get(&reason).copied().unwrap_or(0);
            (reason, RegionShare { regions, stall_ratio: self.share(stalls as f64) })
        };
        self.row.decision.skipped.iter().map(share).collect()
    }

    /// Reading of the pairs, as the round made it.
    fn trial(&self) -> Option<TrialReading> {
        let (before, memory) = (&self.before, &self.row.seen.memory);
        let pairs = match &before.phase {
            TunePhase::Trial { pairs, .. } => compared(pairs, before, memory),
            TunePhase::Check { pairs } => whole(pairs, before, memory),
            _ => return None,
        };
        let estimate = estimate(&pairs, &self.row.seen.window);
        let interval = estimate.map(|estimate| estimate.interval(self.goal.trial.alpha));
        let verdict = self.after.trial.filter(|_| self.before.trial.is_none());
        let is_check = matches!(self.before.phase, TunePhase::Check { .. });
        Some(TrialReading {
            ratio: estimate.map(|estimate| estimate.ratio()),
            low_ratio: interval.map(|(low, _)| low),
            high_ratio: interval.map(|(_, high)| high),
            pairs: pairs.len() as u64,
            samples: estimate.map_or(0, |estimate| estimate.samples),
            rereads_pages: self.row.decision.next == Next::Observe(Nanos::ZERO)
                && name(&self.before.phase) == name(&self.after.phase),
            verdict: verdict.map(|trial| trial.verdict),
            confirmed: self.after.trial.filter(|_| is_check).and_then(|trial| trial.confirmed),
        })
    }
}

/// Name of a phase.
const fn name(phase: &TunePhase) -> PhaseName {
    match phase {
        TunePhase::Observing => PhaseName::Observing,
        TunePhase::Trial { .. } => PhaseName::Trial,
        TunePhase::Spread { .. } => PhaseName::Spread,
        TunePhase::Check { .. } => PhaseName::Check,
        TunePhase::Watching { .. } => PhaseName::Watching,
        TunePhase::Ended => PhaseName::Ended,
    }
}

fn outcome(row: &Row) -> RoundOutcome {
    let Row { decision, outcome, .. } = row;
    let mut failed_demotions = BTreeMap::new();
    for act in &outcome.demotions {
        if !crate::round::is_split(act) {
            *failed_demotions.entry(outcome_name(act, "demoted")).or_insert(0) += 1;
        }
    }
    let attempts = &outcome.attempts;
    let acted = outcome.begun.is_some() || attempts.stopped.is_some();
    let untried = (decision.promote.len() as u64).saturating_sub(attempts.handled());
    RoundOutcome {
        untried_regions: if acted { untried } else { 0 },
        seconds: outcome.begun.zip(outcome.ended).map(|(begun, end)| (end - begun).as_seconds()),
        verified_regions: outcome.attempts.verified(),
        failed: outcome.attempts.failed(),
        changed: outcome.attempts.skipped.clone(),
        demoted_regions: outcome.demoted(),
        failed_demotions,
        stopped: outcome.attempts.stopped,
    }
}
