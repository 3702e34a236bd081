//! Program start in two steps: fork, wait for a byte, exec.
//!
//! Unlike with the standard library, a sampler can attach while the program is held before its
//! first instruction, its THP setting is made in the child alone, and its counts hold nothing of
//! the start of another program.
//!
//! # Safety
//! After fork, the child runs only [`child`]; see there.
#![allow(unsafe_code)]

mod child;
mod program;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use hugepilot_record::Pid;

use self::child::ChildSetup;
pub use self::program::{Change, LastUse, Program, ResourceUsage, Thp};
use super::inherited;
use super::signals::Signals;
use super::warden::{StatusChange, Warden};
use crate::proc::parse_stat;

/// Started program. Killed and reaped on drop, unless it has ended; its descriptor is readable when
/// it has.
#[derive(Debug)]
pub struct StartedProgram {
    pid: Pid,
    /// Ends of the pipes that open the gate and report the error of exec.
    gate: Option<(OwnedFd, OwnedFd)>,
    ended: bool,
    last: Option<LastUse>,
    parent: Parent,
}

/// Parent of a program.
#[derive(Debug)]
enum Parent {
    /// This process, with a pidfd of the program.
    Own(OwnedFd),
    /// Warden of the program.
    Warden(Warden),
}

impl StartedProgram {
    /// Starts `program`, held before its first instruction. It gets the signal mask from before
    /// `signals` were taken, and ignores the signals that this process inherited as ignored. `sh`
    /// runs a text without `#!`, as `execvp(3)` and shells do.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM if no process can be made, EMFILE if no pipe can, EINVAL for a NUL in a
    /// text.
    pub fn held(program: &Program<'_>, signals: Option<&Signals>) -> io::Result<Self> {
        Self::start(program, signals, |program| {
            // SAFETY: the child makes only async-signal-safe calls and never returns, see
            // [`child`].
            match unsafe { libc::fork() } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: ends a child that did not become the program.
                0 => unsafe { libc::_exit(program()) },
                pid => {
                    let number =
                        rustix::process::Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
                    let pidfd =
                        rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty());
                    let pidfd = pidfd.inspect_err(|_| reap(pid))?;
                    Ok((Parent::Own(pidfd), pid))
                }
            }
        })
    }

    /// Starts `program`, held, with a warden: the program and all its descendants end with this
    /// process, also if this process is killed. Costs another fork.
    ///
    /// # Errors
    /// As [`StartedProgram::held`].
    pub fn bound(program: &Program<'_>) -> io::Result<Self> {
        Self::start(program, None, |program| {
            let (warden, pid) = Warden::start(program)?;
            Ok((Parent::Warden(warden), pid))
        })
    }

    fn start(
        program: &Program<'_>,
        signals: Option<&Signals>,
        fork: impl FnOnce(&dyn Fn() -> libc::c_int) -> io::Result<(Parent, libc::pid_t)>,
    ) -> io::Result<Self> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (gate, open) = rustix::pipe::pipe_with(flags)?;
        let (failure, report) = rustix::pipe::pipe_with(flags)?;
        let mask = signals.map_or_else(super::signals::mask, Signals::before);
        let setup = ChildSetup::new(program, mask, gate, report)?;
        let vectors = setup.vectors();
        inherited::stop_ignoring_children();
        let (parent, pid) = fork(&|| setup.become_program(&vectors, open.as_raw_fd()))?;
        Ok(Self { pid: Pid(pid), gate: Some((open, failure)), ended: false, last: None, parent })
    }

    /// Returns the pid, which stays the same once it is released.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Releases it, and waits until exec is done.
    ///
    /// # Errors
    /// Error of exec or of the THP setting; the child has then ended.
    pub fn release(&mut self) -> io::Result<()> {
        let Some((open, failure)) = self.gate.take() else { return Ok(()) };
        // A killed child reads nothing; its end shows in `changed`.
        let _ = rustix::io::write(&open, &[1]);
        let mut errno = [0; 4];
        match rustix::io::retry_on_intr(|| rustix::io::read(&failure, &mut errno)) {
            Ok(4) => {
                if matches!(self.parent, Parent::Own(_)) {
                    reap(self.pid.0);
                    self.ended = true;
                }
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the change since the last call, if any, with the resources used until then.
    ///
    /// # Errors
    /// ECHILD if other code has reaped it. [`WatcherKilled`](super::warden::WatcherKilled): nothing
    /// more is known of a bound program, which is killed.
    pub fn changed(&mut self) -> io::Result<Option<(Change, ResourceUsage)>> {
        let change = match &self.parent {
            Parent::Own(_) => self.wait()?,
            // A program with more privileges does not end with its parent.
            Parent::Warden(warden) => {
                warden.change().inspect_err(|_| warden.signal(libc::SIGKILL))?
            }
        };
        Ok(change.map(|StatusChange { status, usage, stat }| {
            let change = Change::of_status(status);
            self.ended = matches!(change, Change::Exited(_) | Change::Killed(_));
            let usage = ResourceUsage::from(&usage);
            self.last = parse_stat(&stat).map(|stat| LastUse { stat, usage });
            (change, usage)
        }))
    }

    /// Returns its use until its end; `None` if it has not ended, and without a warden.
    pub const fn last_use(&self) -> Option<&LastUse> {
        self.last.as_ref()
    }

    fn wait(&self) -> io::Result<Option<StatusChange>> {
        let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        // SAFETY: all zeroes is a valid record: it holds only numbers.
        let mut change: StatusChange = unsafe { std::mem::zeroed() };
        // SAFETY: both are live and writable, and the child is not reaped.
        let pid = unsafe {
            libc::wait4(self.pid.0, &raw mut change.status, options, &raw mut change.usage)
        };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => Ok(Some(change)),
        }
    }

    /// Sends it a signal. If it has ended, this is not an error: the next
    /// [`StartedProgram::changed`] reports the end.
    pub fn signal(&self, signal: i32) {
        match &self.parent {
            _ if self.ended => {}
            // SAFETY: an unreaped child of this process, so no other process has its pid.
            Parent::Own(_) => _ = unsafe { libc::kill(self.pid.0, signal) },
            Parent::Warden(warden) => warden.signal(signal),
        }
    }

    /// Requests its end by SIGTERM, and kills it after `GRACE`, with all its descendants if it is
    /// [bound](StartedProgram::bound). Returns at once. A program that is not bound gets SIGTERM
    /// only.
    pub fn ask_to_end(&self) {
        match &self.parent {
            Parent::Own(_) => self.signal(libc::SIGTERM),
            Parent::Warden(warden) => warden.request_end(),
        }
    }

    /// Ends the descendants of a [bound](StartedProgram::bound) program, waits for their end for 3
    /// seconds at most, and returns their number.
    pub fn end_rest(&mut self) -> usize {
        match &mut self.parent {
            Parent::Own(_) => 0,
            Parent::Warden(warden) => warden.end(),
        }
    }
}

impl AsFd for StartedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.parent {
            Parent::Own(pidfd) => pidfd.as_fd(),
            Parent::Warden(warden) => warden.as_fd(),
        }
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        // A warden kills and reaps by itself, and a held program ends when its gate closes.
        self.gate = None;
        if !self.ended && matches!(self.parent, Parent::Own(_)) {
            self.signal(libc::SIGKILL);
            reap(self.pid.0);
        }
    }
}

