//! Runs of a comparison: warm-up, rounds, confirmation.

use std::ffi::OsString;
use std::time::Instant;

use hugepilot_kernel::Root;
use hugepilot_record::Mode;
use hugepilot_reports::compare::{
    CompareReport, Confirmation, Counts, DecidingTime, ModeReport, StallsUnavailable,
};
use hugepilot_reports::run::{CompareWarning, Effect, Run, RunWarning};
use hugepilot_stats::{Orders, in_order};

use super::contender::{Contender, summary};
use super::observe::{Counting, Sampling};
use super::{CompareOptions, ComparisonSize, Event, RoundProgress};
use crate::reach::note_reach;
use crate::run::{Control, FollowedRun, Observer, follow, pool};
use crate::{
    LaunchError, confirming_rounds, effect, pool_warning, reach_warning, to_confirm, verdict,
};

pub(super) struct Session<'a> {
    pub(super) root: Root,
    pub(super) command: &'a [OsString],
    pub(super) options: &'a CompareOptions,
    pub(super) control: Control<'a>,
    pub(super) report: CompareReport,
    pub(super) say: &'a mut dyn FnMut(Event<'_>),
}

impl Session<'_> {
    fn is_interrupted(&self) -> bool {
        self.control.interrupted.is_some_and(|interrupted| interrupted())
    }

    /// Runs `base` untimed, so that its files are in the page cache; with sampling, every mode.
    pub(super) fn warm_up(&mut self, contenders: &mut [Contender]) -> Result<(), LaunchError> {
        let mut counting = Counting::default();
        (self.say)(Event::WarmingUp(Mode::Base));
        let warm_ups = if self.options.stalls { contenders.len() } else { 1 };
        for contender in contenders.iter_mut().take(warm_ups) {
            (self.say)(Event::WarmingUp(contender.setup.mode));
            if self.options.stalls {
                let mut sampling = Sampling::default();
                self.run_unstopped(contender, &mut sampling)?;
                contender.stall_ratio = sampling.ratio();
                self.report.stalls_unavailable =
                    self.report.stalls_unavailable.take().or(sampling.unavailable);
            } else {
                self.run_unstopped(contender, &mut counting)?;
            }
            if self.is_interrupted() {
                return Err(LaunchError::Interrupted);
            }
        }
        if !self.options.stalls {
            self.report.stalls_unavailable = Some(StallsUnavailable::NotRequested);
        }
        Ok(())
    }

    /// Runs the contenders interleaved, until interrupted. An incomplete round does not count.
    pub(super) fn rounds(
        &mut self,
        contenders: &mut [Contender],
        rounds: u32,
        event: fn(Mode, u32, u32) -> Event<'static>,
    ) -> Result<(), LaunchError> {
        let started = Instant::now();
        let confirming = matches!(event(Mode::Base, 0, 0), Event::Confirming(..));
        for (round, order) in (1..=rounds).zip(Orders::rotated(contenders.len())) {
            let ran = in_order(order, |at| {
                let mode = contenders[at].setup.mode;
                (self.say)(event(mode, round, rounds));
                let (run, effect, counts) = self.run_counted(&mut contenders[at])?;
                (self.say)(Event::Ran { mode, confirming, round, run: &run });
                Ok((run, effect, counts))
            });
            let ran = match ran {
                Err(LaunchError::Interrupted) => {
                    self.report.interrupted = true;
                    return Ok(());
                }
                ran => ran?,
            };
            for (contender, (run, effect, counts)) in contenders.iter_mut().zip(ran) {
                contender.runs.push(run);
                contender.effects.push(effect);
                contender.counts.extend(counts);
            }
            let spent = started.elapsed();
            let progress = if confirming {
                RoundProgress::confirming(round, rounds, spent)
            } else {
                let size = ComparisonSize::new(contenders.len(), rounds);
                RoundProgress::new(size, round, spent)
            };
            (self.say)(Event::Round(progress));
        }
        Ok(())
    }

    /// Runs the program once, with counters of the processor.
    fn run_counted(
        &mut self,
        contender: &mut Contender,
    ) -> Result<(Run, Effect, Option<Counts>), LaunchError> {
        let mut counting = Counting::default();
        let (run, effect) = self.run_unstopped(contender, &mut counting)?;
        if self.is_interrupted() {
            return Err(LaunchError::Interrupted);
        }
        self.report.counters_unavailable = counting.unavailable.take();
        Ok((run, effect, counting.counts()))
    }

    /// Runs the program once. A run that was stopped meanwhile is discarded and repeated, because
    /// its time includes the stop.
    fn run_unstopped(
        &mut self,
        contender: &mut Contender,
        observer: &mut dyn Observer,
    ) -> Result<(Run, Effect), LaunchError> {
        let (run, effect) = self.run(contender, observer)?;
        if !run.stopped || self.is_interrupted() {
            return Ok((run, effect));
        }
        let mode = contender.setup.mode;
        self.warn_of(mode, RunWarning::RunRepeated);
        let (run, effect) = self.run(contender, observer)?;
        if run.stopped {
            self.warn_of(mode, RunWarning::RunStopped);
        }
        Ok((run, effect))
    }

    /// Runs the program once, with its pool if it has one.
    fn run(
        &mut self,
        contender: &mut Contender,
        observer: &mut dyn Observer,
    ) -> Result<(Run, Effect), LaunchError> {
        let mode = contender.setup.mode;
        let requested = self.options.pool.filter(|_| mode.uses_pool().is_some());
        let raised = requested
            .map(|bytes| pool::raise(&self.root, &mut contender.setup, bytes, self.control))
            .transpose()?;
        let followed = follow(self.command, &contender.setup, self.control, observer);
        if let Some((guard, warnings)) = raised {
            let restored = guard.map(pool::restore).unwrap_or_default();
            self.warn(warnings.into_iter().chain(restored));
        }
        let FollowedRun { run, obstacles, ended_processes } = followed?;
        if ended_processes > 0 && !self.is_interrupted() {
            self.warn_of(mode, RunWarning::ProcessesEnded);
        }
        let effect = effect(mode, &run, &obstacles);
        if let Some(warning) = pool_warning(mode, &run, &obstacles) {
            self.warn_of(mode, warning);
        }
        if let Some(warning) = reach_warning(&run, &obstacles) {
            note_reach(&mut self.report.warnings, CompareWarning { mode: Some(mode), warning });
        }
        Ok((run, effect))
    }

    fn warn_of(&mut self, mode: Mode, warning: RunWarning) {
        self.warn_once(CompareWarning { mode: Some(mode), warning });
    }

    fn warn(&mut self, warnings: impl IntoIterator<Item = RunWarning>) {
        for warning in warnings {
            self.warn_once(CompareWarning { mode: None, warning });
        }
    }

    fn warn_once(&mut self, warning: CompareWarning) {
        if !self.report.warnings.contains(&warning) {
            self.report.warnings.push(warning);
        }
    }

    /// Runs the best mode, `base` and the same allocator again, interleaved.
    pub(super) fn confirm(&mut self, contenders: &[Contender]) -> Result<(), LaunchError> {
        if self.report.interrupted {
            return Ok(());
        }
        let modes = to_confirm(&self.report).into_iter();
        let known = |mode| contenders.iter().find(|contender| contender.setup.mode == mode);
        let mut again: Vec<_> =
            modes.filter_map(known).map(|known| Contender::new(known.setup.clone())).collect();
        if again.is_empty() {
            return Ok(());
        }
        self.rounds(&mut again, confirming_rounds(self.options.rounds), Event::Confirming)?;
        if let ([_, best, plain @ ..], [base, repeated, ..]) = (&summary(&again)[..], &again[..]) {
            self.report.confirmation = Some(Confirmation::of(
                self.report.decided_by,
                best,
                plain.first(),
                &base.runs,
                &repeated.runs,
            ));
        }
        Ok(())
    }

    /// Adds the figures of each mode to the report.
    pub(super) fn sum_up(&mut self, contenders: &[Contender]) {
        let absent = std::mem::take(&mut self.report.modes);
        self.report.modes = summary(contenders).into_iter().chain(absent).collect();
        self.report.decided_by = self.report.base().map(DecidingTime::of).unwrap_or_default();
        for contender in contenders {
            self.warn(contender.setup.environment.warnings.iter().cloned());
        }
        let failures: Vec<_> = self.report.modes.iter().filter_map(failures).collect();
        failures.into_iter().for_each(|warning| self.warn_once(warning));
    }

    /// Completes the report with the verdict.
    pub(super) fn conclude(mut self) -> CompareReport {
        self.report.verdict = verdict(&self.report);
        self.report.pays = self.report.verdict.pays();
        self.report
    }
}

fn failures(mode: &ModeReport) -> Option<CompareWarning> {
    let ModeReport { failed_runs, runs, .. } = *mode;
    let warning = RunWarning::RunsFailed { failed_runs, runs };
    (failed_runs > 0).then_some(CompareWarning { mode: Some(mode.mode), warning })
}
