//! Work: takes the census, plans, and splits until use is below the low watermark.

mod batch;
mod survey;

use hugepilot_kernel::{KernelError, Target, TargetState, access_error};
use hugepilot_policy::daemon::{Reading, by_start, key_of};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::round::{Goal, is_split};
use hugepilot_record::Pid;
use hugepilot_record::daemon::{ExclusionCause, ExhaustedCause};
use hugepilot_units::{Bytes, Nanos};

use self::batch::Batch;
use super::{ControlRequest, Daemon, Event, System};
use crate::ManagerError;
use crate::act::round::{DoneAct, PlannedAct, StopRule};
use crate::engine::splits::{Pace, SplitProcess};

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

/// Frees until use is below the low watermark, within the CPU budget: the goal of one stretch of
/// work.
struct Shortage<'d, 'a, S: System> {
    daemon: &'d mut Daemon<'a, S>,
    /// Last reading of memory use, less the memory freed since.
    reading: Reading,
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
        let begun = self.system.now();
        let mut shortage = Shortage::of(self, reading);
        let Some(survey) = shortage.survey()? else { return Ok(reading) };
        shortage.reading = shortage.daemon.system.memory()?;
        let candidates = shortage.run(survey, begun)?;
        let reading = shortage.reading;
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
        let first = !self.gate.gave_up();
        let retry = self.gate.give_up(&reading, self.system.now());
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
        let batch = Batch::new(daemon.system);
        Self { daemon, reading, splits: 0, batch, over_budget: false }
    }

    /// Plans, splits and logs. Returns the number of candidates.
    fn run(&mut self, mut survey: survey::Survey, begun: Nanos) -> Result<u64, ManagerError> {
        let daemon = &mut *self.daemon;
        let (policy, planned) = (daemon.config.policy(survey.order), daemon.system.now());
        let plan = survey.found.plan(&policy, planned);
        let over_budget = std::mem::take(&mut self.over_budget);
        let took = daemon.system.now() - begun;
        daemon.log_planned(&self.reading, &survey, &plan, took, over_budget);
        let (freed_before, wanted) = (daemon.life.sums.freed_bytes, daemon.wanted(&self.reading));
        let dry_run = daemon.config.dry_run;
        self.batch = Batch::new(daemon.system);
        survey.found.split(&plan, dry_run, self)?;
        self.log_batch();
        let daemon = &mut *self.daemon;
        self.reading = daemon.system.memory()?;
        daemon.log_ended(&self.reading, &survey.found.processes);
        if !dry_run {
            daemon.gate.freed(daemon.life.sums.freed_bytes - freed_before, wanted);
        }
        let candidates = plan.splits.len() as u64;
        let round = survey.found.into_round(planned, wanted, plan, dry_run, None);
        daemon.log.round(&Goal::Debloat(policy), &JournalRound::Debloat(Box::new(round)));
        Ok(candidates)
    }

    /// Logs the splits since the last `freed` line.
    fn log_batch(&mut self) {
        let full = std::mem::replace(&mut self.batch, Batch::new(self.daemon.system));
        let over_budget = std::mem::take(&mut self.over_budget);
        self.daemon.log_freed(&self.reading, full, over_budget);
    }
}

impl<S: System> Pace for Shortage<'_, '_, S> {
    fn may_read(&mut self, _: Pid, _: u64, _: u64) -> Result<bool, ManagerError> {
        Ok(self.daemon.pace(&mut self.over_budget)? != Step::Stop)
    }

    fn exclude(&mut self, target: &dyn Target, error: KernelError) -> Result<(), ManagerError> {
        if !matches!(target.state(), Ok(TargetState::Gone)) {
            let cause = ExclusionCause::Unreadable(access_error(&error));
            self.daemon.log_skipped(&self.reading, target.id(), cause);
        }
        Ok(())
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
                daemon.last_served = Some(by_start(id));
            }
        }
        self.reading.used -= self.batch.add(process, act.outcome);
        if now >= self.batch.begun + REPORT_EVERY {
            self.log_batch();
        }
    }
}
