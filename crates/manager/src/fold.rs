//! Fold of rounds: the acts in each process, as reports need them. The engine knows no report.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugepilot_policy::round::{ProcessOutcome, Round, is_split};
use hugepilot_policy::tune::{Phase, ProcessState, State, prediction_input};
use hugepilot_policy::{Calibration, PredictionInput, predict};
use hugepilot_record::tune::{Prediction, SelectedRegion};
use hugepilot_record::{
    Expected, Journal, Pid, ProcessDecision, ProcessId, ProcessSnapshot, SkipReason, Skips, Stop,
    Window,
};
use hugepilot_units::{Bytes, Nanos, PageSizes, Region};

/// Share of the stalls on promoted regions that counts as most of them.
const MOST: f64 = 0.9;

/// Rounds of a target so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Processes, by pid.
    processes: BTreeMap<Pid, ProcessFold>,
    /// Process last acted on, otherwise last decided on.
    pub(crate) shown: Option<Pid>,
    /// Start of the first act.
    pub(crate) first_act: Option<Nanos>,
    /// End of the last act.
    pub(crate) last_act: Option<Nanos>,
    /// Cause of the early end of the last round; `None` if it was complete.
    pub(crate) stopped: Option<Stop>,
    /// Regions tried, of the target and its children, as are the next four.
    pub(crate) attempted: u64,
    /// Regions verified on huge pages.
    pub(crate) verified: u64,
    /// Regions returned to base pages.
    pub(crate) demoted: u64,
    /// Failures by errno name.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Time in promotion calls.
    pub(crate) promotion: Nanos,
    /// Time of the acts of all rounds that promoted.
    pub(crate) acts: Nanos,
    /// Selected regions. A region that was selected again has the values of its last round.
    pub(crate) selected: BTreeMap<(Pid, Region), SelectedRegion>,
    /// End of the round that promoted a region, and the region's share of the samples.
    promoted: BTreeMap<(Pid, Region), (Nanos, f64)>,
}

/// A process of these rounds.
#[derive(Debug)]
pub(crate) struct ProcessFold {
    pub(crate) id: ProcessId,
    /// Page sizes of the system.
    pub(crate) sizes: PageSizes,
    pub(crate) resident: Bytes,
    pub(crate) huge_before: Bytes,
    pub(crate) huge_after: Bytes,
    /// Share of samples that stall on scattered memory, before the first act.
    pub(crate) stall_ratio: Option<f64>,
    pub(crate) skipped: Skips,
    pub(crate) skipped_stall_ratio: BTreeMap<SkipReason, f64>,
    pub(crate) eligible: u64,
    /// Expected speedup, by the first decision that judged it.
    pub(crate) expected: Option<Expected>,
    /// Facts about the samples of that decision.
    judged: Option<PredictionInput>,
    /// Highest share of samples that stalled, of the rounds that selected regions.
    selected_stall_ratio: f64,
    /// State after the last round.
    pub(crate) state: ProcessState,
    /// Share of the samples of each selected region, and whether it is verified.
    picked: BTreeMap<Region, (f64, bool)>,
    /// Regions of the last plan that were not tried.
    untried: u64,
    has_acted: bool,
    /// Time at which its memory was last read.
    read: Option<Nanos>,
}

impl Fold {
    /// Adds a round: of all processes, or of `only` one of several. `dry_run`: its decisions
    /// were not carried out.
    pub(crate) fn add(&mut self, round: &Round, state: &State, only: Option<Pid>, dry_run: bool) {
        let decided = round.snapshot.processes.iter().zip(&round.decisions).zip(&round.outcomes);
        for ((seen, decision), outcome) in decided {
            let pid = seen.id.pid;
            if only.is_some_and(|only| only != pid) {
                continue;
            }
            let process = self.process(seen);
            let window = judged(round, seen);
            process.note_skips(window, decision, &outcome.journal);
            process.note_judged(window, decision);
            process.note(seen, decision, outcome, state, dry_run);
            let acted = process.has_acted;
            // A tuned process matters more than one that was only read since.
            if acted || self.first_act.is_none() {
                self.shown = Some(pid);
            }
            self.note_acts(seen, decision, outcome, dry_run);
        }
    }

    fn process(&mut self, seen: &ProcessSnapshot) -> &mut ProcessFold {
        let pid = seen.id.pid;
        let same = self.processes.get(&pid).is_some_and(|known| known.id == seen.id);
        if !same {
            // Another program has other regions.
            self.promoted.retain(|&(of, _), _| of != pid);
            self.selected.retain(|&(of, _), _| of != pid);
            self.processes.insert(pid, ProcessFold::new(seen));
        }
        self.processes.entry(pid).or_insert_with(|| ProcessFold::new(seen))
    }

