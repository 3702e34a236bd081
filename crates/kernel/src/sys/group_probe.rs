//! Whether a signal was sent to our whole process group, as a terminal, `kill -- -GROUP` and `timeout` do, or to us alone.
//!
//! A signal says who sent it, but not to whom else. So a witness is in our group: a fork of ours that has every signal blocked and
//! does nothing, so that what is sent to the group waits there to be seen.
//!
//! # Safety
//! After fork, the witness only makes async-signal-safe calls, on memory made before, until it is killed.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// The witness. Killed on drop, and dies with the thread that made it.
#[derive(Debug)]
pub struct GroupSignalProbe {
    pid: libc::pid_t,
    /// What it saw and nobody asked for: bit `n - 1` for signal `n`.
    seen: u64,
}

impl GroupSignalProbe {
    /// From now on it sees what is sent to our group. Costs a fork, and another whenever it saw something.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM when no process can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self { pid: fork()?, seen: 0 })
    }

    /// Whether it saw each of `signals`, which came to us; those, it has then forgotten. Of signals of one number that were sent
    /// to the group and to us alone within moments, either may be taken for the other.
    pub fn saw(&mut self, signals: &[i32]) -> Vec<bool> {
        // Who sends to a group holds a lock of the kernel until all of it was told, and this call waits for that lock.
        // SAFETY: numbers only; a child of ours stays in the group that it is in.
        unsafe { libc::setpgid(self.pid, libc::getpgrp()) };
        let waiting = waiting(self.pid);
        self.seen |= waiting;
        if waiting != 0
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

/// What waits for a process as a whole.
fn waiting(pid: libc::pid_t) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn fork() -> io::Result<libc::pid_t> {
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises the first set, and the kernel the second. All is blocked before the fork, so that there is
    // no moment in which the witness would die; and then as before here. The witness never returns.
    unsafe {
        let us = libc::getpid();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let pid = libc::fork();
        if pid == 0 {
            watch(us);
        }
        let failed = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid == -1 { Err(failed) } else { Ok(pid) }
    }
}

fn watch(us: libc::pid_t) -> ! {
    // SAFETY: plain system calls. It holds nothing open, so that nobody waits for it.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        while libc::getppid() == us {
            libc::pause();
        }
        libc::_exit(0)
    }
}

fn end(pid: libc::pid_t) {
    // SAFETY: a child of ours that nobody else waits for, so the number is its own until here.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, ptr::null_mut(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_to_the_witness_too_is_told_once() {
        let mut witness = GroupSignalProbe::new().unwrap();
        let (one, other) = (libc::SIGUSR1, libc::SIGRTMIN());
        assert_eq!(witness.saw(&[one, other]), [false, false]);
        for signal in [one, other] {
            // SAFETY: a child of ours, which has it blocked.
            unsafe { libc::kill(witness.pid, signal) };
        }
        assert_eq!(witness.saw(&[libc::SIGTERM]), [false]);
        assert_eq!(witness.saw(&[one, one]), [true, true], "both came before it was asked");
        assert_eq!(witness.saw(&[one, other]), [false, true]);
        assert_eq!(witness.saw(&[one, other]), [false, false]);
    }

    #[test]
    fn it_is_in_our_group_and_gone_at_the_end() {
        let witness = GroupSignalProbe::new().unwrap();
        // SAFETY: numbers only.
        let groups = unsafe { [libc::getpgid(witness.pid), libc::getpgrp()] };
        assert_eq!(groups[0], groups[1]);
        let path = format!("/proc/{}", witness.pid);
        drop(witness);
        assert!(!std::path::Path::new(&path).exists());
    }
}
