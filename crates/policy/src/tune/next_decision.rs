//! When, and on what, the next decision about a process is made.

use hugepilot_record::{Next, Window};
use hugepilot_units::Nanos;

/// The next decision about a process, after the acts of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextDecision {
    /// Time at which it is due; `None` if nothing more can change.
    pub at: Option<Nanos>,
    /// Whether the memory is read again before.
    pub reads_memory: bool,
    /// Time at which a new window begins; `None` if this one goes on.
    pub window: Option<Nanos>,
    /// Whether the window is halved, so that old phases of the program fade.
    pub fades: bool,
}

impl NextDecision {
    /// Derives it from what was decided. `length`: of the window at `now`.
    pub fn after(next: Next, length: Nanos, now: Nanos) -> Self {
        let (at, reads_memory, window) = match next {
            Next::End => (None, false, None),
            Next::Observe(time) => (Some(now + time), true, None),
            Next::Until(time) => (Some(time.max(now)), true, None),
            Next::Peek(time) => (Some(now + time), false, None),
            Next::Renew(time) => (Some(now + time), true, Some(now)),
            Next::Restart(settle, time) => (Some(now + settle + time), false, Some(now + settle)),
        };
        let fades = reads_memory && window.is_none() && length > Window::MAX_LENGTH;
        Self { at, reads_memory, window, fades }
    }
}
