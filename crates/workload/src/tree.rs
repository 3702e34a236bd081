//! `tree`: random lookups in a B-tree from the global allocator.
//!
//! Models an ordered index. A lookup walks from the root to a leaf. The upper levels stay in the
//! caches; each of the lower two or three is a dependent read of a node of about 200 bytes,
//! somewhere in the heap. All leaves are equally hot. A huge page removes the page walk from the
//! last, slowest steps.

use std::collections::BTreeMap;

use hugepilot_units::{AddrRange, PageSizes};

use super::lookups::{Index, readers};
use super::memory::regions_of;
use super::rng::mix;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "tree";

/// Memory per entry: a full leaf holds 11 entries in 192 bytes, its inner node adds a twelfth, the
/// allocator's headers the rest.
const BYTES_PER_ENTRY: usize = 21;

/// Peak memory in percent: building sorts the entries in a list of 16 bytes each.
const PEAK_PERCENT: u64 = 180;

pub(super) struct TreeLookups {
    tree: BTreeMap<u64, u64>,
    seed: u64,
    sizes: PageSizes,
}

impl TreeLookups {
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        config.refuse_pages(NAME)?;
        let entries = config.fitting(NAME, PEAK_PERCENT, machine)?.as_usize() / BYTES_PER_ENTRY;
        let tree = (0..entries as u64).map(|key| (key, mix(key))).collect();
        Ok(Self { tree, seed: config.seed, sizes: machine.sizes })
    }
}

impl Workload for TreeLookups {
    fn hot(&self) -> Vec<AddrRange> {
        regions_of(self.tree.values(), self.sizes)
    }

    fn footprint_bytes(&self) -> u64 {
        (self.tree.len() * BYTES_PER_ENTRY) as u64
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        readers(self, self.seed, threads)
    }
}

impl Index for TreeLookups {
    const NAME: &'static str = NAME;
    const BATCH: u64 = 1 << 10;

    fn entries(&self) -> usize {
        self.tree.len()
    }
    #[inline]
    fn look_up(&self, number: usize) -> Option<u64> {
        self.tree.get(&(number as u64)).copied()
    }
    #[inline]
    fn expected(&self, number: usize) -> u64 {
        mix(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;
    use crate::WorkloadError;
    use hugepilot_kernel::Pages;
    use hugepilot_units::Bytes;
    use std::collections::BTreeSet;

    const SMALL: MemoryConfig = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };

    #[test]
    fn every_look_up_finds_its_value() {
        let lookups = TreeLookups::prepare(SMALL, &ROOMY).unwrap();
        let entries = lookups.entries();
        assert!(entries > 100_000);
        assert!((0..entries).all(|number| lookups.look_up(number) == Some(mix(number as u64))));
    }

    #[test]
    fn nodes_take_about_the_footprint() {
        let lookups = TreeLookups::prepare(SMALL, &ROOMY).unwrap();
        // Pages, not regions: other tests leave holes in the heap that nodes may fill.
        let page = |value: &u64| std::ptr::from_ref(value).addr() >> 12;
        let pages: BTreeSet<usize> = lookups.tree.values().map(page).collect();
        let taken = Bytes::kib(4).times(pages.len() as u64);
        assert!((Bytes::mib(3)..=Bytes::mib(6)).contains(&taken), "{taken}");
        let spanned = lookups.hot().iter().map(|range| range.len()).sum::<Bytes>();
        assert!(spanned >= taken, "{spanned}");
    }

    #[test]
    fn pages_cannot_be_chosen() {
        let config = MemoryConfig { pages: Pages::Base, ..SMALL };
        assert!(matches!(
            TreeLookups::prepare(config, &ROOMY),
            Err(WorkloadError::PagesUnsupported { workload: NAME })
        ));
    }
}
