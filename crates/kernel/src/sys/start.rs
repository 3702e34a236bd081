//! A program of ours, held right before its first instruction: fork, wait for a byte, exec.
//!
//! Unlike a start by the standard library, whatever shall see all of the program can be attached while it is held, its setting of
//! THP is made in the child alone, and nothing of another program's start is in its counts.
//!
//! # Safety
//! After fork, the child of a threaded process may only make async-signal-safe calls: it reads and writes descriptors, sets
//! its own signal mask and THP setting, and execs or exits. All its memory was made before.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use hugepilot_record::{Errno, Pid};
use hugepilot_units::{Bytes, Nanos};

use super::inherited;
use super::last_errno;
use super::signals::Signals;
use super::warden::{News, Warden};
use crate::file;

/// `PR_THP_DISABLE_EXCEPT_ADVISED` of Linux 6.18, `linux/prctl.h`.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;
const SHELL: &CStr = c"/bin/sh";
/// So much of a file tells whether it is a text.
const BEGINNING: u64 = 256;

/// What transparent huge pages a program may have, for itself and what it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    /// As the system has it, and as we have it ourselves.
    Inherit,
    /// None (`PR_SET_THP_DISABLE`).
    Never,
    /// Only where the program itself advises them; EINVAL before Linux 6.18.
    Advised,
    /// As the system has it, whatever we were started with.
    Allowed,
}

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its arguments, its name first.
    pub arguments: &'a [OsString],
    /// All of its environment.
    pub environment: &'a [(OsString, OsString)],
    /// Its transparent huge pages.
    pub thp: Thp,
    /// Standard input, output and error; `None` for ours.
    pub standard: [Option<BorrowedFd<'a>>; 3],
    /// Whether it gets a process group of its own, which a terminal does not signal.
    pub own_group: bool,
}

/// How a child changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It was stopped, as by Ctrl-Z.
    Stopped,
    /// It goes on.
    Continued,
}

/// What a child, and those it has waited for, used altogether (`wait4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time in user mode.
    pub user: Nanos,
    /// CPU time in the kernel.
    pub system: Nanos,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// The largest resident size that any one of them had; hugetlb pages are not in it.
    pub peak_resident: Bytes,
}

/// A program of ours. Killed and reaped on drop, unless it has ended; its descriptor is readable when it has.
#[derive(Debug)]
pub struct Started {
    pid: Pid,
    /// What opens the gate, and what tells why exec failed.
    gate: Option<(OwnedFd, OwnedFd)>,
    ended: bool,
    parent: Parent,
}

/// Whose child a program is.
#[derive(Debug)]
enum Parent {
    /// Ours. A pidfd.
    Us(OwnedFd),
    /// Its warden's.
    Warden(Warden),
}

/// All that the child needs, made before the fork.
struct Prepared {
    path: CString,
    arguments: Vec<CString>,
    /// What runs it where the kernel knows no way to.
    shell: Option<Vec<CString>>,
    environment: Vec<CString>,
    thp: Thp,
    standard: [Option<RawFd>; 3],
    own_group: bool,
    mask: libc::sigset_t,
    wait: OwnedFd,
    tell: OwnedFd,
}

