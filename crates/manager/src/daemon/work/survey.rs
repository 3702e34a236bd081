//! Survey: heat and census of all processes before a plan.

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{Target, TargetState, access_error};
use hugepilot_policy::{DebloatView, Order, Priority};
use hugepilot_record::daemon::{Event, ExclusionCause};
use hugepilot_record::{Census, Mapping, ProcessId, RecollapseCause, Split, SplitOutcome, Stop};
use hugepilot_units::{Nanos, Region, Share};

use super::super::{ControlRequest, Daemon, World};
use super::Pace;
use crate::ManagerError;
use crate::act::split::Splits;
use crate::debloat::census::{self, ProcessScan};
use hugepilot_policy::daemon::Reading;
use hugepilot_policy::daemon::{Recollapses, by_start, key_of, next_after};

/// Minimum time over which the rise of use is judged.
const LEAST_TO_JUDGE: Nanos = Nanos::millis(500);
/// Time between sampling and the first split: the census of a few GiB.
const AFTER_SAMPLING: Nanos = Nanos::seconds(1);

/// Stall samples of a process by region.
type Stalls = BTreeMap<Region, u32>;

/// A process with its census and its splits.
pub(super) struct ProcessCensus {
    pub(super) target: Rc<dyn Target>,
    pub(super) census: Census,
    pub(super) mappings: Vec<Mapping>,
    stalls: Option<Stalls>,
    priority: Priority,
    weight: f64,
    splits: Splits,
}

impl ProcessCensus {
    pub(super) fn view(&self) -> DebloatView<'_> {
        let (priority, weight) = (self.priority, self.weight);
        DebloatView { census: &self.census, stalls: self.stalls.as_ref(), priority, weight }
    }
    /// Splits, unless the process is excluded.
    pub(super) fn split(&mut self, planned: &Split) -> Option<SplitOutcome> {
        self.splits.split(&*self.target, planned)
    }
}

/// Census of all processes.
pub(super) struct Survey {
    pub(super) processes: Vec<ProcessCensus>,
    /// Order in use.
    pub(super) order: Order,
    pub(super) not_sampled: u64,
    pub(super) over_budget: bool,
}

