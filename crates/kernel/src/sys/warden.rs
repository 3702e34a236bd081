//! A process between us and a program of ours. It ends the program, and all that the program started, when we ask for it
//! and when we are gone.
//!
//! Orphans become children of the warden (`PR_SET_CHILD_SUBREAPER`), from whatever session or process group. So each process
//! that is left is one of its children, or becomes one when its parent ends. A process group would miss programs that call
//! `setsid`; a cgroup takes a right that we may not have; and neither ends anything once we are killed.
//!
//! # Safety
//! After fork, the warden only makes async-signal-safe calls, on its stack and on memory made before, until it exits.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use hugepilot_record::Errno;

use super::last_errno;

/// Processes that were asked to end (SIGTERM) and live on are killed after this time.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// A killed process that does not end within this time waits in the kernel, and is left to the warden.
const PATIENCE: Duration = Duration::from_secs(2);
/// While it ends processes, the warden looks for new children this often, milliseconds.
const EVERY: libc::c_int = 10;
/// Children that it remembers to have asked.
const MAX_ASKED: usize = 128;

/// Its end of the pipe on which we ask, and of the pipe on which it reports.
const CONTROL: RawFd = 0;
const RECORDS: RawFd = 1;

/// How the program changed, as `wait4` has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct News {
    pub(super) status: libc::c_int,
    pub(super) used: libc::rusage,
}

/// A warden with its program. Kills what is left of the program on drop.
#[derive(Debug)]
pub(super) struct Warden {
    pid: libc::pid_t,
    program: OwnedFd,
    control: Option<OwnedFd>,
    records: OwnedFd,
}

impl Warden {
    /// Forks the warden, which forks the program: `program` runs in that and never returns. Gives the program's pid, too.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM when no process can be made, EMFILE when no pipe can.
    pub(super) fn start(program: &dyn Fn() -> libc::c_int) -> io::Result<(Self, libc::pid_t)> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (asked, control) = rustix::pipe::pipe_with(flags)?;
        let (records, tell) = rustix::pipe::pipe_with(flags)?;
        let mut before = MaybeUninit::uninit();
        // SAFETY: the sets are initialised by `sigfillset` and the kernel. All is blocked before the fork, so that no handler
        // of ours runs in the warden; afterwards it is as before. The warden never returns.
        let pid = unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let pid = libc::fork();
            if pid == 0 {
                oversee(program, asked.as_raw_fd(), tell.as_raw_fd());
            }
            let failed = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            if pid == -1 {
                return Err(failed);
            }
            pid
        };
        drop((asked, tell));
        let reap = || {
            // SAFETY: a child of ours that ends by itself; nothing is written to a null status.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        };
        let mut number = [0; 4];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&records, &mut number));
        let program = match (read, libc::pid_t::from_ne_bytes(number)) {
            (Ok(4), pid) if pid > 0 => pid,
            (Ok(4), errno) => {
                reap();
                return Err(io::Error::from_raw_os_error(-errno));
            }
            _ => {
                reap();
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
        };
        rustix::io::ioctl_fionbio(&records, true)?;
        let number = rustix::process::Pid::from_raw(program).ok_or(rustix::io::Errno::SRCH)?;
        let pidfd = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())?;
        Ok((Self { pid, program: pidfd, control: Some(control), records }, program))
    }

    /// How the program changed since the last call, if it did.
    ///
    /// # Errors
    /// ECHILD where the warden is gone.
    pub(super) fn news(&self) -> io::Result<Option<News>> {
        let mut bytes = [0_u8; size_of::<News>()];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.records, &mut bytes)) {
            Ok(length) if length == bytes.len() => {
                // SAFETY: `News` holds only numbers, and the warden wrote a whole one.
                Ok(Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) }))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ECHILD)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends the program a signal. That it has ended is no error.
    pub(super) fn signal(&self, signal: i32) {
        let program = self.program.as_raw_fd();
        // SAFETY: a live descriptor and a number; no details of the signal are given.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, program, signal, ptr::null::<u8>(), 0)
        };
    }

    /// Asks the program, and then all that it left, to end: SIGTERM, and SIGKILL after [`GRACE`]. Returns at once.
    pub(super) fn ask_to_end(&self) {
        let _ = self.control.as_ref().map(|control| rustix::io::write(control, b"e"));
    }

    /// The same, and waits. Gives how many processes the program had left.
    pub(super) fn end(&mut self) -> usize {
        self.ask_to_end();
        self.wait(GRACE + PATIENCE)
    }

    /// Until nothing of the program is left, and then reaps the warden.
    fn wait(&mut self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut status = 0;
        while self.pid != 0 {
            // SAFETY: a child of ours that only we wait for, and a live status.
            let reaped = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) };
            match reaped {
                0 if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                0 => return 0,
                _ => self.pid = 0,
            }
        }
        if libc::WIFEXITED(status) {
            usize::try_from(libc::WEXITSTATUS(status)).unwrap_or(0)
        } else {
            0
        }
    }
}

