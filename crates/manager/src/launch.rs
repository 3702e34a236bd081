//! Starts a program so that it can be watched from its first instruction.
//!
//! The program is not started directly: a gate is, which waits until the sampler is attached and then becomes the program
//! by exec. The gate is this very executable, called with [`GATE_ARGUMENT`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use hugepilot_record::Pid;

use crate::ManagerError;

/// First argument of the executable that makes it a gate; then the descriptor to wait on, then the command.
pub const GATE_ARGUMENT: &str = "__gate";

/// What a shell's exit status is for a command that is not there; the gate's, too.
pub const NOT_STARTED: u8 = 127;

/// A started program, held at the gate until released. Killed on drop when it was never released.
pub struct Launched {
    program: String,
    child: Child,
    gate: Option<OwnedFd>,
    /// What it prints, line by line.
    pub lines: Option<Receiver<String>>,
}

impl Launched {
    /// Starts `command` behind the gate. Its standard output is passed on to our standard error, because ours is for the
    /// report, and comes line by line through [`Launched::lines`].
    ///
    /// # Errors
    /// [`ManagerError::Start`].
    pub fn start(command: &[OsString]) -> Result<Self, ManagerError> {
        let program = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let start = || {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            rustix::io::fcntl_setfd(&read, rustix::io::FdFlags::empty())?;
            let child = Command::new("/proc/self/exe")
                .arg(GATE_ARGUMENT)
                .arg(read.as_raw_fd().to_string())
                .args(command)
                .stdout(Stdio::piped())
                .spawn()?;
            Ok((child, write))
        };
        let (mut child, gate) =
            start().map_err(|source: io::Error| ManagerError::Start { program: program.clone(), source })?;
        let lines = child.stdout.take().map(pass_on);
        Ok(Self { program, child, gate: Some(gate), lines })
    }

    /// Its process number: the gate's now, the program's after release.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id().cast_signed())
    }

    /// Lets the program begin.
    pub fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            let _ = File::from(gate).write_all(&[1]);
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Whether it could be started: a gate that could not become the program has said why, and ended as a shell does.
    ///
    /// # Errors
    /// [`ManagerError::Ended`].
    pub fn began(&mut self) -> Result<(), ManagerError> {
        match self.ended() {
            Some(status) if status.code() == Some(NOT_STARTED.into()) => Err(ManagerError::Ended {
                what: format!("{:?}", self.program),
                status: Some(format!("status {NOT_STARTED}: a command that is not there, or cannot be run")),
            }),
            _ => Ok(()),
        }
    }

    /// Asks it to stop and waits for its end.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.gate.is_some() {
            self.stop();
        }
    }
}

/// Copies lines to our standard error and into a channel, on a thread of its own that ends with the pipe.
fn pass_on(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let _ = io::stderr().write_all(&[&line[..], b"\n"].concat());
            // Nobody may be reading figures; the program's output is passed on all the same.
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    receiver
}

/// What the gate does: waits for one byte on `descriptor`, then becomes `command`. Returns only when that failed.
pub fn gate(descriptor: &OsStr, command: &[OsString]) -> io::Error {
    let wait = || -> io::Result<()> {
        let mut byte = [0];
        File::open(std::path::Path::new("/proc/self/fd").join(descriptor))?.read_exact(&mut byte)?;
        Ok(())
    };
    if let Err(error) = wait() {
        return error;
    }
    match command {
        [] => io::Error::new(io::ErrorKind::InvalidInput, "no command"),
        [program, arguments @ ..] => Command::new(program).args(arguments).exec(),
    }
}
