//! When the next decision about a process is due.

use hugepilot_record::{Next, ProcessId, ProcessMemory};
use hugepilot_units::Nanos;

/// When, and on what, the next decision about a process is due; never, if nothing more can change.
pub(super) struct Due {
    pub(super) at: Option<Nanos>,
    /// Whether its memory is read again before.
    pub(super) reads_memory: bool,
    /// Its memory, as last read.
    pub(super) memory: Option<(ProcessId, ProcessMemory)>,
}

impl Due {
    /// First decision, at this time.
    pub(super) const fn first(at: Nanos) -> Self {
        Self { at: Some(at), reads_memory: true, memory: None }
    }

    /// Notes when the next decision is due. Returns the time at which a new window begins, if so.
    pub(super) fn plan(&mut self, next: Next, now: Nanos) -> Option<Nanos> {
        let (at, reads_memory, window) = match next {
            Next::End => (None, false, None),
            Next::Observe(time) => (Some(now + time), true, None),
            Next::Until(time) => (Some(time.max(now)), true, None),
            Next::Peek(time) => (Some(now + time), false, None),
            Next::Renew(time) => (Some(now + time), true, Some(now)),
            Next::Restart(settle, time) => (Some(now + settle + time), false, Some(now + settle)),
        };
        (self.at, self.reads_memory) = (at, reads_memory);
        window
    }
}
