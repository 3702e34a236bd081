//! Which signals this process was started with as ignored, for the programs that it starts: `nohup` and shells say so what a
//! program shall outlive.
//!
//! # Safety
//! [`note`] runs before `main`, on the only thread there is. It asks the kernel with a null for the new action, so that nothing is
//! changed, and writes one atomic word. Restoring sets a disposition without a handler, also between fork and exec.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last signal of Linux.
const LAST: i32 = 64;

/// Bit `n - 1` for signal `n`.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Rust's start-up ignores SIGPIPE: afterwards nobody can tell who did.
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

/// Whether it was ignored when this process began.
pub fn was_ignored(signal: i32) -> bool {
    (1..=LAST).contains(&signal) && IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

fn is_ignored_now(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills the old one in; where it fails, that stays zeroes, which are valid.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Between fork and exec: what was ignored is, and nothing else. Of handlers, exec makes defaults.
pub(super) fn restore() {
    for signal in 1..=LAST {
        // SAFETY: no handler is set. Numbers that cannot be set, such as SIGKILL, are refused.
        unsafe {
            if was_ignored(signal) {
                libc::signal(signal, libc::SIG_IGN);
            } else if is_ignored_now(signal) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// A process that ignores SIGCHLD never learns how its children ended.
pub(super) fn hear_of_children() {
    if was_ignored(libc::SIGCHLD) {
        // SAFETY: no handler is set.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}
