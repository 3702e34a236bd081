//! Survey: heat and census of all processes before a plan, within the CPU budget.

use hugepilot_kernel::{KernelError, access_error};
use hugepilot_policy::daemon::{Reading, Recollapses, by_start, key_of, next_after};
use hugepilot_policy::{DebloatPolicy, Order};
use hugepilot_record::{Pid, ProcessId, RecollapseCause, SplitPlan, Stop};
use hugepilot_reports::daemon::{Event, ExclusionCause};
use hugepilot_units::{Bytes, Nanos, Share};

use super::super::{ControlRequest, Daemon, System};
use super::batch::Batch;
use super::{Shortage, Step};
use crate::ManagerError;
use crate::engine::World;
use crate::engine::splits::{Extent, SplitProcess, SplitRule, SplitTarget, Survey};

/// Minimum time over which the rise of use is judged.
const LEAST_TO_JUDGE: Nanos = Nanos::millis(500);
/// Time between two judgements.
const JUDGE_EVERY: Nanos = Nanos::millis(50);
/// Time between sampling and the first split: the census of a few GiB.
const AFTER_SAMPLING: Nanos = Nanos::seconds(1);

impl<'a, S: System> Shortage<'_, 'a, S> {
    /// Lists the processes that may have enough bloat. Returns `None` on a request.
    pub(super) fn targets(&mut self) -> Result<Option<Vec<SplitTarget>>, ManagerError> {
        let (daemon, reading) = (&mut *self.daemon, self.reading);
        let (system, config) = (daemon.system, daemon.config.clone());
        daemon.history.keep_living(|key| system.lives(key));
        daemon.logged.retain(|&key| system.lives(key));
        let mut step = Ok(Step::Go);
        let mut each = || {
            step = daemon.pace(&mut self.over_budget);
            matches!(step, Ok(Step::Go | Step::Waited))
        };
        let list = system.processes(&config, &mut each)?;
        for (id, cause) in list.excluded {
            daemon.log_skipped(&reading, &id, cause);
        }
        if step? == Step::Stop {
            return Ok(None);
        }
        daemon.log.sampled(&list.processes);
        let targets = list.processes.into_iter().map(|id| {
            let (priority, weight) = (config.priority(&id), config.weight_of(&id));
            SplitTarget { id, priority, weight }
        });
        Ok(Some(targets.collect()))
    }

    /// Opens the processes, sampled if the order requires heat. If use is critical, or if sampling
    /// fails, the order is `exact`.
    pub(super) fn open(
        &mut self,
        targets: &[SplitTarget],
    ) -> Result<(S::Opened<'a>, Extent), ManagerError> {
        let (system, config) = (self.daemon.system, &self.daemon.config);
        let ids: Vec<ProcessId> = targets.iter().map(|target| target.id.clone()).collect();
        let extent = Extent { observe: config.observe, part: Share::ALL, dry_run: config.dry_run };
        if self.order.needs_heat() {
            let has_time = !config.watermarks().is_critical(&self.reading) && !ids.is_empty();
            if let Some(world) = has_time.then(|| system.open(&ids, true).ok()).flatten() {
                return Ok((world, extent));
            }
            self.order = Order::Exact;
        }
        Ok((system.open(&ids, false)?, Extent { observe: Nanos::ZERO, ..extent }))
    }
}

impl<S: System> SplitRule for Shortage<'_, '_, S> {
    /// If use becomes critical, or would before the samples are complete, the order is `exact`.
    fn observe(&mut self, world: &mut dyn World, end: Nanos) -> bool {
        let (system, marks) = (self.daemon.system, self.daemon.config.watermarks());
        let (begun, planned) = (system.now(), end + AFTER_SAMPLING);
        while !world.is_over() {
            let now = system.now();
            if now >= end {
                return true;
            }
            let is_soon = system.memory().is_ok_and(|then| {
                now - begun >= LEAST_TO_JUDGE
                    && marks.will_be_critical(&self.reading, &then, now - begun, planned - now)
                    || marks.is_critical(&then)
            });
            if is_soon || system.asked() != ControlRequest::Nothing {
                self.order = Order::Exact;
                return false;
            }
            world.observe(end.min(now + JUDGE_EVERY));
        }
        true
    }

