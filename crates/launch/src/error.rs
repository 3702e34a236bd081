//! Failures of this crate.

use std::ffi::OsStr;
use std::io;

use hugepilot_kernel::{KernelError, Unsupported, WatcherKilled};
use hugepilot_manager::ManagerError;
use hugepilot_reports::run::RunWarning;
use hugepilot_settings::SettingsError;
use hugepilot_units::Bytes;

/// Failure to start, follow or tune a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A system call or a file below `/proc` or `/sys` failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Tuning failed.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// A kernel setting could not be changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This kernel or this user cannot do it.
    #[error(transparent)]
    Refused(#[from] Unsupported),
    /// The program could not be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// Hugepilot's process that watches the program was killed.
    #[error("cannot follow {program:?}: {}", WatcherKilled)]
    Unwatched {
        /// The program.
        program: String,
    },
    /// The hugetlb pool of the mode has no free page, although it was to be raised.
    #[error("the hugetlb pool has no free page of {page_bytes}")]
    EmptyPool {
        /// Page size of the pool.
        page_bytes: Bytes,
        /// Warnings of raising it.
        warnings: Vec<RunWarning>,
    },
    /// The program ended before the first measurement.
    #[error("{what} ended before the first measurement{}", in_brackets(status))]
    Ended {
        /// The program.
        what: String,
        /// Its exit status, if known.
        status: Option<String>,
    },
    /// A signal arrived before there was a report.
    #[error("interrupted before the first result")]
    Interrupted,
    /// This signal arrived before the program was started.
    #[error("interrupted before the program was started")]
    Signalled(i32),
}

impl LaunchError {
    /// The program cannot be started or followed, for this cause.
    pub(crate) fn start(program: &OsStr, source: io::Error) -> Self {
        let program = program.to_string_lossy().into_owned();
        match WatcherKilled::is_cause(&source) {
            true => Self::Unwatched { program },
            false => Self::Start { program, source },
        }
    }
}

fn in_brackets(status: &Option<String>) -> String {
    status.as_ref().map_or_else(String::new, |status| format!(" ({status})"))
}
