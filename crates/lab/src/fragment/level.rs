//! Decisions while memory is fragmented, and the count of fragmented blocks. Pure.

use std::collections::HashSet;

use hugepilot_reports::lab::weather::Shortfall;
use hugepilot_units::{Bytes, PageSizes, Share};

/// Huge pages that are allocated at once, then split, then pinned. Fewer if huge pages are scarce:
/// until the pin, compaction may move a page to a block that has one.
pub const CHUNK: u64 = 128;
/// Fewest huge pages of a request.
const LEAST: u64 = 8;
/// Memory that stays available.
pub const GUARD: Bytes = Bytes::mib(1536);
/// Compactions of all memory, each of which takes seconds.
const COMPACTIONS: u32 = 8;

/// Returns the distinct huge-page-sized blocks that hold `frames`.
pub fn distinct_blocks(frames: &[u64], sizes: PageSizes) -> HashSet<u64> {
    frames.iter().map(|frame| frame / sizes.base_per_huge()).collect()
}

/// Returns the number of blocks that a level of `base` blocks is, rounded up.
pub fn blocks_of(level: Share, base: u64) -> u64 {
    // In millionths of a block, so that a share is exact and any part of a block counts.
    level.of(Bytes::new(base.saturating_mul(1_000_000))).get().div_ceil(1_000_000)
}

/// Progress of a fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Blocks to reach.
    pub wanted: u64,
    /// Distinct blocks so far.
    pub distinct: u64,
    /// Compactions so far.
    pub compactions: u32,
    /// Huge pages of the next request.
    chunk: u64,
    /// Huge pages that were refused since the kernel last granted one. It defers compaction, so
    /// one says little.
    refused: u64,
    /// Whether memory was compacted since the kernel last granted one.
    is_compacted: bool,
}

/// Next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Fragment this number of blocks.
    Keep(u64),
    /// Compact memory: the kernel grants no huge page.
    Compact,
    /// The level holds.
    Done,
    /// The level cannot be reached.
    Stop(Shortfall),
}

impl Build {
    /// Starts with no blocks.
    pub const fn new(wanted: u64) -> Self {
        let (distinct, compactions) = (0, 0);
        let (refused, is_compacted) = (0, false);
        Self { wanted, distinct, compactions, chunk: CHUNK, refused, is_compacted }
    }

    /// Decides the next action, with this memory available.
    pub fn next(&self, available: Bytes, sizes: PageSizes) -> Next {
        if self.distinct >= self.wanted {
            return Next::Done;
        }
        let room = (available - GUARD).get() / sizes.huge.get();
        if room == 0 {
            let (available_bytes, guard_bytes) = (available, GUARD);
            return Next::Stop(Shortfall::MemoryGuard { available_bytes, guard_bytes });
        }
        if self.refused < CHUNK {
            return Next::Keep(self.chunk.min(room).min(self.wanted - self.distinct));
        }
        if self.is_compacted || self.compactions == COMPACTIONS {
            return Next::Stop(Shortfall::NoFreeBlocks);
        }
        Next::Compact
    }

    /// Records that of `requested` huge pages the kernel granted and split `granted`, which brought
    /// `gained` distinct blocks.
    pub fn kept(&mut self, requested: u64, granted: u64, gained: u64) {
        self.distinct += gained;
        self.refused = if granted == 0 { self.refused + requested } else { 0 };
        self.is_compacted &= granted == 0;
        let is_scarce = granted < requested || gained < granted;
        let chunk = if is_scarce { self.chunk / 4 } else { self.chunk * 2 };
        self.chunk = chunk.clamp(LEAST, CHUNK);
    }

