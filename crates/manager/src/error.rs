//! What keeps a loop from doing its work.

use std::io;

use hugepilot_kernel::{KernelError, Unsupported};
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
    /// Memory of the process may not be promoted.
    #[error("cannot promote memory: {0}")]
    Promote(#[source] KernelError),
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
    Refused(#[from] Unsupported),
}
