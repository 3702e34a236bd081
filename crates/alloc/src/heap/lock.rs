//! A lock that takes no memory, and can be taken from a holder who is not there after `fork`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::os;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// Tries before sleeping: what it guards takes well below a microsecond, but for system calls.
const SPINS: u32 = 100;

/// Unlike the standard library's, it can be given up in a child.
#[derive(Debug)]
pub(super) struct Lock(AtomicU32);

/// The lock is held until this goes.
pub(super) struct LockGuard<'a>(&'a Lock);

impl Lock {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits for it.
    pub(super) fn lock(&self) -> LockGuard<'_> {
        if self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_slowly();
        }
        LockGuard(self)
    }

    /// Frees it in a child, in which its holder is not there. Whether it was held.
    pub(super) fn reset(&self) -> bool {
        self.0.swap(FREE, Acquire) != FREE
    }

    #[cold]
    fn lock_slowly(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.0.load(Relaxed) == FREE
                && self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
            {
                return;
            }
        }
        while self.0.swap(AWAITED, Acquire) != FREE {
            os::sleep(&self.0, AWAITED);
        }
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Release) == AWAITED {
            os::wake(&self.0.0);
        }
    }
}
