//! Starts a program so that it can be watched from its first instruction.
//!
//! The program is not started directly: a gate is, which waits until the sampler is attached and then becomes the program
//! by exec. The gate is this very executable, called with [`GATE_ARGUMENT`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use hugepilot_record::Pid;

use crate::ManagerError;

/// First argument of the executable that makes it a gate; then the descriptor to wait on, then the command.
pub const GATE_ARGUMENT: &str = "__gate";

/// What a shell's exit status is for a command that cannot be run; the gate's, too.
pub const NOT_STARTED: u8 = 127;

/// Lines that wait to be read for figures, and the longest of them.
const MAX_LINES: usize = 4096;
const MAX_LINE: u64 = 64 << 10;

/// A started program, held at the gate until released. Killed on drop when it was never released.
pub struct Launched {
    name: String,
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
        if let Err(source) = find(command.first().map_or(OsStr::new(""), OsString::as_os_str)) {
            return Err(ManagerError::Start { program, source });
        }
        let name =
            hugepilot_kernel::proc::printable(program.rsplit('/').next().unwrap_or_default().as_bytes());
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
            start().map_err(|source: io::Error| ManagerError::Start { program, source })?;
        let lines = child.stdout.take().map(pass_on);
        Ok(Self { name, child, gate: Some(gate), lines })
    }

    /// The program's file name.
    pub fn name(&self) -> &str {
        &self.name
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
    /// [`ManagerError::Start`].
    pub fn began(&mut self) -> Result<(), ManagerError> {
        match self.ended() {
            Some(status) if status.code() == Some(NOT_STARTED.into()) => {
                let source = io::Error::other("the system could not run it");
                Err(ManagerError::Start { program: self.name.clone(), source })
            }
            _ => Ok(()),
        }
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

    /// Asks it to stop (SIGTERM), and after five seconds makes it.
    pub fn stop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid().0).filter(|_| self.ended().is_none()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
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

/// Whether `program` can be started, looked for as exec does: as a path when it holds a slash, else along `PATH`.
fn find(program: &OsStr) -> io::Result<()> {
    use rustix::fs::{Access, access};
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let not_found = || rustix::io::Errno::NOENT.into();
    if program.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match path.try_exists() {
            Ok(true) if runs(path) => Ok(()),
            Ok(true) => Err(rustix::io::Errno::ACCESS.into()),
            Ok(false) => Err(not_found()),
            Err(error) => Err(error),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| runs(&directory.join(program)));
    if found && !program.is_empty() { Ok(()) } else { Err(not_found()) }
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

/// What the gate does: waits for one byte on `descriptor`, then becomes `command`. Returns only when that failed.
pub fn gate(descriptor: &OsStr, command: &[OsString]) -> io::Error {
    let wait = || -> io::Result<()> {
        let number =
            descriptor.to_str().and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
        // The program must not inherit it.
        hugepilot_kernel::close_on_exec(number)?;
        let mut byte = [0];
        File::open(Path::new("/proc/self/fd").join(descriptor))?.read_exact(&mut byte)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find(OsStr::new("sh")).is_ok() && find(OsStr::new("/bin/sh")).is_ok());
        assert_eq!(find(OsStr::new("/no/such/program")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("no-such-program")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("/")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(find(OsStr::new("")).is_err());
    }
}
