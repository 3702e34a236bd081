//! `tree`: random look-ups in a B-tree from the global allocator.
//!
//! Models an ordered index. A look-up walks from the root to a leaf: the upper levels stay in the caches, the lower two
//! or three are each a dependent read of a node of some 200 bytes, somewhere in the heap. All leaves are equally hot. A
//! huge page takes the page walk out of the last, slowest steps.

use std::collections::BTreeMap;
use std::hint::black_box;

use hugepilot_units::{AddrRange, PageSizes};

use super::memory::regions_of;
use super::rng::{Rng, mix};
use super::{Machine, MemoryConfig, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "tree";

/// A full leaf holds 11 entries in 192 bytes, its inner node a twelfth more, the allocator's headers the rest.
const BYTES_PER_ENTRY: usize = 21;

/// Building sorts the entries in a list of 16 bytes each before the tree takes them.
const PEAK_PERCENT: u64 = 180;

pub(super) struct TreeLookups {
    tree: BTreeMap<u64, u64>,
    seed: u64,
    sizes: PageSizes,
}

impl TreeLookups {
    pub(super) fn prepare(config: MemoryConfig, machine: &Machine) -> Result<Self> {
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
        let (tree, seed) = (&self.tree, self.seed);
        let worker = |index| Box::new(Reader { tree, rng: Rng::new(seed, index), sum: 0 }) as Box<_>;
        (0..threads).map(worker).collect()
    }
}

struct Reader<'a> {
    tree: &'a BTreeMap<u64, u64>,
    rng: Rng,
    sum: u64,
}

impl Worker for Reader<'_> {
    fn step(&mut self, ops: u64) {
        let sum = look_up(self.tree, &mut self.rng, ops);
        self.sum = black_box(self.sum.wrapping_add(sum));
    }
    fn checksum(&self) -> u64 {
        self.sum
    }
    fn batch(&self) -> u64 {
        1 << 10
    }
}

/// Sums the values of `look_ups` random keys, all of them present.
#[inline(never)]
fn look_up(tree: &BTreeMap<u64, u64>, rng: &mut Rng, look_ups: u64) -> u64 {
    let (mut random, mut sum) = (*rng, 0_u64);
    for _ in 0..look_ups {
        if let Some(value) = tree.get(&(random.below(tree.len()) as u64)) {
            sum = sum.wrapping_add(*value);
        }
    }
    *rng = random;
    sum
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;
    use crate::LabError;
    use hugepilot_kernel::Pages;
    use hugepilot_units::Bytes;

    const SMALL: MemoryConfig = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };

    #[test]
    fn every_look_up_finds_its_value() {
        let lookups = TreeLookups::prepare(SMALL, &ROOMY).unwrap();
        let mut rng = Rng::new(1, 0);
        let keys = (0..1000).map(|_| rng.below(lookups.tree.len()) as u64);
        let expected = keys.fold(0_u64, |sum, key| sum.wrapping_add(mix(key)));
        assert_eq!(look_up(&lookups.tree, &mut Rng::new(1, 0), 1000), expected);
    }

    #[test]
    fn nodes_take_about_the_footprint() {
        let hot = TreeLookups::prepare(SMALL, &ROOMY).unwrap().hot();
        let spanned = hot.iter().map(|range| range.len()).sum::<Bytes>();
        assert!((Bytes::mib(4)..=Bytes::mib(12)).contains(&spanned), "{spanned}");
    }

    #[test]
    fn pages_cannot_be_chosen() {
        let asked = MemoryConfig { pages: Pages::Base, ..SMALL };
        assert!(matches!(
            TreeLookups::prepare(asked, &ROOMY),
            Err(LabError::PagesNotOurs { workload: NAME })
        ));
    }
}
