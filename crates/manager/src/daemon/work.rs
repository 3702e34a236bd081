//! One piece of work: look through the huge pages, plan, split until use is below the low mark.

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{Target, TargetState};
use hugepilot_policy::{DebloatView, Order, Priority};
use hugepilot_record::daemon::{Event, ProcessFreed};
use hugepilot_record::{Census, Mapping, Split, SplitOutcome, SplitPlan, Stop};
use hugepilot_units::{Bytes, Nanos, Region, Share};

use super::history::{Recollapses, by_start, key_of, next_after};
use super::watermark::Reading;
use super::{ControlRequest, Daemon};
use crate::ManagerError;
use crate::act::split::{Splits, count};
use crate::debloat::census;
use hugepilot_kernel::describe;

/// After so many splits memory use is read again: about 10 ms of work, and at most 64 MiB freed.
const BATCH: usize = 32;
/// What was freed is logged no more often than this.
const REPORT_EVERY: Nanos = Nanos::seconds(1);

/// How fast use rises is judged after this much time.
const LEAST_TO_JUDGE: Nanos = Nanos::millis(500);
/// Between sampling and the first split: the census of a few GiB.
const AFTER_SAMPLING: Nanos = Nanos::seconds(1);

/// How often a process waited for each of its regions.
type Stalls = BTreeMap<Region, u32>;

/// A process and its huge pages.
struct ProcessCensus {
    target: Rc<dyn Target>,
    census: Census,
    mappings: Vec<Mapping>,
    stalls: Option<Stalls>,
    priority: Priority,
    weight: f64,
    splits: Splits,
}

impl ProcessCensus {
    fn view(&self) -> DebloatView<'_> {
        let (priority, weight) = (self.priority, self.weight);
        DebloatView { census: &self.census, stalls: self.stalls.as_ref(), priority, weight }
    }
    /// Splits, unless it is to be left alone.
    fn split(&mut self, planned: &Split) -> Option<SplitOutcome> {
        self.splits.split(&*self.target, planned)
    }
}

/// What a look at all huge pages found.
struct Survey {
    processes: Vec<ProcessCensus>,
    /// The order that can be had.
    order: Order,
    not_sampled: u64,
    over_budget: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Go,
    /// Go on, but time has passed.
    Waited,
    Stop,
}

/// What was done since the last line about it.
struct Batch {
    now: Nanos,
    cpu: Nanos,
    of: BTreeMap<usize, (Bytes, u64)>,
    skipped: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
    over_budget: bool,
}

impl Batch {
    fn add(&mut self, process: usize, outcome: SplitOutcome) -> Bytes {
        let Some(bytes) = count(outcome, &mut self.skipped, &mut self.failed) else {
            return Bytes::ZERO;
        };
        let sum = self.of.entry(process).or_default();
        *sum = (sum.0 + bytes, sum.1 + 1);
        bytes
    }
    fn is_empty(&self) -> bool {
        self.of.is_empty() && self.skipped.is_empty() && self.failed.is_empty()
    }
}

