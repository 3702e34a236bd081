//! Errors of this crate.

use hugepilot_kernel::{KernelError, Unsupported};
use hugepilot_record::Pid;

/// Error of a tune, a debloat or the daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A call of the kernel failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Sampling is not permitted or not possible.
    #[error("cannot sample process {pid}: {source}")]
    Sample {
        /// The process.
        pid: Pid,
        /// Cause.
        source: KernelError,
    },
    /// Promoting memory of the process is not permitted.
    #[error("cannot promote memory: {0}")]
    Promote(#[source] KernelError),
    /// A process ended before it could be measured.
    #[error("{what} ended before it could be measured{}", in_brackets(status.as_deref()))]
    Ended {
        /// The process.
        what: String,
        /// Exit status or signal, if known.
        status: Option<String>,
    },
    /// Memory use of a cgroup cannot be compared with a limit.
    #[error("cannot watch {directory}: {what}")]
    Cgroup {
        /// Directory of the cgroup.
        directory: String,
        /// Cause.
        what: &'static str,
    },
    /// The kernel or the machine does not support it.
    #[error(transparent)]
    Refused(#[from] Unsupported),
}

fn in_brackets(status: Option<&str>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
