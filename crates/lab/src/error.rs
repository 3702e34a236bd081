//! Errors of this crate.

use std::io;
use std::path::PathBuf;

use hugepilot_kernel::{KernelError, WatcherKilled};
use hugepilot_record::{Errno, Sentence};
use hugepilot_reports::lab::weather::WeatherRefusal;
use hugepilot_units::Bytes;

/// Failure to make or keep a condition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file of the kernel could not be read or written.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The condition is not made: unsafe, impossible, or not permitted.
    #[error("{}", .0.text())]
    Refused(WeatherRefusal),
    /// A call of the process that holds the memory failed.
    #[error("cannot {request}: {errno}")]
    Holder {
        /// Request.
        request: String,
        /// Error number.
        errno: Errno,
    },
    /// The process that holds the memory could not be started.
    #[error("cannot start the process that holds the memory: {0}")]
    NoHolder(#[source] io::Error),
    /// The process that holds the memory ended.
    #[error("the process that holds the memory ended; the level is gone")]
    HolderEnded,
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The program could not be started or followed.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// A fixed pressure ended, so that no process is killed.
    #[error("only {available} are available, so the memory is no longer held")]
    Danger {
        /// Available memory.
        available: Bytes,
    },
    /// A request to end came before the level was reached.
    #[error("interrupted before the level was reached")]
    Interrupted,
}

impl LabError {
    /// Suggestions for users, the likeliest first.
    pub fn help(&self) -> Vec<String> {
        match self {
            Self::Refused(refusal) => refusal.help(),
            Self::Program { source, .. } if WatcherKilled::is_cause(source) => {
                vec![WatcherKilled::HELP.to_owned()]
            }
            _ => Vec::new(),
        }
    }

    /// Makes the error of a request to the holder from its error number.
    pub(crate) fn of_holder(request: &str, errno: Errno) -> Self {
        let word = request.split(' ').next().unwrap_or_default();
        match (word, errno) {
            ("keep", Errno::EPERM) => Self::Refused(WeatherRefusal::NoFrames),
            ("ring", Errno::EPERM | Errno::ENOSYS) => Self::Refused(WeatherRefusal::NoIoUring),
            ("keep", Errno::ENOMEM | Errno::EAGAIN) => Self::Refused(WeatherRefusal::LockLimit),
            ("lock", Errno::EPERM) => Self::Refused(WeatherRefusal::LockLimit),
            ("lock", Errno::ENOMEM | Errno::EAGAIN) if is_lock_limited() => {
                Self::Refused(WeatherRefusal::LockLimit)
            }
            _ => Self::Holder { request: request.to_owned(), errno },
        }
    }
}

/// Whether RLIMIT_MEMLOCK bounds this process: root may lock more.
fn is_lock_limited() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.is_some() && !rustix::process::geteuid().is_root()
}
