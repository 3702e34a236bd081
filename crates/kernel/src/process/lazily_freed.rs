//! Lazily freed pages of a region (`MADV_FREE`), by the flags of their page frames.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugepilot_units::Region;
use rustix::fs::OFlags;

use super::Process;
use crate::Result;

/// Flags of a page frame (Documentation/admin-guide/mm/pagemap.rst).
const DIRTY: u64 = 1 << 4;
const ANONYMOUS: u64 = 1 << 12;
const SWAP_BACKED: u64 = 1 << 14;
const COMPOUND_TAIL: u64 = 1 << 16;
const ZERO_PAGE: u64 = 1 << 24;

impl Process {
    /// Counts as [`crate::Target::lazily_freed`] says.
    pub(super) fn count_lazily_freed(&self, region: Region) -> Result<Option<u64>> {
        let Some(flags) = self.frame_flags() else { return Ok(None) };
        let pagemap = File::from(self.open_file("pagemap", OFlags::empty())?);
        let frames = self.frames(&pagemap, region.range(self.sizes))?;
        let numbers = frames.map(|frames| frames.iter().map(|frame| frame.number).collect());
        Ok(numbers.and_then(|numbers: Vec<u64>| count(&flags, &numbers)))
    }
}

/// Counts the lazily freed pages of `frames`, in the order of their addresses. `None` if the flags
/// cannot be read.
fn count(flags: &File, frames: &[u64]) -> Option<u64> {
    let mut freed = 0;
    let mut is_head_freed = true;
    // Neighbours in memory are often neighbours in physical memory: one read for each run.
    for run in frames.chunk_by(|before, after| before + 1 == *after) {
        let mut words = vec![0_u8; run.len() * 8];
        flags.read_exact_at(&mut words, run[0] * 8).ok()?;
        for word in words.chunks_exact(8) {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            // Older kernels set the flags of a folio at its first page only.
            let is_freed = if word & COMPOUND_TAIL != 0 && word & SWAP_BACKED == 0 {
                is_head_freed
            } else {
                word & ANONYMOUS != 0 && word & (SWAP_BACKED | DIRTY | ZERO_PAGE) == 0
            };
            is_head_freed = is_freed;
            freed += u64::from(is_freed);
        }
    }
    Some(freed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_folio_hold_for_its_tail() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kept = ANONYMOUS | SWAP_BACKED;
        let flags = [
            ANONYMOUS,             // lazily freed
            kept,                  // in use
            ANONYMOUS | DIRTY,     // written again
            ANONYMOUS | ZERO_PAGE, // the shared zero page
            0,                     // of a file
            kept,                  // a folio in use, and its tail
            ANONYMOUS | COMPOUND_TAIL,
            ANONYMOUS, // a lazily freed folio, and its tail
            ANONYMOUS | COMPOUND_TAIL,
        ];
        let bytes: Vec<u8> = flags.iter().flat_map(|flags| flags.to_ne_bytes()).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let frames: Vec<u64> = (0..9).collect();
        assert_eq!(count(file.as_file(), &frames), Some(3));
        assert_eq!(count(file.as_file(), &[1, 0, 7]), Some(2));
        assert_eq!(count(file.as_file(), &[9]), None, "beyond the last frame");
    }
}
