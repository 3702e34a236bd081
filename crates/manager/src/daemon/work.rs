//! Work: takes the census, plans, and splits until use is below the low watermark.

mod batch;
mod survey;

use hugepilot_policy::Order;
use hugepilot_policy::daemon::{Reading, by_start, key_of};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::{Goal, is_split};
use hugepilot_reports::daemon::ExhaustedCause;
use hugepilot_units::{Bytes, Nanos};

use self::batch::Batch;
use super::{ControlRequest, Daemon, Event, System};
use crate::ManagerError;
use crate::act::round::{DoneAct, PlannedAct, StopRule};
use crate::engine::Engine;
use crate::engine::splits::{END, SplitProcess, Splits};

/// Splits between two reads of memory use: about 10 ms of work, and at most 64 MiB freed.
const BATCH: u64 = 32;
/// Minimum interval between two `freed` lines.
const REPORT_EVERY: Nanos = Nanos::seconds(1);

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Go,
    /// Continue; time has passed.
    Waited,
    Stop,
}

/// Rule of one stretch of work: frees until use is below the low watermark, within the CPU budget.
struct Shortage<'d, 'a, S: System> {
    daemon: &'d mut Daemon<'a, S>,
    begun: Nanos,
    /// Order in use.
    order: Order,
    /// Last reading of memory use, less the memory freed since.
    reading: Reading,
    /// Memory freed before this work.
    freed_before: Bytes,
    /// Splits so far.
    splits: u64,
    batch: Batch,
    /// Whether the CPU budget was exceeded since this was last logged.
    over_budget: bool,
}

impl<S: System> Daemon<'_, S> {
    /// Splits until use is below the low watermark, nothing is left to split, or a request is
    /// pending. Returns the last reading.
    pub(super) fn work(&mut self, reading: Reading) -> Result<Reading, ManagerError> {
        if let Some(cause) = self.system.forbidden() {
            return Ok(self.give_up(reading, cause));
        }
        let mut shortage = Shortage::of(self, reading);
        let Some(targets) = shortage.targets()? else { return Ok(reading) };
        // The processes are free to be claimed, and the time is needed here.
        shortage.daemon.end_promotions()?;
        let (world, extent) = shortage.open(&targets)?;
        let mut engine = Engine::splitting(world, targets, extent, shortage);
        let Some(splits) = engine.round(END, END)? else { return Ok(reading) };
        let Engine { controller, .. } = engine;
        let (candidates, reading) = controller.rule.finish(splits)?;
        let done = self.config.watermarks().is_low(&reading)
            || self.system.asked() != ControlRequest::Nothing;
        if done && !self.config.dry_run {
            return Ok(reading);
        }
        let cause = match candidates {
            0 => ExhaustedCause::NoCandidates,
            candidates => ExhaustedCause::AllTried { candidates },
        };
        Ok(self.give_up(reading, cause))
    }

    /// Rests for a while, and logs that once. A dry run logs nothing: use does not fall, so every
    /// plan ends like this.
    fn give_up(&mut self, reading: Reading, cause: ExhaustedCause) -> Reading {
        let first = !self.scope.gate.gave_up();
        let retry = self.scope.gate.give_up(&reading, self.system.now());
        if first && !self.config.dry_run {
            self.log(&reading, Event::Exhausted { cause, retry_seconds: retry.as_seconds() });
        }
        reading
    }

    /// Pauses while the CPU budget is overdrawn. At or above the critical watermark it exceeds the
    /// budget instead.
    fn pace(&mut self, over_budget: &mut bool) -> Result<Step, ManagerError> {
        let mut step = Step::Go;
        loop {
            if self.system.asked() != ControlRequest::Nothing {
                return Ok(Step::Stop);
            }
            let pause = self.budget.pause(self.system.now(), self.system.cpu_time());
            if pause == Nanos::ZERO {
                return Ok(step);
            }
            if self.config.watermarks().is_critical(&self.system.memory()?) {
                self.budget.forgive();
                *over_budget = true;
                return Ok(step);
            }
            self.system.wait(pause.min(self.config.interval));
            step = Step::Waited;
        }
    }

    /// Returns the bytes to free to reach the low watermark.
    fn wanted(&self, reading: &Reading) -> Bytes {
        reading.used - self.config.low.of(reading.limit)
    }
}

impl<'d, 'a, S: System> Shortage<'d, 'a, S> {
    fn of(daemon: &'d mut Daemon<'a, S>, reading: Reading) -> Self {
        Self {
            begun: daemon.system.now(),
            order: daemon.config.order,
            reading,
            freed_before: daemon.life.sums.freed_bytes,
            splits: 0,
            batch: Batch::new(daemon.system),
            over_budget: false,
            daemon,
        }
    }

    /// Logs the end of the round. Returns the number of candidates, and the last reading.
    fn finish(mut self, splits: Splits) -> Result<(u64, Reading), ManagerError> {
        self.log_batch();
        let Self { daemon, freed_before, .. } = self;
        let reading = daemon.system.memory()?;
        daemon.log_ended(&reading, &splits.survey.processes);
        if !daemon.config.dry_run {
            daemon.scope.gate.freed(daemon.life.sums.freed_bytes - freed_before, splits.wanted);
        }
        let (policy, candidates) = (splits.survey.policy, splits.plan.splits.len() as u64);
        let round = JournalRound::Debloat(Box::new(splits.into_round(None)));
        daemon.log.round(&Goal::Debloat(policy), &round);
        Ok((candidates, reading))
    }

    /// Logs the splits since the last `freed` line.
    fn log_batch(&mut self) {
        let full = std::mem::replace(&mut self.batch, Batch::new(self.daemon.system));
        let over_budget = std::mem::take(&mut self.over_budget);
        self.daemon.log_freed(&self.reading, full, over_budget);
    }
}

impl<S: System> StopRule<SplitProcess> for Shortage<'_, '_, S> {
    type Error = ManagerError;

    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, ManagerError> {
        let step = self.daemon.pace(&mut self.over_budget)?;
        let (marks, dry_run) = (self.daemon.config.watermarks(), self.daemon.config.dry_run);
        let is_due = self.splits.is_multiple_of(BATCH)
            || step == Step::Waited
            || marks.is_low(&self.reading);
        // In a dry run use does not fall, so only the planned bytes count.
        if step != Step::Stop && is_due && !dry_run {
            self.reading = self.daemon.system.memory()?;
        }
        self.splits += 1;
        Ok(step != Step::Stop && !marks.is_low(&self.reading))
    }

    fn acted(&mut self, process: &SplitProcess, done: &DoneAct<'_>) {
        let DoneAct::Split(act) = done else { return };
        let (daemon, id) = (&mut *self.daemon, process.target.id());
        let now = daemon.system.now();
        if !daemon.config.dry_run {
            daemon.history.note(key_of(id), act.region, now, is_split(act));
            if is_split(act) {
                daemon.scope.last_served = Some(by_start(id));
            }
        }
        self.reading.used -= self.batch.add(process, act.outcome);
        if now >= self.batch.begun + REPORT_EVERY {
            self.log_batch();
        }
    }
}
