//! Heat: samples per region, in a bounded table that ages.
//!
//! The promotion candidate cache (Manocha et al., MICRO'23, section 3.2) in software: one counter
//! per region, least-frequently-used replacement, and all counters halved when one saturates, which
//! keeps their order and lets old phases fade. Unlike the paper's table it also counts per base
//! page, because samples are stalls, not TLB misses. If the stalls of a region are on few pages,
//! the TLB holds them, and a huge page does not help.

use std::collections::HashMap;

use hugepilot_units::{PageSizes, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::Pattern;

/// Most memory of the page counters; 16 MiB hold 32,768 regions (64 GiB of hot memory) on x86-64.
const PAGE_COUNTER_BYTES: usize = 16 << 20;
/// Entries compared for replacement. A full scan would find the true minimum, at a cost per sample.
const VICTIM_CANDIDATES: usize = 16;
/// Samples on a page before its share counts, if its region has samples on other pages.
const MIN_SAMPLES_ON_PAGE: u8 = 3;
/// Samples of a region that are all on one page: of scattered ones, one pair in 512 is.
const MIN_SAMPLES_ON_ONLY_PAGE: u8 = 2;

/// Size of a [`Heat`] table.
#[derive(Clone, Copy, Debug)]
pub struct HeatConfig {
    /// The system's page sizes.
    pub sizes: PageSizes,
    /// Number of regions in the table.
    pub regions: usize,
}

impl HeatConfig {
    /// Returns the largest table within the memory bound.
    pub fn bounded(sizes: PageSizes) -> Self {
        let table = Self { sizes, regions: 64 };
        Self { regions: (PAGE_COUNTER_BYTES / table.per_region().max(1)).max(64), ..table }
    }

    /// Returns the base pages of a region.
    fn per_region(&self) -> usize {
        usize::try_from(self.sizes.base_per_huge()).unwrap_or(usize::MAX)
    }
}

/// Heat of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionHeat {
    /// The region.
    pub region: Region,
    /// Samples on it.
    pub samples: u32,
    /// Samples from instructions that stream through memory.
    pub streamed: u32,
    /// Samples on base pages hot enough that the TLB holds them.
    pub tlb_held: u32,
    /// Distinct base pages with samples.
    pub sampled_pages: u32,
}

impl RegionHeat {
    /// Returns the samples that a huge page could help: neither streamed nor held by the TLB. A
    /// sample may be both, so this is a lower bound.
    pub const fn scattered(&self) -> u32 {
        self.samples.saturating_sub(self.streamed).saturating_sub(self.tlb_held)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    region: Region,
    samples: u32,
    streamed: u32,
    /// Value of `Heat::ticks` at the last sample: the tie-breaker among equally cold entries.
    last_tick: u64,
}

/// A bounded table of region heat. Its memory grows with its regions, about 600 bytes each: most
/// processes stall on few.
#[derive(Debug)]
pub struct Heat {
    config: HeatConfig,
    slots: HashMap<Region, usize>,
    entries: Vec<Entry>,
    /// Counters of the base pages of each entry, `base_per_huge` to an entry.
    pages: Vec<u8>,
    addressed: u64,
    ticks: u64,
    hand: usize,
    evicted: u64,
}

impl Heat {
    /// Creates an empty table.
    pub fn new(config: HeatConfig) -> Self {
        Self {
            config,
            slots: HashMap::new(),
            entries: Vec::new(),
            pages: Vec::new(),
            addressed: 0,
            ticks: 0,
            hand: 0,
            evicted: 0,
        }
    }

    /// Counts one sample at `address`.
    pub fn add(&mut self, address: VirtAddr, pattern: Pattern) {
        let sizes = self.config.sizes;
        let region = sizes.region_of(address);
        let slot = self.slot_for(region);
        self.ticks += 1;
        self.addressed += 1;
        let entry = &mut self.entries[slot];
        entry.samples += 1;
        entry.streamed += u32::from(pattern == Pattern::Streamed);
        entry.last_tick = self.ticks;
        let page =
            slot * self.per_region() + usize::try_from(sizes.page_in_region(address)).unwrap_or(0);
        self.pages[page] += 1;
        if self.pages[page] == u8::MAX {
            self.age();
        }
    }

