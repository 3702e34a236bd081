//! Failures of this crate.

use hugepilot_kernel::{KernelError, Unsupported};

/// Failure to read or change kernel settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A system call or a file below `/proc` or `/sys` failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// This kernel or this user cannot do it.
    #[error(transparent)]
    Refused(#[from] Unsupported),
    /// Another process of hugepilot holds the settings lock.
    #[error("another hugepilot process is changing kernel settings (it holds {lock})")]
    Busy {
        /// Path of the lock file.
        lock: String,
    },
    /// A setting has another value after it was written.
    #[error("cannot set {name}: wrote {wanted}, read back {found}")]
    NotTaken {
        /// Name of the setting.
        name: String,
        /// Value written.
        wanted: String,
        /// Value read back.
        found: String,
    },
    /// The file that holds the former values is damaged or foreign.
    #[error("cannot restore kernel settings from {path}: {what}")]
    Journal {
        /// Path of the file.
        path: String,
        /// Cause.
        what: String,
    },
    /// Bits that control no prefetcher of this processor.
    #[error("bits {bits:#x} control no prefetcher: the register has {known:#x}")]
    PrefetchBits {
        /// The requested bits.
        bits: u64,
        /// Bits of the known prefetchers.
        known: u64,
    },
    /// A signal arrived before any change.
    #[error("interrupted before the first change")]
    Interrupted,
}
