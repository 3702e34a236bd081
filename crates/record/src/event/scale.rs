//! Arithmetic of multiplexed events.
//!
//! If a processor has fewer counters than events, the kernel counts groups by turns. An event that
//! was enabled for `enabled_ns` and counted for `running_ns` of it is scaled by their ratio, as in
//! perf_event_open(2). That assumes that the program behaved alike while the event did not count.

use crate::recording::GroupTime;

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

    /// Returns the increase since `earlier`. A counter that was reset gives 0, never a wrapped value.
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
