//! Target of a session: a process, and what is counted of it.

use std::rc::Rc;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Claim, KernelError, Process, Target, Unsupported, access_error};
use hugepilot_policy::daemon::key_of;
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{Policy, State, TuneGoal};
use hugepilot_record::{AccessError, Pid};
use hugepilot_reports::tune::{Activity, TargetInfo};

use super::kernel_error;
use crate::ManagerError;
use crate::tune::finished::{Program, TargetFacts};
use crate::tune::{Event, TuneOptions, check_pagemap, open};

/// A process that the user named, as it is tuned.
pub(super) struct SessionTarget {
    pub(super) process: Rc<Process>,
    pub(super) facts: TargetFacts,
    /// Processes among those that it starts, and itself, that were decided about.
    pub(super) parts: Vec<SessionTarget>,
    /// Whether it was sampled closely until its first promotion.
    pub(super) is_close: bool,
    pub(super) counters: Option<Result<Rc<Counters>, Unsupported>>,
    pub(super) counted: CounterReading,
}

impl SessionTarget {
    /// A target of which nothing was read. `name` is the name of a program that has not started.
    pub(super) fn new(process: Rc<Process>, name: Option<&str>, with_children: bool) -> Self {
        let command = name.unwrap_or(&process.id().command).to_owned();
        let facts = TargetFacts {
            named: TargetInfo { pid: process.id().pid, command },
            with_children,
            launched: name.is_some(),
            may_fork: name.is_none() && process.forks().ended,
            obstacles: process.obstacles(),
            ..TargetFacts::default()
        };
        let (parts, counters, counted) = (Vec::new(), None, CounterReading::default());
        Self { process, facts, parts, is_close: false, counters, counted }
    }

    pub(super) fn pid(&self) -> Pid {
        self.process.id().pid
    }

    /// Reads a running process, claims it unless this is a dry run, and tests the permissions.
    pub(super) fn prepare(&mut self, options: &TuneOptions) -> Result<Option<Claim>, ManagerError> {
        let mut claim = None;
        if !self.facts.launched {
            self.read_first()?;
            claim = if options.dry_run { None } else { Some(self.process.claim()?) };
        }
        if !options.dry_run {
            self.process.check_promotable().map_err(ManagerError::Promote)?;
        }
        Ok(claim)
    }

    /// Notes the memory of the process, and tests whether its pagemap can be read.
    fn read_first(&mut self) -> Result<(), KernelError> {
        let mappings = self.process.mappings()?;
        check_pagemap(&self.process, &mappings)?;
        let resident = mappings.iter().map(|mapping| mapping.resident).sum();
        let huge = mappings.iter().map(|mapping| mapping.huge).sum();
        self.facts.first = Some((resident, huge));
        Ok(())
    }