    /// Records a compaction of all memory.
    pub const fn compacted(&mut self) {
        self.compactions += 1;
        self.is_compacted = true;
        self.refused = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: PageSizes = PageSizes::X86_64;
    const PLENTY: Bytes = Bytes::gib(8);

    #[test]
    fn blocks_count_once_however_many_pages_they_hold() {
        let blocks = distinct_blocks(&[0, 511, 512, 513, 1024 * 512], SIZES);
        assert_eq!(blocks, HashSet::from([0, 1, 1024]));
    }

    #[test]
    fn a_level_is_rounded_up_to_whole_blocks() {
        let table = [("50%", 12_052, 6026), ("5%", 30, 2), ("100%", 7, 7), ("0%", 7, 0)];
        for (level, base, blocks) in table {
            assert_eq!(blocks_of(level.parse().unwrap(), base), blocks, "{level} of {base}");
        }
    }

    #[test]
    fn requests_stay_within_the_level_the_chunk_and_the_guard() {
        let build = |wanted| Build::new(wanted);
        assert_eq!(build(1000).next(PLENTY, SIZES), Next::Keep(CHUNK));
        assert_eq!(build(5).next(PLENTY, SIZES), Next::Keep(5));
        assert_eq!(build(1000).next(GUARD + Bytes::mib(7), SIZES), Next::Keep(3));
        let cause = Shortfall::MemoryGuard { available_bytes: GUARD, guard_bytes: GUARD };
        assert_eq!(build(1).next(GUARD, SIZES), Next::Stop(cause));
        assert_eq!(build(0).next(Bytes::ZERO, SIZES), Next::Done);
    }

    #[test]
    fn refusals_lead_to_one_compaction_and_further_ones_end_it() {
        let mut build = Build::new(1000);
        build.kept(128, 3, 3);
        assert_eq!(build.next(PLENTY, SIZES), Next::Keep(32), "some were granted");
        build.kept(100, 0, 0);
        assert_eq!(build.next(PLENTY, SIZES), Next::Keep(8), "few were refused");
        build.kept(28, 0, 0);
        assert_eq!(build.next(PLENTY, SIZES), Next::Compact);
        build.compacted();
        assert_eq!(build.next(PLENTY, SIZES), Next::Keep(8));
        build.kept(128, 0, 0);
        assert_eq!(build.next(PLENTY, SIZES), Next::Stop(Shortfall::NoFreeBlocks));
    }

    #[test]
    fn requests_shrink_while_huge_pages_are_scarce_and_grow_again() {
        let mut build = Build::new(10_000);
        let mut after = |requested, granted, gained| {
            build.kept(requested, granted, gained);
            build.next(PLENTY, SIZES)
        };
        assert_eq!(after(128, 128, 128), Next::Keep(128));
        assert_eq!(after(128, 128, 127), Next::Keep(32), "a page was moved");
        assert_eq!(after(32, 31, 31), Next::Keep(8), "one was refused");
        assert_eq!(after(8, 8, 8), Next::Keep(16));
        assert_eq!(after(16, 1, 0), Next::Keep(8), "not fewer");
    }

    proptest! {
        /// Against a machine with free blocks, some of which compaction makes.
        #[test]
        fn it_ends_with_the_level_or_with_every_block(
            wanted in 0_u64..3000,
            free in 0_u64..2000,
            compactions in prop::collection::vec(0_u64..500, 0..12),
        ) {
            let (mut build, mut free, mut total) = (Build::new(wanted), free, 0);
            let mut more = compactions.iter().copied();
            for _ in 0..4000 {
                match build.next(PLENTY, SIZES) {
                    Next::Keep(count) => {
                        let granted = count.min(free);
                        free -= granted;
                        total += granted;
                        build.kept(count, granted, granted);
                    }
                    Next::Compact => {
                        free += more.next().unwrap_or(0);
                        build.compacted();
                    }
                    Next::Done => {
                        prop_assert_eq!(build.distinct, wanted);
                        return Ok(());
                    }
                    Next::Stop(_) => {
                        prop_assert!(free == 0 && build.distinct == total && total < wanted);
                        return Ok(());
                    }
                }
            }
            prop_assert!(false, "it does not end");
        }
    }
}
