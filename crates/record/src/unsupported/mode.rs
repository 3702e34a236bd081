//! Reasons why a program cannot run in a page mode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Mode;

/// Reason why a program cannot run in a page mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModeUnsupported {
    /// `--pool` with a mode that uses no pool.
    #[error("mode {mode} does not use a pool")]
    NoPool {
        /// Mode.
        mode: Mode,
    },
    /// The user may not raise the pool for the run.
    #[error("only root may resize a pool: {error}")]
    PoolRootRequired {
        /// Failed access.
        error: String,
    },
    /// The named library does not exist.
    #[error("no library {path}: {error}")]
    LibraryMissing {
        /// Path of the library.
        path: String,
        /// Failed access.
        error: String,
    },
    /// The loader cannot load the library.
    #[error("{path} {error}")]
    LibraryNotLoadable {
        /// Path of the library.
        path: String,
        /// Cause, such as `is not a file`.
        error: String,
    },
    /// hugepilot's library is not installed.
    #[error("no {name} beside the hugepilot executable, in ../lib or in ../lib/hugepilot")]
    LibraryNotInstalled {
        /// Name of the file.
        name: String,
    },
    /// mimalloc is not installed.
    #[error("no mimalloc in the directories that the loader searches")]
    NoMimalloc,
    /// The library cannot be read.
    #[error("cannot read {path}: {error}")]
    LibraryUnreadable {
        /// Path of the library.
        path: String,
        /// Failed access.
        error: String,
    },
    /// The library has no option for the pages of the mode.
    #[error("{path} has no option for such pages; it may not be mimalloc")]
    NoMimallocOption {
        /// Path of the library.
        path: String,
    },
    /// THP is always on, and the kernel cannot restrict it to advised memory.
    #[error(
        "the system's THP setting is always, and this kernel cannot restrict THP to advised memory \
         (PR_THP_DISABLE_EXCEPT_ADVISED, Linux 6.18)"
    )]
    ThpAlways,
    /// The user's variable names no chain of backings.
    #[error("{variable}: {error}")]
    InvalidPages {
        /// Name of the variable.
        variable: String,
        /// Cause.
        error: String,
        /// Value that works.
        usual: String,
    },
}

impl ModeUnsupported {
    pub(super) fn help(&self) -> Option<String> {
        let help = match self {
            Self::NoPool { .. } => "omit --pool",
            Self::PoolRootRequired { .. } => {
                "run it as root, or resize the pool as root: hugepilot pool set --help"
            }
            Self::LibraryNotLoadable { .. } => {
                "name the shared library itself, such as libmimalloc.so.2"
            }
            Self::LibraryNotInstalled { .. } => {
                "install it: cargo xtask install PREFIX; or name it: --library FILE"
            }
            Self::NoMimalloc => {
                "sudo apt install libmimalloc2.0 (libmimalloc3 on newer systems), or name it with \
                 --library"
            }
            Self::ThpAlways => {
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
            }
            Self::InvalidPages { variable, usual, .. } => {
                return Some(format!("unset {variable}, or {variable}={usual}"));
            }
            Self::LibraryMissing { .. }
            | Self::LibraryUnreadable { .. }
            | Self::NoMimallocOption { .. } => return None,
        };
        Some(help.to_owned())
    }
}
