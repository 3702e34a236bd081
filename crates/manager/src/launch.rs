//! Starts a program so that it can be watched from its first instruction.
//!
//! The program is not started directly: a gate is, which waits until the sampler is attached and then becomes the program
//! by exec. The gate is this very executable, called with [`GATE_ARGUMENT`]. Two pipes join it to us: on one it waits for a
//! byte, and on the other it says why exec failed; exec closes that one unwritten, so an exit status says nothing about it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use hugepilot_record::Pid;

use crate::ManagerError;

/// First argument of the executable that makes it a gate; the rest is for [`gate`].
pub const GATE_ARGUMENT: &str = "__gate";

/// Lines that wait to be read for figures, and the longest of them.
const MAX_LINES: usize = 4096;
const MAX_LINE: u64 = 64 << 10;

/// A started program, held at the gate until released. Killed on drop when it was never released.
pub struct Launched {
    name: String,
    child: Child,
    /// What opens the gate, and what tells of its failure.
    gate: Option<(OwnedFd, OwnedFd)>,
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
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let path = find(program).map_err(|source| cannot_start(program, source))?;
        let name = path.file_name().unwrap_or_default();
        let name = hugepilot_kernel::proc::printable(name.as_encoded_bytes());
        let start = || {
            let (wait, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let (failure, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            rustix::io::fcntl_setfd(&wait, rustix::io::FdFlags::empty())?;
            rustix::io::fcntl_setfd(&tell, rustix::io::FdFlags::empty())?;
            let child = Command::new("/proc/self/exe")
                .arg(GATE_ARGUMENT)
                .args([&wait, &tell].map(|end| end.as_raw_fd().to_string()))
                .arg(path)
                .args(command)
                .stdout(Stdio::piped())
                .spawn()?;
            Ok((child, (open, failure)))
        };
        let (mut child, gate) = start().map_err(|source| cannot_start(program, source))?;
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

    /// Lets the program begin, and waits until it has: about a millisecond.
    ///
    /// # Errors
    /// [`ManagerError::Start`] with the reason why the system cannot run it.
    pub fn release(&mut self) -> Result<(), ManagerError> {
        let Some((open, failure)) = self.gate.take() else { return Ok(()) };
        // A gate that was killed reads nothing; its end tells.
        let _ = File::from(open).write_all(&[1]);
        let mut errno = [0; 4];
        if File::from(failure).read_exact(&mut errno).is_err() {
            return Ok(());
        }
        let _ = self.child.wait();
        Err(cannot_start(OsStr::new(&self.name), io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
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

fn cannot_start(program: &OsStr, source: io::Error) -> ManagerError {
    ManagerError::Start { program: program.to_string_lossy().into_owned(), source }
}

/// The file that `program` names, looked for as a shell does: as a path when it holds a slash, else along `PATH`.
pub(crate) fn find(program: &OsStr) -> io::Result<PathBuf> {
    use rustix::fs::{Access, access};
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let not_found = || rustix::io::Errno::NOENT.into();
    if program.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match path.try_exists() {
            Ok(true) if runs(&path) => Ok(path),
            Ok(true) => Err(rustix::io::Errno::ACCESS.into()),
            Ok(false) => Err(not_found()),
            Err(error) => Err(error),
        };
    }
    let path = std::env::var_os("PATH").filter(|_| !program.is_empty()).unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| runs(path))
        .ok_or_else(not_found)
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

/// What the gate does: waits for one byte on the first descriptor, then becomes the program. Its arguments are two
/// descriptors, the program's file, and the command. Where that fails it writes the error number to the second descriptor.
pub fn gate(arguments: &[OsString]) -> ExitCode {
    let [wait, tell, path, command @ ..] = arguments else { return ExitCode::FAILURE };
    let failed = match pass(wait, tell) {
        Ok(()) => hugepilot_kernel::exec(Path::new(path), command),
        Err(error) => error,
    };
    let errno = failed.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
    if let Ok(mut tell) = File::options().write(true).open(Path::new("/proc/self/fd").join(tell)) {
        let _ = tell.write_all(&errno.to_ne_bytes());
    }
    ExitCode::FAILURE
}

/// Keeps both descriptors from the program, and waits at the first.
fn pass(wait: &OsStr, tell: &OsStr) -> io::Result<()> {
    for descriptor in [wait, tell] {
        let number = descriptor.to_str().and_then(|text| text.parse().ok());
        hugepilot_kernel::close_on_exec(number.ok_or(rustix::io::Errno::BADF)?)?;
    }
    File::open(Path::new("/proc/self/fd").join(wait))?.read_exact(&mut [0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("/no/such/program")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("no-such-program")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("/")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(find(OsStr::new("")).is_err());
    }
}
