//! Sampling of a session outside its rounds: for the progress metric, and after the last promotion.

use hugepilot_kernel::Target;
use hugepilot_record::tune::Activity;
use hugepilot_units::Nanos;

use super::report::count;
use super::{METRIC_VALUES, Session};
use crate::ManagerError;
use crate::engine::World;
use crate::tune::{Event, is_alive};

/// Time between two drains of the sample rings.
const DRAIN_EVERY: Nanos = Nanos::millis(50);
/// Values of the progress metric that are enough for a first decision.
const MIN_METRIC_VALUES: usize = 2;

impl Session<'_> {
    /// Samples until the progress metric has values before the first decision, if there is one.
    ///
    /// # Errors
    /// [`ManagerError::Ended`] if the target ended meanwhile.
    pub fn await_first_metric(&mut self) -> Result<(), ManagerError> {
        if self.engine.world.progress.is_some() {
            let observed = self.now() + self.options.goal.observe;
            self.engine.world.observe(observed);
            self.await_metric(Nanos::ZERO, MIN_METRIC_VALUES, false);
        }
        let process = &self.engine.world.process;
        if is_alive(process) {
            return Ok(());
        }
        let what = format!("process {} ({})", process.id().pid, process.id().command);
        Err(ManagerError::Ended { what, status: None })
    }

    /// Measures stalls and the progress metric again, after the last promotion.
    pub fn measure_after(&mut self) {
        let Some(settled) = self.fold.last_act.filter(|_| !self.options.dry_run) else { return };
        let Some(pid) = self.fold.shown else { return };
        if let Ok(counters) = &self.counters {
            count(counters, &mut self.counted, &mut Activity::default());
        }
        let world = &mut self.engine.world;
        world.boost(&[]);
        let now = world.now();
        world.restart(pid, now);
        world.observe(now + self.options.goal.observe);
        if let Some(window) = world.window(pid).filter(|window| window.samples > 0) {
            #[allow(clippy::cast_precision_loss)]
            let stall_ratio = (window.stalled() + window.chased()) as f64 / window.samples as f64;
            let mut activity = Activity { stall_ratio: Some(stall_ratio), ..Activity::default() };
            if let Ok(counters) = &self.counters {
                count(counters, &mut self.counted, &mut activity);
            }
            self.report.after = Some(activity);
        }
        // The first value after settling spans the promotions.
        self.await_metric(settled, METRIC_VALUES + 1, true);
    }

    /// Samples until the progress metric has `wanted` values since `from`, at most for
    /// [`TuneOptions::progress_wait`](crate::tune::TuneOptions::progress_wait).
    fn await_metric(&mut self, from: Nanos, wanted: usize, after: bool) {
        let end = self.now() + self.options.progress_wait;
        while let Some(values) = self.metric(from, self.now()) {
            let found = values.len();
            let is_over = found >= wanted || self.now() >= end;
            let world = &mut self.engine.world;
            if is_over || world.is_over() {
                break;
            }
            (world.say)(Event::AwaitingMetric { found, after });
            world.drain(DRAIN_EVERY);
        }
    }
}
