//! Interleaved runs of a program: untouched, tuned, and with all memory promoted.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use hugepilot_manager::tune::{Event, TuneOptions, open, promote_where};
use hugepilot_policy::Guard;
use hugepilot_profiler::ProgressReader;
use hugepilot_record::Ending;
use hugepilot_reports::tune::{Performance, Runs, TuneReport, TuneWarning, Variant};
use hugepilot_stats::{Orders, Spread};
use hugepilot_units::Nanos;
use regex::Regex;

use crate::LaunchError;
use crate::program::LaunchedProgram;
use crate::tune::tune_launched;

/// Kinds of runs.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Whether to run it untouched.
    pub baseline: bool,
    /// Whether to run it with all memory promoted.
    pub all_huge: bool,
    /// Runs of each kind.
    pub runs: u32,
}

/// Interval between promotions in an all-huge run.
const PROMOTE_EVERY: Duration = Duration::from_millis(500);

/// Runs of one kind.
#[derive(Default)]
struct RunsOfKind {
    seconds: Vec<f64>,
    metrics: Vec<f64>,
    failed: u64,
    /// Processes that the runs left running.
    left: u64,
}

impl RunsOfKind {
    /// Notes a run that ended. One that an interruption ended has no time, and did not fail.
    fn note(&mut self, launched: &mut LaunchedProgram, interrupted: bool, time: Nanos, of: &[f64]) {
        let is_success = launched.ended().is_some_and(Ending::is_success);
        let left = launched.end_rest();
        self.left += if interrupted { 0 } else { left as u64 };
        self.add((is_success || !interrupted).then_some(time), of);
        self.failed += u64::from(!is_success && !interrupted);
    }
    fn add(&mut self, time: Option<Nanos>, metrics: &[f64]) {
        self.seconds.extend(time.map(Nanos::as_seconds));
        // Each run counts once, whatever the number of its progress metrics.
        self.metrics.extend(Spread::of(metrics).map(|spread| spread.median));
    }
    fn warnings(&self, variant: Variant) -> impl Iterator<Item = TuneWarning> {
        let (failed, runs, processes) = (self.failed, self.seconds.len() as u64, self.left);
        let failed = (failed > 0).then_some(TuneWarning::RunsFailed { variant, failed, runs });
        let left = (processes > 0).then_some(TuneWarning::ProcessesLeft { variant, processes });
        failed.into_iter().chain(left)
    }
    fn performance(&self) -> Option<Performance> {
        let (seconds, progress) = (Spread::of(&self.seconds), Spread::of(&self.metrics));
        let values = self.seconds.len().max(self.metrics.len()) as u64;
        let performance = Performance { seconds, progress, values, ..Performance::default() };
        (values > 0).then_some(performance)
    }
}

