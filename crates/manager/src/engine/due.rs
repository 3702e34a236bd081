//! When the next decision about a process is due.

use hugepilot_record::{ProcessId, ProcessMemory};
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
}
