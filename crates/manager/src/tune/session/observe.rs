//! Sampling of a session: before the plans, between rounds, and after the last promotion.

use hugepilot_kernel::Target;
use hugepilot_policy::sampled_speedup;
use hugepilot_profiler::Observation;
use hugepilot_record::tune::Activity;
use hugepilot_units::Nanos;

use super::report::{count, share};
use super::{METRIC_VALUES, Session};
use crate::ManagerError;
use crate::tune::{Event, is_alive};

/// Time between two drains of the sample rings.
const DRAIN_EVERY: Nanos = Nanos::millis(50);
/// Time between two searches for new threads.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);
/// Values of the progress metric that are enough for a first plan.
const MIN_METRIC_VALUES: usize = 2;

impl Session<'_> {
    /// Samples for `time`, until interrupted, or until the target ends.
    pub fn observe(&mut self, time: Nanos) {
        self.observe_while(time, &mut || true);
    }

    /// Samples as [`Session::observe`] does, as long as `wanted`.
    pub fn observe_while(&mut self, time: Nanos, wanted: &mut dyn FnMut() -> bool) {
        let end = self.now() + time;
        while self.now() < end && wanted() && !(self.interrupted)() && is_alive(&self.process) {
            self.drain(DRAIN_EVERY.min(end - self.now()));
        }
    }

    /// Samples before the first plan, longer if the progress metric has too few values.
    ///
    /// # Errors
    /// [`ManagerError::Ended`] if the target ended meanwhile.
    pub fn observe_first(&mut self) -> Result<(), ManagerError> {
        self.observe(self.options.observe);
        self.await_metric(Nanos::ZERO, MIN_METRIC_VALUES, false);
        if is_alive(&self.process) {
            return Ok(());
        }
        let what = format!("process {} ({})", self.process.id().pid, self.process.id().command);
        Err(ManagerError::Ended { what, status: None })
    }

    fn drain(&mut self, wait: Nanos) {
        let observation = &mut self.observation;
        self.chosen.source.drain(wait, &mut |sample| observation.add(&sample));
        for pid in self.chosen.source.execs() {
            self.forget(pid);
        }
        let now = self.now();
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            let _ = self.chosen.source.rescan(&self.process);
            (self.say)(Event::Observing { samples: self.chosen.source.counts().total() });
        }
        if let Some(progress) = &mut self.progress {
            progress.poll(now);
        }
    }

    /// Measures stalls and the progress metric again, after the last promotion.
    pub fn measure_after(&mut self) {
        let Some(settled) = self.last_act.filter(|_| !self.options.dry_run) else { return };
        let pid = self.report.target.pid;
        if let Ok(counters) = &self.counters {
            count(counters, &mut self.counted, &mut Activity::default());
        }
        self.drain(Nanos::ZERO);
        let planned_on =
            std::mem::replace(&mut self.observation, Observation::new(self.process.sizes()));
        self.observe(self.options.observe);
        let seen = std::mem::replace(&mut self.observation, planned_on);
        if let Some(after) = seen.of(pid).map(share) {
            let mut activity = Activity { stall_ratio: after.ratio(), ..Activity::default() };
            if let Ok(counters) = &self.counters {
                count(counters, &mut self.counted, &mut activity);
            }
            self.report.after = Some(activity);
            let target = self.target(pid).ok().filter(|_| self.chosen.samples_time);
            let tuned = target.and_then(|target| self.spaces.known(target.id()));
            self.report.sampled_speedup =
                tuned.and_then(|tuned| sampled_speedup(tuned.untouched, after));
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
            if is_over || (self.interrupted)() || !is_alive(&self.process) {
                break;
            }
            (self.say)(Event::AwaitingMetric { found, after });
            self.drain(DRAIN_EVERY);
        }
    }
}
