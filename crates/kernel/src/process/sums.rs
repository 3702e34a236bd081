//! Sums over all memory of a process.

use hugepilot_units::Bytes;

use super::Process;
use crate::proc::kib;
use crate::{KernelError, Result};

impl Process {
    /// Reads its resident anonymous memory (`RssAnon` of `status`). Requires no permission.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] if it is gone or has freed its memory.
    pub fn anonymous(&self) -> Result<Bytes> {
        kib(&self.text("status")?, "RssAnon:").ok_or(KernelError::NoProcess { pid: self.id.pid })
    }

    /// Reads its anonymous memory on huge pages (`AnonHugePages` of `smaps_rollup`).
    ///
    /// # Errors
    /// EACCES or EPERM without permission to read it; [`KernelError::NoProcess`].
    pub fn anonymous_huge(&self) -> Result<Bytes> {
        kib(&self.text("smaps_rollup")?, "AnonHugePages:")
            .ok_or(KernelError::NoProcess { pid: self.id.pid })
    }
}
