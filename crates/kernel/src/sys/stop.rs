//! Stopping with a child, and going on with it.
//!
//! Whoever runs a program under job control sees only us, so when the program stops, we do. A shell then continues all of its
//! job. Somebody else may continue, or kill, the program alone, and a stopped process sees nothing of that: so a keeper, a
//! fork of ours that is not stopped, looks for it.
//!
//! # Safety
//! After fork, the keeper only makes async-signal-safe calls, on memory made before, until it is killed.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr;

use hugepilot_record::Pid;

/// The keeper looks so often: 20 µs of CPU time each.
static EVERY: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Stops this process as long as `child`, which is stopped, is: until somebody continues us, or `child` goes on or ends. For
/// the main thread; does nothing where no keeper can be made. Whose SIGCONT, of those that are heard of afterwards, is its own.
pub fn stop_with(child: Pid) -> Option<Pid> {
    let stat = CString::new(format!("/proc/{child}/stat")).ok()?;
    // SAFETY: see the module: the keeper never returns. The pid is our own unreaped child; signals and numbers else.
    unsafe {
        let us = libc::getpid();
        match libc::fork() {
            -1 => None,
            0 => keep(&stat, us),
            keeper => {
                libc::raise(libc::SIGSTOP);
                libc::kill(keeper, libc::SIGKILL);
                libc::waitpid(keeper, ptr::null_mut(), 0);
                Some(Pid(keeper))
            }
        }
    }
}

/// Continues `us` when the child is not stopped, again and again: the first time may come before we have stopped.
fn keep(stat: &CStr, us: libc::pid_t) -> ! {
    // SAFETY: plain system calls; it dies with us, and is in a session of its own, so that what stops our group leaves it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setsid();
        while libc::getppid() == us {
            if !is_stopped(stat) {
                libc::kill(us, libc::SIGCONT);
            }
            libc::nanosleep(&raw const EVERY, ptr::null_mut());
        }
        libc::_exit(0)
    }
}

/// Whether the line in that file says so; where there is none, the process has ended.
fn is_stopped(stat: &CStr) -> bool {
    let mut line = [0_u8; 512];
    // SAFETY: a C string, and a live buffer of that length.
    let length = unsafe {
        let file = libc::open(stat.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, line.as_mut_ptr().cast(), line.len());
        libc::close(file);
        length
    };
    let line = line.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    // The name before it may hold anything, also a bracket.
    let name_ends = line.iter().rposition(|&byte| byte == b')');
    let state = name_ends.and_then(|at| line.get(at + 2));
    matches!(state, Some(b'T' | b't'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_behind_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stat");
        let path = CString::new(file.to_str().unwrap()).unwrap();
        for (line, stopped) in [
            ("7 (a) T 1) S 1 2", false),
            ("7 (a) S) T 1 2", true),
            ("7 (x) t 1", true),
            ("7 (x", false),
            ("", false),
        ] {
            std::fs::write(&file, line).unwrap();
            assert_eq!(is_stopped(&path), stopped, "{line}");
        }
        assert!(!is_stopped(c"/no/such/file"));
    }
}
