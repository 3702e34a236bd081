//! Acts of a round: the one loop that changes processes, an act after another, each verified.
//!
//! The acts are an ordered list across processes: a tune changes one process after another, and
//! splits alternate between processes, for fairness. A [`StopRule`] is asked before each act, so it
//! knows when enough is done, or the time is up. What goes wrong in a process ends its acts only.

use std::convert::Infallible;

use hugepilot_kernel::{Claim, Target, TargetState};
use hugepilot_policy::round::ProcessOutcome;
use hugepilot_policy::{Guard, SplitGuard, mapping_split_skip};
use hugepilot_record::{Act, Mapping, Promotion, SkipReason, Split, SplitAct, SplitOutcome, Stop};
use hugepilot_units::{AddrRange, Bytes, Nanos, Region};

use super::split::{skipped, split, split_at};
use super::{changed, collapse, may_promote, unreadable};

/// Act of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlannedAct<'a> {
    /// Promotes a region.
    Promote(&'a Promotion),
    /// Returns a region that hugepilot promoted to base pages, with the contents that they have.
    /// The kernel frees zero-filled ones.
    Demote(Region),
    /// Splits a bloated huge page, to free its zero-filled base pages.
    Split(&'a Split),
}

/// Act that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DoneAct<'a> {
    /// Promotion, as planned and as it was made.
    Promotion(&'a Promotion, Act),
    /// Demotion or split.
    Split(SplitAct),
}

/// Says when the acts of a round end, and receives them. `P` is a process of the round.
pub(crate) trait StopRule<P: ?Sized> {
    type Error;
    /// Is called before each act; may wait. Returns whether to go on.
    ///
    /// # Errors
    /// What the rule depends on cannot be read.
    fn may_act(&mut self, planned: &PlannedAct<'_>) -> Result<bool, Self::Error>;
    /// Rests for this time: a collapse was slow. Returns whether the process is changed further.
    fn rest(&mut self, _time: Nanos) -> bool {
        false
    }
    /// Receives an act.
    fn acted(&mut self, process: &P, done: &DoneAct<'_>);
}

/// Rule of closures: whether to go on, and what receives each act. A slow collapse ends the acts.
pub(crate) struct While<'a> {
    pub(crate) goes_on: &'a dyn Fn() -> bool,
    pub(crate) each: &'a mut dyn FnMut(&DoneAct<'_>),
}

impl<P> StopRule<P> for While<'_> {
    type Error = Infallible;

    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, Infallible> {
        Ok((self.goes_on)())
    }

    fn acted(&mut self, _: &P, done: &DoneAct<'_>) {
        (self.each)(done);
    }
}

/// Process of a round.
pub(crate) trait ChangedProcess {
    /// Returns access to the process, and what was done.
    fn parts(&mut self) -> (&dyn Target, &mut Changes);
}

impl ChangedProcess for (&dyn Target, &mut Changes) {
    fn parts(&mut self) -> (&dyn Target, &mut Changes) {
        (self.0, self.1)
    }
}

/// Makes the acts of `plan`, each in the process with its index, while `rule` lets it go on.
/// Returns whether it did so to the end.
///
/// # Errors
/// Those of `rule`.
pub(crate) fn carry_out<'p, P: ChangedProcess, R: StopRule<P> + ?Sized>(
    plan: impl IntoIterator<Item = (usize, PlannedAct<'p>)>,
    processes: &mut [P],
    rule: &mut R,
) -> Result<bool, R::Error> {
    for (index, planned) in plan {
        let process = &mut processes[index];
        if process.parts().1.outcome.attempts.stopped.is_some() {
            continue;
        }
        if !rule.may_act(&planned)? {
            return Ok(false);
        }
        let (target, changes) = process.parts();
        let done = changes.make(target, &planned);
        let rest = changes.rest.take();
        if let Some(done) = done {
            rule.acted(process, &done);
        }
        if rest.is_some_and(|rest| !rule.rest(rest)) {
            process.parts().1.outcome.attempts.stopped = Some(Stop::SlowCollapse);
        }
    }
    Ok(true)
}

