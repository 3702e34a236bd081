//! Decision of a round for one process.

mod judged;
mod trial;

use std::collections::BTreeMap;

use hugepilot_record::{Next, ProcessDecision, ProcessMemory, ProcessSnapshot, SkipReason, Window};
use hugepilot_units::{Nanos, Region};

use judged::Judged;

use super::allowance::Allowance;
use super::exchange::{Contested, USUAL_RATIO};
use super::expected::expected;
use super::interval::empty;
use super::{Candidate, Candidates, ProcessState, TuneGoal, TunePhase};
use crate::trial::speedup;
use crate::{mapping_split_skip, split_skip};

/// Cost of a promotion before the first one was measured.
const USUAL_COST: Nanos = Nanos::millis(1);
/// Rounds without a promotion after which a process is skipped, if nothing was promoted.
const MAX_IDLE: u32 = 2;
/// Longest pause between two readings of a process.
const MAX_PAUSE: Nanos = Nanos::seconds(30);

/// A region that a process would like to have promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) candidate: Candidate,
    /// CPU time that its huge page saves over the horizon, in seconds.
    pub(super) saving: f64,
}

/// Facts of a round besides its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) time: Nanos,
    /// Whether other processes that share the budget are in a trial.
    pub(super) waits: bool,
    /// Limits before any wish is granted.
    pub(super) allowance: Allowance,
    /// Whether its regions get the huge pages of others that were demoted for them.
    pub(super) has_won: bool,
    /// Whether no later round follows.
    pub(super) is_last: bool,
}

/// A round of one process.
pub(super) struct ProcessRound<'a> {
    goal: &'a TuneGoal,
    pub(super) seen: &'a ProcessSnapshot,
    moment: Moment,
    past: ProcessState,
    wishes: Vec<Wish>,
    /// Samples that the heat of candidates refers to.
    window: Window,
    /// Whether this round promotes the rest after a trial.
    spreads: bool,
    /// Whether wishes are left for the next round.
    pub(super) is_cut: bool,
    /// Expected heat of the regions on huge pages, if these were base pages.
    promoted: BTreeMap<Region, f64>,
    /// Stall time on huge pages over that on base pages, by which wishes are valued.
    ratio: f64,
    /// Part in an exchange that is not decided.
    pub(super) contested: Option<Contested>,
    pub(super) decision: ProcessDecision,
}

impl<'a> ProcessRound<'a> {
    /// Decides the phase and the wishes.
    pub(super) fn decide(
        goal: &'a TuneGoal,
        seen: &'a ProcessSnapshot,
        past: ProcessState,
        moment: Moment,
    ) -> Self {
        let decision = empty(seen, Next::Peek(goal.settle));
        let ratio = past.stall_ratio();
        let mut round = Self {
            goal,
            seen,
            moment,
            past,
            wishes: Vec::new(),
            window: seen.window.clone(),
            spreads: false,
            is_cut: false,
            promoted: BTreeMap::new(),
            ratio,
            contested: None,
            decision,
        };
        match std::mem::take(&mut round.past.phase) {
            TunePhase::Trial { pairs, shares, since, .. } if moment.is_last => {
                round.abandon_trial(&pairs, shares, since);
            }
            _ if moment.is_last => round.end(),
            TunePhase::Observing => round.begin(),
            TunePhase::Trial { pairs, shares, before, since } => {
                round.read_trial(pairs, shares, before, since);
            }
            TunePhase::Spread { pairs, window } => round.spread(pairs, window),
            TunePhase::Check { pairs } => round.check(pairs),
            TunePhase::Watching { idle } => round.watch(idle),
            TunePhase::Ended => round.end(),
        }
        round
    }

    /// Whether a trial is in progress, or begins.
    pub(super) const fn is_in_trial(&self) -> bool {
        self.past.is_in_trial()
    }