    /// Halves every counter, and removes entries without samples. The order is kept (MICRO'23,
    /// section 3.2.1).
    pub fn age(&mut self) {
        for count in &mut self.pages {
            *count /= 2;
        }
        let mut slot = 0;
        while slot < self.entries.len() {
            let entry = &mut self.entries[slot];
            entry.samples /= 2;
            entry.streamed /= 2;
            if entry.samples == 0 { self.remove(slot) } else { slot += 1 }
        }
        self.addressed = self.entries.iter().map(|entry| u64::from(entry.samples)).sum();
    }

    /// Returns every region with its heat, hottest first, ties by address. `tlb_entries` is the
    /// number of base pages that the TLB holds: a page with more than that share of all samples is
    /// used again before its eviction.
    pub fn regions(&self, tlb_entries: u32) -> Vec<RegionHeat> {
        let mut regions: Vec<_> =
            (0..self.entries.len()).map(|slot| self.region_heat(slot, tlb_entries)).collect();
        regions.sort_by_key(|heat| (std::cmp::Reverse(heat.samples), heat.region));
        regions
    }

    /// Returns the samples that were counted and have not aged away.
    pub const fn addressed(&self) -> u64 {
        self.addressed
    }
    /// Returns the number of regions evicted from the full table.
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    fn region_heat(&self, slot: usize, tlb_entries: u32) -> RegionHeat {
        let entry = self.entries[slot];
        let mut heat = RegionHeat {
            region: entry.region,
            samples: entry.samples,
            streamed: entry.streamed,
            tlb_held: 0,
            sampled_pages: 0,
        };
        for &count in &self.pages[slot * self.per_region()..][..self.per_region()] {
            heat.sampled_pages += u32::from(count > 0);
            let share_is_large = u64::from(count) * u64::from(tlb_entries) > self.addressed;
            let is_only = u32::from(count) == entry.samples;
            let least = if is_only { MIN_SAMPLES_ON_ONLY_PAGE } else { MIN_SAMPLES_ON_PAGE };
            if count >= least && share_is_large {
                heat.tlb_held += u32::from(count);
            }
        }
        heat
    }

    fn per_region(&self) -> usize {
        self.config.per_region()
    }

    fn slot_for(&mut self, region: Region) -> usize {
        if let Some(&slot) = self.slots.get(&region) {
            return slot;
        }
        if self.entries.len() == self.config.regions {
            self.remove(self.victim());
            self.evicted += 1;
        }
        let slot = self.entries.len();
        self.entries.push(Entry { region, samples: 0, streamed: 0, last_tick: self.ticks });
        self.pages.resize(self.entries.len() * self.per_region(), 0);
        self.slots.insert(region, slot);
        slot
    }

    /// Returns the coldest of the next entries under the clock hand.
    fn victim(&self) -> usize {
        (0..VICTIM_CANDIDATES)
            .map(|step| (self.hand + step) % self.entries.len())
            .min_by_key(|&slot| (self.entries[slot].samples, self.entries[slot].last_tick))
            .unwrap_or(0)
    }

