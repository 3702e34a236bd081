//! Life of the warden: it waits for a request, then ends all children.
//!
//! # Safety
//! The warden only makes async-signal-safe calls, on its stack and on memory made before the fork,
//! until it exits.
#![allow(unsafe_code)]

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use hugepilot_record::Errno;

use super::{GRACE, MAX_STAT, StatusChange};
use crate::sys::last_errno;

/// Interval in which the warden lists its children while it ends them, milliseconds.
const INTERVAL: libc::c_int = 10;
/// Children that it remembers to have signalled.
const MAX_SIGNALLED: usize = 128;

/// Its ends of the pipe of requests and of the pipe of reports.
const CONTROL: RawFd = 0;
const RECORDS: RawFd = 1;

/// State of the warden.
struct Watch {
    program: libc::pid_t,
    /// `/proc/PID/stat` of the program at its end.
    stat: [u8; MAX_STAT],
    /// Whether to kill at once.
    kills: bool,
    /// Milliseconds since the first SIGTERM.
    waited_ms: libc::c_int,
    signalled: [libc::pid_t; MAX_SIGNALLED],
    /// Number of signalled children without the program.
    left: usize,
}

/// Runs the warden: forks the program, then waits for requests.
pub(super) fn run(program: &dyn Fn() -> libc::c_int, requests: RawFd, report: RawFd) -> ! {
    // The warden leaves the session, which Ctrl-C and a closed terminal signal, after the fork, so
    // that the program stays in it. A process group of its own would not do: if a program ends
    // whose parent is in another group of the same session, and its group is orphaned and has a
    // stopped process, the kernel sends SIGHUP to the whole group (`kill_orphaned_pgrp`).
    // SAFETY: plain system calls. The warden keeps only its ends of the pipes and a descriptor for
    // SIGCHLD open, so that no reader waits for it.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let warden = libc::getpid();
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(if libc::getppid() == warden { program() } else { 1 });
        }
        let number = if child == -1 { -last_errno().0 } else { child }.to_ne_bytes();
        libc::setsid();
        libc::dup2(requests, CONTROL);
        libc::dup2(report, RECORDS);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        let mut ended = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(ended.as_mut_ptr());
        libc::sigaddset(ended.as_mut_ptr(), libc::SIGCHLD);
        let ended = libc::signalfd(-1, ended.as_ptr(), libc::SFD_NONBLOCK);
        libc::write(RECORDS, number.as_ptr().cast(), number.len());
        if child == -1 {
            libc::_exit(0);
        }
        let signalled = [0; MAX_SIGNALLED];
        let stat = [0; MAX_STAT];
        Watch { program: child, stat, kills: false, waited_ms: 0, signalled, left: 0 }.run(ended)
    }
}

impl Watch {
    fn run(mut self, ended: RawFd) -> ! {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        loop {
            let mut files = [readable(CONTROL), readable(ended)];
            let mut bytes = [0_u8; 128];
            // SAFETY: live descriptors, records and buffers of the lengths that are given.
            let request = unsafe {
                libc::poll(files.as_mut_ptr(), 2, -1);
                while libc::read(ended, bytes.as_mut_ptr().cast(), bytes.len()) > 0 {}
                if files[0].revents == 0 {
                    None
                } else {
                    Some(libc::read(CONTROL, bytes.as_mut_ptr().cast(), bytes.len()))
                }
            };
            self.reap();
            if let Some(length) = request {
                self.kills = length < 1;
                self.end_all();
            }
        }
    }