impl Daemon<'_> {
    /// Splits until use is below the low mark, nothing is left to split, or the user wants something. Returns the last look.
    pub(super) fn work(&mut self, seen: Reading) -> Result<Reading, ManagerError> {
        if let Some(why) = self.world.forbidden() {
            return Ok(self.give_up(seen, why));
        }
        let begun = self.world.now();
        let Some(mut survey) = self.survey(&seen)? else { return Ok(seen) };
        let seen = self.world.memory()?;
        let views: Vec<DebloatView<'_>> =
            survey.processes.iter().map(ProcessCensus::view).collect();
        let plan = self.config.policy(survey.order).plan(&views);
        self.say_planned(&seen, &survey, &plan, self.world.now() - begun);
        let processes = &mut survey.processes;
        let (freed_before, wanted) = (self.life.sums.freed_bytes, self.wanted(&seen));
        let seen = self.split_until_low(&plan, processes, seen)?;
        self.say_left(&seen, processes);
        if !self.config.dry_run {
            self.gate.freed(self.life.sums.freed_bytes - freed_before, wanted);
        }
        let done =
            self.config.marks().is_low(&seen) || self.world.asked() != ControlRequest::Nothing;
        if done && !self.config.dry_run {
            return Ok(seen);
        }
        let why = match plan.splits.len() {
            0 => "no huge page is zero-filled enough, or may be split now".to_owned(),
            tried => format!("all {tried} huge pages that could be split were tried"),
        };
        Ok(self.give_up(seen, why))
    }

    /// Rests for a while. Says so once; in a dry run there is nothing to say: use does not fall, so this is the usual end.
    fn give_up(&mut self, seen: Reading, why: String) -> Reading {
        let first = !self.gate.gave_up();
        let retry = self.gate.give_up(&seen, self.world.now());
        if first && !self.config.dry_run {
            self.say(&seen, Event::Exhausted { why, retry_seconds: retry.as_seconds() });
        }
        seen
    }

    /// Waits while the CPU budget is overdrawn; at or above the critical mark it is exceeded instead.
    fn pace(&mut self, over_budget: &mut bool) -> Result<Pace, ManagerError> {
        let mut pace = Pace::Go;
        loop {
            if self.world.asked() != ControlRequest::Nothing {
                return Ok(Pace::Stop);
            }
            let pause = self.budget.pause(self.world.now(), self.world.cpu_time());
            if pause == Nanos::ZERO {
                return Ok(pace);
            }
            if self.config.marks().is_critical(&self.world.memory()?) {
                self.budget.forgive();
                *over_budget = true;
                return Ok(pace);
            }
            self.world.wait(pause.min(self.config.interval));
            pace = Pace::Waited;
        }
    }

    /// Samples where the order wants it and there is time, then takes every census, less what rests. `None` when the user wants
    /// something. Costs 0.06 to 0.4 ms of CPU for each huge page, within the budget.
    fn survey(&mut self, seen: &Reading) -> Result<Option<Survey>, ManagerError> {
        let world = self.world;
        self.history.keep_living(|key| world.lives(key));
        self.told.retain(|&key| world.lives(key));
        let (mut pace, mut over_budget) = (Ok(Pace::Go), false);
        let config = self.config.clone();
        let mut each = || {
            pace = self.pace(&mut over_budget);
            matches!(pace, Ok(Pace::Go | Pace::Waited))
        };
        let found = world.processes(&config, &mut each)?;
        for (id, why) in found.left {
            self.say_skipped(seen, &id, why);
        }
        if pace? == Pace::Stop {
            return Ok(None);
        }
        let (mut stalls, order) = self.look_for_heat(seen, &found.targets);
        let not_sampled = stalls.iter().flatten().filter(|stalls| stalls.is_none()).count() as u64;
        let exact = config.policy(order).needs_exact_census();
        let mut processes = Vec::new();
        for (index, target) in found.targets.into_iter().enumerate() {
            let mut pace = Ok(Pace::Go);
            let mut each = |_, _| {
                pace = self.pace(&mut over_budget);
                matches!(pace, Ok(Pace::Go | Pace::Waited))
            };
            let taken = census::take(&*target, Share::ALL, exact, &mut each);
            if pace? == Pace::Stop {
                return Ok(None);
            }
            match taken {
                Ok(taken) => {
                    // One that could not be sampled counts as cold.
                    let stalls =
                        stalls.as_mut().map(|stalls| stalls[index].take().unwrap_or_default());
                    processes.push(self.process(target, taken, stalls));
                }
                Err(_) if matches!(target.state(), Ok(TargetState::Gone)) => {}
                Err(error) => self.say_skipped(seen, target.id(), describe(&error)),
            }
        }
        for process in &mut processes {
            let recollapses =
                self.history.filter(&mut process.census, self.world.now(), self.config.rules());
            self.say_recollapsed(seen, process, recollapses);
        }
        let keys: Vec<_> = processes.iter().map(|one| by_start(one.target.id())).collect();
        processes.rotate_left(next_after(&keys, self.last_served));
        Ok(Some(Survey { processes, order, not_sampled, over_budget }))
    }

    fn process(
        &self,
        target: Rc<dyn Target>,
        taken: census::Found,
        stalls: Option<Stalls>,
    ) -> ProcessCensus {
        let id = target.id();
        let (priority, weight) = (self.config.priority(id), self.config.weight_of(id));
        let census::Found { census, mappings } = taken;
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

    /// How often each process waited for each of its regions, where the order wants to know that. Nobody waits for
    /// samples while use is critical or would be before they are there, and where they may not be taken the next best order does without.
    fn look_for_heat(
        &mut self,
        seen: &Reading,
        targets: &[Rc<dyn Target>],
    ) -> (Option<Vec<Option<Stalls>>>, Order) {
        let (order, marks, world) = (self.config.order, self.config.marks(), self.world);
        if !order.needs_heat() {
            return (None, order);
        }
        if marks.is_critical(seen) || targets.is_empty() {
            return (None, Order::Exact);
        }
        let (begun, mut in_time) = (world.now(), true);
        let end = begun + self.config.observe + AFTER_SAMPLING;
        let mut each = || {
            let now = world.now();
            let soon = world.memory().is_ok_and(|then| {
                now - begun >= LEAST_TO_JUDGE
                    && marks.will_be_critical(seen, &then, now - begun, end - now)
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

    fn split_until_low(
        &mut self,
        plan: &SplitPlan,
        processes: &mut [ProcessCensus],
        seen: Reading,
    ) -> Result<Reading, ManagerError> {
        let marks = self.config.marks();
        let (mut seen, mut batch) = (seen, self.batch());
        for (turn, planned) in plan.splits.iter().enumerate() {
            let pace = self.pace(&mut batch.over_budget)?;
            if pace == Pace::Stop {
                break;
            }
            // Where nothing is really split, use does not fall: then what would be freed is reckoned with alone.
            let look = !self.config.dry_run
                && (turn % BATCH == 0 || pace == Pace::Waited || marks.is_low(&seen));
            if look {
                seen = self.world.memory()?;
            }
            if marks.is_low(&seen) {
                break;
            }
            let process = &mut processes[planned.process];
            let outcome = if self.config.dry_run {
                Some(SplitOutcome::Freed(planned.frees))
            } else {
                process.split(planned)
            };
            let Some(outcome) = outcome else { continue };
            if !self.config.dry_run {
                let split = matches!(outcome, SplitOutcome::Freed(_));
                let key = key_of(process.target.id());
                self.history.note(key, planned.region, self.world.now(), split);
                if split {
                    self.last_served = Some(by_start(process.target.id()));
                }
            }
            seen.used -= batch.add(planned.process, outcome);
            if self.world.now() >= batch.now + REPORT_EVERY {
                let full = std::mem::replace(&mut batch, self.batch());
                self.say_freed(&seen, full, processes);
            }
        }
        self.say_freed(&seen, batch, processes);
        Ok(self.world.memory()?)
    }

    fn batch(&self) -> Batch {
        Batch {
            now: self.world.now(),
            cpu: self.world.cpu_time(),
            of: BTreeMap::new(),
            skipped: BTreeMap::new(),
            failed: BTreeMap::new(),
            over_budget: false,
        }
    }

    /// What must be freed to come below the low mark.
    fn wanted(&self, seen: &Reading) -> Bytes {
        seen.used - self.config.low.of(seen.limit)
    }

    fn say_planned(&mut self, seen: &Reading, survey: &Survey, plan: &SplitPlan, took: Nanos) {
        let planned = Event::Planned {
            order: survey.order.name().to_owned(),
            processes: survey.processes.len() as u64,
            not_sampled: survey.not_sampled,
            huge_pages: survey.processes.iter().map(|process| process.census.huge_pages).sum(),
            unread_huge_pages: survey
                .processes
                .iter()
                .map(|process| process.census.unread_pages)
                .sum(),
            candidates: plan.splits.len() as u64,
            reclaimable_bytes: plan.splits.iter().map(|split| split.frees).sum(),
            requested_bytes: self.wanted(seen),
            skipped: plan
                .skipped
                .iter()
                .map(|(reason, &count)| (reason.to_string(), count))
                .collect(),
            seconds: took.as_seconds(),
            over_budget: survey.over_budget,
        };
        self.say(seen, planned);
    }

    fn say_freed(&mut self, seen: &Reading, batch: Batch, processes: &[ProcessCensus]) {
        if batch.is_empty() {
            return;
        }
        let shares = batch.of.iter().map(|(&process, &(freed_bytes, huge_pages_split))| {
            let id = processes[process].target.id();
            ProcessFreed { pid: id.pid, command: id.command.clone(), freed_bytes, huge_pages_split }
        });
        let shares: Vec<ProcessFreed> = shares.collect();
        let freed_bytes = shares.iter().map(|share| share.freed_bytes).sum();
        let huge_pages_split = shares.iter().map(|share| share.huge_pages_split).sum();
        for sums in [&mut self.life.sums, &mut self.stretch.sums] {
            sums.freed_bytes += freed_bytes;
            sums.huge_pages_split += huge_pages_split;
        }
        let recollapse_risk = self.khugepaged(&batch, processes);
        let freed = Event::Freed {
            freed_bytes,
            huge_pages_split,
            skipped: batch.skipped,
            failed: batch.failed,
            processes: shares,
            seconds: (self.world.now() - batch.now).as_seconds(),
            cpu_seconds: (self.world.cpu_time() - batch.cpu).as_seconds(),
            over_budget: batch.over_budget,
            recollapse_risk,
        };
        self.say(seen, freed);
    }

    /// Why khugepaged may undo what was split; only the first time that there is a reason.
    fn khugepaged(&mut self, batch: &Batch, processes: &[ProcessCensus]) -> Option<String> {
        if self.warned || batch.of.is_empty() {
            return None;
        }
        let asked = |process: &usize| {
            processes[*process].mappings.iter().any(|mapping| mapping.flags.has("hg"))
        };
        let cause = self.world.khugepaged(batch.of.keys().any(asked));
        self.warned = cause.is_some();
        cause
    }

    fn say_recollapsed(
        &mut self,
        seen: &Reading,
        process: &ProcessCensus,
        recollapses: Recollapses,
    ) {
        let Some(example) = recollapses.example else { return };
        for sums in [&mut self.life.sums, &mut self.stretch.sums] {
            sums.recollapses += recollapses.regions;
        }
        let start = example.range(process.census.sizes).start;
        let mapping = process.mappings.iter().find(|mapping| mapping.range.contains(start));
        let cause =
            self.world.who_collapses(mapping.is_some_and(|mapping| mapping.flags.has("hg")));
        let id = process.target.id();
        let recollapsed = Event::Recollapsed {
            pid: id.pid,
            command: id.command.clone(),
            regions: recollapses.regions,
            excluded: recollapses.excluded,
            cause,
        };
        self.say(seen, recollapsed);
    }

    /// Processes that give nothing: not permitted, or the same failure all the time.
    fn say_left(&mut self, seen: &Reading, processes: &[ProcessCensus]) {
        for process in processes {
            let stop = process.splits.ended();
            use Stop::{InUse, NotPermitted, RepeatedFailure, Unreadable};
            if let Some(stop @ (NotPermitted | RepeatedFailure | Unreadable | InUse)) = stop {
                self.say_skipped(seen, process.target.id(), stop.to_string());
            }
        }
    }

    fn say_skipped(&mut self, seen: &Reading, id: &hugepilot_record::ProcessId, why: String) {
        if self.told.insert(key_of(id)) {
            self.say(seen, Event::Skipped { pid: id.pid, command: id.command.clone(), why });
        }
    }
}
