//! When the next decision about a process is due.

use hugepilot_record::{Next, ProcessId, ProcessMemory};
use hugepilot_units::Nanos;

/// Least time between two readings of the memory of a process, as a multiple of the time that a
/// reading takes: nine tenths of the time remain for other work.
const REST: u64 = 10;

/// When, and on what, the next decision about a process is due; never, if nothing more can change.
pub(super) struct Due {
    pub(super) at: Option<Nanos>,
    /// Whether its memory is read again before.
    pub(super) reads_memory: bool,
    /// Its memory, as last read.
    pub(super) memory: Option<(ProcessId, ProcessMemory)>,
    /// Time that the reading took.
    took: Nanos,
}

impl Due {
    /// First decision, at this time.
    pub(super) const fn first(at: Nanos) -> Self {
        Self { at: Some(at), reads_memory: true, memory: None, took: Nanos::ZERO }
    }

    /// Notes the memory, and the time that its reading took.
    pub(super) fn note(&mut self, id: ProcessId, memory: ProcessMemory, took: Nanos) {
        (self.memory, self.took) = (Some((id, memory)), took);
    }

    /// Notes when the next decision is due. Returns the time at which a new window begins, if so.
    pub(super) fn plan(&mut self, next: Next, now: Nanos) -> Option<Nanos> {
        let rest = Nanos::new(self.took.get().saturating_mul(REST));
        let (at, reads_memory, window) = match next {
            Next::End => (None, false, None),
            Next::Observe(time) => (Some(now + time), true, None),
            Next::Until(time) => (Some(time.max(now + rest)), true, None),
            Next::Peek(time) => (Some(now + time), false, None),
            Next::Renew(time) => (Some(now + time), true, Some(now)),
            Next::Restart(settle, time) => (Some(now + settle + time), false, Some(now + settle)),
        };
        (self.at, self.reads_memory) = (at, reads_memory);
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_takes_long_is_not_repeated_soon() {
        let mut due = Due::first(Nanos::ZERO);
        let until = |due: &mut Due, took| {
            due.took = Nanos::millis(took);
            assert_eq!(due.plan(Next::Until(Nanos::millis(1020)), Nanos::seconds(1)), None);
            due.at
        };
        assert_eq!(until(&mut due, 0), Some(Nanos::millis(1020)));
        assert_eq!(until(&mut due, 300), Some(Nanos::seconds(4)));
    }
}
