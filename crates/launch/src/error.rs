//! Failures of this crate.

use std::io;

use hugepilot_kernel::{KernelError, Unsupported};
use hugepilot_manager::ManagerError;
use hugepilot_settings::SettingsError;

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
    /// The program ended before the first measurement.
    #[error("{what} ended before it could be measured{}", status.as_deref().map(|s| format!(" ({s})")).unwrap_or_default())]
    Ended {
        /// The program.
        what: String,
        /// Its exit status, if known.
        status: Option<String>,
    },
    /// A signal arrived before there was a report.
    #[error("interrupted before there was anything to report")]
    Interrupted,
    /// This signal arrived before the program was started.
    #[error("interrupted before the program was started")]
    Signalled(i32),
}
