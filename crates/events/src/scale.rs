//! Arithmetic of multiplexed events.
//!
//! If a processor has fewer counters than events, the kernel counts groups by turns. An event that
//! was enabled for `enabled_ns` and counted for `running_ns` of it is scaled by their ratio, as in
//! perf_event_open(2). That assumes that the program behaved alike while the event did not count.

use hugepilot_record::GroupTime;

/// Value of an event with its times, since it was opened or within a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventReading {
    /// Value as counted, not scaled.
    pub value: u64,
    /// Times of the event.
    pub time: GroupTime,
}

/// Certainty of a scaled value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// The event counted all of the time.
    Exact,
    /// The event counted part of the time, at least [`EventReading::FEW`].
    Scaled,
    /// The event counted less of the time: the value may be far off.
    Uncertain,
    /// The event was enabled, but never counted.
    Missing,
}

impl EventReading {
    /// Share of the time below which a scaled value is uncertain.
    pub const FEW: f64 = 0.1;

    /// Returns the increase since `earlier`; 0 if the counter was reset, never a wrapped value.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            value: self.value.saturating_sub(earlier.value),
            time: GroupTime {
                enabled_ns: self.time.enabled_ns.saturating_sub(earlier.time.enabled_ns),
                running_ns: self.time.running_ns.saturating_sub(earlier.time.running_ns),
            },
        }
    }

    /// Returns the sum with the reading of another thread or unit.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            value: self.value.saturating_add(other.value),
            time: GroupTime {
                enabled_ns: self.time.enabled_ns.saturating_add(other.time.enabled_ns),
                running_ns: self.time.running_ns.saturating_add(other.time.running_ns),
            },
        }
    }

    /// Returns the larger value and the longer times of both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            value: self.value.max(other.value),
            time: GroupTime {
                enabled_ns: self.time.enabled_ns.max(other.time.enabled_ns),
                running_ns: self.time.running_ns.max(other.time.running_ns),
            },
        }
    }

    /// Returns the value scaled to all of the time, rounded down; `None` if the event was enabled
    /// but never counted.
    pub fn scaled(self) -> Option<u64> {
        let GroupTime { enabled_ns, running_ns } = self.time;
        // More running than enabled cannot be; a value is never scaled down.
        if running_ns >= enabled_ns {
            return Some(self.value);
        }
        let all = u128::from(self.value) * u128::from(enabled_ns);
        let scaled = all.checked_div(u128::from(running_ns))?;
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Returns how certain the scaled value is.
    pub fn certainty(self) -> Certainty {
        match self.coverage() {
            None => Certainty::Exact,
            Some(0.0) => Certainty::Missing,
            Some(share) if share < Self::FEW => Certainty::Uncertain,
            Some(share) if share < 1.0 => Certainty::Scaled,
            Some(_) => Certainty::Exact,
        }
    }

    /// Returns the share of the enabled time in which the event counted; `None` if it was not
    /// enabled, as for a thread that slept.
    #[allow(clippy::cast_precision_loss)]
    pub fn coverage(self) -> Option<f64> {
        let GroupTime { enabled_ns, running_ns } = self.time;
        (enabled_ns > 0).then(|| (running_ns as f64 / enabled_ns as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(value: u64, enabled_ns: u64, running_ns: u64) -> EventReading {
        EventReading { value, time: GroupTime { enabled_ns, running_ns } }
    }

    #[test]
    fn certainty_follows_the_share_of_time() {
        let table = [
            (0, 0, Certainty::Exact, Some(600)),
            (1000, 1000, Certainty::Exact, Some(600)),
            (1000, 500, Certainty::Scaled, Some(1200)),
            (1000, 100, Certainty::Scaled, Some(6000)),
            (1000, 99, Certainty::Uncertain, Some(6060)),
            (1000, 0, Certainty::Missing, None),
        ];
        for (enabled, running, certainty, scaled) in table {
            let reading = reading(600, enabled, running);
            assert_eq!((reading.certainty(), reading.scaled()), (certainty, scaled), "{reading:?}");
        }
    }

    #[test]
    fn a_reset_counter_gives_nothing_and_the_largest_one_does_not_wrap() {
        let none = reading(5, 10, 10).since(reading(6, 11, 12));
        assert_eq!(none, EventReading::default());
        assert_eq!(reading(u64::MAX, u64::MAX, 1).scaled(), Some(u64::MAX));
        let most = reading(u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(most.plus(most), most);
    }

    proptest! {
        #[test]
        fn a_count_of_all_the_time_is_exact(value: u64, time: u64) {
            prop_assert_eq!(reading(value, time, time).scaled(), Some(value));
        }

        #[test]
        fn more_events_or_less_time_never_scale_to_less(
            value: u64, more: u64, enabled: u64, running: u64, less: u64,
        ) {
            let (running, less) = (running.max(1), (less % running.max(1)).max(1));
            let scaled = |value, running| reading(value, enabled, running).scaled().unwrap();
            prop_assert!(scaled(value.max(more), running) >= scaled(value.min(more), running));
            prop_assert!(scaled(value, less) >= scaled(value, running));
            prop_assert!(scaled(value, running) >= value);
        }

        #[test]
        fn scaling_is_within_one_event_of_the_quotient(
            value in 0_u64..1 << 50, enabled in 1_u64..1 << 50, running in 1_u64..1 << 50,
        ) {
            prop_assume!(running < enabled);
            let exact = value as f64 * (enabled as f64 / running as f64);
            let scaled = reading(value, enabled, running).scaled().unwrap() as f64;
            prop_assume!(exact < 1e18);
            prop_assert!((scaled - exact).abs() <= 1.0 + exact * 1e-12, "{scaled} {exact}");
        }

        #[test]
        fn slices_add_up_to_the_whole(
            values in proptest::collection::vec((0_u64..1 << 40, 0_u64..1 << 40), 1..20),
        ) {
            let mut total = EventReading::default();
            let mut sum = EventReading::default();
            for (value, time) in values {
                let before = total;
                total = total.plus(reading(value, time, time / 2));
                sum = sum.plus(total.since(before));
            }
            prop_assert_eq!(sum, total);
        }
    }
}