    fn note_acts(
        &mut self,
        seen: &ProcessSnapshot,
        decision: &ProcessDecision,
        outcome: &ProcessOutcome,
        dry_run: bool,
    ) {
        let journal = &outcome.journal;
        if !decision.promote.is_empty() || journal.stopped.is_some() {
            self.stopped = journal.stopped;
        }
        if !journal.acts.is_empty() || !outcome.demotions.is_empty() {
            self.first_act = self.first_act.or(outcome.begun);
            self.last_act = outcome.ended.or(self.last_act);
        }
        self.verified += journal.verified();
        self.demoted += outcome.demoted();
        self.promotion = self.promotion + journal.took();
        if let (false, Some((begun, ended))) =
            (journal.acts.is_empty(), outcome.begun.zip(outcome.ended))
        {
            self.acts = self.acts + (ended - begun);
        }
        for (errno, count) in journal.failed() {
            *self.failed.entry(errno).or_insert(0) += count;
        }
        let verified = journal.verified_by_region();
        let pid = seen.id.pid;
        for act in outcome.demotions.iter().filter(|act| is_split(act)) {
            self.promoted.remove(&(pid, act.region));
        }
        for promotion in &decision.promote {
            let answer = verified.get(&promotion.region);
            if answer.is_some() || dry_run {
                let selected = SelectedRegion {
                    start: promotion.region.range(seen.memory.sizes).start,
                    mapping: promotion.mapping.clone(),
                    heat_ratio: promotion.heat_ratio,
                    sampled_pages: promotion.sampled_pages,
                    verified: answer.copied(),
                };
                let before = self.selected.insert((pid, promotion.region), selected);
                // A region that is tried again after a failure is still one region.
                let is_again = before.is_some_and(|before| before.verified == Some(false));
                self.attempted += u64::from(answer.is_some() && !is_again);
            }
            if let (Some(true), Some(end)) = (answer, outcome.ended) {
                self.promoted.insert((pid, promotion.region), (end, promotion.heat_ratio));
            }
        }
    }

    /// Returns when regions with [`MOST`] of the stalls of all promoted regions were huge.
    pub(crate) fn most_promoted(&self) -> Option<Nanos> {
        let mut promoted: Vec<(Nanos, f64)> = self.promoted.values().copied().collect();
        promoted.sort_by_key(|&(end, _)| end);
        let mut left = promoted.iter().map(|(_, heat_ratio)| heat_ratio).sum::<f64>() * MOST;
        let enough = |&(_, heat_ratio): &(Nanos, f64)| {
            left -= heat_ratio;
            left <= 0.0
        };
        promoted.into_iter().find(enough).map(|(end, _)| end)
    }

    /// Returns how many regions of the last plan of each process were not tried.
    pub(crate) fn untried(&self) -> u64 {
        self.processes.values().map(|process| process.untried).sum()
    }

    /// Returns the process that a report is about.
    pub(crate) fn shown(&self) -> Option<&ProcessFold> {
        self.processes.get(&self.shown?)
    }
}

/// Window by which a round judged the regions of a process: after a trial, all samples until its
/// verdict.
fn judged<'a>(round: &'a Round, seen: &'a ProcessSnapshot) -> &'a Window {
    match round.state.of(&seen.id).map(|past| &past.phase) {
        Some(Phase::Spread { window, .. }) => window,
        _ => &seen.window,
    }
}

/// Takes `by` from the count of regions that are huge already.
fn reduce(counts: &mut BTreeMap<SkipReason, u64>, by: u64) {
    if let Some(huge) = counts.get_mut(&SkipReason::AlreadyHuge) {
        *huge = huge.saturating_sub(by);
    }
}

impl ProcessFold {
    fn new(seen: &ProcessSnapshot) -> Self {
        Self {
            id: seen.id.clone(),
            sizes: seen.memory.sizes,
            resident: Bytes::ZERO,
            huge_before: seen.memory.huge(),
            huge_after: seen.memory.huge(),
            stall_ratio: None,
            skipped: Skips::new(),
            skipped_stall_ratio: BTreeMap::new(),
            eligible: 0,
            expected: None,
            judged: None,
            selected_stall_ratio: 0.0,
            state: ProcessState::default(),
            picked: BTreeMap::new(),
            untried: 0,
            has_acted: false,
            read: None,
        }
    }

