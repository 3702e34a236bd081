//! Survey: heat and census of all processes before a plan.

use std::cell::Cell;
use std::rc::Rc;

use hugepilot_kernel::Target;
use hugepilot_policy::Order;
use hugepilot_policy::daemon::{Reading, Recollapses, by_start, key_of, next_after};
use hugepilot_record::daemon::{Event, ExclusionCause};
use hugepilot_record::{ProcessId, RecollapseCause, Stop};
use hugepilot_units::{Nanos, Share};

use super::super::{ControlRequest, Daemon, System};
use super::{Shortage, Step};
use crate::ManagerError;
use crate::debloat::Stalls;
use crate::engine::splits::{self, Extent, SplitProcess, Unread};

/// Minimum time over which the rise of use is judged.
const LEAST_TO_JUDGE: Nanos = Nanos::millis(500);
/// Time between sampling and the first split: the census of a few GiB.
const AFTER_SAMPLING: Nanos = Nanos::seconds(1);

/// Census of all processes.
pub(super) struct Survey {
    pub(super) found: splits::Survey,
    /// Order in use.
    pub(super) order: Order,
    pub(super) not_sampled: u64,
}

impl<S: System> Shortage<'_, '_, S> {
    /// Samples if the order requires it and there is time, then takes the census of each process.
    /// Returns `None` on a request. Costs 0.06 to 0.4 ms of CPU time per huge
    /// page, within the budget.
    pub(super) fn survey(&mut self) -> Result<Option<Survey>, ManagerError> {
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
        let found: Vec<_> = list.targets.iter().map(|target| target.id().clone()).collect();
        daemon.log.sampled(&found);
        let (stalls, order) = daemon.sample_heat(&reading, &list.targets);
        let not_sampled = stalls.iter().flatten().filter(|stalls| stalls.is_none()).count() as u64;
        let unread = daemon.unread(list.targets, stalls);
        let extent = Extent { part: Share::ALL, exact: config.policy(order).needs_exact_census() };
        let mut found = splits::survey(unread, extent, self)?;
        if !found.is_complete {
            return Ok(None);
        }
        self.daemon.remember_and_turn(&reading, &mut found.processes);
        Ok(Some(Survey { found, order, not_sampled }))
    }
}

impl<S: System> Daemon<'_, S> {
    /// Joins processes with their samples. A process that could not be sampled counts as cold.
    fn unread(
        &self,
        targets: Vec<Rc<dyn Target>>,
        mut stalls: Option<Vec<Option<Stalls>>>,
    ) -> Vec<Unread> {
        let unread = targets.into_iter().enumerate().map(|(index, target)| {
            let stalls = stalls.as_mut().map(|stalls| stalls[index].take().unwrap_or_default());
            let id = target.id();
            let (priority, weight) = (self.config.priority(id), self.config.weight_of(id));
            Unread { target, priority, weight, stalls }
        });
        unread.collect()
    }

    /// Adds the history, and lets the process after the one that was served last be first.
    fn remember_and_turn(&mut self, reading: &Reading, processes: &mut [SplitProcess]) {
        let rules = self.config.cool_down();
        for process in &mut *processes {
            let recollapses = self.history.note_census(&process.census, rules);
            process.past = self.history.past_of(&process.census);
            self.log_recollapsed(reading, process, recollapses);
        }
        let keys: Vec<_> = processes.iter().map(|one| by_start(one.target.id())).collect();
        processes.rotate_left(next_after(&keys, self.last_served));
    }

    /// Samples the stalls of each process, if the order requires heat. If use is critical, or would
    /// be before the samples are complete, or if sampling fails, the order is `exact`.
    fn sample_heat(
        &mut self,
        reading: &Reading,
        targets: &[Rc<dyn Target>],
    ) -> (Option<Vec<Option<Stalls>>>, Order) {
        let (order, marks, system) = (self.config.order, self.config.watermarks(), self.system);
        if !order.needs_heat() {
            return (None, order);
        }
        if marks.is_critical(reading) || targets.is_empty() {
            return (None, Order::Exact);
        }
        let (begun, in_time) = (system.now(), Cell::new(true));
        let end = begun + self.config.observe + AFTER_SAMPLING;
        let is_over = || {
            let now = system.now();
            let soon = system.memory().is_ok_and(|then| {
                now - begun >= LEAST_TO_JUDGE
                    && marks.will_be_critical(reading, &then, now - begun, end - now)
                    || marks.is_critical(&then)
            });
            in_time.set(!soon && system.asked() == ControlRequest::Nothing);
            !in_time.get()
        };
        match system.observe(targets, self.config.observe, &is_over) {
            Ok(stalls) if in_time.get() => (Some(stalls), order),
            _ => (None, Order::Exact),
        }
    }

    fn log_recollapsed(
        &mut self,
        reading: &Reading,
        process: &SplitProcess,
        recollapses: Recollapses,
    ) {
        let Some(example) = recollapses.example else { return };
        for sums in [&mut self.life.sums, &mut self.stretch.sums] {
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
