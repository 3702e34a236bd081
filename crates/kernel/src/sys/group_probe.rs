//! Test whether a signal was sent to the whole process group, as by a terminal, `kill -- -GROUP`
//! and `timeout`, or to this process alone.
//!
//! A signal has a sender, but no list of receivers. So a witness is in the group: a fork of this
//! process that blocks every signal and does nothing else. A signal to the group stays pending
//! there.
//!
//! # Safety
//! After fork, the witness only makes async-signal-safe calls, on memory made before, until it is
//! killed.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Witness in the process group. Killed on drop; dies with the thread that made it.
#[derive(Debug)]
pub struct GroupSignalProbe {
    pid: libc::pid_t,
    /// Signals that it received and [`Self::saw`] has not returned: bit `n - 1` for signal `n`.
    seen: u64,
}

impl GroupSignalProbe {
    /// Starts the witness, which receives signals to the group from now on. Costs a fork, and
    /// another after each signal.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if no process can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self { pid: fork()?, seen: 0 })
    }

    /// Returns whether it received each of `signals`, which arrived here, and then forgets them. If
    /// one signal was sent to the group and to this process alone within moments, either may be
    /// taken for the other.
    pub fn saw(&mut self, signals: &[i32]) -> Vec<bool> {
        // A sender to a group holds a lock of the kernel until all members have the signal, and
        // this call waits for that lock.
        // SAFETY: numbers only; the child stays in its group.
        unsafe { libc::setpgid(self.pid, libc::getpgrp()) };
        let pending = pending(self.pid);
        self.seen |= pending;
        if pending != 0
            && let Ok(next) = fork()
        {
            end(std::mem::replace(&mut self.pid, next));
        }
        let saw = signals.iter().map(|&signal| self.seen & bit(signal) != 0).collect();
        signals.iter().for_each(|&signal| self.seen &= !bit(signal));
        saw
    }
}

impl Drop for GroupSignalProbe {
    fn drop(&mut self) {
        end(self.pid);
    }
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns the signals that are pending for a process as a whole.
fn pending(pid: libc::pid_t) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn fork() -> io::Result<libc::pid_t> {
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises the first set, and the kernel the second. All signals are
    // blocked before the fork, so that no signal can kill the witness, and the mask is restored
    // here. The witness never returns.
    unsafe {
        let parent = libc::getpid();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let pid = libc::fork();
        if pid == 0 {
            watch(parent);
        }
        let failed = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid == -1 { Err(failed) } else { Ok(pid) }
    }
}

fn watch(parent: libc::pid_t) -> ! {
    // SAFETY: plain system calls. It closes all files, so that no reader waits for it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        while libc::getppid() == parent {
            libc::pause();
        }
        libc::_exit(0)
    }
}

fn end(pid: libc::pid_t) {
    // SAFETY: an unreaped child that no other code waits for, so no other process has its pid.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, ptr::null_mut(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_the_witness_is_returned_once() {
        let mut witness = GroupSignalProbe::new().unwrap();
        let (one, other) = (libc::SIGUSR1, libc::SIGRTMIN());
        assert_eq!(witness.saw(&[one, other]), [false, false]);
        for signal in [one, other] {
            // SAFETY: a child of this process, which blocks it.
            unsafe { libc::kill(witness.pid, signal) };
        }
        assert_eq!(witness.saw(&[libc::SIGTERM]), [false]);
        assert_eq!(witness.saw(&[one, one]), [true, true], "both arrived before the call");
        assert_eq!(witness.saw(&[one, other]), [false, true]);
        assert_eq!(witness.saw(&[one, other]), [false, false]);
    }

    #[test]
    fn the_witness_is_in_this_group_until_dropped() {
        let witness = GroupSignalProbe::new().unwrap();
        // SAFETY: numbers only.
        let groups = unsafe { [libc::getpgid(witness.pid), libc::getpgrp()] };
        assert_eq!(groups[0], groups[1]);
        let path = format!("/proc/{}", witness.pid);
        drop(witness);
        assert!(!std::path::Path::new(&path).exists());
    }
}