    /// Excludes the process from the tune.
    pub(super) fn exclude(&mut self, error: &ManagerError, say: &mut dyn FnMut(Event<'_>)) {
        let mut cause = AccessError { error: error.to_string(), help: Vec::new() };
        cause.help = kernel_error(error).map(access_error).map_or_else(Vec::new, |one| one.help);
        if !self.facts.with_children {
            let TargetInfo { pid, command } = &self.facts.named;
            say(Event::Excluded { pid: *pid, command, cause: &cause });
        }
        self.facts.unreadable = Some(cause);
    }

    pub(super) fn is_excluded(&self) -> bool {
        self.facts.is_excluded()
    }

    /// Whether `round` is about it.
    pub(super) fn is_in(&self, round: &Round) -> bool {
        let is_own = |pid| self.facts.with_children || pid == self.pid();
        round.ids().any(|id| is_own(id.pid))
    }

    /// Adds the events of a schedule that became due in a round.
    fn note_plan(&mut self, round: &Round, state: &State, goal: &TuneGoal) {
        let Policy::Schedule(rules) = &goal.policy else { return };
        let is_shown = |pid| self.facts.fold.shown().is_some_and(|shown| shown.id.pid == pid);
        let seen = round.rows.iter().map(|row| &row.seen);
        for seen in seen.filter(|seen| is_shown(seen.id.pid)) {
            let before = round.state.of(&seen.id).cloned().unwrap_or_default();
            let after = state.of(&seen.id).cloned().unwrap_or_default();
            let (progress, past) = (&after.schedule, &before.schedule);
            self.facts.planned.extend(progress.planned(past, rules, seen, &before, goal));
        }
    }

    /// Adds a round.
    pub(super) fn note(&mut self, round: &Round, state: &State, goal: &TuneGoal, dry_run: bool) {
        let had_acted = self.facts.fold.has_acted();
        let only = (!self.facts.with_children).then(|| self.pid());
        self.facts.fold.add(round, state, only, dry_run);
        if dry_run {
            self.note_plan(round, state, goal);
        }
        let has_acted = self.facts.fold.has_acted();
        if !had_acted && has_acted {
            self.is_close = goal.looks_closely() && round.state.is_new(self.pid());
        }
        if let Some(target) = self.facts.fold.shown()
            && let Ok(process) = open(target.id.pid)
        {
            self.facts.hidden_limit = process.unseen_cgroup();
        }
        if !has_acted && let Some(Ok(counters)) = &self.counters {
            count(counters, &mut self.counted, &mut self.facts.before);
        }
    }

    /// Adds a round to the parts that it is about. `open` opens a process of the round.
    pub(super) fn note_parts(
        &mut self,
        round: &Round,
        state: &State,
        goal: &TuneGoal,
        dry_run: bool,
        open: &dyn Fn(Pid) -> Option<Rc<Process>>,
    ) {
        let resident = state.resident();
        for id in round.ids() {
            // After an exec it is the same part.
            let is_same = |part: &SessionTarget| key_of(part.process.id()) == key_of(id);
            if !self.parts.iter().any(is_same) {
                let process = open(id.pid).filter(|process| process.id() == id);
                self.parts.extend(process.map(|one| Self::new(one, None, false)));
            }
            for part in self.parts.iter_mut().filter(|part| is_same(part)) {
                part.note(round, state, goal, dry_run);
                part.facts.program = Some(Program { resident, ..Program::default() });
            }
        }
    }

    /// Divides a target with several parts into them. `has_progress`: whether the program has a
    /// progress metric.
    pub(super) fn divided(mut self, has_progress: bool) -> Vec<Self> {
        let mut parts = std::mem::take(&mut self.parts);
        if parts.len() < 2 {
            return vec![self];
        }
        for part in &mut parts {
            part.facts.launched = self.facts.launched;
            part.counters = match &self.counters {
                Some(Err(cause)) => Some(Err(cause.clone())),
                _ => None,
            };
        }
        let mut facts: Vec<_> = parts.iter_mut().map(|part| &mut part.facts).collect();
        let has_metric = has_progress || self.facts.launched;
        TargetFacts::note_program(&mut facts, &self.facts.fold.acts(), has_metric);
        parts
    }
}

/// Writes the counts since `last` into `activity`.
pub(super) fn count(counters: &Counters, last: &mut CounterReading, activity: &mut Activity) {
    let now = counters.read();
    #[allow(clippy::cast_precision_loss)]
    let since =
        |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then.unwrap_or(0)) as f64);
    let instructions = since(now.instructions, last.instructions).filter(|&n| n > 0.0);
    let cycles = since(now.cycles, last.cycles).filter(|&n| n > 0.0);
    let walks = since(now.walks, last.walks);
    activity.instructions_per_cycle =
        instructions.zip(cycles).map(|(instructions, cycles)| instructions / cycles);
    activity.walks_per_kiloinstruction =
        walks.zip(instructions).map(|(walks, instructions)| walks * 1000.0 / instructions);
    *last = now;
}
