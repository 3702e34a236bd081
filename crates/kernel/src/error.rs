//! What can go wrong at the door to the kernel.

use std::io;
use std::path::{Path, PathBuf};

use hugepilot_record::{Errno, Pid};

/// What went wrong, on what, and where. The command line adds what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A file under `/proc` or `/sys` could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file could not be written: a setting, or what we keep of it.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file was read but is not what this kernel interface promises.
    #[error("{}:{line}: expected {expected}, found {found:?}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A system call about a process failed.
    #[error("{call} on process {pid} failed: {errno}")]
    Syscall {
        /// Which call.
        call: &'static str,
        /// On which process; our own for calls that name none.
        pid: Pid,
        /// The kernel's answer.
        errno: Errno,
    },
    /// There is no such process.
    #[error("no process {pid}")]
    NoProcess {
        /// The number asked for.
        pid: Pid,
    },
    /// Another process holds the [`crate::Claim`] on it.
    #[error("process {pid} is changed by another run of hugepilot, {}", holder.map_or_else(|| "whose process cannot be seen from here".to_owned(), |holder| format!("process {holder}")))]
    Claimed {
        /// The process to change.
        pid: Pid,
        /// The holder; `None` if it runs in another PID namespace.
        holder: Option<Pid>,
    },
    /// A process without memory of its own.
    #[error("process {pid} ({command}) has no memory to look at: it is {what}")]
    NoMemory {
        /// The number asked for.
        pid: Pid,
        /// Its name.
        command: String,
        /// A kernel thread, a zombie, …
        what: &'static str,
    },
}

impl KernelError {
    pub(crate) fn read(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Read { path: path.to_owned(), source: source.into() }
    }
    /// Writing `path` failed.
    pub fn write(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Write { path: path.to_owned(), source: source.into() }
    }
    pub(crate) fn parse(path: &Path, line: usize, expected: &'static str, found: &[u8]) -> Self {
        let found = String::from_utf8_lossy(found).chars().take(80).collect();
        Self::Parse { path: path.to_owned(), line, expected, found }
    }
    pub(crate) fn syscall(call: &'static str, pid: Pid, errno: Errno) -> Self {
        Self::Syscall { call, pid, errno }
    }
    /// The error number behind it, where the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => {
                source.raw_os_error().map(Errno)
            }
            Self::Syscall { errno, .. } => Some(*errno),
            Self::NoProcess { .. } => Some(Errno::ESRCH),
            Self::Parse { .. } | Self::NoMemory { .. } | Self::Claimed { .. } => None,
        }
    }
    /// Whether it says that the process has ended (ENOENT or ESRCH). Every other error leaves open whether it has.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::NoProcess { .. } => true,
            Self::Read { .. } => matches!(self.errno(), Some(Errno::ENOENT | Errno::ESRCH)),
            // Of a perf event, ENOENT says that there is no such event.
            _ => self.errno() == Some(Errno::ESRCH),
        }
    }
    /// Whether the kernel or the processor lacks what was asked for (ENOSYS, ENOTTY, ENODEV, EOPNOTSUPP).
    pub fn is_unsupported(&self) -> bool {
        let lacking = [Errno::ENOSYS, Errno::ENOTTY, Errno::ENODEV, Errno::EOPNOTSUPP];
        matches!(self, Self::Syscall { errno, .. } if lacking.contains(errno))
    }
    /// Whether a right is missing (EPERM or EACCES).
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(Errno::EPERM | Errno::EACCES))
    }
}
