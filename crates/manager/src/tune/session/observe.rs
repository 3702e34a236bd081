//! Sampling of a session outside its rounds: for the progress metric, and after the last promotion.

use std::rc::Rc;

use hugepilot_kernel::perf::counters::Counters;
use hugepilot_kernel::{Root, Unsupported};
use hugepilot_profiler::{LoadReader, ProgressReader, WorkReader};
use hugepilot_reports::tune::Activity;
use hugepilot_units::Nanos;

use super::target::{SessionTarget, count};
use super::{METRIC_VALUES, Session};
use crate::ManagerError;
use crate::engine::{TuneWorld as _, World as _};
use crate::tune::Event;

/// Time between two readings of the progress metric.
const READ_EVERY: Nanos = Nanos::millis(50);
/// Values of the progress metric that are enough for a first decision.
const MIN_METRIC_VALUES: usize = 2;
/// Targets up to which each gets counters: those of many would take all descriptors.
const MAX_COUNTED: usize = 16;

impl Session<'_> {
    /// Starts reading what the kernel counts of each target, and of the machine.
    pub(super) fn start_readers(&mut self) {
        self.start_counters();
        self.start_work();
        self.start_load();
    }

    /// Starts the hardware counters of each target.
    fn start_counters(&mut self) {
        let is_many = self.targets.len() > MAX_COUNTED;
        for target in self.targets.iter_mut().filter(|target| !target.is_excluded()) {
            let counters = Err(Unsupported::OpenFiles);
            let open = || Counters::open(&target.process).map(Rc::new);
            let counters = if is_many { counters } else { open() };
            let reading = counters.as_ref().ok().map(|counters| counters.read());
            target.counted = reading.unwrap_or_default();
            target.counters = Some(counters);
        }
    }

    /// Starts reading the work of each running target, if no progress metric was given.
    fn start_work(&mut self) {
        let is_many = self.targets.len() > MAX_COUNTED;
        let is_given = self.engine.world.progress.is_some();
        if is_many || is_given || self.options.dry_run || !self.options.find_metric {
            return;
        }
        let now = self.now();
        for target in self.targets.iter().filter(|one| !one.is_excluded() && !one.facts.launched) {
            let counters = target.counters.as_ref().and_then(|counters| counters.as_ref().ok());
            let (process, counters) = (target.process.clone(), counters.cloned());
            let reader = WorkReader::new(process, counters, self.options.goal.observe, now);
            self.engine.world.work.insert(target.pid(), reader);
        }
    }

    /// Starts reading the load of the machine beside the targets, if the gain is measured within
    /// one run.
    fn start_load(&mut self) {
        if self.options.dry_run || self.options.interleaved {
            return;
        }
        let targets = self.targets.iter().filter(|target| !target.is_excluded());
        let targets = targets.map(|target| target.process.clone()).collect();
        self.engine.world.load = Some(LoadReader::new(&Root::live(), targets, self.now()));
    }

    /// Samples until the progress metric has values before the first decision, if there is one.
    ///
    /// # Errors
    /// [`ManagerError::Ended`] if the targets ended meanwhile.
    pub fn await_first_metric(&mut self) -> Result<(), ManagerError> {
        if self.engine.world.progress.is_some() {
            let observed = self.now() + self.options.goal.observe;
            self.engine.world.observe(observed);
            self.await_metric(Nanos::ZERO, MIN_METRIC_VALUES, false);
        }
        if self.engine.world.is_any_alive() {
            return Ok(());
        }
        let name =
            |target: &SessionTarget| format!("{} ({})", target.pid(), target.facts.named.command);
        let sampled = self.targets.iter().filter(|target| !target.is_excluded());
        let names: Vec<String> = sampled.map(name).collect();
        let what = if names.len() == 1 { "process" } else { "processes" };
        Err(ManagerError::Ended { what: format!("{what} {}", names.join(", ")), status: None })
    }

    /// Measures stalls and the progress metric again, after the last promotion.
    pub fn measure_after(&mut self) {
        self.divide();
        if self.options.dry_run {
            return;
        }
        let acted =
            |target: &SessionTarget| target.facts.fold.acts().last.and(target.facts.fold.shown);
        let Some(settled) = self.targets.iter().filter_map(|one| one.facts.fold.acts().last).max()
        else {
            return;
        };
        for target in &mut self.targets {
            if let Some(Ok(counters)) = target.counters.as_ref().filter(|_| acted(target).is_some())
            {
                count(counters, &mut target.counted, &mut Activity::default());
            }
        }
        // As before the promotions, so that the samples slow down both sides alike.
        let close = self.targets.iter().filter(|target| target.is_close);
        let boosted: Vec<_> = close.filter_map(acted).collect();
        let world = &mut self.engine.world;
        world.boost(&boosted);
        let now = world.now();
        for pid in self.targets.iter().filter_map(acted) {
            world.restart(pid, now);
        }
        world.observe(now + self.options.goal.observe);
        self.measured = (!world.is_over()).then_some(now);
        for target in &mut self.targets {
            let Some(pid) = acted(target) else { continue };
            let window = world.window(pid).filter(|window| window.samples > 0);
            let Some(window) = window else { continue };
            #[allow(clippy::cast_precision_loss)]
            let stall_ratio = (window.stalled() + window.chased()) as f64 / window.samples as f64;
            let mut activity = Activity { stall_ratio: Some(stall_ratio), ..Activity::default() };
            if let Some(Ok(counters)) = &target.counters {
                count(counters, &mut target.counted, &mut activity);
            }
            target.facts.after = Some(activity);
        }
        // The first value after settling spans the promotions.
        self.await_metric(settled, METRIC_VALUES + 1, true);
    }

    /// Samples until the progress metric has `wanted` values since `from`, at most for
    /// [`TuneOptions::progress_wait`](crate::tune::TuneOptions::progress_wait).
    fn await_metric(&mut self, from: Nanos, wanted: usize, after: bool) {
        let (begin, longest) = (self.now(), self.options.progress_wait);
        while let Some(values) = self.metric(from, self.now()) {
            let found = values.len();
            let waited = self.now() - begin;
            let is_over = found >= wanted || waited >= longest;
            let world = &mut self.engine.world;
            if is_over || world.is_over() {
                break;
            }
            let warnings = world.progress.as_ref().map_or_else(Vec::new, ProgressReader::warnings);
            (world.say)(Event::AwaitingMetric { found, after, waited, longest, warnings });
            world.observe(world.now() + READ_EVERY);
        }
    }
}
