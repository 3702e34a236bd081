//! `hash-map`: random lookups in a hash map from the global allocator.
//!
//! Models an in-memory index or cache. A lookup reads a group of control bytes and one bucket, at
//! two unrelated addresses of the same table, so it takes two page walks on base pages. Lookups
//! overlap. All of the table is equally hot. The program requests no huge pages: only the system's
//! setting or another process can promote it.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::lookups::{Index, readers};
use super::memory::whole_regions;
use super::rng::mix;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "hash-map";

/// A key, a value and a control byte.
const BYTES_PER_BUCKET: usize = 2 * size_of::<u64>() + 1;

/// Hash that returns the key itself: keys are random already, and the layout depends on the seed
/// only.
#[derive(Default)]
struct KeyItself(u64);

impl Hasher for KeyItself {
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = mix(self.0 ^ u64::from(byte)));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Map = HashMap<u64, u64, BuildHasherDefault<KeyItself>>;

pub(super) struct HashMapLookups {
    map: Map,
    seed: u64,
    sizes: PageSizes,
}

impl HashMapLookups {
    /// Fills the largest table, a power of two of buckets, that fits into the footprint.
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        config.refuse_pages(NAME)?;
        let max = config.fitting(NAME, 100, machine)?.as_usize() / BYTES_PER_BUCKET;
        let buckets = 1_usize << max.ilog2();
        let entries = buckets / 8 * 7;
        let mut map = Map::with_capacity_and_hasher(entries, BuildHasherDefault::default());
        for number in 0..entries {
            map.insert(key(config.seed, number), number as u64);
        }
        Ok(Self { map, seed: config.seed, sizes: machine.sizes })
    }
}

/// Returns the key of an entry; all keys differ.
#[inline]
fn key(seed: u64, number: usize) -> u64 {
    mix(seed ^ ((number as u64) << 8))
}

impl Workload for HashMapLookups {
    fn hot(&self) -> Vec<AddrRange> {
        // The buckets come first, then one control byte for each.
        let first = self.map.values().map(|value| std::ptr::from_ref(value).addr() as u64).min();
        let table = first
            .map(|first| AddrRange::at(VirtAddr::new(first), Bytes::new(self.footprint_bytes())));
        whole_regions(table, self.sizes)
    }

    fn footprint_bytes(&self) -> u64 {
        self.map.allocation_size() as u64
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        readers(self, self.seed, threads)
    }
}

impl Index for HashMapLookups {
    const NAME: &'static str = NAME;
    const BATCH: u64 = 1 << 12;

    fn entries(&self) -> usize {
        self.map.len()
    }
    #[inline]
    fn look_up(&self, number: usize) -> Option<u64> {
        self.map.get(&key(self.seed, number)).copied()
    }
    #[inline]
    fn expected(&self, number: usize) -> u64 {
        number as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;
    use crate::WorkloadError;
    use hugepilot_kernel::Pages;

    const SMALL: MemoryConfig = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };

    #[test]
    fn fills_its_footprint_and_finds_every_key() {
        let lookups = HashMapLookups::prepare(SMALL, &ROOMY).unwrap();
        let entries = lookups.map.len();
        assert_eq!(entries, (1 << 17) / 8 * 7);
        assert!((2 << 20..=4 << 20).contains(&lookups.footprint_bytes()));
        let hot = lookups.hot();
        assert!(hot.len() == 1 && hot[0].len().get() >= lookups.footprint_bytes(), "{hot:?}");
        assert!((0..entries).all(|number| lookups.look_up(number) == Some(number as u64)));
    }

    #[test]
    fn pages_cannot_be_chosen() {
        let config = MemoryConfig { pages: Pages::Huge, ..SMALL };
        assert!(matches!(
            HashMapLookups::prepare(config, &ROOMY),
            Err(WorkloadError::PagesUnsupported { workload: NAME })
        ));
    }
}
