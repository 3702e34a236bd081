//! Work: takes the census, plans, and splits until use is below the low watermark.

mod batch;
mod survey;

use hugepilot_policy::DebloatView;
use hugepilot_record::daemon::ExhaustedCause;
use hugepilot_record::{SplitOutcome, SplitPlan};
use hugepilot_units::{Bytes, Nanos};

use self::batch::Batch;
use self::survey::ProcessCensus;
use super::{ControlRequest, Daemon, Event, World};
use crate::ManagerError;
use hugepilot_policy::daemon::Reading;
use hugepilot_policy::daemon::{by_start, key_of};

/// Splits between two reads of memory use: about 10 ms of work, and at most 64 MiB freed.
const BATCH: usize = 32;
/// Minimum interval between two `freed` lines.
const REPORT_EVERY: Nanos = Nanos::seconds(1);

/// Whether to continue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Go,
    /// Continue; time has passed.
    Waited,
    Stop,
}

impl<W: World> Daemon<'_, W> {
    /// Splits until use is below the low watermark, nothing is left to split, or a request is
    /// pending. Returns the last reading.
    pub(super) fn work(&mut self, reading: Reading) -> Result<Reading, ManagerError> {
        if let Some(cause) = self.world.forbidden() {
            return Ok(self.give_up(reading, cause));
        }
        let begun = self.world.now();
        let Some(mut survey) = self.survey(&reading)? else { return Ok(reading) };
        let reading = self.world.memory()?;
        let views: Vec<DebloatView<'_>> =
            survey.processes.iter().map(ProcessCensus::view).collect();
        let plan = self.config.policy(survey.order).plan(&views);
        self.log_planned(&reading, &survey, &plan, self.world.now() - begun);
        let processes = &mut survey.processes;
        let (freed_before, wanted) = (self.life.sums.freed_bytes, self.wanted(&reading));
        let reading = self.split_until_low(&plan, processes, reading)?;
        self.log_ended(&reading, processes);
        if !self.config.dry_run {
            self.gate.freed(self.life.sums.freed_bytes - freed_before, wanted);
        }
        let done = self.config.watermarks().is_low(&reading)
            || self.world.asked() != ControlRequest::Nothing;
        if done && !self.config.dry_run {
            return Ok(reading);
        }
        let cause = match plan.splits.len() as u64 {
            0 => ExhaustedCause::NoCandidates,
            candidates => ExhaustedCause::AllTried { candidates },
        };
        Ok(self.give_up(reading, cause))
    }

    /// Rests for a while, and logs that once. A dry run logs nothing: use does not fall, so every
    /// plan ends like this.
    fn give_up(&mut self, reading: Reading, cause: ExhaustedCause) -> Reading {
        let first = !self.gate.gave_up();
        let retry = self.gate.give_up(&reading, self.world.now());
        if first && !self.config.dry_run {
            self.log(&reading, Event::Exhausted { cause, retry_seconds: retry.as_seconds() });
        }
        reading
    }

    /// Pauses while the CPU budget is overdrawn. At or above the critical watermark it exceeds the
    /// budget instead.
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
            if self.config.watermarks().is_critical(&self.world.memory()?) {
                self.budget.forgive();
                *over_budget = true;
                return Ok(pace);
            }
            self.world.wait(pause.min(self.config.interval));
            pace = Pace::Waited;
        }
    }

    fn split_until_low(
        &mut self,
        plan: &SplitPlan,
        processes: &mut [ProcessCensus],
        reading: Reading,
    ) -> Result<Reading, ManagerError> {
        let marks = self.config.watermarks();
        let (mut reading, mut batch) = (reading, Batch::new(self.world));
        for (index, planned) in plan.splits.iter().enumerate() {
            let pace = self.pace(&mut batch.over_budget)?;
            if pace == Pace::Stop {
                break;
            }
            // In a dry run use does not fall, so only the planned bytes count.
            let is_due = !self.config.dry_run
                && (index % BATCH == 0 || pace == Pace::Waited || marks.is_low(&reading));
            if is_due {
                reading = self.world.memory()?;
            }
            if marks.is_low(&reading) {
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
            reading.used -= batch.add(planned.process, outcome);
            if self.world.now() >= batch.begun + REPORT_EVERY {
                let full = std::mem::replace(&mut batch, Batch::new(self.world));
                self.log_freed(&reading, full, processes);
            }
        }
        self.log_freed(&reading, batch, processes);
        Ok(self.world.memory()?)
    }

    /// Returns the bytes to free to reach the low watermark.
    fn wanted(&self, reading: &Reading) -> Bytes {
        reading.used - self.config.low.of(reading.limit)
    }
}
