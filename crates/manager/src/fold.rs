//! Fold of rounds: the acts in each process, as reports need them. The engine knows no report.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{Target, TargetState};
use hugepilot_policy::round::{Round, Row};
use hugepilot_policy::tune::{AddedMemory, ProcessState, State, TunePhase, prediction_input};
use hugepilot_policy::{Calibration, Ledger, LedgerCounts, PredictionInput, contradicts, predict};
use hugepilot_record::{
    Attempts, Expected, Pid, Prediction, ProcessDecision, ProcessId, ProcessSnapshot, SkipReason,
    Skips, Stop, Window,
};
use hugepilot_reports::tune::{ExecReport, FreedBy, SelectedRegion};
use hugepilot_units::{Bytes, Nanos, PageSizes, Region};

use crate::act_totals::ActTotals;

/// Share of the stalls on promoted regions that counts as most of them.
const MOST: f64 = 0.9;

/// Rounds of a target so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Processes, by pid, each since it started its program.
    processes: BTreeMap<Pid, ProcessFold>,
    /// Process last acted on, otherwise last decided on.
    pub(crate) shown: Option<Pid>,
    /// Cause of the early end of the last round; `None` if it was complete.
    pub(crate) stopped: Option<Stop>,
    /// Former programs of these processes.
    pub(crate) exec: Option<ExecReport>,
}

/// A process of these rounds.
#[derive(Debug, Default)]
pub(crate) struct ProcessFold {
    pub(crate) id: ProcessId,
    /// Size of a huge page.
    pub(crate) huge: Bytes,
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
    ledger: Ledger,
    /// Regions of the last plan that were not tried.
    untried: u64,
    acts: ActTotals,
    /// Time at which its memory was last read.
    read: Option<Nanos>,
}

impl Fold {
    /// Adds a round: of all processes, or of `only` one of several. `dry_run`: its decisions
    /// were not carried out.
    pub(crate) fn add(&mut self, round: &Round, state: &State, only: Option<Pid>, dry_run: bool) {
        for row in &round.rows {
            let Row { seen, decision, outcome, .. } = row;
            let pid = seen.id.pid;
            if only.is_some_and(|only| only != pid) {
                continue;
            }
            let (window, attempts) = (judged(round, seen), &outcome.attempts);
            let is_first = !self.has_acted();
            let process = self.process(round, seen);
            process.ledger.note_memory(&seen.memory);
            process.note_skips(window, decision, attempts);
            process.note_judged(window, decision, seen.memory.sizes);
            process.note(row, dry_run);
            process.note_state(row, state);
            // A tuned process matters more than one that was only read since.
            if process.acts.has_acted || is_first {
                self.shown = Some(pid);
            }
            if !decision.promote.is_empty() || attempts.stopped.is_some() {
                self.stopped = attempts.stopped;
            }
        }
    }

    /// Returns a process, a new one if it started another program, which has other regions.
    fn process(&mut self, round: &Round, seen: &ProcessSnapshot) -> &mut ProcessFold {
        let pid = seen.id.pid;
        // The engine forgets the past of a former program.
        let is_new = round.state.of(&seen.id).is_none();
        if is_new && let Some(former) = self.processes.remove(&pid) {
            let is_end = matches!(self.stopped, Some(Stop::TargetExeced | Stop::TargetGone));
            self.stopped = self.stopped.filter(|_| !is_end && !self.processes.is_empty());
            if former.id.start_ticks == seen.id.start_ticks {
                former.ledger.note_exec(former.state.is_in_trial(), &mut self.exec);
            }
        }
        self.processes.entry(pid).or_insert_with(|| ProcessFold::new(seen))
    }

    /// Reads which promoted regions are huge at the end. `find` returns a process as it was when
    /// its memory was read last.
    pub(crate) fn read_end(&mut self, find: &dyn Fn(Pid) -> Option<Rc<dyn Target>>) {
        for (&pid, process) in &mut self.processes {
            let Some(target) = find(pid) else { continue };
            let mut read = process.ledger.clone();
            read.note_huge(|region| target.region_pages(region).ok().map(|pages| pages.huge));
            match target.state() {
                Ok(TargetState::Alive) => process.ledger = read,
                Ok(TargetState::Execed) => {
                    process.ledger.note_exec(process.state.is_in_trial(), &mut self.exec);
                    process.ledger.note_freed(FreedBy::Exec);
                }
                Ok(TargetState::Gone) if process.state.is_in_trial() => {
                    process.ledger.note_freed(FreedBy::End);
                }
                Ok(TargetState::Gone) => process.ledger.note_end(),
                _ => {}
            }
        }
        if let Some(cause) = self.counts().freed_by() {
            self.stopped.get_or_insert(cause.into());
        }
    }

    /// Returns the numbers of regions, of the target and its children.
    pub(crate) fn counts(&self) -> LedgerCounts {
        self.processes.values().map(|process| process.ledger.counts()).sum()
    }

    /// Returns the memory that the promotions added, as [`Ledger::added`].
    pub(crate) fn added(&self) -> AddedMemory {
        self.processes.values().map(|process| process.ledger.added()).sum()
    }

