//! Target of a session: a process, what is counted of it, and its report.

use std::rc::Rc;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Claim, KernelError, Process, Target, Unsupported, access_error};
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{Policy, State, TuneGoal};
use hugepilot_record::tune::{Activity, NoVerdict, PlannedEvent, TuneReport};
use hugepilot_record::{AccessError, Pid};

use super::kernel_error;
use super::report::{count, empty_report};
use crate::ManagerError;
use crate::engine::fold::Fold;
use crate::tune::{Event, TuneOptions, check_pagemap, open};

/// A process that the user named, as it is tuned.
pub(super) struct SessionTarget {
    pub(super) process: Rc<Process>,
    /// Whether it is tuned with the processes that it starts, as a single target is.
    pub(super) with_children: bool,
    /// Whether it has not started its program yet.
    pub(super) launched: bool,
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
        process: Process,
        name: Option<&str>,
        options: &TuneOptions,
        with_children: bool,
    ) -> Self {
        let mut report = empty_report(&process, options);
        if let Some(name) = name {
            name.clone_into(&mut report.target.command);
        }
        Self {
            process: Rc::new(process),
            with_children,
            launched: name.is_some(),
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
        report.budget_bytes = options.goal.budget.map(|budget| budget.of(resident));
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
        round.snapshot.processes.iter().any(|process| is_own(process.id.pid))
    }

    /// Adds the events of a schedule that became due in a round.
    pub(super) fn note_plan(&mut self, round: &Round, state: &State, goal: &TuneGoal) {
        let Policy::Schedule(rules) = &goal.policy else { return };
        let is_shown = |pid| self.fold.shown().is_some_and(|shown| shown.id.pid == pid);
        for process in round.snapshot.processes.iter().filter(|one| is_shown(one.id.pid)) {
            let before = round.state.of(&process.id).cloned().unwrap_or_default();
            let after = state.of(&process.id).cloned().unwrap_or_default();
            let (progress, past) = (&after.schedule, &before.schedule);
            self.planned.extend(progress.planned(past, rules, process, &before, goal));
        }
    }

    /// Adds a round.
    pub(super) fn note(&mut self, round: &Round, state: &State, dry_run: bool) {
        let only = (!self.with_children).then(|| self.pid());
        self.fold.add(round, state, only, dry_run);
        if let Some(target) = self.fold.shown()
            && let Ok(process) = open(target.id.pid)
        {
            self.hidden_limit = process.unseen_cgroup();
        }
        if self.fold.first_act.is_none()
            && let Some(Ok(counters)) = &self.counters
        {
            count(counters, &mut self.counted, &mut self.before);
        }
    }
}
