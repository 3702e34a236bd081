//! Errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use hugepilot_record::{Errno, Pid};

/// Failure, with its object and cause. The command line adds help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A file under `/proc` or `/sys` could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be written: a setting, or a file of hugepilot.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file does not have the format of its kernel interface.
    #[error("{}:{line}: expected {expected}, found {found:?}", path.display())]
    Parse {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Expected text.
        expected: &'static str,
        /// Text found, shortened.
        found: String,
    },
    /// A system call about a process failed.
    #[error("{call} on process {pid} failed: {errno}")]
    Syscall {
        /// Call, as its manual page names it.
        call: &'static str,
        /// Process; the calling one for calls that name none.
        pid: Pid,
        /// Error number.
        errno: Errno,
    },
    /// The process does not exist.
    #[error("no process {pid}")]
    NoProcess {
        /// Requested process.
        pid: Pid,
    },
    /// Another process holds the [`crate::Claim`] on the process.
    #[error("process {pid} is changed by another run of hugepilot, {}", describe_holder(*holder))]
    Claimed {
        /// Process to change.
        pid: Pid,
        /// Holder; `None` if it runs in another PID namespace.
        holder: Option<Pid>,
    },
    /// The process has no memory.
    #[error("process {pid} ({command}) has no memory: it is {what}")]
    NoMemory {
        /// Requested process.
        pid: Pid,
        /// Name.
        command: String,
        /// Reason, such as a kernel thread or a zombie.
        what: &'static str,
    },
}

fn describe_holder(holder: Option<Pid>) -> String {
    holder.map_or_else(
        || "which is in another PID namespace".to_owned(),
        |holder| format!("process {holder}"),
    )
}

impl KernelError {
    pub(crate) fn read(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Read { path: path.to_owned(), source: source.into() }
    }
    /// Returns the error of writing `path`.
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
    /// Returns the error number, if the kernel returned one.
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
    /// Whether the process has ended (ENOENT or ESRCH). After any other error it may be alive.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::NoProcess { .. } => true,
            Self::Read { .. } => matches!(self.errno(), Some(Errno::ENOENT | Errno::ESRCH)),
            // For a perf event, ENOENT means that the event does not exist.
            _ => self.errno() == Some(Errno::ESRCH),
        }
    }
    /// Whether the kernel or the processor lacks the feature (ENOSYS, ENOTTY, ENODEV, EOPNOTSUPP).
    pub fn is_unsupported(&self) -> bool {
        let lacking = [Errno::ENOSYS, Errno::ENOTTY, Errno::ENODEV, Errno::EOPNOTSUPP];
        matches!(self, Self::Syscall { errno, .. } if lacking.contains(errno))
    }
    /// Whether a permission is missing (EPERM or EACCES).
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(Errno::EPERM | Errno::EACCES))
    }
}
