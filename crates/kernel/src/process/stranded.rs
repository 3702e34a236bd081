//! Memory that large pages hold and the process does not map.
//!
//! A program that frees a part of a huge page, as allocators do with `MADV_DONTNEED`, unmaps it.
//! The page stays whole: neither the resident nor the huge memory of the process shows the freed
//! part, but the machine and the cgroup lack it until memory is short.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use hugepilot_record::{LargePages, Stranded};
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};
use rustix::fs::OFlags;

use super::Process;
use super::frames::Frame;
use crate::{Result, Target, thp};

/// Flags of a page frame (Documentation/admin-guide/mm/pagemap.rst).
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;
const THP: u64 = 1 << 22;
/// Frames of a block whose flags are read at once. No large page of anonymous memory crosses one.
const BLOCK: u64 = 512;

impl Process {
    /// Finds as [`Target::large_pages`] says.
    pub(super) fn find_large_pages(
        &self,
        ranges: &[AddrRange],
        only_stranded: bool,
    ) -> Result<Option<LargePages>> {
        let Some(flags) = self.frame_flags() else { return Ok(None) };
        if thp::mapped_in_part(&self.root, self.sizes) == Some(0)
            && (only_stranded
                || thp::smaller_large_pages(&self.root, self.sizes) == Some(Bytes::ZERO))
        {
            return Ok(Some(LargePages::default()));
        }
        let pagemap = File::from(self.open_file("pagemap", OFlags::empty())?);
        let mut large = Frames { flags, block: None, pages: BTreeMap::new() };
        for &range in ranges {
            for run in self.page_runs(range)? {
                // A huge page that is mapped as a whole strands nothing.
                if !run.present || run.huge || run.zero || run.file {
                    continue;
                }
                let Some(frames) = self.frames(&pagemap, run.range)? else { return Ok(None) };
                if frames.into_iter().any(|frame| large.note(frame).is_none()) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(large.found(self.sizes)))
    }
}

/// Frames of large pages that are mapped by base pages.
struct Frames {
    flags: File,
    /// Number and flags of the block that was read last.
    block: Option<(u64, Vec<u64>)>,
    /// The pages, by their first frame.
    pages: BTreeMap<u64, LargePage>,
}

struct LargePage {
    /// Base pages.
    size: u64,
    /// Base pages that the process maps.
    mapped: u64,
    is_shared: bool,
    /// A base page that is mapped.
    page: VirtAddr,
}

impl Frames {
    /// Counts a mapped base page. `None` if its flags cannot be read.
    fn note(&mut self, frame: Frame) -> Option<()> {
        let (first, size) = self.around(frame.number)?;
        if size > 1 {
            let new = LargePage { size, mapped: 0, is_shared: false, page: frame.address };
            let large = self.pages.entry(first).or_insert(new);
            large.mapped += 1;
            large.is_shared |= !frame.is_exclusive;
        }
        Some(())
    }

    /// First frame and frames of the page that has this frame; one frame if it is a base page.
    fn around(&mut self, frame: u64) -> Option<(u64, u64)> {
        let number = frame / BLOCK;
        if self.block.as_ref().is_none_or(|(read, _)| *read != number) {
            let mut bytes = vec![0; BLOCK as usize * 8];
            self.flags.read_exact_at(&mut bytes, number * BLOCK * 8).ok()?;
            let words = bytes.chunks_exact(8);
            let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
            self.block = Some((number, words.collect()));
        }
        let (_, flags) = self.block.as_ref()?;
        let within = usize::try_from(frame % BLOCK).ok()?;
        if flags[within] & THP == 0 {
            return Some((frame, 1));
        }
        let is_head = |flags: &u64| flags & COMPOUND_HEAD != 0;
        let Some(head) = flags[..=within].iter().rposition(is_head) else {
            return Some((frame, 1));
        };
        let is_tail = |flags: &&u64| **flags & COMPOUND_TAIL != 0;
        let tail = flags[head + 1..].iter().take_while(is_tail).count();
        Some((number * BLOCK + head as u64, 1 + tail as u64))
    }

    /// The pages without the shared ones: a split of these would change the memory of other
    /// processes, and fails.
    fn found(self, sizes: PageSizes) -> LargePages {
        let mut found = LargePages::default();
        for large in self.pages.into_values().filter(|large| !large.is_shared) {
            let held = large.size.saturating_sub(large.mapped);
            if held > 0 {
                let bytes = sizes.base.times(held);
                found.stranded.push(Stranded { page: large.page, bytes });
            }
            if large.size < sizes.base_per_huge() {
                found.smaller += sizes.base.times(large.mapped);
            }
        }
        found.stranded.sort_unstable_by_key(|one| one.page);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_parts_of_large_pages_are_counted_once_each() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut flags = vec![0_u64; 1024];
        // A page of 16 frames, a hugetlb page beside it, and a huge page in the second block.
        flags[16] = THP | COMPOUND_HEAD;
        flags[17..32].fill(THP | COMPOUND_TAIL);
        flags[32] = COMPOUND_HEAD;
        flags[512] = THP | COMPOUND_HEAD;
        flags[513..].fill(THP | COMPOUND_TAIL);
        let bytes: Vec<u8> = flags.iter().flat_map(|flags| flags.to_ne_bytes()).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let found = |frames: &[u64], exclusive: u64| {
            let flags = file.reopen().unwrap();
            let mut large = Frames { flags, block: None, pages: BTreeMap::new() };
            for &number in frames {
                let address = VirtAddr::new(number * 4096);
                let is_exclusive = number != exclusive;
                large.note(Frame { address, number, is_exclusive }).unwrap();
            }
            let LargePages { stranded, smaller } = large.found(PageSizes::X86_64);
            let stranded = stranded.iter();
            let stranded = stranded.map(|one| (one.page.get() / 4096, one.bytes.get() / 4096));
            (stranded.collect::<Vec<_>>(), smaller.get() / 4096)
        };
        let all: Vec<u64> = (16..32).collect();
        assert_eq!(found(&[5, 32, 33], 0), (vec![], 0), "small, and hugetlb");
        assert_eq!(found(&all, 0), (vec![], 16));
        assert_eq!(found(&all[3..], 0), (vec![(19, 3)], 13));
        // Moved pages of one large page are at different addresses.
        assert_eq!(found(&[600, 20, 513], 0), (vec![(20, 15), (600, 510)], 1));
        assert_eq!(found(&[600, 20, 513], 513), (vec![(20, 15)], 1), "shared after a fork");
    }
}
