//! Page frames of a process, which the kernel shows with CAP_SYS_ADMIN.

use std::fs::File;

use hugepilot_units::{AddrRange, VirtAddr};

use super::Process;
use crate::Result;

/// Flags of a word of the pagemap: in memory; mapped by no other process.
pub(super) const PRESENT: u64 = 1 << 63;
pub(super) const EXCLUSIVE: u64 = 1 << 56;
/// A guard, since Linux 6.15.
pub(super) const GUARD: u64 = 1 << 58;
/// Frame number in a word of the pagemap; 0 without CAP_SYS_ADMIN.
const NUMBER: u64 = (1 << 55) - 1;

/// Frame of a present page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Address of the page.
    pub(super) address: VirtAddr,
    /// Number of the frame.
    pub(super) number: u64,
    /// Whether no other process maps it.
    pub(super) is_exclusive: bool,
}

impl Process {
    /// Opens the flags of all page frames; `None` without CAP_SYS_ADMIN.
    pub(super) fn frame_flags(&self) -> Option<File> {
        File::open(self.root.join("proc/kpageflags")).ok()
    }

    /// Reads the frames of the present pages of `range`, in address order; `None` without
    /// CAP_SYS_ADMIN.
    pub(super) fn frames(&self, pagemap: &File, range: AddrRange) -> Result<Option<Vec<Frame>>> {
        let words = self.page_words(pagemap, range)?;
        let mut frames = Vec::with_capacity(words.len() / 8);
        for (page, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            match (word & PRESENT != 0, word & NUMBER) {
                (false, _) => {}
                (true, 0) => return Ok(None),
                (true, number) => frames.push(Frame {
                    address: range.start.plus(self.sizes.base.times(page as u64)),
                    number,
                    is_exclusive: word & EXCLUSIVE != 0,
                }),
            }
        }
        Ok(Some(frames))
    }
}
