//! Job control: stops and continues this process with a child.
//!
//! A shell that runs a program under job control sees only hugepilot, so when the program stops,
//! hugepilot stops. The shell then continues all of its job. Another process may continue, or kill,
//! the program alone, and a stopped process cannot notice that. So a keeper, a fork that is not
//! stopped, polls the state of the program.
//!
//! # Safety
//! After fork, the keeper only makes async-signal-safe calls, on memory made before, until it is
//! killed.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr;

use hugepilot_record::Pid;

/// Interval of the keeper's polls, each of which takes 20 µs of CPU time.
static INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Stops this process as long as `child` is stopped: until another process continues this one, or
/// `child` continues or ends. For the main thread. Does nothing if no keeper can be made. Returns
/// the pid of the keeper, whose SIGCONT may still arrive afterwards.
pub fn stop_with(child: Pid) -> Option<Pid> {
    let stat = CString::new(format!("/proc/{child}/stat")).ok()?;
    // SAFETY: see the module: the keeper never returns. The pid is an unreaped child of this
    // process; the other arguments are signals and numbers.
    unsafe {
        let parent = libc::getpid();
        match libc::fork() {
            -1 => None,
            0 => keep(&stat, parent),
            keeper => {
                libc::raise(libc::SIGSTOP);
                libc::kill(keeper, libc::SIGKILL);
                libc::waitpid(keeper, ptr::null_mut(), 0);
                Some(Pid(keeper))
            }
        }
    }
}

/// Continues `parent` when the child is not stopped, repeatedly: the first time may come before the
/// parent has stopped.
fn keep(stat: &CStr, parent: libc::pid_t) -> ! {
    // SAFETY: plain system calls. The keeper dies with its parent, and is in a session of its own,
    // so that a stop of the parent's group does not stop it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setsid();
        while libc::getppid() == parent {
            if !is_stopped(stat) {
                libc::kill(parent, libc::SIGCONT);
            }
            libc::nanosleep(&raw const INTERVAL, ptr::null_mut());
        }
        libc::_exit(0)
    }
}

/// Whether the line in that file shows a stopped process; false if the process has ended.
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
    // The name before the state may hold anything, also a bracket.
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