impl Started {
    /// Starts `program`, held. It has the signal mask that we had before `signals` were taken, and ignores what we were started
    /// with as ignored. A text without `#!` is run by `sh`, as `execvp(3)` and shells do.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM when no process can be made, EMFILE when no pipe can, EINVAL for a NUL in a text.
    pub fn held(program: &Program<'_>, signals: Option<&Signals>) -> io::Result<Self> {
        Self::start(program, signals, |program| {
            // SAFETY: see the module: the child path makes only async-signal-safe calls and never returns.
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
                    Ok((Parent::Us(pidfd), pid))
                }
            }
        })
    }

    /// The same, where the program and all that it starts end with us, also when we are killed. Costs another fork.
    ///
    /// # Errors
    /// As [`Started::held`].
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
        let (wait, open) = rustix::pipe::pipe_with(flags)?;
        let (failure, tell) = rustix::pipe::pipe_with(flags)?;
        let text = |text: &OsStr| CString::new(text.as_bytes());
        let pair = |(name, value): &(OsString, OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
        };
        let path = text(program.path.as_os_str())?;
        let arguments: Vec<CString> =
            program.arguments.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let prepared = Prepared {
            shell: is_text(program.path).then(|| by_shell(&path, &arguments)),
            path,
            arguments,
            environment: program.environment.iter().map(pair).collect::<Result<_, _>>()?,
            thp: program.thp,
            standard: program.standard.map(|file| file.map(|file| file.as_raw_fd())),
            own_group: program.own_group,
            mask: signals.map_or_else(super::signals::mask, Signals::before),
            wait,
            tell,
        };
        let list = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        };
        let argv = [list(&prepared.arguments), list(prepared.shell.as_deref().unwrap_or_default())];
        let envp = list(&prepared.environment);
        inherited::hear_of_children();
        let (parent, pid) = fork(&|| become_program(&prepared, &argv, &envp, open.as_raw_fd()))?;
        Ok(Self { pid: Pid(pid), gate: Some((open, failure)), ended: false, parent })
    }

    /// Its number: also the program's, once released.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it begin, and waits until it has.
    ///
    /// # Errors
    /// What exec, or the setting of THP, said; then the child has ended.
    pub fn release(&mut self) -> io::Result<()> {
        let Some((open, failure)) = self.gate.take() else { return Ok(()) };
        // One that was killed reads nothing; its end tells.
        let _ = rustix::io::write(&open, &[1]);
        let mut errno = [0; 4];
        match rustix::io::retry_on_intr(|| rustix::io::read(&failure, &mut errno)) {
            Ok(4) => {
                if matches!(self.parent, Parent::Us(_)) {
                    reap(self.pid.0);
                    self.ended = true;
                }
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            _ => Ok(()),
        }
    }

    /// How it changed since the last call, if it did; and at its end, what it used.
    ///
    /// # Errors
    /// ECHILD where somebody else has reaped it.
    pub fn changed(&mut self) -> io::Result<Option<(Change, Used)>> {
        let news = match &self.parent {
            Parent::Us(_) => self.waited_for()?,
            Parent::Warden(warden) => warden.news()?,
        };
        Ok(news.map(|News { status, used }| {
            let change = change_of(status);
            self.ended = matches!(change, Change::Exited(_) | Change::Killed(_));
            (change, used_of(&used))
        }))
    }

    fn waited_for(&self) -> io::Result<Option<News>> {
        let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        // SAFETY: all zeroes is a valid record: it holds only numbers.
        let mut news: News = unsafe { std::mem::zeroed() };
        // SAFETY: both are live and writable, and the child is ours and not reaped.
        match unsafe { libc::wait4(self.pid.0, &raw mut news.status, options, &raw mut news.used) }
        {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            _ => Ok(Some(news)),
        }
    }

    /// Sends it a signal. That it has ended is no error: the next [`Started::changed`] tells.
    pub fn signal(&self, signal: i32) {
        match &self.parent {
            _ if self.ended => {}
            // SAFETY: the pid is our own unreaped child, so the number cannot have been given to anybody else.
            Parent::Us(_) => _ = unsafe { libc::kill(self.pid.0, signal) },
            Parent::Warden(warden) => warden.signal(signal),
        }
    }

    /// Asks it to end, and kills it after `GRACE`; of a [bound](Started::bound) one, all that it started,
    /// too. Returns at once. One that is not bound is only asked.
    pub fn ask_to_end(&self) {
        match &self.parent {
            Parent::Us(_) => self.signal(libc::SIGTERM),
            Parent::Warden(warden) => warden.ask_to_end(),
        }
    }

    /// Ends what a [bound](Started::bound) program left running, and waits for it, for 3 seconds at most. Gives how many
    /// processes it was.
    pub fn end_rest(&mut self) -> usize {
        match &mut self.parent {
            Parent::Us(_) => 0,
            Parent::Warden(warden) => warden.end(),
        }
    }
}

