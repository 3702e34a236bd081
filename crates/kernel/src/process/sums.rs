//! Sums over all memory of a process.

use hugepilot_units::Bytes;

use super::Process;
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
        kib(&self.text("smaps_rollup")?, "AnonHugePages:").ok_or(KernelError::NoProcess { pid: self.id.pid })
    }
}

/// The number of KiB after `label`.
fn kib(text: &str, label: &str) -> Option<Bytes> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_ascii_whitespace().next()?.parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_blanks_before_it_and_its_unit_after() {
        let text = "RssAnon:\t     132 kB\nRssFile:\t    4 kB\n";
        assert_eq!((kib(text, "RssAnon:"), kib(text, "VmSwap:")), (Some(Bytes::kib(132)), None));
    }
}
