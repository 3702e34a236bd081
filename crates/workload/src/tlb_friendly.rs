//! `tlb-friendly`: a few very hot pages, a scan, and much resident memory that is never read.
//!
//! The negative control. Half of the operations read random words of a few hot base pages, each in
//! its own region as far as there are regions. Many samples may be there, but the TLB holds all
//! these pages. The other half scan an array in order, where one page walk serves 512 reads. Huge
//! pages gain nothing anywhere, so no page should be promoted.

use std::hint::black_box;

use hugepilot_kernel::AnonMap;
use hugepilot_units::{AddrRange, Bytes};

use super::hot_set::gather;
use super::rng::{Rng, mix};
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "tlb-friendly";

/// Parameters of `tlb-friendly`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbFriendlyConfig {
    /// Footprint, pages and seed.
    pub memory: MemoryConfig,
    /// Scanned memory, from the start. Rounded up to huge pages.
    pub scan: Bytes,
    /// Hot base pages in the memory after the scan. 64 fit in the first-level TLB of any server.
    pub hot_pages: usize,
}

impl TlbFriendlyConfig {
    /// 64 hot pages and a scan of 128 MiB, in 1 GiB.
    pub const DEFAULT: Self =
        Self { memory: MemoryConfig::DEFAULT, scan: Bytes::mib(128), hot_pages: 64 };
}

pub(super) struct TlbFriendly {
    map: AnonMap,
    /// Scanned words.
    scan: usize,
    /// First words of the hot pages.
    hot: Vec<usize>,
    /// Words in a base page.
    page: usize,
    seed: u64,
}

impl TlbFriendly {
    pub(super) fn prepare(config: TlbFriendlyConfig, machine: &MemoryLimits) -> Result<Self> {
        let (base, huge) = (machine.sizes.base, machine.sizes.huge);
        let footprint = config.memory.fitting(NAME, 100, machine)?;
        let scan =
            Bytes::new(config.scan.get().checked_next_multiple_of(huge.get()).unwrap_or(u64::MAX));
        if scan < huge {
            return Err(WorkloadError::TooSmall { flag: "--scan", value: config.scan, min: huge });
        }
        if scan >= footprint {
            return Err(WorkloadError::PartTooLarge {
                flag: "--scan",
                value: scan,
                max: footprint - huge,
            });
        }
        let room = footprint - scan;
        let hot = base.times(config.hot_pages as u64);
        if hot < base || hot > room {
            let max = room.get() / base.get();
            return Err(WorkloadError::HotPages { value: config.hot_pages, max });
        }
        let map = config.memory.resident(NAME, machine)?;
        let words = |bytes: Bytes| bytes.as_usize() / size_of::<u64>();
        let hot =
            spread(config.hot_pages, words(room), words(huge), words(base), config.memory.seed);
        let hot = hot.into_iter().map(|word| words(scan) + word).collect();
        Ok(Self { map, scan: words(scan), hot, page: words(base), seed: config.memory.seed })
    }
}

/// Returns the starts of `count` distinct pages of `page` words within `room`: round-robin over its
/// regions of `region` words, each at a random place.
fn spread(count: usize, room: usize, region: usize, page: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed, usize::MAX);
    let (regions, per_region) = (room / region, region / page);
    let offset = rng.below(per_region);
    // Odd, so that its multiples visit all pages of a region before they repeat.
    let stride = rng.below(per_region) | 1;
    let place = |i: usize| (offset + i * stride) % per_region;
    (0..count).map(|i| i % regions * region + place(i / regions + i % regions) * page).collect()
}

impl Workload for TlbFriendly {
    fn hot(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn footprint_bytes(&self) -> u64 {
        self.map.range().len().get()
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let (words, part) = (self.map.words(), self.scan / threads);
        let worker = |index| {
            let (scan, rng) = (&words[..self.scan], Rng::new(self.seed, index));
            let hot = &self.hot;
            Box::new(Reader { words, hot, page: self.page, scan, at: part * index, rng, sum: 0 })
                as Box<_>
        };
        (0..threads).map(worker).collect()
    }
}

struct Reader<'a> {
    words: &'a [u64],
    hot: &'a [usize],
    page: usize,
    scan: &'a [u64],
    /// Next word of the scan.
    at: usize,
    rng: Rng,
    sum: u64,
}

impl Worker for Reader<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        let hot = gather(self.words, self.hot, self.page, &mut self.rng, ops / 2);
        self.sum = black_box(self.sum.wrapping_add(hot));
        let mut left = (ops - ops / 2) as usize;
        while left > 0 {
            let part = self.at..self.at + left.min(self.scan.len() - self.at);
            left -= part.len();
            self.at = if part.end == self.scan.len() { 0 } else { part.end };
            self.sum = black_box(self.sum.wrapping_add(scan(&self.scan[part])));
        }
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        Ok(self.sum)
    }
}

/// Sums consecutive words, mixed: the work on each word lets the prefetchers hide the page walks.
#[inline(never)]
fn scan(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(mix(*word)))
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;

    fn config(footprint: u64, scan: u64, hot_pages: usize) -> TlbFriendlyConfig {
        let memory = MemoryConfig { footprint: Bytes::mib(footprint), ..MemoryConfig::DEFAULT };
        TlbFriendlyConfig { memory, scan: Bytes::mib(scan), hot_pages }
    }

    #[test]
    fn hot_pages_are_distinct_aligned_after_the_scan_and_spread() {
        let workload = TlbFriendly::prepare(config(16, 8, 64), &ROOMY).unwrap();
        let mut pages = workload.hot.clone();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 64);
        assert!(pages.iter().all(|page| page % 512 == 0 && (1 << 20..2 << 20).contains(page)));
        for region in 4..8 {
            assert_eq!(pages.iter().filter(|&page| page >> 18 == region).count(), 16);
        }
        assert!(workload.hot().is_empty());
    }

    #[test]
    fn half_of_the_operations_scan_everything_in_turn() {
        let mut workload = TlbFriendly::prepare(config(6, 2, 1), &ROOMY).unwrap();
        let scan = workload.scan as u64;
        let whole = workload.map.words()[..workload.scan]
            .iter()
            .fold(0_u64, |sum, word| sum.wrapping_add(mix(*word)));
        let quiet = workload.hot[0];
        workload.map.words_mut()[quiet..quiet + 512].fill(0);
        let mut worker = workload.workers(1).pop().unwrap();
        for _ in 0..8 {
            worker.step(scan / 4).unwrap();
        }
        assert_eq!(worker.checksum().unwrap(), whole);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let fails =
            |scan, pages| TlbFriendly::prepare(config(16, scan, pages), &ROOMY).err().unwrap();
        assert!(matches!(fails(16, 64), WorkloadError::PartTooLarge { flag: "--scan", .. }));
        assert!(matches!(fails(0, 64), WorkloadError::TooSmall { .. }));
        assert!(matches!(fails(8, 4096), WorkloadError::HotPages { .. }));
    }
}
