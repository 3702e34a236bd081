//! Trial of a process: from its promotions to its verdict, what follows, and the check.

use std::collections::BTreeSet;

use hugepilot_record::{Next, Window};
use hugepilot_reports::tune::{NoTrial, TrialVerdict};
use hugepilot_units::{Bytes, Nanos, Region};

use super::{MAX_IDLE, ProcessRound, Wish};
use crate::trial::{StallShares, speedup};
use crate::tune::exchange::USUAL_RATIO;
use crate::tune::pairs::{CountedPair, compared, estimate, whole, with_stalls};
use crate::tune::{Candidate, Candidates, TrialResult, TunePhase};

impl ProcessRound<'_> {
    /// Promotes one region of each pair.
    pub(super) fn start_trial(
        &mut self,
        candidates: &Candidates,
        pairs: Vec<CountedPair>,
        shares: StallShares,
    ) {
        let promoted: BTreeSet<Region> = pairs.iter().map(|(pair, _)| pair.promoted).collect();
        let arm = candidates.regions.iter().filter(|one| promoted.contains(&one.region));
        self.wishes = arm
            .map(|&candidate| Wish { candidate, saving: self.saving(&candidate, USUAL_RATIO) })
            .collect();
        let (before, since) = (self.window.clone(), self.moment.time);
        self.past.phase = TunePhase::Trial { pairs, shares, before, since };
        self.decision.next = Next::Restart(self.goal.settle, self.goal.settle);
    }

    /// Reads the trial: goes on, or ends it.
    pub(super) fn read_trial(
        &mut self,
        pairs: Vec<CountedPair>,
        shares: StallShares,
        before: Window,
        since: Nanos,
    ) {
        let promoted =
            pairs.iter().filter(|(pair, _)| self.past.is_promoted(pair.promoted)).count();
        if promoted == 0 {
            self.past.no_trial = Some(NoTrial::NonePromoted { pairs: pairs.len() as u64 });
            // What failed for every pair will fail for the rest.
            self.past.phase = TunePhase::Watching { idle: MAX_IDLE - 1 };
            return;
        }
        let compared = compared(&pairs, &self.past, &self.seen.memory);
        let estimate = estimate(&compared, &self.seen.window);
        let rules = &self.goal.trial;
        // Chance decides among the few pairs that others left.
        let is_void = compared.len() < promoted && with_stalls(&compared) < rules.min_pairs;
        let verdict =
            estimate.map_or(TrialVerdict::Open, |estimate| rules.verdict(&estimate, shares));
        // Slow promotions do not shorten the comparison.
        let is_over = self.seen.window.length() >= self.goal.trial_time;
        let is_open = verdict == TrialVerdict::Open && !is_over && !is_void;
        if is_open || !self.is_memory_new() {
            // The verdict is about the pages as they are at its time: others may have changed them.
            // `explain` infers `rereads_pages` from this `next` while the phase stays, also in
            // `check`.
            if !is_open {
                self.decision.next = Next::Observe(Nanos::ZERO);
            }
            self.past.phase = TunePhase::Trial { pairs, shares, before, since };
        } else if is_void {
            self.void_trial(promoted, &compared);
        } else {
            let took = self.moment.time - since;
            let trial = TrialResult::new(verdict, estimate, &compared, shares, took);
            self.past.trial = Some(trial);
            self.follow(&trial, &pairs, compared, before);
        }
    }

    /// Ends a trial of which others left too few pairs.
    fn void_trial(&mut self, promoted: usize, compared: &[CountedPair]) {
        let (pairs, left) = (promoted as u64, compared.len() as u64);
        self.past.no_trial = Some(NoTrial::PairsChanged { pairs, left });
        // Where others promoted the control, the promoted region stays as well.
        self.take_back(compared);
        self.past.phase = TunePhase::Watching { idle: 0 };
    }

    /// Takes the promotions of a trial back, or promotes the rest.
    fn follow(
        &mut self,
        trial: &TrialResult,
        pairs: &[CountedPair],
        compared: Vec<CountedPair>,
        before: Window,
    ) {
        // Without a verdict, the best guess decides.
        let guess =
            trial.estimate.map_or(1.0, |estimate| speedup(trial.shares.eligible, estimate.ratio()));
        let least = self.goal.trial.open_gain.unwrap_or(1.0 + self.goal.min_gain.get());
        let is_open = trial.verdict == TrialVerdict::Open;
        if trial.verdict == TrialVerdict::NoGain || is_open && guess < least {
            self.take_back(pairs);
            self.end();
            return;
        }
        let mut window = before;
        window.extend(&self.seen.window);
        self.past.phase = TunePhase::Spread { pairs: compared, window };
        self.decision.next = Next::Observe(Nanos::ZERO);
    }

    /// Ends a trial before its verdict.
    pub(super) fn abandon_trial(
        &mut self,
        pairs: &[CountedPair],
        shares: StallShares,
        since: Nanos,
    ) {
        let compared = compared(pairs, &self.past, &self.seen.memory);
        let estimate = estimate(&compared, &self.seen.window);
        let took = self.moment.time - since;
        let verdict = TrialVerdict::Open;
        self.past.trial = Some(TrialResult::new(verdict, estimate, &compared, shares, took));
        self.take_back(pairs);
        self.end();
    }

    /// Demotes what a trial promoted, unless the user keeps it.
    fn take_back(&mut self, pairs: &[CountedPair]) {
        if self.goal.keep {
            return;
        }
        let (past, memory) = (&self.past, &self.seen.memory);
        let promoted = pairs.iter().map(|(pair, _)| pair.promoted);
        self.decision.demote =
            promoted.filter(|&region| past.is_still_huge(region, memory)).collect();
    }

    /// Promotes the rest, as far as it pays; [`Self::finish`] ends the phase.
    pub(super) fn spread(&mut self, pairs: Vec<CountedPair>, window: Window) {
        if self.moment.waits {
            self.past.phase = TunePhase::Spread { pairs, window };
            self.decision.next = Next::Observe(self.goal.settle);
            return;
        }
        self.window = window.clone();
        let candidates = self.candidates();
        self.wish_by_trial(&candidates);
        self.spreads = true;
        self.past.phase = TunePhase::Spread { pairs, window };
        self.decision.next = Next::Observe(Nanos::ZERO);
    }

    /// A void trial says nothing of the rest.
    pub(super) fn wish_by_trial(&mut self, candidates: &Candidates) {
        let Some(trial) = self.past.trial.filter(|trial| trial.confirmed != Some(false)) else {
            self.decision.eligible = 0;
            return;
        };
        let ratio = trial.estimate.map_or(1.0, |estimate| estimate.ratio());
        if trial.verdict == TrialVerdict::Gain {
            self.wish_what_pays(candidates, ratio, |_| true);
        } else {
            // Perhaps none: only where it costs no memory.
            let free = |one: &Candidate| one.added.total == Bytes::ZERO;
            self.wish_what_pays(candidates, ratio.min(USUAL_RATIO), free);
        }
    }

    /// Both regions of each pair are huge: they must agree.
    pub(super) fn check(&mut self, pairs: Vec<CountedPair>) {
        let seen = &self.seen.window;
        let rest = self.goal.observe - seen.length();
        if rest > Nanos::ZERO || !self.is_memory_new() {
            self.decision.next = Next::Observe(rest);
            self.past.phase = TunePhase::Check { pairs };
            return;
        }
        let check = estimate(&whole(&pairs, &self.past, &self.seen.memory), seen);
        if let Some(trial) = &mut self.past.trial {
            let both = check.zip(trial.estimate);
            trial.confirmed = both.and_then(|(check, trial)| check.confirms(&trial));
        }
        self.past.phase = TunePhase::Watching { idle: 0 };
    }

    /// Whether the memory was read for this round.
    fn is_memory_new(&self) -> bool {
        self.seen.memory.time >= self.moment.time
    }
}