    /// Removes an entry; the last one moves into its place.
    fn remove(&mut self, slot: usize) {
        let per_region = self.per_region();
        let last = self.entries.len() - 1;
        self.addressed -= u64::from(self.entries[slot].samples).min(self.addressed);
        self.slots.remove(&self.entries[slot].region);
        self.entries.swap_remove(slot);
        self.pages.copy_within(last * per_region.., slot * per_region);
        self.pages.truncate(last * per_region);
        if slot < last {
            self.slots.insert(self.entries[slot].region, slot);
        }
        self.hand = (slot + VICTIM_CANDIDATES) % self.config.regions;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TLB: u32 = 1536;

    fn table(regions: usize) -> Heat {
        Heat::new(HeatConfig { sizes: PageSizes::X86_64, regions })
    }
    fn address(region: u64, page: u64) -> VirtAddr {
        VirtAddr::new((region << 21) + (page << 12) + 8)
    }

    #[test]
    fn ranks_by_samples_and_counts_pages() {
        let mut heat = table(8);
        for page in 0..10 {
            heat.add(address(5, page), Pattern::Scattered);
        }
        heat.add(address(3, 0), Pattern::Streamed);
        let regions = heat.regions(TLB);
        assert_eq!(regions[0].region, Region::new(5));
        assert_eq!(
            (regions[0].samples, regions[0].sampled_pages, regions[0].scattered()),
            (10, 10, 10)
        );
        assert_eq!((regions[1].streamed, regions[1].scattered()), (1, 0));
    }

    #[test]
    fn a_region_whose_heat_is_on_few_pages_is_held_by_the_tlb() {
        let mut heat = table(8);
        for i in 0..200 {
            heat.add(address(1, i % 2), Pattern::Scattered);
            heat.add(address(2, i), Pattern::Scattered);
        }
        let regions = heat.regions(TLB);
        let of = |n| *regions.iter().find(|heat| heat.region == Region::new(n)).unwrap();
        assert_eq!(of(1).scattered(), 0);
        assert_eq!(of(2).scattered(), 200);
    }

    #[test]
    fn two_samples_on_one_page_tell_only_if_the_region_has_no_others() {
        let mut heat = table(8);
        for (region, page) in [(1, 7), (1, 7), (2, 7), (2, 7), (2, 8), (3, 7)] {
            heat.add(address(region, page), Pattern::Scattered);
        }
        let held: Vec<_> =
            heat.regions(TLB).iter().map(|heat| (heat.region.get(), heat.tlb_held)).collect();
        assert_eq!(held, [(2, 0), (1, 2), (3, 0)]);
    }

    #[test]
    fn a_saturated_page_halves_all_and_keeps_the_order() {
        let mut heat = table(8);
        for _ in 0..40 {
            heat.add(address(2, 7), Pattern::Scattered);
        }
        for _ in 0..255 {
            heat.add(address(1, 7), Pattern::Scattered);
        }
        let regions = heat.regions(TLB);
        assert_eq!(regions.iter().map(|r| r.samples).collect::<Vec<_>>(), [127, 20]);
    }

    #[test]
    fn a_full_table_evicts_cold_regions() {
        let mut heat = table(64);
        for round in 0..20 {
            for hot in 0..32 {
                heat.add(address(hot, round), Pattern::Scattered);
            }
        }
        for cold in 1000..4000 {
            heat.add(address(cold, 0), Pattern::Scattered);
        }
        let kept = heat.regions(TLB).iter().filter(|r| r.region.get() < 32).count();
        assert!(
            kept >= 29,
            "replacement compares {VICTIM_CANDIDATES} entries, so nearly all hot ones stay: {kept}"
        );
        assert_eq!(heat.evicted(), 3000 - 32);
    }

    #[test]
    fn memory_grows_with_the_regions_and_only_with_them() {
        let mut heat = Heat::new(HeatConfig::bounded(PageSizes::X86_64));
        assert_eq!((heat.config.regions, heat.pages.capacity()), (32_768, 0));
        for sample in 0..1000 {
            heat.add(address(sample % 50, sample % 512), Pattern::Scattered);
        }
        assert!((50 * 512..=100 * 512).contains(&heat.pages.capacity()));
        assert_eq!(heat.pages.len(), 50 * 512);
    }

    proptest! {
        /// Against a brute-force count, while the table has room and nothing saturates.
        #[test]
        fn counts_like_a_map(samples in prop::collection::vec((0_u64..40, 0_u64..512), 0..200)) {
            let mut heat = table(64);
            let mut truth: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for &(region, page) in &samples {
                heat.add(address(region, page), Pattern::Scattered);
                truth.entry(region).or_default().push(page);
            }
            for counted in heat.regions(TLB) {
                let mut pages = truth.remove(&counted.region.get()).unwrap();
                prop_assert_eq!(counted.samples as usize, pages.len());
                pages.sort_unstable();
                pages.dedup();
                prop_assert_eq!(counted.sampled_pages as usize, pages.len());
            }
            prop_assert!(truth.is_empty());
        }

        /// Page counters of an evicted entry never leak into its successor.
        #[test]
        fn pages_never_exceed_samples(
            samples in prop::collection::vec((0_u64..300, 0_u64..512), 0..2000),
        ) {
            let mut heat = table(64);
            for &(region, page) in &samples {
                heat.add(address(region, page), Pattern::Scattered);
            }
            let regions = heat.regions(TLB);
            prop_assert!(regions.iter().all(|r| r.sampled_pages <= r.samples));
            let total = regions.iter().map(|r| u64::from(r.samples)).sum::<u64>();
            prop_assert_eq!(total, heat.addressed());
        }
    }
}
