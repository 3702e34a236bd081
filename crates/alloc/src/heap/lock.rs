//! A lock that takes no memory and can be held across `fork`.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::os;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// Tries before sleeping: what it guards takes well below a microsecond, but for system calls.
const SPINS: u32 = 100;

/// Unlike the standard library's, it can be taken in one function and given back in another, as `fork` needs it.
#[derive(Debug)]
pub(super) struct Lock(AtomicU32);

/// The lock is held until this goes.
pub(super) struct Held<'a>(&'a Lock);

impl Lock {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits for it.
    pub(super) fn hold(&self) -> Held<'_> {
        self.lock();
        Held(self)
    }

    /// Waits for it, to be given back by [`Self::unlock`].
    pub(super) fn lock(&self) {
        if self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_slowly();
        }
    }

    /// Gives it back, which only the holder may.
    pub(super) fn unlock(&self) {
        if self.0.swap(FREE, Release) == AWAITED {
            os::wake(&self.0);
        }
    }

    #[cold]
    fn lock_slowly(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.0.load(Relaxed) == FREE && self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
        }
        while self.0.swap(AWAITED, Acquire) != FREE {
            os::sleep(&self.0, AWAITED);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