impl AsFd for Warden {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // The warden reads the end of the pipe, as it does when we are killed.
        self.control = None;
        self.wait(PATIENCE);
    }
}

/// What the warden knows.
struct Watch {
    program: libc::pid_t,
    /// Whether to kill without asking first.
    kills: bool,
    /// Milliseconds for which it has asked.
    asked_for: libc::c_int,
    asked: [libc::pid_t; MAX_ASKED],
    /// How many it asked that are not the program.
    left: usize,
}

/// The warden's life.
fn oversee(program: &dyn Fn() -> libc::c_int, asked: RawFd, tell: RawFd) -> ! {
    // SAFETY: plain system calls. The warden leaves our process group after the fork, so that the program stays in it, and
    // holds nothing open but its ends of the pipes and a descriptor for SIGCHLD, so that no reader waits for it.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let us = libc::getpid();
        let child = libc::fork();
        if child == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::_exit(if libc::getppid() == us { program() } else { 1 });
        }
        let number = if child == -1 { -last_errno().0 } else { child }.to_ne_bytes();
        libc::setpgid(0, 0);
        libc::dup2(asked, CONTROL);
        libc::dup2(tell, RECORDS);
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        let mut ended = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(ended.as_mut_ptr());
        libc::sigaddset(ended.as_mut_ptr(), libc::SIGCHLD);
        let ended = libc::signalfd(-1, ended.as_ptr(), libc::SFD_NONBLOCK);
        libc::write(RECORDS, number.as_ptr().cast(), number.len());
        if child == -1 {
            libc::_exit(0);
        }
        let asked = [0; MAX_ASKED];
        Watch { program: child, kills: false, asked_for: 0, asked, left: 0 }.until_asked(ended)
    }
}

impl Watch {
    fn until_asked(mut self, ended: RawFd) -> ! {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        loop {
            let mut wanted = [readable(CONTROL), readable(ended)];
            let mut bytes = [0_u8; 128];
            // SAFETY: live descriptors, records and buffers of the lengths that are given.
            let asked = unsafe {
                libc::poll(wanted.as_mut_ptr(), 2, -1);
                while libc::read(ended, bytes.as_mut_ptr().cast(), bytes.len()) > 0 {}
                if wanted[0].revents == 0 {
                    None
                } else {
                    Some(libc::read(CONTROL, bytes.as_mut_ptr().cast(), bytes.len()))
                }
            };
            self.reap();
            if let Some(length) = asked {
                self.kills = length < 1;
                self.end_all();
            }
        }
    }

    /// Until there is no child.
    fn end_all(mut self) -> ! {
        while self.reap() {
            let unseen = self.ask_children();
            if unseen && self.kills {
                break;
            }
            let mut control = libc::pollfd { fd: CONTROL, events: libc::POLLIN, revents: 0 };
            // SAFETY: a live record of a live descriptor; and a number.
            unsafe {
                libc::poll(ptr::null_mut(), 0, EVERY);
                self.kills |=
                    libc::poll(&raw mut control, 1, 0) == 1 && control.revents & libc::POLLHUP != 0;
            }
            self.asked_for = self.asked_for.saturating_add(EVERY);
            self.kills |= unseen || u128::from(self.asked_for.unsigned_abs()) >= GRACE.as_millis();
        }
        // SAFETY: ends the warden without destructors.
        unsafe { libc::_exit(i32::try_from(self.left.min(255)).unwrap_or(255)) }
    }

    /// Reaps all children that ended, and reports the program's changes. Whether a child is left.
    fn reap(&mut self) -> bool {
        loop {
            let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
            // SAFETY: all zeroes is a valid record: it holds only numbers.
            let mut news: News = unsafe { std::mem::zeroed() };
            // SAFETY: both are live and writable.
            match unsafe { libc::wait4(-1, &raw mut news.status, options, &raw mut news.used) } {
                0 => return true,
                -1 => return last_errno() != Errno(libc::ECHILD),
                // SAFETY: a live record; less than what a pipe takes whole.
                pid if pid == self.program => unsafe {
                    libc::write(RECORDS, (&raw const news).cast(), size_of::<News>());
                },
                _ => {}
            }
        }
    }