    fn note(
        &mut self,
        seen: &ProcessSnapshot,
        decision: &ProcessDecision,
        outcome: &ProcessOutcome,
        state: &State,
        dry_run: bool,
    ) {
        self.id = seen.id.clone();
        self.resident = seen.memory.resident();
        let (window, journal) = (&seen.window, &outcome.journal);
        #[allow(clippy::cast_precision_loss)]
        let share = |part: u64| part as f64 / window.samples.max(1) as f64;
        if !self.has_acted && window.samples > 0 {
            self.stall_ratio = Some(share(window.stalled() + window.chased()));
        }
        self.has_acted |= !journal.acts.is_empty() || !outcome.demotions.is_empty();
        let verified = journal.verified_by_region();
        for promotion in &decision.promote {
            let answer = verified.get(&promotion.region);
            if answer.is_some() || dry_run {
                let is_verified = answer == Some(&true);
                self.picked.insert(promotion.region, (promotion.heat_ratio, is_verified));
            }
        }
        if !decision.promote.is_empty() && !dry_run {
            self.untried = (decision.promote.len() as u64).saturating_sub(journal.handled());
        }
        for act in outcome.demotions.iter().filter(|act| is_split(act)) {
            self.picked.remove(&act.region);
        }
        // If the target ends before it is read again, this value stays.
        let sizes = seen.memory.sizes;
        if self.read.replace(seen.memory.time) != Some(seen.memory.time) {
            self.huge_after = seen.memory.huge();
        }
        self.huge_after += sizes.huge.times(journal.verified());
        self.huge_after -= sizes.huge.times(outcome.demoted());
        if let Some(state) = state.of(&seen.id) {
            self.state = state.clone();
        }
    }

    /// A round that judged no region leaves the counts of the last one that did. `window` has the
    /// samples by which it judged.
    fn note_skips(&mut self, window: &Window, decision: &ProcessDecision, journal: &Journal) {
        if decision.eligible > 0 || !decision.skipped.is_empty() {
            self.skipped = decision.skipped.clone();
            let mut stalls = decision.skipped_stalls.clone();
            // What this tune promoted is no longer a region that it skips.
            let promoted = self.picked.iter().filter(|(_, (_, verified))| *verified);
            let promoted: Vec<Region> = promoted.map(|(&region, _)| region).collect();
            let own: u64 = promoted.iter().map(|&region| u64::from(window.of(region))).sum();
            reduce(&mut self.skipped, promoted.len() as u64);
            reduce(&mut stalls, own);
            self.skipped.retain(|_, count| *count > 0);
            self.eligible = promoted.len() as u64 + decision.eligible;
            #[allow(clippy::cast_precision_loss)]
            let share = |stalls: u64| stalls as f64 / window.samples.max(1) as f64;
            stalls.retain(|reason, _| self.skipped.contains_key(reason));
            self.skipped_stall_ratio =
                stalls.into_iter().map(|(reason, stalls)| (reason, share(stalls))).collect();
        }
        for (&reason, &count) in &journal.skipped {
            *self.skipped.entry(reason).or_insert(0) += count;
        }
    }

    /// Notes what a decision by the samples of `window` expects.
    #[allow(clippy::cast_precision_loss)]
    fn note_judged(&mut self, window: &Window, decision: &ProcessDecision) {
        if self.expected.is_none() && decision.expected.is_some() {
            self.expected = decision.expected;
            self.judged = prediction_input(window, self.sizes);
        }
        if !decision.promote.is_empty() {
            let stalls = window.stalled() + window.chased();
            let ratio = stalls as f64 / window.samples.max(1) as f64;
            self.selected_stall_ratio = self.selected_stall_ratio.max(ratio);
        }
    }

    /// Share of the samples on all selected regions together. Each was counted in a window of its
    /// own round, so together they are at most the stalls of the worst of these windows.
    pub(crate) fn coverage(&self) -> f64 {
        let sum = self.picked.values().fold(0.0_f64, |sum, (heat_ratio, _)| sum + heat_ratio);
        sum.min(self.selected_stall_ratio)
    }

    /// Speedup of the selected regions by the model. `None` without a region, or if the model
    /// expected nothing of the process.
    pub(crate) fn predicted(&self, calibration: &Calibration) -> Option<Prediction> {
        let input = self.judged.filter(|_| !self.picked.is_empty())?;
        predict(PredictionInput { heat_ratio: self.coverage(), ..input }, calibration)
    }
}