    /// Returns the selected regions.
    pub(crate) fn selected(&self) -> impl Iterator<Item = &SelectedRegion> {
        self.processes.values().flat_map(|process| process.ledger.selected())
    }

    /// Returns whether there was an act.
    pub(crate) fn has_acted(&self) -> bool {
        self.processes.values().any(|process| process.acts.has_acted)
    }

    /// Returns the sums over their acts.
    pub(crate) fn acts(&self) -> ActTotals {
        self.processes.values().map(|process| &process.acts).sum()
    }

    /// Returns when regions with [`MOST`] of the stalls of all promoted regions were huge, without
    /// those that are not any more.
    pub(crate) fn most_promoted(&self) -> Option<Nanos> {
        let kept = self.processes.values().flat_map(|process| process.ledger.kept());
        let mut promoted: Vec<(Nanos, f64)> =
            kept.map(|(_, end, heat_ratio)| (end, heat_ratio)).collect();
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
        Some(TunePhase::Spread { window, .. }) => window,
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
        let (id, huge, before) = (seen.id.clone(), seen.memory.sizes.huge, seen.memory.huge());
        Self { id, huge, huge_before: before, huge_after: before, ..Self::default() }
    }

    fn note(&mut self, row: &Row, dry_run: bool) {
        let Row { seen, decision, outcome, .. } = row;
        self.id = seen.id.clone();
        self.resident = seen.memory.resident();
        let (window, attempts) = (&seen.window, &outcome.attempts);
        #[allow(clippy::cast_precision_loss)]
        let share = |part: u64| part as f64 / window.samples.max(1) as f64;
        if !self.acts.has_acted && window.samples > 0 {
            self.stall_ratio = Some(share(window.stalled() + window.chased()));
        }
        // If the target ends before it is read again, this value stays.
        let sizes = seen.memory.sizes;
        if self.read.replace(seen.memory.time) != Some(seen.memory.time) {
            self.huge_after = seen.memory.huge();
        }
        self.huge_after += sizes.huge.times(attempts.verified());
        self.huge_after -= sizes.huge.times(outcome.demoted());
        if !decision.promote.is_empty() && !dry_run {
            self.untried = (decision.promote.len() as u64).saturating_sub(attempts.handled());
        }
        self.ledger.add(row, dry_run);
        self.acts.add(outcome);
    }

    fn note_state(&mut self, row: &Row, state: &State) {
        // The engine forgot a process that ended, or started another program.
        let decided = || row.after.as_ref();
        let stopped = row.outcome.attempts.stopped;
        let is_cut = stopped == Some(Stop::TargetExeced) && self.state.is_in_trial();
        if let Some(state) = state.of(&self.id).or_else(decided).filter(|_| !is_cut) {
            self.state = state.clone();
        }
    }

    /// A round that judged no region leaves the counts of the last one that did. `window` has the
    /// samples by which it judged.
    fn note_skips(&mut self, window: &Window, decision: &ProcessDecision, attempts: &Attempts) {
        if decision.eligible > 0 || !decision.skipped.is_empty() {
            self.skipped = decision.skipped.clone();
            let mut stalls = decision.skipped_stalls.clone();
            // What this tune promoted is no longer a region that it skips.
            let promoted: Vec<Region> = self.ledger.kept().map(|(region, ..)| region).collect();
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
        for (&reason, &count) in &attempts.skipped {
            *self.skipped.entry(reason).or_insert(0) += count;
        }
    }

    /// Notes what a decision by the samples of `window` expects.
    #[allow(clippy::cast_precision_loss)]
    fn note_judged(&mut self, window: &Window, decision: &ProcessDecision, sizes: PageSizes) {
        if self.expected.is_none() && decision.expected.is_some() {
            self.expected = decision.expected;
            self.judged = prediction_input(window, sizes);
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
        self.ledger.heat_ratio().unwrap_or(0.0).min(self.selected_stall_ratio)
    }

    /// Whether the bounds that a trial found for the ratio of stall times contradict the model.
    pub(crate) fn contradicts(&self, bounds: (f64, f64), calibration: &Calibration) -> bool {
        self.judged.is_some_and(|input| contradicts(input, calibration, bounds))
    }

    /// Speedup by the model if the stalls on memory that cannot get huge pages were on huge pages.
    /// `None` without such stalls, or if the model expected nothing of the process.
    pub(crate) fn blocked(&self, calibration: &Calibration) -> Option<Prediction> {
        let blocked = self.skipped_stall_ratio.iter().filter(|(reason, _)| reason.is_block());
        let heat_ratio = blocked.map(|(_, ratio)| ratio).sum();
        let input = self.judged.filter(|_| heat_ratio > 0.0)?;
        predict(PredictionInput { heat_ratio, ..input }, calibration)
    }

    /// Speedup of the selected regions by the model. `None` without a region, or if the model
    /// expected nothing of the process.
    pub(crate) fn predicted(&self, calibration: &Calibration) -> Option<Prediction> {
        let input = self.judged.filter(|_| self.ledger.heat_ratio().is_some())?;
        predict(PredictionInput { heat_ratio: self.coverage(), ..input }, calibration)
    }
}