/// Waits for the end of a child for which no other code waits.
fn reap(pid: libc::pid_t) {
    // SAFETY: numbers only; no status is written to a null pointer.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use hugepilot_units::{Bytes, Nanos};

    use super::*;

    fn shell<'a>(
        words: &'a [OsString],
        environment: &'a [(OsString, OsString)],
        thp: Thp,
    ) -> Program<'a> {
        let path = Path::new("/bin/sh");
        Program { path, arguments: words, environment, thp, standard: [None; 3], own_group: false }
    }

    fn words(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    fn end_of(started: &mut StartedProgram) -> (Change, ResourceUsage) {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(found) = started.changed().unwrap() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it did not end");
    }

    fn run(script: &str, environment: &[(OsString, OsString)], thp: Thp) -> Change {
        let words = words(script);
        let mut started = StartedProgram::held(&shell(&words, environment, thp), None).unwrap();
        started.release().unwrap();
        end_of(&mut started).0
    }

    #[test]
    fn exit_status_environment_and_thp_setting_are_passed() {
        assert_eq!(run("exit 7", &[], Thp::Inherit), Change::Exited(7));
        assert_eq!(run("kill -9 $$", &[], Thp::Inherit), Change::Killed(9));
        let environment = [(OsString::from("A"), OsString::from("b c"))];
        assert_eq!(run("test \"$A\" = 'b c'", &environment, Thp::Inherit), Change::Exited(0));
        let off = "while read -r a b; do test $a = THP_enabled: && exit $b; done \
                   </proc/$$/status; exit 9";
        assert_eq!(run(off, &[], Thp::Never), Change::Exited(0));
        assert_eq!(run(off, &[], Thp::Allowed), Change::Exited(1));
    }

    #[test]
    fn a_text_without_an_interpreter_is_run_by_the_shell_but_no_damaged_program() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let words = ["x", "5", "6"].map(OsString::from);
        let table = [
            (&b"exit $(($1 + $2))"[..], Ok(11)),
            (b"\x7fELF exit 3", Err(8)),
            (b"exit 3\0", Err(8)),
        ];
        for (bytes, ends) in table {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let program = Program { path: &path, ..shell(&words, &[], Thp::Inherit) };
            let mut started = StartedProgram::held(&program, None).unwrap();
            let ended = started.release().map(|()| end_of(&mut started).0);
            let ended = ended.map_err(|error| error.raw_os_error().unwrap());
            assert_eq!(ended, ends.map(Change::Exited), "{bytes:?}");
        }
    }

    #[test]
    fn it_waits_until_released_and_ends_if_never_released() {
        let words = words("exit 0");
        let mut started = StartedProgram::held(&shell(&words, &[], Thp::Inherit), None).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(started.changed().unwrap(), None);
        let pid = started.pid();
        drop(started);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_failed_exec_returns_its_error() {
        let words = words("");
        for (path, errno) in [("/no/such/file", 2), ("/proc", 13)] {
            let program = Program { path: Path::new(path), ..shell(&words, &[], Thp::Inherit) };
            let mut started = StartedProgram::held(&program, None).unwrap();
            assert_eq!(started.release().unwrap_err().raw_os_error(), Some(errno), "{path}");
        }
    }

    #[test]
    fn a_stop_is_reported_and_usage_is_counted() {
        let words = words("kill -STOP $$; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        let mut started = StartedProgram::held(&shell(&words, &[], Thp::Inherit), None).unwrap();
        started.release().unwrap();
        assert_eq!(end_of(&mut started).0, Change::Stopped);
        started.signal(libc::SIGCONT);
        let (mut change, mut used) = end_of(&mut started);
        if change == Change::Continued {
            (change, used) = end_of(&mut started);
        }
        assert_eq!(change, Change::Exited(0));
        assert!(used.minor_faults > 10 && used.peak_resident > Bytes::kib(100), "{used:?}");
        assert!(used.user + used.system > Nanos::ZERO, "{used:?}");
    }
}