    pub(super) fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// Samples of the window, at least one.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn samples(&self) -> f64 {
        self.window.samples.max(1) as f64
    }

    /// After the first observation: a trial if one can show anything, else the model.
    fn begin(&mut self) {
        let seen = &self.seen.window;
        let addresses = seen.samples - seen.unknown;
        let is_thin = addresses > 0 && addresses < self.goal.min_addresses;
        let (usual, length) = (self.goal.observe, seen.length());
        let observe = if is_thin { usual.max(self.goal.max_observe) } else { usual };
        if length < observe {
            let is_rich = self.goal.enough_addresses.is_some_and(|enough| addresses >= enough);
            let is_early = is_rich && length >= self.goal.first_look();
            if let Some(judged) = is_early.then(|| self.judge()).filter(Judged::is_clear) {
                self.try_trial(judged, 0);
                return;
            }
            // At the rate so far, the window has enough samples after this time.
            let enough = length.get().saturating_mul(self.goal.min_addresses) / addresses.max(1);
            let until = Nanos::new(enough).max(usual).max(length + self.goal.settle).min(observe);
            self.decision.next = Next::Observe(until - length);
            return;
        }
        self.try_trial(self.judge(), 0);
    }

    /// A trial if one can show anything, else the model. `idle` counts rounds without a promotion.
    fn try_trial(&mut self, judged: Judged, idle: u32) {
        let Judged { candidates, pairs, shares, checked } = judged;
        self.enter(&candidates);
        self.expect(&candidates);
        match checked {
            _ if self.goal.model_only => {
                self.promote_by_model(&candidates);
                self.end();
            }
            Ok(()) => {
                self.past.no_trial = None;
                self.start_trial(&candidates, pairs, shares);
            }
            // A budget waits for the verdict of the trial of another process.
            Err(_) if self.moment.waits => {
                self.past.phase = TunePhase::Observing;
                self.decision.next = Next::Observe(self.goal.settle);
            }
            Err(cause) => {
                // Once memory was promoted, the first cause counts.
                if self.past.promoted == 0 {
                    self.past.no_trial = Some(cause);
                }
                self.promote_by_model(&candidates);
                self.past.phase = TunePhase::Watching { idle };
            }
        }
    }

    /// Candidates by the samples of [`Self::window`]; the rest is counted as skipped.
    fn candidates(&mut self) -> Candidates {
        let candidates = self.find();
        self.enter(&candidates);
        candidates
    }

    fn find(&self) -> Candidates {
        Candidates::of(&self.seen.memory, &self.window, &self.past, self.goal)
    }

    fn enter(&mut self, candidates: &Candidates) {
        self.decision.eligible = candidates.regions.len() as u64;
        self.decision.skipped = candidates.skipped.clone();
        self.decision.skipped_stalls = candidates.skipped_stalls.clone();
        self.promoted = candidates.promoted.clone();
    }

    /// Expected speedups, by the calibrated model.
    fn expect(&mut self, candidates: &Candidates) {
        let (goal, memory) = (self.goal, &self.seen.memory);
        self.decision.expected =
            expected(goal, memory, &self.window, candidates, self.moment.allowance);
    }

    /// Promotes what pays by the model, if the gain is large enough.
    fn promote_by_model(&mut self, candidates: &Candidates) {
        let share = self.shares(candidates, &[]).eligible;
        let usual = speedup(share, USUAL_RATIO);
        let (gain, of_all) = self
            .decision
            .expected
            .map_or((usual, usual), |expected| (expected.chosen.median, expected.eligible.median));
        // An exchange is for what the budget has not got.
        let is_spent = self.moment.allowance.is_spent(&self.seen.memory);
        let gain = if is_spent || self.moment.has_won { of_all } else { gain };
        // The ratio that gives this speedup at this share, if all candidates are huge.
        let ratio = if share > 0.0 { 1.0 - (1.0 - 1.0 / of_all) / share } else { 1.0 };
        let pays = |speedup: f64| speedup - 1.0 >= self.goal.min_gain.get() && share > 0.0;
        if pays(gain) {
            self.wish_what_pays(candidates, ratio, |_| true);
        } else {
            self.skip_all(candidates, pays(of_all));
        }
    }

    /// Skips all candidates: those beyond the limits because of these, if all together would pay.
    fn skip_all(&mut self, candidates: &Candidates, would_pay: bool) {
        let mut allowance = self.moment.allowance.of_all_rounds();
        for one in &candidates.regions {
            let limit = allowance.take(&self.seen.memory, one.added).err();
            let reason = limit.filter(|_| would_pay).unwrap_or(SkipReason::TooCold);
            self.decision.skip(reason, one.stalls);
        }
    }

    /// Promotes memory that has become hot since. Without a trial so far, tries one: the program
    /// may have been loading its data.
    fn watch(&mut self, idle: u32) {
        if self.past.trial.is_none() {
            self.try_trial(self.judge(), idle);
            return;
        }
        let candidates = self.candidates();
        if !self.moment.waits {
            self.wish_by_trial(&candidates);
        }
        self.past.phase = TunePhase::Watching { idle };
    }

    fn end(&mut self) {
        self.past.phase = TunePhase::Ended;
        self.decision.next = Next::End;
    }

    /// CPU time in seconds that the huge page of `one` saves over the horizon.
    fn saving(&self, one: &Candidate, ratio: f64) -> f64 {
        one.heat * self.worth(ratio)
    }

    /// CPU time in seconds that a stall on base pages stands for, which a huge page saves over the
    /// horizon.
    fn worth(&self, ratio: f64) -> f64 {
        let cpu = self.goal.horizon.as_seconds() * self.window.cpus();
        (1.0 - ratio) / self.samples() * cpu
    }

    /// Worth of a stall of a wish.
    pub(super) fn worth_of_wish(&self) -> f64 {
        self.worth(self.ratio)
    }

    /// Worth of a stall of a promoted region, at most. It stands for more on base pages.
    pub(super) fn worth_of_promoted(&self) -> f64 {
        self.worth(self.ratio) / self.past.least_ratio(self.goal.trial.alpha)
    }

    /// Time of the round.
    pub(super) const fn time(&self) -> Nanos {
        self.moment.time
    }

    /// Whether the process is in the phase of exchanges.
    pub(super) const fn is_watching(&self) -> bool {
        matches!(self.past.phase, TunePhase::Watching { .. })
    }

    /// Whether a region may be exchanged: this goal promoted it at least a horizon ago, or it is
    /// spare; and nothing else is compared.
    pub(super) fn is_exchangeable(&self, region: Region) -> bool {
        let (now, horizon) = (self.moment.time, self.goal.horizon);
        let memory = &self.seen.memory;
        let may = self.past.regions.get(&region).map_or_else(
            || self.past.may_split_spare(now) && is_spare(memory, region),
            |past| past.has_stayed(now, horizon) && self.past.is_still_huge(region, memory),
        );
        self.is_watching() && may
    }

    /// Whether the last attempt to promote a region of this process found no free huge page.
    pub(super) const fn lacks_huge_pages(&self) -> bool {
        self.past.lacks_huge_pages()
    }

    /// Regions that may be exchanged, and what each seems to save.
    pub(super) fn exchangeable(&self) -> impl Iterator<Item = (Region, f64)> {
        let worth = self.worth(self.ratio);
        let now = self.moment.time;
        let spare = self.seen.memory.pages.keys().filter(move |_| self.past.may_split_spare(now));
        let spare = spare.filter(|&region| !self.past.regions.contains_key(region));
        let regions = self.past.regions.keys().chain(spare);
        let regions = regions.filter(|&&region| self.is_exchangeable(region));
        regions
            .map(move |region| (*region, self.promoted.get(region).copied().unwrap_or(0.0) * worth))
    }

    /// CPU time in seconds of a split and a promotion, which costs about as much.
    pub(super) fn exchange_cost(&self) -> f64 {
        2.0 * self.past.promotion_cost(USUAL_COST).as_seconds()
    }

    /// Stalls on a region since `from`; `None` if the window is older.
    pub(super) fn stalls_since(&self, region: Region, from: Nanos) -> Option<u64> {
        (self.window.since >= from).then(|| u64::from(self.window.of(region)))
    }

    /// Wishes for the candidates whose saving over the horizon exceeds the cost of promotion.
    fn wish_what_pays(
        &mut self,
        candidates: &Candidates,
        ratio: f64,
        wanted: impl Fn(&Candidate) -> bool,
    ) {
        let cost = self.past.promotion_cost(USUAL_COST).as_seconds();
        self.ratio = ratio;
        for &candidate in candidates.regions.iter().filter(|one| wanted(one)) {
            let saving = self.saving(&candidate, ratio);
            if saving > cost {
                self.wishes.push(Wish { candidate, saving });
            } else {
                self.decision.skip(SkipReason::TooCold, candidate.stalls);
            }
        }
    }

    /// Ends the phases that depend on what was granted.
    pub(super) fn finish(mut self) -> (ProcessDecision, ProcessState) {
        let acts = !self.decision.promote.is_empty() || !self.decision.demote.is_empty();
        match std::mem::take(&mut self.past.phase) {
            TunePhase::Spread { pairs, .. } if self.spreads && !acts && !self.is_cut => {
                self.past.phase = TunePhase::Check { pairs };
                self.decision.next = Next::Restart(self.goal.settle, self.goal.observe);
            }
            TunePhase::Watching { .. } if acts => self.pause(0),
            // The limit of a round says nothing of the process.
            TunePhase::Watching { idle } => self.pause(idle + u32::from(!self.is_cut)),
            phase => self.past.phase = phase,
        }
        (self.decision, self.past)
    }

    /// Sets the time to the next reading, or ends the process's tune.
    fn pause(&mut self, idle: u32) {
        self.past.phase = TunePhase::Watching { idle };
        match self.contested {
            Some(Contested::Begins) => {
                self.decision.next = Next::Renew(self.goal.observe);
                return;
            }
            Some(Contested::GoesOn) => {
                self.decision.next = Next::Observe(self.goal.observe);
                return;
            }
            None => {}
        }
        let is_futile = idle >= MAX_IDLE && self.past.promoted == 0;
        if is_futile && !self.goal.persistent {
            self.end();
            return;
        }
        let doubled = self.goal.observe.get().saturating_mul(1 << idle.saturating_sub(1).min(5));
        let pause = if self.goal.persistent { doubled } else { self.goal.observe.get() };
        let pause = Nanos::new(pause).min(MAX_PAUSE);
        self.decision.next = match () {
            () if self.is_cut => Next::Observe(Nanos::ZERO),
            () if self.past.trial.is_none() => Next::Renew(pause),
            () => Next::Observe(pause),
        };
    }
}

/// Whether a region is on a huge page that may be split, in memory that has huge pages by the THP
/// setting `always` and not by a request of the program (MADV_HUGEPAGE). The kernel calls other
/// memory without that request not eligible, so that memory that a program or an earlier run
/// collapsed there stays.
fn is_spare(memory: &ProcessMemory, region: Region) -> bool {
    let mapping = memory.mapping_of(region);
    memory.pages.get(&region).is_some_and(|pages| split_skip(pages).is_none())
        && mapping.is_some_and(|one| {
            one.thp_eligible && !one.flags.has("hg") && mapping_split_skip(one).is_none()
        })
}
