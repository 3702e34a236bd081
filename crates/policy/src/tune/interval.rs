//! Interval: one decision about all processes of a snapshot, as policies without a trial make it.

use std::collections::BTreeMap;

use hugepilot_record::{Next, ProcessDecision, ProcessSnapshot, SkipReason, Skips, Snapshot};
use hugepilot_units::{Nanos, Region};

use super::allowance::Allowance;
use super::decide::promotion;
use super::expected::expected;
use super::{Candidate, Candidates, State, TuneGoal, TunePhase};

/// Candidate of a process, by the place of the process in the snapshot.
pub(super) type Ranked = (usize, Candidate);

/// Decisions of an interval so far.
pub(super) struct Interval<'a> {
    goal: &'a TuneGoal,
    snapshot: &'a Snapshot,
    allowance: Allowance,
    decisions: Vec<ProcessDecision>,
}

impl<'a> Interval<'a> {
    /// Starts an interval that promotes at most `regions`. The next decision about all processes is
    /// at `until`.
    pub(super) fn new(
        goal: &'a TuneGoal,
        snapshot: &'a Snapshot,
        state: &mut State,
        regions: usize,
        until: Nanos,
    ) -> Self {
        let is_last = snapshot.interrupted || goal.model_only;
        let next = if is_last { Next::End } else { Next::Until(until) };
        for process in &snapshot.processes {
            state.of_mut(&process.id).phase = TunePhase::Watching { idle: 0 };
        }
        let allowance = Allowance::of_interval(goal, state, regions);
        let decisions = snapshot.processes.iter().map(|process| empty(process, next)).collect();
        Self { goal, snapshot, allowance, decisions }
    }

    /// Notes the candidates of the process at `index`.
    pub(super) fn note(&mut self, index: usize, found: &Candidates) {
        let decision = &mut self.decisions[index];
        decision.eligible = found.regions.len() as u64;
        decision.skipped.clone_from(&found.skipped);
        decision.skipped_stalls.clone_from(&found.skipped_stalls);
    }

    /// Notes the expected speedups of `found`, which is in the order of promotion.
    pub(super) fn expect(&mut self, index: usize, found: &Candidates) {
        let ProcessSnapshot { memory, window, .. } = &self.snapshot.processes[index];
        self.decisions[index].expected = expected(self.goal, memory, window, found, self.allowance);
    }

    /// Counts a skipped candidate.
    pub(super) fn skip(&mut self, index: usize, reason: SkipReason, one: &Candidate) {
        self.decisions[index].skip(reason, one.stalls);
    }

    /// Promotes the first candidates that the limits allow. Returns those for which the budget has
    /// no huge page left. After an interruption, it promotes none.
    pub(super) fn grant(&mut self, ranked: &[Ranked]) -> Vec<Ranked> {
        let mut refused = Vec::new();
        if self.snapshot.interrupted {
            return refused;
        }
        for &(index, candidate) in ranked {
            if self.allowance.is_full() {
                break;
            }
            let is_refused = self.grant_one(index, &candidate).is_err();
            if is_refused && self.allowance.is_spent(&self.snapshot.processes[index].memory) {
                refused.push((index, candidate));
            }
        }
        refused
    }

    /// Promotes a candidate if the limits allow.
    ///
    /// # Errors
    /// The limit that forbids it; `None` if the round promotes no more, or after an interruption.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn grant_one(
        &mut self,
        index: usize,
        candidate: &Candidate,
    ) -> Result<(), Option<SkipReason>> {
        if self.snapshot.interrupted || self.allowance.is_full() {
            return Err(None);
        }
        let (process, decision) = (&self.snapshot.processes[index], &mut self.decisions[index]);
        if let Err(reason) = self.allowance.take(&process.memory, candidate.added) {
            decision.skip(reason, candidate.stalls);
            return Err(Some(reason));
        }
        let samples = process.window.samples.max(1) as f64;
        let ratio = f64::from(candidate.stalls) / samples;
        decision.promote.push(promotion(&process.memory, candidate, ratio));
        Ok(())
    }

    /// Whether the round promotes no more regions; the next one may.
    pub(super) fn is_full(&self) -> bool {
        self.allowance.is_full()
    }

    /// Sets the next step of a process.
    pub(super) fn set_next(&mut self, index: usize, next: Next) {
        self.decisions[index].next = next;
    }

    /// Promotes candidates as [`Self::grant`] does. If they are more than a round promotes, the
    /// next round follows at once.
    pub(super) fn grant_in_rounds(&mut self, ranked: &[Ranked]) {
        self.grant(ranked);
        if self.allowance.is_full() && !self.is_last() {
            let now = self.snapshot.time;
            self.decisions.iter_mut().for_each(|decision| decision.next = Next::Until(now));
        }
    }

    /// Returns a region to base pages.
    pub(super) fn demote(&mut self, index: usize, region: Region) {
        self.decisions[index].demote.push(region);
    }

    /// Returns the regions of a process that the interval promotes.
    pub(super) fn promoted(&self, index: usize) -> impl Iterator<Item = Region> {
        self.decisions[index].promote.iter().map(|promotion| promotion.region)
    }

    /// Whether the interval promotes `region`.
    pub(super) fn promotes(&self, index: usize, region: Region) -> bool {
        self.promoted(index).any(|promoted| promoted == region)
    }

    fn is_last(&self) -> bool {
        self.snapshot.interrupted || self.goal.model_only
    }

    pub(super) fn finish(self) -> Vec<ProcessDecision> {
        self.decisions
    }
}

/// End of the interval after `time`: the same for all processes. The first interval of a process
/// may be longer, none is much shorter.
pub(super) fn next_interval(time: Nanos, length: Nanos) -> Nanos {
    let length = length.get().max(1);
    let rest = length - time.get() % length;
    let rest = if rest < length / 2 { rest.saturating_add(length) } else { rest };
    time + Nanos::new(rest)
}

/// A decision that changes nothing.
pub(super) fn empty(process: &ProcessSnapshot, next: Next) -> ProcessDecision {
    ProcessDecision {
        process: process.id.clone(),
        promote: Vec::new(),
        demote: Vec::new(),
        eligible: 0,
        skipped: Skips::new(),
        skipped_stalls: BTreeMap::new(),
        expected: None,
        next,
    }
}
