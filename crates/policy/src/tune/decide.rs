//! Decision of a round.

use hugepilot_record::SkipReason;
use hugepilot_stats::share_margin;
use hugepilot_units::{Bytes, Nanos, Region};

use super::{
    Allowance, Candidate, Candidates, Next, Phase, Promotion, TrialResult, TuneDecision, TuneGoal,
    TuneState, TuneView, Window,
};
use crate::trial::{Estimate, NoTrial, Pair, PairCounts, StallShares, TrialVerdict, assign};

/// Cost of a promotion before the first one was measured.
const USUAL_COST: Nanos = Nanos::millis(1);
/// Stall time on huge pages over that on base pages, if no trial measured it.
const USUAL_RATIO: f64 = 0.7;

type CountedPairs = Vec<(Pair, [u32; 2])>;

impl TuneGoal {
    /// Decides one round.
    pub fn decide(&self, view: &TuneView<'_>, state: &TuneState) -> TuneDecision {
        let mut round = Round::new(self, view, state);
        match state.phase.clone() {
            Phase::Observing => round.begin(),
            Phase::Trial { pairs, shares, since } => round.read_trial(pairs, shares, since),
            Phase::Check { pairs } => round.check(&pairs),
            Phase::Watching => round.watch(),
            Phase::Ended => round.decision.next = Next::End,
        }
        round.decision
    }
}

/// A round being decided.
struct Round<'a> {
    goal: &'a TuneGoal,
    view: &'a TuneView<'a>,
    candidates: Candidates,
    allowance: Allowance,
    decision: TuneDecision,
}

impl<'a> Round<'a> {
    fn new(goal: &'a TuneGoal, view: &'a TuneView<'a>, state: &TuneState) -> Self {
        let mut state = state.clone();
        let seen = view.snapshot;
        let huge: Bytes = seen.mappings.iter().map(|mapping| mapping.huge).sum();
        let before = *state.huge_before.get_or_insert(huge);
        let resident = seen.resident();
        let allowance = Allowance {
            huge: goal.budget.map_or(Bytes::MAX, |budget| budget.of(resident) - (huge - before)),
            added: goal.max_added.of(resident) - state.added,
            headroom: seen.headroom,
            taken: Bytes::ZERO,
        };
        let candidates = Candidates::of(view, &state, goal);
        let decision = TuneDecision {
            promote: Vec::new(),
            demote: Vec::new(),
            skipped: candidates.skipped.clone(),
            skipped_stalls: candidates.skipped_stalls.clone(),
            next: Next::Observe(goal.settle),
            state,
        };
        Self { goal, view, candidates, allowance, decision }
    }

    /// After the first observation: a trial if one can show anything, else the model.
    fn begin(&mut self) {
        if self.view.window.length() < self.goal.observe {
            self.decision.next = Next::Observe(self.goal.observe - self.view.window.length());
            return;
        }
        let pairs = self.pairs();
        let shares = self.shares(&pairs);
        match self.goal.trial.check(shares, with_stalls(&pairs)) {
            Ok(()) => self.start_trial(pairs, shares),
            Err(cause) => self.promote_by_model(cause, shares),
        }
    }

    /// Pairs of the hottest candidates, with their stalls before the trial.
    fn pairs(&self) -> CountedPairs {
        let limit = 2 * self.goal.trial.max_pairs;
        let hottest: Vec<(Region, f64)> = self
            .candidates
            .regions
            .iter()
            // A trial adds no memory: its promotions may be demoted.
            .filter(|candidate| candidate.added == Bytes::ZERO)
            .take(limit)
            .map(|candidate| (candidate.region, candidate.heat))
            .collect();
        let stalls = |region| self.view.window.stalls.get(&region).copied().unwrap_or(0);
        assign(&hottest, self.goal.seed)
            .into_iter()
            .map(|pair| (pair, [stalls(pair.promoted), stalls(pair.control)]))
            .collect()
    }

