//! Signals that this process inherited as ignored. Programs that it starts inherit them, because
//! `nohup` and shells mark so what a program survives.
//!
//! # Safety
//! [`note`] runs before `main`, on the only thread. It passes the kernel a null for the new action,
//! so nothing changes, and writes one atomic word. Restoring sets a disposition without a handler,
//! also between fork and exec.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Last signal of Linux.
const LAST: i32 = 64;

/// Bit `n - 1` for signal `n`.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Rust's start-up ignores SIGPIPE, so the inherited state must be read before it.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let ignored = (1..=LAST).filter(|&signal| is_ignored_now(signal));
    IGNORED.store(ignored.fold(0, |set, signal| set | bit(signal)), Ordering::Relaxed);
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether `signal` was ignored when this process started.
pub fn was_ignored(signal: i32) -> bool {
    (1..=LAST).contains(&signal) && IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

fn is_ignored_now(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills in the old one. If it fails, that stays
    // zeroes, which are valid.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Restores the inherited dispositions, between fork and exec. Exec resets handlers to defaults.
pub(super) fn restore() {
    for signal in 1..=LAST {
        // SAFETY: no handler is set. The kernel rejects signals that cannot be set, such as
        // SIGKILL.
        unsafe {
            if was_ignored(signal) {
                libc::signal(signal, libc::SIG_IGN);
            } else if is_ignored_now(signal) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Stops ignoring SIGCHLD: a process that ignores it cannot read how its children ended.
pub(super) fn stop_ignoring_children() {
    if was_ignored(libc::SIGCHLD) {
        // SAFETY: no handler is set.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}