impl<W: World> Daemon<'_, W> {
    /// Samples if the order requires it and there is time, then takes the census of each process,
    /// less resting regions. Returns `None` on a request. Costs 0.06 to 0.4 ms of CPU time per huge
    /// page, within the budget.
    pub(super) fn survey(&mut self, reading: &Reading) -> Result<Option<Survey>, ManagerError> {
        let world = self.world;
        self.history.keep_living(|key| world.lives(key));
        self.logged.retain(|&key| world.lives(key));
        let (mut pace, mut over_budget) = (Ok(Pace::Go), false);
        let config = self.config.clone();
        let mut each = || {
            pace = self.pace(&mut over_budget);
            matches!(pace, Ok(Pace::Go | Pace::Waited))
        };
        let list = world.processes(&config, &mut each)?;
        for (id, cause) in list.excluded {
            self.log_skipped(reading, &id, cause);
        }
        if pace? == Pace::Stop {
            return Ok(None);
        }
        let (stalls, order) = self.sample_heat(reading, &list.targets);
        let not_sampled = stalls.iter().flatten().filter(|stalls| stalls.is_none()).count() as u64;
        let exact = config.policy(order).needs_exact_census();
        let taken = self.take_census(reading, list.targets, stalls, exact, &mut over_budget)?;
        let Some(mut processes) = taken else { return Ok(None) };
        for process in &mut processes {
            let recollapses =
                self.history.filter(&mut process.census, self.world.now(), self.config.cool_down());
            self.log_recollapsed(reading, process, recollapses);
        }
        let keys: Vec<_> = processes.iter().map(|one| by_start(one.target.id())).collect();
        processes.rotate_left(next_after(&keys, self.last_served));
        Ok(Some(Survey { processes, order, not_sampled, over_budget }))
    }

    fn take_census(
        &mut self,
        reading: &Reading,
        targets: Vec<Rc<dyn Target>>,
        mut stalls: Option<Vec<Option<Stalls>>>,
        exact: bool,
        over_budget: &mut bool,
    ) -> Result<Option<Vec<ProcessCensus>>, ManagerError> {
        let mut processes = Vec::new();
        for (index, target) in targets.into_iter().enumerate() {
            let mut pace = Ok(Pace::Go);
            let mut each = |_, _| {
                pace = self.pace(over_budget);
                matches!(pace, Ok(Pace::Go | Pace::Waited))
            };
            let scan = census::take(&*target, Share::ALL, exact, &mut each);
            if pace? == Pace::Stop {
                return Ok(None);
            }
            match scan {
                Ok(scan) => {
                    // A process that could not be sampled counts as cold.
                    let stalls =
                        stalls.as_mut().map(|stalls| stalls[index].take().unwrap_or_default());
                    processes.push(self.process(target, scan, stalls));
                }
                Err(_) if matches!(target.state(), Ok(TargetState::Gone)) => {}
                Err(error) => {
                    let cause = ExclusionCause::Unreadable(access_error(&error));
                    self.log_skipped(reading, target.id(), cause);
                }
            }
        }
        Ok(Some(processes))
    }

    fn process(
        &self,
        target: Rc<dyn Target>,
        scan: ProcessScan,
        stalls: Option<Stalls>,
    ) -> ProcessCensus {
        let id = target.id();
        let (priority, weight) = (self.config.priority(id), self.config.weight_of(id));
        let ProcessScan { census, mappings } = scan;
        ProcessCensus {
            target,
            census,
            mappings,
            stalls,
            priority,
            weight,
            splits: Splits::default(),
        }
    }

    /// Samples the stalls of each process, if the order requires heat. If use is critical, or would
    /// be before the samples are complete, or if sampling fails, the order is `exact`.
    fn sample_heat(
        &mut self,
        reading: &Reading,
        targets: &[Rc<dyn Target>],
    ) -> (Option<Vec<Option<Stalls>>>, Order) {
        let (order, marks, world) = (self.config.order, self.config.watermarks(), self.world);
        if !order.needs_heat() {
            return (None, order);
        }
        if marks.is_critical(reading) || targets.is_empty() {
            return (None, Order::Exact);
        }
        let (begun, mut in_time) = (world.now(), true);
        let end = begun + self.config.observe + AFTER_SAMPLING;
        let mut each = || {
            let now = world.now();
            let soon = world.memory().is_ok_and(|then| {
                now - begun >= LEAST_TO_JUDGE
                    && marks.will_be_critical(reading, &then, now - begun, end - now)
                    || marks.is_critical(&then)
            });
            in_time = !soon && world.asked() == ControlRequest::Nothing;
            in_time
        };
        match world.observe(targets, self.config.observe, &mut each) {
            Ok(stalls) if in_time => (Some(stalls), order),
            _ => (None, Order::Exact),
        }
    }

    fn log_recollapsed(
        &mut self,
        reading: &Reading,
        process: &ProcessCensus,
        recollapses: Recollapses,
    ) {
        let Some(example) = recollapses.example else { return };
        for sums in [&mut self.life.sums, &mut self.stretch.sums] {
            sums.recollapses += recollapses.regions;
        }
        let start = example.range(process.census.sizes).start;
        let mapping = process.mappings.iter().find(|mapping| mapping.range.contains(start));
        let advised = mapping.is_some_and(|mapping| mapping.flags.has("hg"));
        let cause = match self.world.recollapse_risk(advised) {
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
    pub(super) fn log_ended(&mut self, reading: &Reading, processes: &[ProcessCensus]) {
        use Stop::{InUse, NotPermitted, RepeatedFailure, Unreadable};
        for process in processes {
            let stop = process.splits.ended();
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