impl AsFd for Started {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.parent {
            Parent::Us(pidfd) => pidfd.as_fd(),
            Parent::Warden(warden) => warden.as_fd(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A warden kills and reaps by itself, and one that is held ends when its gate is closed.
        self.gate = None;
        if !self.ended && matches!(self.parent, Parent::Us(_)) {
            self.signal(libc::SIGKILL);
            reap(self.pid.0);
        }
    }
}

/// Waits for the end of a child of ours that nobody else waits for.
fn reap(pid: libc::pid_t) {
    // SAFETY: numbers only; nothing is written to a null status.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}

/// Whether a shell should read it: not what only looks like a program, damaged or for another processor.
fn is_text(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = file::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
    read.is_ok() && !beginning.starts_with(b"\x7fELF") && !beginning.contains(&0)
}

fn by_shell(path: &CString, arguments: &[CString]) -> Vec<CString> {
    let rest = arguments.iter().skip(1).cloned();
    [SHELL.to_owned(), path.clone()].into_iter().chain(rest).collect()
}

fn change_of(status: i32) -> Change {
    if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped
    } else {
        Change::Continued
    }
}

fn used_of(used: &libc::rusage) -> Used {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let time = |time: libc::timeval| {
        Nanos::seconds(count(time.tv_sec)) + Nanos::new(count(time.tv_usec) * 1000)
    };
    Used {
        user: time(used.ru_utime),
        system: time(used.ru_stime),
        minor_faults: count(used.ru_minflt),
        major_faults: count(used.ru_majflt),
        peak_resident: Bytes::kib(count(used.ru_maxrss)),
    }
}

/// The child: waits at the gate and becomes the program. `open` is our copy of the gate's other end.
fn become_program(
    prepared: &Prepared,
    [argv, by_shell]: &[Vec<*const libc::c_char>; 2],
    envp: &[*const libc::c_char],
    open: RawFd,
) -> ! {
    let mut byte = [0_u8];
    // SAFETY: plain system calls on descriptors and memory that live across them. The other end is closed first, so that the
    // gate opens, and the child ends, also when our parent dies.
    unsafe {
        libc::close(open);
        while libc::read(prepared.wait.as_raw_fd(), byte.as_mut_ptr().cast(), 1) == -1
            && last_errno() == Errno(libc::EINTR)
        {}
        if byte[0] != 1 {
            libc::_exit(1);
        }
    }
    let errno = ready(prepared).err().unwrap_or_else(|| {
        // SAFETY: the paths are C strings, and the lists are of such, ended by a null, all made before the fork.
        unsafe {
            libc::execve(prepared.path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            if last_errno() == Errno(libc::ENOEXEC) && prepared.shell.is_some() {
                libc::execve(SHELL.as_ptr(), by_shell.as_ptr(), envp.as_ptr());
            }
        }
        last_errno()
    });
    let errno = errno.0.to_ne_bytes();
    // SAFETY: a live descriptor and buffer; then the child ends without destructors.
    unsafe {
        libc::write(prepared.tell.as_raw_fd(), errno.as_ptr().cast(), errno.len());
        libc::_exit(127)
    }
}

/// Sets what lasts over exec.
fn ready(prepared: &Prepared) -> Result<(), Errno> {
    let done = |answer: i32| if answer == -1 { Err(last_errno()) } else { Ok(()) };
    for (number, file) in (0..).zip(prepared.standard) {
        if let Some(file) = file {
            // SAFETY: numbers only; the copy stays open over exec.
            done(unsafe { libc::dup2(file, number) })?;
        }
    }
    if prepared.own_group {
        // SAFETY: numbers only.
        done(unsafe { libc::setpgid(0, 0) })?;
    }
    done(set_thp(prepared.thp))?;
    inherited::restore();
    // SAFETY: a whole set.
    done(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const prepared.mask, ptr::null_mut()) })
}

fn set_thp(thp: Thp) -> i32 {
    let (disable, flags): (libc::c_ulong, libc::c_ulong) = match thp {
        Thp::Inherit => return 0,
        Thp::Never => (1, 0),
        Thp::Advised => (1, EXCEPT_ADVISED),
        Thp::Allowed => (0, 0),
    };
    let zero: libc::c_ulong = 0;
    // SAFETY: takes plain numbers, and changes a flag of this address space.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, zero, zero) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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

    fn end_of(started: &mut Started) -> (Change, Used) {
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
        let mut started = Started::held(&shell(&words, environment, thp), None).unwrap();
        started.release().unwrap();
        end_of(&mut started).0
    }

    #[test]
    fn the_exit_status_the_environment_and_the_setting_of_thp_get_through() {
        assert_eq!(run("exit 7", &[], Thp::Inherit), Change::Exited(7));
        assert_eq!(run("kill -9 $$", &[], Thp::Inherit), Change::Killed(9));
        let environment = [(OsString::from("A"), OsString::from("b c"))];
        assert_eq!(run("test \"$A\" = 'b c'", &environment, Thp::Inherit), Change::Exited(0));
        let off = "while read -r a b; do test $a = THP_enabled: && exit $b; done </proc/$$/status; exit 9";
        assert_eq!(run(off, &[], Thp::Never), Change::Exited(0));
        assert_eq!(run(off, &[], Thp::Allowed), Change::Exited(1));
    }

    #[test]
    fn a_text_without_an_interpreter_is_run_by_the_shell_and_a_damaged_program_is_not() {
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
            let mut started = Started::held(&program, None).unwrap();
            let ended = started.release().map(|()| end_of(&mut started).0);
            let ended = ended.map_err(|error| error.raw_os_error().unwrap());
            assert_eq!(ended, ends.map(Change::Exited), "{bytes:?}");
        }
    }

    #[test]
    fn it_waits_until_it_is_released_and_is_gone_when_it_never_is() {
        let words = words("exit 0");
        let mut started = Started::held(&shell(&words, &[], Thp::Inherit), None).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(started.changed().unwrap(), None);
        let pid = started.pid();
        drop(started);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let words = words("");
        for (path, errno) in [("/no/such/file", 2), ("/proc", 13)] {
            let program = Program { path: Path::new(path), ..shell(&words, &[], Thp::Inherit) };
            let mut started = Started::held(&program, None).unwrap();
            assert_eq!(started.release().unwrap_err().raw_os_error(), Some(errno), "{path}");
        }
    }

    #[test]
    fn a_stop_is_seen_and_what_was_used_is_counted() {
        let words = words("kill -STOP $$; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
        let mut started = Started::held(&shell(&words, &[], Thp::Inherit), None).unwrap();
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
