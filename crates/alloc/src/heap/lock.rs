//! Lock that needs no allocation and can be reset in a child after `fork`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::os;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const AWAITED: u32 = 2;

/// Attempts before sleeping. Critical sections take some µs at most, except system calls and first
/// touches of memory.
const SPINS: u32 = 100;

/// Futex lock; a child can reset it, unlike the standard library's.
#[derive(Debug)]
pub(super) struct Lock(AtomicU32);

/// Holds the lock until it is dropped.
pub(super) struct LockGuard<'a>(&'a Lock);

impl Lock {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Acquires the lock.
    pub(super) fn lock(&self) -> LockGuard<'_> {
        if self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_slowly();
        }
        LockGuard(self)
    }

    /// Frees the lock in a child, where its holder does not exist. Returns whether it was held.
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