    fn policy(&self) -> DebloatPolicy {
        self.daemon.config.policy(self.order)
    }

    fn may_read(&mut self, _: Pid, _: u64, _: u64) -> Result<bool, ManagerError> {
        Ok(self.daemon.pace(&mut self.over_budget)? != Step::Stop)
    }

    fn exclude(
        &mut self,
        id: &ProcessId,
        has_ended: bool,
        error: KernelError,
    ) -> Result<(), ManagerError> {
        if !has_ended {
            let cause = ExclusionCause::Unreadable(access_error(&error));
            self.daemon.log_skipped(&self.reading, id, cause);
        }
        Ok(())
    }

    fn surveyed(
        &mut self,
        processes: &mut [SplitProcess],
        is_complete: bool,
    ) -> Result<bool, ManagerError> {
        if is_complete {
            self.daemon.remember_and_turn(&self.reading, processes);
        }
        Ok(is_complete)
    }

    fn planned(&mut self, survey: &Survey, plan: &SplitPlan) -> Result<Bytes, ManagerError> {
        self.reading = self.daemon.system.memory()?;
        self.log_planned(survey, plan);
        self.batch = Batch::new(self.daemon.system);
        Ok(self.daemon.wanted(&self.reading))
    }
}

impl<S: System> Daemon<'_, S> {
    /// Adds the history, and lets the process after the one that was served last be first.
    fn remember_and_turn(&mut self, reading: &Reading, processes: &mut [SplitProcess]) {
        let rules = self.config.cool_down();
        for process in &mut *processes {
            let recollapses = self.history.note_census(&process.census, rules);
            process.past = self.history.past_of(&process.census);
            self.log_recollapsed(reading, process, recollapses);
        }
        let keys: Vec<_> = processes.iter().map(|one| by_start(one.target.id())).collect();
        processes.rotate_left(next_after(&keys, self.scope.last_served));
    }

    fn log_recollapsed(
        &mut self,
        reading: &Reading,
        process: &SplitProcess,
        recollapses: Recollapses,
    ) {
        let Some(example) = recollapses.example else { return };
        for sums in [&mut self.life.sums, &mut self.scope.stretch.sums] {
            sums.recollapses += recollapses.regions;
        }
        let advised = process.is_advised([example]);
        let cause = match self.system.recollapse_risk(advised) {
            Some(risk) => RecollapseCause::KhugepagedOrProgram(risk),
            None => RecollapseCause::NotKhugepaged,
        };
        let id = process.target.id();
        let recollapsed = Event::Recollapsed {
            pid: id.pid,
            command: id.command.clone(),
            regions: recollapses.regions,
            excluded: recollapses.excluded,
            cause,
        };
        self.log(reading, recollapsed);
    }

    /// Logs processes whose splits ended for a cause that stays, such as a missing permission.
    pub(super) fn log_ended(&mut self, reading: &Reading, processes: &[SplitProcess]) {
        use Stop::{InUse, NotPermitted, RepeatedFailure, Unreadable};
        for process in processes {
            let stop = process.stopped();
            if let Some(stop @ (NotPermitted | RepeatedFailure | Unreadable | InUse)) = stop {
                let cause = ExclusionCause::Stopped { stop };
                self.log_skipped(reading, process.target.id(), cause);
            }
        }
    }

    pub(in super::super) fn log_skipped(
        &mut self,
        reading: &Reading,
        id: &ProcessId,
        cause: ExclusionCause,
    ) {
        if self.logged.insert(key_of(id)) {
            let (pid, command) = (id.pid, id.command.clone());
            self.log(reading, Event::Skipped { pid, command, cause });
        }
    }
}
