//! Target of a session: a process, what is counted of it, and its report.

use std::rc::Rc;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Claim, KernelError, Process, Target, Unsupported, access_error};
use hugepilot_policy::daemon::key_of;
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{Policy, State, TuneGoal};
use hugepilot_record::tune::{Activity, NoMetric, NoVerdict, PlannedEvent, TuneReport};
use hugepilot_record::{AccessError, Pid};
use hugepilot_units::{Bytes, Nanos};

use super::kernel_error;
use super::report::{count, empty_report};
use crate::ManagerError;
use crate::fold::Fold;
use crate::tune::{Event, TuneOptions, check_pagemap, open};

/// A process that the user named, as it is tuned.
pub(super) struct SessionTarget {
    pub(super) process: Rc<Process>,
    /// Whether it is tuned with the processes that it starts, as a single target is.
    pub(super) with_children: bool,
    /// Processes among these, and itself, that were decided about.
    pub(super) parts: Vec<SessionTarget>,
    /// Memory of which the budget was a share at the last round, if it is a part.
    pub(super) budget_base: Option<Bytes>,
    /// First and last act, if the progress metric is that of all parts.
    pub(super) program_acts: Option<(Option<Nanos>, Option<Nanos>)>,
    /// Whether it has not started its program yet.
    pub(super) launched: bool,
    /// Whether it waited for children before it was sampled, which may have been forks.
    pub(super) may_fork: bool,
    pub(super) fold: Fold,
    /// Whether it was sampled closely until its first promotion.
    pub(super) is_close: bool,
    pub(super) report: TuneReport,
    pub(super) before: Activity,
    pub(super) counters: Option<Result<Rc<Counters>, Unsupported>>,
    pub(super) counted: CounterReading,
    /// Due events of a schedule, in a dry run.
    pub(super) planned: Vec<PlannedEvent>,
    /// Cgroup with a memory limit of the target that is invisible from here.
    pub(super) hidden_limit: Option<String>,
}