    #[allow(clippy::cast_precision_loss)]
    fn shares(&self, pairs: &CountedPairs) -> StallShares {
        let window = self.view.window;
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let eligible: u64 =
            self.candidates.regions.iter().map(|candidate| u64::from(candidate.stalls)).sum();
        let of_pair = |counts: &[u32; 2]| u64::from(counts[0]) + u64::from(counts[1]);
        let all: u64 = pairs.iter().map(|(_, counts)| of_pair(counts)).sum();
        let hottest = pairs.iter().map(|(_, counts)| of_pair(counts)).max().unwrap_or(0);
        StallShares {
            eligible: share(eligible, window.samples),
            unknown: share(window.unknown, window.samples),
            chased: share(window.chased, window.chased + window.stalled()),
            hottest_pair: share(hottest, all),
        }
    }

    fn start_trial(&mut self, pairs: CountedPairs, shares: StallShares) {
        let arm: Vec<Region> = pairs.iter().map(|(pair, _)| pair.promoted).collect();
        let chosen: Vec<Candidate> = self
            .candidates
            .regions
            .iter()
            .filter(|candidate| arm.contains(&candidate.region))
            .copied()
            .collect();
        self.promote(&chosen);
        self.decision.state.phase = Phase::Trial { pairs, shares, since: self.view.time };
        self.decision.next = Next::Restart(self.goal.settle, self.goal.settle);
    }

    fn promote_by_model(&mut self, cause: NoTrial, shares: StallShares) {
        self.decision.state.no_trial = Some(cause);
        self.promote_if_gaining(shares);
        self.decision.state.phase = Phase::Watching;
        self.decision.next = Next::Observe(self.goal.observe);
    }

    /// Promotes what pays by the model, if the gain of all is large enough.
    fn promote_if_gaining(&mut self, shares: StallShares) {
        let share = shares.eligible - share_margin(shares.eligible, self.view.window.samples);
        let gain = crate::trial::speedup(share, USUAL_RATIO) - 1.0;
        if gain >= self.goal.min_gain.get() {
            self.promote_what_pays(USUAL_RATIO, |_| true);
        }
    }

    /// Reads the trial: goes on, or ends it.
    fn read_trial(&mut self, pairs: CountedPairs, shares: StallShares, since: Nanos) {
        let pairs = self.intact(pairs);
        let estimate = estimate(&pairs, self.view.window);
        let rules = &self.goal.trial;
        let verdict =
            estimate.map_or(TrialVerdict::Open, |estimate| rules.verdict(&estimate, shares));
        let took = self.view.time - since;
        if verdict == TrialVerdict::Open && took < self.goal.trial_time {
            self.decision.state.phase = Phase::Trial { pairs, shares, since };
            return;
        }
        self.decision.state.trial = Some(TrialResult {
            verdict,
            estimate,
            bracket: estimate.map(|estimate| rules.bracket(&estimate, shares)),
            took,
            confirmed: None,
        });
        let ratio = estimate.map_or(1.0, |estimate| estimate.ratio());
        match verdict {
            TrialVerdict::Gain => self.promote_what_pays(ratio, |_| true),
            TrialVerdict::Open => {
                // At most a small gain: only where it costs no memory.
                self.promote_what_pays(ratio.min(USUAL_RATIO), |one| one.added == Bytes::ZERO);
            }
            TrialVerdict::NoGain => return self.take_back(&pairs),
        }
        self.decision.state.phase = Phase::Check { pairs };
        self.decision.next = Next::Restart(self.goal.settle, self.goal.observe);
    }

    /// No gain: what the trial promoted becomes base pages again.
    fn take_back(&mut self, pairs: &CountedPairs) {
        if !self.goal.keep {
            self.decision.demote = pairs.iter().map(|(pair, _)| pair.promoted).collect();
        }
        self.decision.state.phase = Phase::Ended;
        self.decision.next = Next::End;
    }

