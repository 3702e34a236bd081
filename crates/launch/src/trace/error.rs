//! Failures of sources of traces.

use std::io;
use std::path::{Path, PathBuf};

use hugepilot_record::trace::TraceError;

/// Failure of the source of a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceSourceError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A stored trace is damaged, or not a trace.
    #[error("{}: {source}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause, with the position.
        source: TraceError,
    },
}

impl TraceSourceError {
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// Returns suggestions, the likeliest first.
    pub fn help(&self) -> Vec<String> {
        let help: &[&str] = match self {
            Self::Read { .. } => &[],
            Self::Damaged { source: TraceError::Header(_), .. } => {
                &["record a trace: hugepilot trace -o FILE -- CMD"]
            }
            Self::Damaged { .. } => &["record the trace again; the pieces before are readable"],
        };
        help.iter().map(|&help| help.to_owned()).collect()
    }
}
