//! A program that is held until it can be watched from its first instruction, and whose output is read.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, Thp, find_program};
use hugepilot_record::Pid;
use hugepilot_record::run::Ending;

use crate::LaunchError;

/// Lines that wait to be read for figures, and the longest of them.
const MAX_LINES: usize = 4096;
const MAX_LINE: u64 = 64 << 10;

/// A started program, held until released. It and all that it starts are killed on drop, and when we are.
pub struct Launched {
    name: String,
    child: StartedProgram,
    ended: Option<Ending>,
    /// What it prints, line by line.
    pub lines: Option<Receiver<String>>,
}

impl Launched {
    /// Starts `command`, held. Its standard output is passed on to our standard error, because ours is for the report, and comes
    /// line by line through [`Launched::lines`].
    ///
    /// # Errors
    /// [`LaunchError::Start`].
    pub fn start(command: &[OsString]) -> Result<Self, LaunchError> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let path = find_program(program).map_err(|source| cannot_start(program, source))?;
        let name = path.file_name().unwrap_or_default();
        let name = hugepilot_kernel::proc::printable(name.as_encoded_bytes());
        let start = || {
            let (output, end) = io::pipe()?;
            let environment: Vec<_> = std::env::vars_os().collect();
            let standard = [None, Some(end.as_fd()), None];
            let program = Program {
                path: &path,
                arguments: command,
                environment: &environment,
                thp: Thp::Inherit,
                standard,
                own_group: false,
            };
            Ok((StartedProgram::bound(&program)?, output))
        };
        let (child, output) = start().map_err(|source| cannot_start(program, source))?;
        Ok(Self { name, child, ended: None, lines: Some(pass_on(output)) })
    }

    /// The program's file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process number, held or released.
    pub const fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Lets the program begin, and waits until it has: about a millisecond.
    ///
    /// # Errors
    /// [`LaunchError::Start`] with the reason why the system cannot run it.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        self.child.release().map_err(|source| cannot_start(OsStr::new(&self.name), source))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<Ending> {
        while self.ended.is_none() {
            match self.child.changed() {
                Ok(Some((Change::Exited(status), _))) => self.ended = Some(Ending::Exited(status)),
                Ok(Some((Change::Killed(signal), _))) => self.ended = Some(Ending::Killed(signal)),
                Ok(Some((Change::Stopped | Change::Continued, _))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.ended
    }

    /// Waits for its end, or until `interrupted`, and then stops it.
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) {
        while self.ended().is_none() {
            if interrupted() {
                return self.stop();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asks it to stop (SIGTERM), and after a second makes it.
    pub fn stop(&mut self) {
        self.child.ask_to_end();
        let deadline = Instant::now() + Duration::from_secs(3);
        while self.ended().is_none() {
            if Instant::now() > deadline {
                // It was killed, and waits in the kernel.
                self.ended = Some(Ending::Killed(rustix::process::Signal::KILL.as_raw()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends what it left running, and says how many processes that was.
    pub fn end_rest(&mut self) -> usize {
        self.child.end_rest()
    }
}

fn cannot_start(program: &OsStr, source: io::Error) -> LaunchError {
    LaunchError::Start { program: program.to_string_lossy().into_owned(), source }
}

/// Whether `program` can be started, as far as its file says.
///
/// # Errors
/// [`LaunchError::Start`]: ENOENT, EACCES.
pub fn check(program: &OsStr) -> Result<(), LaunchError> {
    find_program(program).map(drop).map_err(|source| cannot_start(program, source))
}

/// Copies lines to our standard error and into a channel, on a thread of its own that ends with the pipe.
fn pass_on(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(MAX_LINES);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            // A line without an end is passed on piece by piece.
            match pipe.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let _ = io::stderr().write_all(&line);
            // Nobody may be reading figures; the program's output is passed on all the same.
            let _ = sender.try_send(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            line.clear();
        }
    });
    receiver
}