/// Changes of a process in a round.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The acts, and the cause of an early end.
    pub(crate) outcome: ProcessOutcome,
    /// Claim of the process, from the first act on: no other run of hugepilot changes it.
    pub(crate) claim: Option<Claim>,
    /// Whether nothing is changed: each split is said to free what was planned, and each demotion
    /// to succeed, if it is allowed.
    pub(crate) dry_run: bool,
    guard: Guard,
    splits: SplitGuard,
    /// Ranges where splits are not allowed, each with its reason.
    forbidden: Vec<(AddrRange, SkipReason)>,
    /// Mappings with lazily freed memory.
    lazily_freed: Vec<(AddrRange, Bytes)>,
    /// Promotions since the last rest.
    turn: usize,
    slow_collapses: u32,
    /// Rest that is due.
    rest: Option<Nanos>,
}

impl Changes {
    /// Makes no change yet, of a process that may be claimed already.
    pub(crate) fn new(guard: Guard, claim: Option<Claim>) -> Self {
        Self { guard, claim, ..Self::default() }
    }

    /// Makes an act; `None` if the region or the process must not be changed.
    fn make<'p>(&mut self, target: &dyn Target, planned: &PlannedAct<'p>) -> Option<DoneAct<'p>> {
        let done = match *planned {
            PlannedAct::Promote(promotion) => self
                .promote(target, promotion)
                .map(|act| act.map(|act| DoneAct::Promotion(promotion, act))),
            PlannedAct::Demote(region) => {
                let page = (!self.dry_run).then(|| region.range(target.sizes()).start);
                let demote = || split_at(target, region, page, &|| true);
                self.split(target, region, &demote).map(|act| Some(DoneAct::Split(act)))
            }
            PlannedAct::Split(planned) => {
                self.free(target, planned).map(|act| Some(DoneAct::Split(act)))
            }
        };
        done.unwrap_or_else(|stop| {
            self.end(target, stop, Nanos::ZERO);
            None
        })
    }

    /// # Errors
    /// The cause why the process must not be changed further.
    fn promote(&mut self, target: &dyn Target, promotion: &Promotion) -> Result<Option<Act>, Stop> {
        self.require_changeable(target)?;
        may_promote(target, promotion, &self.guard, Guard::reads_pressure(self.turn))?;
        self.turn += 1;
        target.prepare();
        // Right before the call: a region that khugepaged or the program promoted is not counted.
        let reason = match changed(target, promotion, &self.guard)? {
            Some(reason) => Some(reason),
            None => self.more_lazily_freed(target, promotion)?.then_some(SkipReason::LazilyFreed),
        };
        let attempts = &mut self.outcome.attempts;
        if let Some(reason) = reason {
            *attempts.skipped.entry(reason).or_insert(0) += 1;
            return Ok(None);
        }
        let act = collapse(target, promotion);
        attempts.acts.push(act);
        let has_pages =
            |region: Region| target.region_pages(region).is_ok_and(|pages| pages.resident > 0);
        if let Some(stop) = self.guard.stop_after(&attempts.acts, &has_pages) {
            self.end(target, stop, act.took);
        }
        Ok(Some(act))
    }

    /// Whether more of a region is lazily freed than when its promotion was decided.
    ///
    /// # Errors
    /// As for [`Changes::promote`].
    fn more_lazily_freed(
        &mut self,
        target: &dyn Target,
        promotion: &Promotion,
    ) -> Result<bool, Stop> {
        let region = promotion.region;
        let flagged = target.lazily_freed(region).map_err(|error| unreadable(&error))?;
        let flagged = flagged.unwrap_or_else(|| target.sizes().base_per_huge());
        let at_most = target.sizes().base.times(flagged);
        if at_most <= promotion.lazily_freed {
            return Ok(false);
        }
        // Pages that the program wrote since have the flag, too: the sum of the mapping decides.
        self.read_mappings(target)?;
        let start = region.range(target.sizes()).start;
        let freed = self.lazily_freed.iter().find(|(range, _)| range.contains(start));
        Ok(freed.is_some_and(|&(_, freed)| freed.min(at_most) > promotion.lazily_freed))
    }

    /// Splits a bloated huge page.
    ///
    /// # Errors
    /// As for [`Changes::promote`].
    fn free(&mut self, target: &dyn Target, planned: &Split) -> Result<SplitAct, Stop> {
        let region = planned.region;
        if self.dry_run {
            let outcome = SplitOutcome::Freed(planned.frees);
            return Ok(SplitAct { region, took: Nanos::ZERO, outcome });
        }
        let act = self.split(target, region, &|| split(target, planned))?;
        self.splits.note(act.outcome);
        if let Some(stop) = self.splits.stop() {
            self.end(target, stop, act.took);
        }
        Ok(act)
    }

    /// Splits the huge page of `region`, if that is allowed there.
    ///
    /// # Errors
    /// As for [`Changes::promote`].
    fn split(
        &mut self,
        target: &dyn Target,
        region: Region,
        split: &dyn Fn() -> SplitAct,
    ) -> Result<SplitAct, Stop> {
        self.require_changeable(target)?;
        self.read_mappings(target)?;
        let start = region.range(target.sizes()).start;
        let forbidden = self.forbidden.iter().find(|(range, _)| range.contains(start));
        let act = forbidden.map_or_else(split, |&(_, reason)| skipped(region, reason));
        self.outcome.demotions.push(act);
        Ok(act)
    }

    /// Claims the process at its first act, so that no other run of hugepilot changes it; not in a
    /// dry run.
    ///
    /// # Errors
    /// The process ended, runs another program, cannot be read, or is claimed.
    fn require_changeable(&mut self, target: &dyn Target) -> Result<(), Stop> {
        match target.state() {
            Ok(TargetState::Alive) => {}
            Ok(TargetState::Gone) => return Err(Stop::TargetGone),
            Ok(TargetState::Execed) => return Err(Stop::TargetExeced),
            Err(error) => return Err(unreadable(&error)),
        }
        if self.claim.is_none() && !self.dry_run {
            self.claim = Some(target.claim().map_err(|error| unreadable(&error))?);
        }
        Ok(())
    }

    /// Reads where splits are not allowed, and where memory is lazily freed, if it is time to. If
    /// that fails, the last read counts.
    ///
    /// # Errors
    /// The first read fails.
    fn read_mappings(&mut self, target: &dyn Target) -> Result<(), Stop> {
        let begun = target.now();
        if !self.splits.reads_mappings(begun) {
            return Ok(());
        }
        match target.mappings() {
            Ok(mappings) => self.note_mappings(&mappings),
            Err(error) if !self.splits.has_read() => return Err(unreadable(&error)),
            // The split itself detects that the target ended.
            Err(_) => {}
        }
        self.splits.note_read(begun, target.now());
        Ok(())
    }

    fn note_mappings(&mut self, mappings: &[Mapping]) {
        let forbidden = |mapping: &Mapping| Some((mapping.range, mapping_split_skip(mapping)?));
        self.forbidden = mappings.iter().filter_map(forbidden).collect();
        let freed = mappings.iter().filter(|mapping| !mapping.lazily_freed.is_zero());
        self.lazily_freed = freed.map(|mapping| (mapping.range, mapping.lazily_freed)).collect();
    }

    /// Ends the acts, or lets them rest. `took`: time of the last one.
    fn end(&mut self, target: &dyn Target, stop: Stop, took: Nanos) {
        self.slow_collapses += u32::from(stop == Stop::SlowCollapse);
        (self.rest, self.turn) = (Guard::rest(stop, took, self.slow_collapses), 0);
        // After exec, calls fail as after the end.
        let is_execed =
            stop == Stop::TargetGone && matches!(target.state(), Ok(TargetState::Execed));
        let stop = if is_execed { Stop::TargetExeced } else { stop };
        self.outcome.attempts.stopped = self.rest.is_none().then_some(stop);
    }
}

#[cfg(test)]
mod tests;
