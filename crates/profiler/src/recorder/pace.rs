//! Pace of a measurement that costs CPU time: never more than a share of a processor.

use hugepilot_kernel::clock;
use hugepilot_units::Nanos;

/// Time between two measurements for each nanosecond that one uses: a quarter percent of a
/// processor, since a recording has several measurements.
const REST: u64 = 400;

/// Clocks of a recorder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Time of slices and samples.
    pub(super) now: fn() -> Nanos,
    /// CPU time of the recorder's thread. A preempted measurement costs no more than another.
    pub(super) cpu: fn() -> Nanos,
}

impl Clocks {
    pub(super) const LIVE: Self = Self { now: clock::monotonic, cpu: clock::own_thread_cpu_time };
}

/// Times of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    shortest: Nanos,
    due: Nanos,
    last: Nanos,
}

impl Pace {
    /// Creates a pace of at least `shortest` between two measurements, the first at `start` plus
    /// that.
    pub(super) fn new(shortest: Nanos, start: Nanos) -> Self {
        Self { shortest, due: start + shortest, last: start }
    }

    /// Makes the next measurement due at `now`.
    pub(super) const fn at_once(mut self) -> Self {
        self.due = Nanos::ZERO;
        self
    }

    /// Whether a measurement is due. The last slice before the end of the process measures, too.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// Time since the last measurement.
    pub(super) fn since(&self, now: Nanos) -> Nanos {
        now - self.last
    }

    /// Notes a measurement at `now` that used `cost` of CPU time. Returns the time since the last
    /// one.
    pub(super) fn done(&mut self, now: Nanos, cost: Nanos) -> Nanos {
        let rest = Nanos::new(cost.get().saturating_mul(REST));
        // A slice that ends a little early must not wait for the next one.
        let early = Nanos::new(self.shortest.get() / 10);
        self.due = now + rest.max(self.shortest - early);
        let length = self.since(now);
        self.last = now;
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expensive_measurement_rests_longer() {
        let mut pace = Pace::new(Nanos::seconds(1), Nanos::seconds(10));
        assert!(!pace.is_due(Nanos::millis(10_500)) && pace.at_once().is_due(Nanos::ZERO));
        assert_eq!(pace.done(Nanos::seconds(11), Nanos::millis(1)), Nanos::seconds(1));
        assert!(!pace.is_due(Nanos::millis(11_800)) && pace.is_due(Nanos::seconds(12)));
        assert_eq!(pace.done(Nanos::seconds(12), Nanos::millis(50)), Nanos::seconds(1));
        assert!(!pace.is_due(Nanos::millis(31_900)), "50 ms of 20 s are a quarter percent");
        assert!(pace.is_due(Nanos::seconds(32)));
    }
}