/// Runs `command` in each kind, and compares them. Each round starts with another kind.
///
/// Returns the reports on the processes of the last tuned run; the first has the performance of all
/// runs. Progress metrics read by `pattern` decide the speedup; without a pattern, wall time does.
///
/// # Errors
/// If the program cannot be started or sampled; [`LaunchError::Interrupted`] before the end of the
/// first tuned run.
pub fn compare(
    command: &[OsString],
    kinds: Kinds,
    options: &TuneOptions,
    pattern: Option<&Regex>,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<TuneReport>, LaunchError> {
    let options = TuneOptions { interleaved: kinds.baseline, ..options.clone() };
    let [mut base, mut tuned, mut huge] = std::array::from_fn(|_| RunsOfKind::default());
    let all = [
        kinds.baseline.then_some((Variant::Baseline, &mut base)),
        Some((Variant::Tuned, &mut tuned)),
        kinds.all_huge.then_some((Variant::AllHuge, &mut huge)),
    ];
    let mut all: Vec<_> = all.into_iter().flatten().collect();
    let mut last = None;
    for at in Orders::rotated(all.len()).take(kinds.runs as usize).flatten() {
        if interrupted() {
            break;
        }
        let (variant, runs) = &mut all[at];
        if *variant == Variant::Tuned {
            let mut launched = LaunchedProgram::start(command)?;
            let reader = reader(&mut launched, pattern);
            let (reports, time) =
                tune_launched(&mut launched, options.clone(), reader, interrupted, say)?;
            let tuned_by = |report: &TuneReport| Some(report.measured.tuned?.progress?.median);
            let metrics: Vec<f64> = reports.first().and_then(tuned_by).into_iter().collect();
            runs.note(&mut launched, interrupted(), time, &metrics);
            last = Some(reports);
        } else {
            let guard = (*variant == Variant::AllHuge).then_some(options.guard);
            let mut run = Run::start(command, pattern)?;
            let time = run.wait(guard.as_ref(), interrupted)?;
            let metrics = run.metrics();
            runs.note(&mut run.launched, interrupted(), time, &metrics);
        }
    }
    let warnings: Vec<_> = all.iter().flat_map(|(variant, runs)| runs.warnings(*variant)).collect();
    let mut reports = last.ok_or(LaunchError::Interrupted)?;
    if reports.is_empty() {
        return Err(LaunchError::Interrupted);
    }
    let first = reports.remove(0);
    let baseline = base.performance().or(first.measured.baseline);
    let (tuned_speed, huge_speed) = (tuned.performance(), huge.performance());
    let runs = Runs::by_medians(baseline, tuned_speed, huge_speed, options.larger_is_better);
    let first = first.with_runs(runs, warnings);
    let all = std::iter::once(first).chain(reports);
    Ok(all.map(|report| report.with_interruption(interrupted())).collect())
}

fn reader(launched: &mut LaunchedProgram, pattern: Option<&Regex>) -> Option<ProgressReader> {
    // Without a pattern, dropping the receiver drops the lines, so that they do not accumulate.
    let lines = launched.lines.take()?;
    Some(ProgressReader::lines(pattern?.clone(), lines))
}

/// A run without a sampler.
struct Run {
    launched: LaunchedProgram,
    reader: Option<ProgressReader>,
    started: Instant,
}

impl Run {
    fn start(command: &[OsString], pattern: Option<&Regex>) -> Result<Self, LaunchError> {
        let mut launched = LaunchedProgram::start(command)?;
        let reader = reader(&mut launched, pattern);
        let started = Instant::now();
        launched.release()?;
        Ok(Self { launched, reader, started })
    }

    /// Waits for its end, and returns its time. With a guard in `promote`, promotes all memory at
    /// intervals.
    fn wait(
        &mut self,
        promote: Option<&Guard>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Nanos, LaunchError> {
        let mut next = Instant::now() + PROMOTE_EVERY;
        loop {
            if let Some(reader) = &mut self.reader {
                reader.poll(self.started.elapsed().into());
            }
            if self.launched.ended().is_some() {
                self.launched.check_watched()?;
                return Ok(self.started.elapsed().into());
            }
            if interrupted() {
                self.launched.stop();
            }
            if let Some(guard) = promote.filter(|_| Instant::now() > next) {
                self.promote(guard, interrupted);
                next = Instant::now() + PROMOTE_EVERY;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn promote(&self, guard: &Guard, interrupted: &dyn Fn() -> bool) {
        // It may end, or not have started; the next promotion finds out.
        if let Ok(process) = open(self.launched.pid()) {
            let _ = promote_where(&process, &|_| true, guard, interrupted);
        }
    }

    fn metrics(&mut self) -> Vec<f64> {
        let now = self.started.elapsed().into();
        self.reader.as_mut().map_or_else(Vec::new, |reader| {
            reader.poll(now);
            reader.between(Nanos::ZERO, now + Nanos::new(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_an_end_counts_only_its_progress() {
        let mut runs = RunsOfKind::default();
        runs.add(None, &[]);
        assert_eq!(runs.performance(), None);
        runs.add(None, &[3.0, 4.0, 5.0]);
        let partial = runs.performance().unwrap();
        assert_eq!((partial.seconds, partial.values), (None, 1));
        assert_eq!(partial.progress.unwrap().median, 4.0);
        runs.add(Some(Nanos::seconds(2)), &[]);
        assert_eq!(runs.performance().unwrap().seconds.unwrap().median, 2.0);
    }
}