    /// Asks each child once, or kills it. A number in the list cannot be another process's: only we reap our children.
    /// Whether the list could not be read; then the program alone is killed.
    fn ask_children(&mut self) -> bool {
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
            self.ask(self.program);
            return true;
        };
        // A number that the buffer cuts off comes the next time.
        let whole = list.iter().rposition(|&byte| byte == b' ').unwrap_or(0);
        for number in list[..whole].split(|&byte| byte == b' ') {
            let digits = number.iter().filter(|byte| byte.is_ascii_digit());
            let pid = digits
                .fold(0, |pid: libc::pid_t, digit| pid * 10 + libc::pid_t::from(digit - b'0'));
            self.ask(pid);
        }
        false
    }

    fn ask(&mut self, pid: libc::pid_t) {
        if pid <= 0 {
            return;
        }
        let known = self.asked.contains(&pid);
        if let Some(free) = self.asked.iter_mut().find(|asked| **asked == 0).filter(|_| !known) {
            *free = pid;
        }
        self.left += usize::from(!known && pid != self.program);
        // SAFETY: numbers only. One that is stopped must go on to end.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use crate::sys::start::{Change, Program, Started, Thp};

    use super::*;

    fn bound(script: &str) -> Started {
        let words = ["sh", "-c", script].map(OsString::from);
        let path: Vec<_> = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
        let mut started = Started::bound(&Program {
            path: Path::new("/bin/sh"),
            arguments: &words,
            environment: &path,
            thp: Thp::Inherit,
            standard: [None; 3],
            own_group: false,
        })
        .unwrap();
        started.release().unwrap();
        started
    }

    fn end_of(started: &mut Started) -> Change {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            match started.changed().unwrap() {
                Some((change @ (Change::Exited(_) | Change::Killed(_)), _)) => return change,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        panic!("it did not end");
    }

    /// Two files that say which processes it left: one in its session, and one in another that ignores SIGTERM.
    fn left(folder: &Path) -> [String; 2] {
        ["one", "two"].map(|name| {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
                if text.ends_with('\n') {
                    return format!("/proc/{}", text.trim());
                }
                assert!(Instant::now() < until, "it wrote nothing");
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    }

    fn leaves(folder: &Path) -> String {
        let folder = folder.display();
        format!(
            "cd {folder}; sh -c 'echo $$ >one; exec sleep 100' & \
             (setsid sh -c 'trap \"\" TERM; echo $$ >two; sleep 100; sleep 100' &); \
             while ! test -s two; do :; done; exit 3"
        )
    }

    #[test]
    fn what_a_program_left_is_ended_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut started = bound(&leaves(folder.path()));
        assert_eq!(end_of(&mut started), Change::Exited(3));
        let left = left(folder.path());
        assert!(left.iter().all(|process| Path::new(process).exists()), "they outlive the program");
        let begun = Instant::now();
        // The second one's child ends by SIGTERM, or is killed with it.
        assert!((2..=4).contains(&started.end_rest()));
        assert!(
            begun.elapsed() >= GRACE && begun.elapsed() < GRACE + PATIENCE,
            "{:?}",
            begun.elapsed()
        );
        assert!(left.iter().all(|process| !Path::new(process).exists()), "{left:?}");
        assert_eq!(started.end_rest(), 0);
    }

    #[test]
    fn a_program_that_leaves_nothing_costs_no_wait() {
        let mut started = bound("exit 0");
        assert_eq!(end_of(&mut started), Change::Exited(0));
        let begun = Instant::now();
        assert_eq!(started.end_rest(), 0);
        assert!(begun.elapsed() < GRACE / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn when_it_is_dropped_all_is_killed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let started = bound(&leaves(folder.path()).replace("exit 3", "exec sleep 100"));
        let left = left(folder.path());
        let begun = Instant::now();
        drop(started);
        assert!(begun.elapsed() < GRACE / 2, "{:?}", begun.elapsed());
        assert!(left.iter().all(|process| !Path::new(process).exists()), "{left:?}");
    }

    #[test]
    fn one_that_is_asked_to_end_may_end_by_itself_also_when_it_is_stopped() {
        let mut started = bound("trap 'exit 5' TERM; kill -STOP $$; while :; do :; done");
        let until = Instant::now() + Duration::from_secs(20);
        while started.changed().unwrap().map(|(change, _)| change) != Some(Change::Stopped) {
            assert!(Instant::now() < until, "it did not stop");
        }
        started.ask_to_end();
        assert_eq!(end_of(&mut started), Change::Exited(5));
    }

    #[test]
    fn one_that_was_never_released_is_gone() {
        let words = ["sh", "-c", "exit 0"].map(OsString::from);
        let program = Program {
            path: Path::new("/bin/sh"),
            arguments: &words,
            environment: &[],
            thp: Thp::Inherit,
            standard: [None; 3],
            own_group: true,
        };
        let started = Started::bound(&program).unwrap();
        let path = format!("/proc/{}", started.pid());
        assert!(Path::new(&path).exists());
        drop(started);
        assert!(!Path::new(&path).exists());
    }
}