    /// Ends all children, then exits.
    fn end_all(mut self) -> ! {
        while self.reap() {
            let unlisted = self.signal_children();
            if unlisted && self.kills {
                break;
            }
            let mut control = libc::pollfd { fd: CONTROL, events: libc::POLLIN, revents: 0 };
            // SAFETY: a live record of a live descriptor; and a number.
            unsafe {
                libc::poll(ptr::null_mut(), 0, INTERVAL);
                self.kills |=
                    libc::poll(&raw mut control, 1, 0) == 1 && control.revents & libc::POLLHUP != 0;
            }
            self.waited_ms = self.waited_ms.saturating_add(INTERVAL);
            self.kills |=
                unlisted || u128::from(self.waited_ms.unsigned_abs()) >= GRACE.as_millis();
        }
        // SAFETY: ends the warden without destructors.
        unsafe { libc::_exit(i32::try_from(self.left.min(255)).unwrap_or(255)) }
    }

    /// Reaps all children that ended, and reports changes of the program. Returns whether a child
    /// is left.
    fn reap(&mut self) -> bool {
        loop {
            self.read_stat();
            let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
            // SAFETY: all zeroes is a valid record: it holds only numbers.
            let mut change: StatusChange = unsafe { std::mem::zeroed() };
            // SAFETY: both are live and writable.
            match unsafe { libc::wait4(-1, &raw mut change.status, options, &raw mut change.usage) }
            {
                0 => return true,
                -1 => return last_errno() != Errno(libc::ECHILD),
                pid if pid == self.program => {
                    change.stat = self.stat;
                    // SAFETY: a live record, short enough for an atomic write to a pipe.
                    unsafe {
                        libc::write(RECORDS, (&raw const change).cast(), size_of::<StatusChange>());
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads the stat of the program if it is a zombie: its last values are gone once it is reaped.
    fn read_stat(&mut self) {
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let mut path = [0_u8; 32];
        // Numbers are formatted on the stack. The last byte stays 0.
        let _ = write!(&mut path[..31], "/proc/{}/stat", self.program);
        // SAFETY: all zeroes is a valid record, the path ends with 0, and the buffer is live.
        unsafe {
            let mut ended: libc::siginfo_t = std::mem::zeroed();
            let id = self.program.unsigned_abs();
            if libc::waitid(libc::P_PID, id, &raw mut ended, options) != 0
                || ended.si_pid() != self.program
            {
                return;
            }
            let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
            libc::read(file, self.stat.as_mut_ptr().cast(), self.stat.len());
            libc::close(file);
        }
    }

    /// Sends each child SIGTERM once, or kills it. The pids in the list cannot belong to other
    /// processes: only the warden reaps its children. Returns whether the list could not be read;
    /// then it signals the program alone.
    fn signal_children(&mut self) -> bool {
        let mut list = [0_u8; 4096];
        // SAFETY: a C string, and a live buffer of that length.
        let length = unsafe {
            let file = libc::open(
                c"/proc/thread-self/children".as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
            );
            let length = libc::read(file, list.as_mut_ptr().cast(), list.len());
            libc::close(file);
            length
        };
        let Some(list) = usize::try_from(length).ok().and_then(|length| list.get(..length)) else {
            self.signal(self.program);
            return true;
        };
        // A pid that the buffer cuts off is read the next time.
        let whole = list.iter().rposition(|&byte| byte == b' ').unwrap_or(0);
        for number in list[..whole].split(|&byte| byte == b' ') {
            let digits = number.iter().filter(|byte| byte.is_ascii_digit());
            let pid = digits
                .fold(0, |pid: libc::pid_t, digit| pid * 10 + libc::pid_t::from(digit - b'0'));
            self.signal(pid);
        }
        false
    }

    fn signal(&mut self, pid: libc::pid_t) {
        if pid <= 0 {
            return;
        }
        let known = self.signalled.contains(&pid);
        if let Some(free) = self.signalled.iter_mut().find(|pid| **pid == 0).filter(|_| !known) {
            *free = pid;
        }
        self.left += usize::from(!known && pid != self.program);
        // SAFETY: numbers only. A stopped process must continue to end.
        unsafe {
            if self.kills {
                libc::kill(pid, libc::SIGKILL);
            } else if !known {
                libc::kill(pid, libc::SIGTERM);
                libc::kill(pid, libc::SIGCONT);
            }
        }
    }
}
