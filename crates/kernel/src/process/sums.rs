//! Sums over all memory of a process.

use hugepilot_units::Bytes;

use super::Process;
use crate::proc::kib;
use crate::{KernelError, Result};

impl Process {
    /// Its resident anonymous memory (`RssAnon` of `status`). Takes no right, for any process.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`] when it is gone, or has given up its memory.
    pub fn anonymous(&self) -> Result<Bytes> {
        kib(&self.text("status")?, "RssAnon:").ok_or(KernelError::NoProcess { pid: self.id.pid })
    }

    /// What of it is on huge pages (`AnonHugePages` of `smaps_rollup`).
    ///
    /// # Errors
    /// EACCES or EPERM without the right to look at it; [`KernelError::NoProcess`].
    pub fn anonymous_huge(&self) -> Result<Bytes> {
        kib(&self.text("smaps_rollup")?, "AnonHugePages:")
            .ok_or(KernelError::NoProcess { pid: self.id.pid })
    }
}
