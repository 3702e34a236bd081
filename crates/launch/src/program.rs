//! A program that is held until it can be observed from its first instruction.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, LastUse, Program, StartedProgram, find_program, wait};
use hugepilot_manager::tune::{check_permissions, open};
use hugepilot_record::{Ending, Pid};

use crate::LaunchError;

/// Unread lines of output, and their longest length.
const MAX_LINES: usize = 4096;
const MAX_LINE: u64 = 64 << 10;

/// End of a program that was killed.
const KILLED: Ending = Ending::Killed(rustix::process::Signal::KILL.as_raw());

/// A started program, held until released. It and its descendants are killed on drop, and with
/// hugepilot.
pub struct LaunchedProgram {
    name: String,
    child: StartedProgram,
    ended: Option<Ending>,
    /// Whether its watcher was killed, so that its end is not known.
    is_unwatched: bool,
    /// Its output, line by line.
    pub lines: Option<Receiver<String>>,
}

impl LaunchedProgram {
    /// Starts `command`, held. Its stdout goes to stderr, because stdout is for the report, and
    /// line by line to [`LaunchedProgram::lines`].
    ///
    /// # Errors
    /// [`LaunchError::Start`].
    pub fn start(command: &[OsString]) -> Result<Self, LaunchError> {
        let (output, end) = io::pipe().map_err(|source| cannot_start(command, source))?;
        let environment: Vec<_> = std::env::vars_os().collect();
        let program = Self::start_to(command, &environment, end.as_fd())?;
        Ok(Self { lines: Some(copy_lines(output)), ..program })
    }

    /// Starts `command`, held, with this environment and its stdout on this stream.
    ///
    /// # Errors
    /// [`LaunchError::Start`].
    pub(crate) fn start_to(
        command: &[OsString],
        environment: &[(OsString, OsString)],
        stdout: BorrowedFd<'_>,
    ) -> Result<Self, LaunchError> {
        let start = || {
            let path = find_program(name_of(command))?;
            let program = Program {
                standard: [None, Some(stdout), None],
                ..Program::inheriting(&path, command, environment)
            };
            let name = path.file_name().unwrap_or_default();
            let name = hugepilot_kernel::proc::printable(name.as_encoded_bytes());
            let child = StartedProgram::bound(&program)?;
            Ok(Self { name, child, ended: None, is_unwatched: false, lines: None })
        };
        start().map_err(|source| cannot_start(command, source))
    }

    /// File name of the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pid, held or released.
    pub const fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Lets the program start, and waits until it has: about a millisecond.
    ///
    /// # Errors
    /// [`LaunchError::Start`] if the system cannot run it.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        let started = self.child.release();
        started.map_err(|source| LaunchError::start(OsStr::new(&self.name), source))
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_some() || wait::readable(&[self.child.as_fd()], Duration::ZERO)
    }

    /// Returns how it ended; `None` if it has not. A program whose watcher was killed is killed,
    /// too; see [`Self::check_watched`].
    pub fn ended(&mut self) -> Option<Ending> {
        while self.ended.is_none() {
            match self.child.changed() {
                Ok(Some((Change::Exited(status), _))) => self.ended = Some(Ending::Exited(status)),
                Ok(Some((Change::Killed(signal), _))) => self.ended = Some(Ending::Killed(signal)),
                Ok(Some((Change::Stopped | Change::Continued, _))) => {}
                Ok(None) => break,
                Err(_) => {
                    self.is_unwatched = true;
                    self.ended = Some(KILLED);
                }
            }
        }
        self.ended
    }

    /// Checks at its end that hugepilot's process that watches it was not killed.
    ///
    /// # Errors
    /// [`LaunchError::Unwatched`].
    pub fn check_watched(&self) -> Result<(), LaunchError> {
        let unwatched = || LaunchError::Unwatched { program: self.name.clone() };
        self.is_unwatched.then(unwatched).map_or(Ok(()), Err)
    }

    /// Its use until its end; `None` before [`Self::ended`].
    pub(crate) const fn last_use(&self) -> Option<&LastUse> {
        self.child.last_use()
    }

    /// Waits for its end. If `interrupted`, ends it.
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) {
        while self.ended().is_none() {
            if interrupted() {
                return self.stop();
            }
            wait::readable(&[self.child.as_fd()], Duration::from_millis(50));
        }
    }

    /// Ends it with SIGTERM, after a second with SIGKILL.
    pub fn stop(&mut self) {
        self.child.ask_to_end();
        let deadline = Instant::now() + Duration::from_secs(3);
        while self.ended().is_none() {
            if Instant::now() > deadline {
                // It was killed, and is in an uninterruptible sleep.
                self.ended = Some(KILLED);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the processes that it left running, and counts them.
    pub fn end_rest(&mut self) -> usize {
        self.child.end_rest()
    }
}

/// The program of a command line; empty without one.
fn name_of(command: &[OsString]) -> &OsStr {
    command.first().map_or(OsStr::new(""), OsString::as_os_str)
}

/// The error that `command` cannot be started.
pub(crate) fn cannot_start(command: &[OsString], source: io::Error) -> LaunchError {
    LaunchError::start(name_of(command), source)
}

/// Checks the file of `program`.
///
/// # Errors
/// [`LaunchError::Start`]: ENOENT, EACCES.
pub fn check(program: &OsStr) -> Result<(), LaunchError> {
    find_program(program).map(drop).map_err(|source| LaunchError::start(program, source))
}

/// Tests whether `command` can be started and its process be tuned, on a process that is held, and
/// ended before it executes the program.
///
/// # Errors
/// [`LaunchError::Start`]: ENOENT, EACCES; the errors of [`check_permissions`].
pub fn check_tunable(command: &[OsString], dry_run: bool) -> Result<(), LaunchError> {
    // No thread copies its output: the first thread of a process changes the handling of a signal
    // of the C library, which the program to tune would inherit.
    let held = LaunchedProgram::start_to(command, &[], io::stderr().as_fd())?;
    Ok(check_permissions(&open(held.pid())?, dry_run)?)
}

/// Copies lines to stderr and to a channel, on a thread that ends with the pipe.
fn copy_lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(MAX_LINES);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            // A line without an end is copied in parts.
            match pipe.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let _ = io::stderr().write_all(&line);
            // Without a reader of the channel, the output still goes to stderr.
            let _ = sender.try_send(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            line.clear();
        }
    });
    receiver
}