impl SessionTarget {
    /// A target of which nothing was read. `name` is the name of a program that has not started.
    pub(super) fn new(
        process: Rc<Process>,
        name: Option<&str>,
        options: &TuneOptions,
        with_children: bool,
    ) -> Self {
        let mut report = empty_report(&process, options);
        if let Some(name) = name {
            name.clone_into(&mut report.target.command);
        }
        let may_fork = name.is_none() && process.forks().ended;
        Self {
            process,
            with_children,
            parts: Vec::new(),
            budget_base: None,
            program_acts: None,
            launched: name.is_some(),
            may_fork,
            fold: Fold::default(),
            is_close: false,
            report,
            before: Activity::default(),
            counters: None,
            counted: CounterReading::default(),
            planned: Vec::new(),
            hidden_limit: None,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.process.id().pid
    }

    /// Reads a running process, claims it unless this is a dry run, and tests the permissions.
    pub(super) fn prepare(&mut self, options: &TuneOptions) -> Result<Option<Claim>, ManagerError> {
        let mut claim = None;
        if !self.launched {
            self.read_first(options)?;
            claim = if options.dry_run { None } else { Some(self.process.claim()?) };
        }
        if !options.dry_run {
            self.process.check_promotable().map_err(ManagerError::Promote)?;
        }
        Ok(claim)
    }

    /// Notes the memory of the process, and tests whether its pagemap can be read.
    fn read_first(&mut self, options: &TuneOptions) -> Result<(), KernelError> {
        let mappings = self.process.mappings()?;
        check_pagemap(&self.process, &mappings)?;
        let resident = mappings.iter().map(|mapping| mapping.resident).sum();
        let huge = mappings.iter().map(|mapping| mapping.huge).sum();
        let report = &mut self.report;
        report.footprint_bytes = Some(resident);
        report.budget_bytes = options.goal.budget_of(resident);
        (report.huge_bytes_before, report.huge_bytes_after) = (Some(huge), Some(huge));
        Ok(())
    }

    /// Excludes the process from the tune.
    pub(super) fn exclude(&mut self, error: &ManagerError, say: &mut dyn FnMut(Event<'_>)) {
        let mut cause = AccessError { error: error.to_string(), help: Vec::new() };
        cause.help = kernel_error(error).map(access_error).map_or_else(Vec::new, |one| one.help);
        if !self.with_children {
            let TuneReport { target, .. } = &self.report;
            say(Event::Excluded { pid: target.pid, command: &target.command, cause: &cause });
        }
        self.report.no_verdict = Some(NoVerdict::Excluded(cause));
    }

    pub(super) const fn is_excluded(&self) -> bool {
        matches!(self.report.no_verdict, Some(NoVerdict::Excluded(_)))
    }

    /// Whether `round` is about it.
    pub(super) fn is_in(&self, round: &Round) -> bool {
        let is_own = |pid| self.with_children || pid == self.pid();
        round.ids().any(|id| is_own(id.pid))
    }

    /// Adds the events of a schedule that became due in a round.
    fn note_plan(&mut self, round: &Round, state: &State, goal: &TuneGoal) {
        let Policy::Schedule(rules) = &goal.policy else { return };
        let is_shown = |pid| self.fold.shown().is_some_and(|shown| shown.id.pid == pid);
        let seen = round.rows.iter().map(|row| &row.seen);
        for seen in seen.filter(|seen| is_shown(seen.id.pid)) {
            let before = round.state.of(&seen.id).cloned().unwrap_or_default();
            let after = state.of(&seen.id).cloned().unwrap_or_default();
            let (progress, past) = (&after.schedule, &before.schedule);
            self.planned.extend(progress.planned(past, rules, seen, &before, goal));
        }
    }

    /// Adds a round.
    pub(super) fn note(&mut self, round: &Round, state: &State, goal: &TuneGoal, dry_run: bool) {
        let had_acted = self.fold.has_acted();
        let only = (!self.with_children).then(|| self.pid());
        self.fold.add(round, state, only, dry_run);
        if dry_run {
            self.note_plan(round, state, goal);
        }
        let has_acted = self.fold.has_acted();
        if !had_acted && has_acted {
            self.is_close = goal.looks_closely() && round.state.is_new(self.pid());
        }
        if let Some(target) = self.fold.shown()
            && let Ok(process) = open(target.id.pid)
        {
            self.hidden_limit = process.unseen_cgroup();
        }
        if !has_acted && let Some(Ok(counters)) = &self.counters {
            count(counters, &mut self.counted, &mut self.before);
        }
    }

    /// Adds a round to the parts that it is about. `open` opens a process of the round.
    pub(super) fn note_parts(
        &mut self,
        round: &Round,
        state: &State,
        goal: &TuneGoal,
        options: &TuneOptions,
        open: &dyn Fn(Pid) -> Option<Rc<Process>>,
    ) {
        let resident = state.resident();
        for id in round.ids() {
            // After an exec it is the same part.
            let is_same = |part: &SessionTarget| key_of(part.process.id()) == key_of(id);
            if !self.parts.iter().any(is_same) {
                let process = open(id.pid).filter(|process| process.id() == id);
                self.parts.extend(process.map(|one| Self::new(one, None, options, false)));
            }
            for part in self.parts.iter_mut().filter(|part| is_same(part)) {
                part.note(round, state, goal, options.dry_run);
                part.budget_base = Some(resident);
            }
        }
    }

    /// Divides a target with several parts into them. The performance of the program is reported
    /// with the first one.
    pub(super) fn divided(mut self, has_metric: bool) -> Vec<Self> {
        let mut parts = std::mem::take(&mut self.parts);
        if parts.len() < 2 {
            return vec![self];
        }
        let (first, has_metric) = (parts[0].pid(), has_metric || self.launched);
        let acts = self.fold.acts();
        for (index, part) in parts.iter_mut().enumerate() {
            part.counters = match &self.counters {
                Some(Err(cause)) => Some(Err(cause.clone())),
                _ => None,
            };
            part.program_acts = Some((acts.first, acts.last));
            if has_metric && index > 0 {
                part.report.no_metric = Some(NoMetric::OfProgram { pid: first });
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_performance_of_a_program_is_reported_once() {
        let process = || Rc::new(open(Pid(std::process::id().cast_signed())).unwrap());
        let options = TuneOptions::default();
        let target = |name, parts: usize| {
            let mut target = SessionTarget::new(process(), name, &options, true);
            let part = || SessionTarget::new(process(), None, &options, false);
            target.parts = std::iter::repeat_with(part).take(parts).collect();
            target
        };
        let causes = |divided: Vec<SessionTarget>| -> Vec<bool> {
            divided.into_iter().map(|one| one.report.no_metric.is_some()).collect()
        };
        assert_eq!(causes(target(Some("sh"), 3).divided(false)), [false, true, true]);
        assert_eq!(causes(target(None, 2).divided(true)), [false, true]);
        assert_eq!(causes(target(None, 2).divided(false)), [false, false]);
        let single = target(Some("sh"), 1).divided(true);
        assert!(single.len() == 1 && single[0].with_children);
    }
}
