//! Process between hugepilot and a program. It ends the program and all its descendants, on request
//! and when hugepilot is gone.
//!
//! Orphans become children of the warden (`PR_SET_CHILD_SUBREAPER`), from any session or process
//! group. So each descendant that is left is a child of the warden, or becomes one when its parent
//! ends. A process group would miss programs that call `setsid`; a cgroup requires a permission;
//! and neither ends anything once hugepilot is killed.
//!
//! # Safety
//! After fork, the warden only makes async-signal-safe calls, on its stack and on memory made
//! before, until it exits.
#![allow(unsafe_code)]

mod watch;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// Time after which a process that got SIGTERM and lives on is killed.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Time to wait for killed processes. One that lives on is waiting in the kernel, and is left to
/// the warden.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest text of `/proc/PID/stat`.
const MAX_STAT: usize = 1024;
/// Change of the program's state, as `wait4` returns it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct StatusChange {
    pub(super) status: libc::c_int,
    pub(super) usage: libc::rusage,
    /// `/proc/PID/stat` of the program before it was reaped, then zeros; only zeros if it was
    /// not read.
    pub(super) stat: [u8; MAX_STAT],
}

/// A warden was killed: its program, or the user, sent a signal to the parent of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its parent process, which watches it for hugepilot, was killed")]
pub struct WatcherKilled;

impl WatcherKilled {
    /// Help for users.
    pub const HELP: &str = "check whether the program ends its parent process, as `kill -9 $PPID` \
                            does; processes that it started may still run";

    /// Whether this is the cause of an error.
    pub fn is_cause(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Warden with its program. Kills the program and its descendants on drop.
#[derive(Debug)]
pub(super) struct Warden {
    pid: libc::pid_t,
    program: OwnedFd,
    control: Option<OwnedFd>,
    records: OwnedFd,
}

impl Warden {
    /// Forks the warden, which forks the program: `program` runs in that and never returns. Returns
    /// the pid of the program, too.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if no process can be made, EMFILE if no pipe can.
    pub(super) fn start(program: &dyn Fn() -> libc::c_int) -> io::Result<(Self, libc::pid_t)> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (requests, control) = rustix::pipe::pipe_with(flags)?;
        let (records, report) = rustix::pipe::pipe_with(flags)?;
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` and the kernel initialise the sets. All signals are blocked before
        // the fork, so that no handler of this process runs in the warden; the mask is restored
        // afterwards. The warden never returns.
        let pid = unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let pid = libc::fork();
            if pid == 0 {
                watch::run(program, requests.as_raw_fd(), report.as_raw_fd());
            }
            let failed = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            if pid == -1 {
                return Err(failed);
            }
            pid
        };
        drop((requests, report));
        let reap = || {
            // SAFETY: a child that ends by itself; no status is written to a null pointer.
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

    /// Returns the change of the program since the last call, if any.
    ///
    /// # Errors
    /// [`WatcherKilled`].
    pub(super) fn change(&self) -> io::Result<Option<StatusChange>> {
        let mut bytes = [0_u8; size_of::<StatusChange>()];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.records, &mut bytes)) {
            Ok(length) if length == bytes.len() => {
                // SAFETY: `StatusChange` holds only numbers, and the warden wrote a whole one.
                Ok(Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) }))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Ok(_) => Err(io::Error::other(WatcherKilled)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends the program a signal. If it has ended, this is not an error.
    pub(super) fn signal(&self, signal: i32) {
        let program = self.program.as_raw_fd();
        // SAFETY: a live descriptor and a number; no details of the signal are given.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, program, signal, ptr::null::<u8>(), 0)
        };
    }

    /// Requests the end of the program, and then of all its descendants: SIGTERM, and SIGKILL after
    /// [`GRACE`]. Returns at once.
    pub(super) fn request_end(&self) {
        let _ = self.control.as_ref().map(|control| rustix::io::write(control, b"e"));
    }

    /// Requests the end and waits for it. Returns the number of descendants that the program had
    /// left.
    pub(super) fn end(&mut self) -> usize {
        self.request_end();
        self.wait(GRACE + PATIENCE)
    }

    /// Waits until the program and its descendants have ended, and then reaps the warden.
    fn wait(&mut self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let mut status = 0;
        while self.pid != 0 {
            // SAFETY: a child for which no other code waits, and a live status.
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
        // The warden reads the end of the pipe, as it does when hugepilot is killed.
        self.control = None;
        self.wait(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use crate::sys::start::{Change, Program, StartedProgram, Thp};

    use super::*;

    fn bound(script: &str) -> StartedProgram {
        let words = ["sh", "-c", script].map(OsString::from);
        let path: Vec<_> = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
        let mut started = StartedProgram::bound(&Program {
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

    fn end_of(started: &mut StartedProgram) -> Change {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            match started.changed().unwrap() {
                Some((change @ (Change::Exited(_) | Change::Killed(_)), _)) => return change,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        panic!("it did not end");
    }

    /// Returns the `/proc` directories of the processes that it left: one in its session, and one
    /// in another session that ignores SIGTERM.
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
    fn descendants_are_ended_and_counted() {
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
    fn a_drop_kills_all_descendants_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let started = bound(&leaves(folder.path()).replace("exit 3", "exec sleep 100"));
        let left = left(folder.path());
        let begun = Instant::now();
        drop(started);
        assert!(begun.elapsed() < GRACE / 2, "{:?}", begun.elapsed());
        assert!(left.iter().all(|process| !Path::new(process).exists()), "{left:?}");
    }

    #[test]
    fn a_stopped_program_may_handle_the_request_to_end() {
        let mut started = bound("trap 'exit 5' TERM; kill -STOP $$; while :; do :; done");
        let until = Instant::now() + Duration::from_secs(20);
        while started.changed().unwrap().map(|(change, _)| change) != Some(Change::Stopped) {
            assert!(Instant::now() < until, "it did not stop");
        }
        started.ask_to_end();
        assert_eq!(end_of(&mut started), Change::Exited(5));
    }

    #[test]
    fn a_killed_warden_is_the_cause_of_an_error_and_ends_the_program() {
        let mut started = bound("kill -9 $PPID; while :; do :; done");
        let until = Instant::now() + Duration::from_secs(20);
        let error = loop {
            match started.changed() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                other => break other.unwrap_err(),
            }
        };
        assert!(WatcherKilled::is_cause(&error), "{error}");
        let path = format!("/proc/{}/fd", started.pid());
        while Instant::now() < until && std::fs::read_dir(&path).is_ok_and(|fds| fds.count() > 0) {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(Instant::now() < until, "the program runs on");
    }

    #[test]
    fn a_program_that_was_never_released_ends() {
        let words = ["sh", "-c", "exit 0"].map(OsString::from);
        let program = Program {
            path: Path::new("/bin/sh"),
            arguments: &words,
            environment: &[],
            thp: Thp::Inherit,
            standard: [None; 3],
            own_group: true,
        };
        let started = StartedProgram::bound(&program).unwrap();
        let path = format!("/proc/{}", started.pid());
        assert!(Path::new(&path).exists());
        drop(started);
        assert!(!Path::new(&path).exists());
    }
}