    /// Both arms are huge: they must agree.
    fn check(&mut self, pairs: &CountedPairs) {
        if self.view.window.length() < self.goal.observe {
            self.decision.next = Next::Observe(self.goal.observe - self.view.window.length());
            return;
        }
        let agrees = estimate(pairs, self.view.window).map(|estimate| estimate.is_one());
        if let Some(trial) = &mut self.decision.state.trial {
            trial.confirmed = agrees;
        }
        self.decision.state.phase = Phase::Watching;
        self.watch();
    }

    /// Promotes memory that has become hot since.
    fn watch(&mut self) {
        match self.decision.state.trial.and_then(|trial| trial.estimate) {
            Some(estimate) => self.promote_what_pays(estimate.ratio(), |_| true),
            None => self.promote_if_gaining(self.shares(&Vec::new())),
        }
        self.decision.next = Next::Observe(self.goal.observe);
    }

    /// Pairs of which neither region failed.
    fn intact(&self, mut pairs: CountedPairs) -> CountedPairs {
        let is_huge = |region| {
            self.decision.state.regions.get(&region).is_some_and(|past| past.promoted.is_some())
        };
        pairs.retain(|(pair, _)| is_huge(pair.promoted));
        pairs
    }

    /// Promotes the wanted candidates whose saving over the horizon exceeds the cost of promotion.
    #[allow(clippy::cast_precision_loss)]
    fn promote_what_pays(&mut self, ratio: f64, wanted: impl Fn(&Candidate) -> bool) {
        let window = self.view.window;
        let cost = self.decision.state.promotion_cost(USUAL_COST).as_seconds();
        let samples = window.samples.max(1) as f64;
        let saving =
            |one: &Candidate| one.heat / samples * (1.0 - ratio) * self.goal.horizon.as_seconds();
        let (pays, cold): (Vec<Candidate>, Vec<Candidate>) = self
            .candidates
            .regions
            .iter()
            .copied()
            .filter(wanted)
            .partition(|one| saving(one) > cost);
        for one in cold {
            self.skip(SkipReason::TooCold, one.stalls);
        }
        self.promote(&pays);
    }

    /// Promotes candidates in order, as far as budget and headroom allow.
    #[allow(clippy::cast_precision_loss)]
    fn promote(&mut self, candidates: &[Candidate]) {
        let samples = self.view.window.samples.max(1) as f64;
        for one in candidates {
            match self.take(one.added) {
                Ok(()) => self.decision.promote.push(Promotion {
                    region: one.region,
                    heat_ratio: one.heat / samples,
                    added: one.added,
                }),
                Err(reason) => self.skip(reason, one.stalls),
            }
        }
    }

    /// Takes one huge page from the allowance.
    ///
    /// # Errors
    /// The limit that forbids it.
    fn take(&mut self, added: Bytes) -> Result<(), SkipReason> {
        let huge = self.view.snapshot.sizes.huge;
        let left = &mut self.allowance;
        if left.huge < huge || left.added < added {
            return Err(SkipReason::OverBudget);
        }
        let needed = left.taken + added + huge;
        if let Some(reason) = self.goal.limits.headroom_skip(left.headroom, needed) {
            return Err(reason);
        }
        left.huge -= huge;
        left.added -= added;
        left.taken += added;
        Ok(())
    }

    fn skip(&mut self, reason: SkipReason, stalls: u32) {
        *self.decision.skipped.entry(reason).or_insert(0) += 1;
        *self.decision.skipped_stalls.entry(reason).or_insert(0) += u64::from(stalls);
    }
}

fn with_stalls(pairs: &CountedPairs) -> u64 {
    pairs.iter().filter(|(_, counts)| counts.iter().any(|&count| count > 0)).count() as u64
}

/// Estimate from the window since the promotion.
fn estimate(pairs: &CountedPairs, window: &Window) -> Option<Estimate> {
    let stalls = |region| window.stalls.get(&region).copied().unwrap_or(0);
    let counts: Vec<PairCounts> = pairs
        .iter()
        .map(|(pair, before)| PairCounts {
            promoted_before: before[0],
            control_before: before[1],
            promoted_after: stalls(pair.promoted),
            control_after: stalls(pair.control),
        })
        .collect();
    Estimate::of(&counts)
}
