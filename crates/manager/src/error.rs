//! What keeps a loop from doing its work.

use std::io;

use hugepilot_kernel::{KernelError, Refusal};
use hugepilot_record::Pid;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The kernel said no.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Sampling is not allowed or not possible.
    #[error("cannot sample process {pid}: {source}")]
    Sample {
        /// Which process.
        pid: Pid,
        /// Why not.
        source: KernelError,
    },
    /// A program could not be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// The file that the figure of merit should come from cannot be read.
    #[error("cannot read {path}: {source}")]
    Progress {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A process ended before there was anything to measure.
    #[error("{what} ended before it could be measured{}", status.as_deref().map(|s| format!(" ({s})")).unwrap_or_default())]
    Ended {
        /// Which.
        what: String,
        /// How, if known.
        status: Option<String>,
    },
    /// A cgroup whose memory use cannot be held against a limit.
    #[error("cannot watch {directory}: {what}")]
    Cgroup {
        /// Its directory.
        directory: String,
        /// Why not.
        what: &'static str,
    },
    /// It is not to be had here, and why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another run has the kernel's settings in hand.
    #[error(
        "another run of hugepilot has changed settings of the kernel for a while (it holds {lock})"
    )]
    SettingsBusy {
        /// The file that it has locked.
        lock: String,
    },
    /// A setting of the kernel did not take a value.
    #[error("the setting {name} was set to {wanted}, but is {found}")]
    SettingNotTaken {
        /// Which.
        name: String,
        /// What was written.
        wanted: String,
        /// What was read back.
        found: String,
    },
    /// The file that says what settings were is none that we wrote.
    #[error("cannot tell from {path} what the kernel's settings were: {what}")]
    SettingsJournal {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// Ctrl-C came before there was anything to report.
    #[error("interrupted before there was anything to report")]
    Interrupted,
    /// This signal came before the program was started.
    #[error("interrupted before the program was started")]
    Signalled(i32),
}
