//! `churn`: objects of the global allocator, each replaced by one of another size.
//!
//! Models a server that allocates and frees all the time. An operation frees a random object and
//! allocates one of 16 to 1023 bytes, of which each power of two is equally likely. Each thread has
//! objects of its own. Huge pages help as far as the allocator puts objects on them.

use hugepilot_units::{AddrRange, PageSizes};

use super::memory::regions_of;
use super::rng::Rng;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "churn";

/// Mean size of an object, 252 bytes, with its place in the list.
const BYTES_PER_OBJECT: usize = 252 + size_of::<Vec<u64>>();
/// Peak memory in percent: allocators keep free memory between objects.
const PEAK_PERCENT: u64 = 150;

pub(super) struct Churn {
    /// Objects, which begin with their index.
    objects: Vec<Vec<u64>>,
    seed: u64,
    sizes: PageSizes,
}

impl Churn {
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        config.refuse_pages(NAME)?;
        let count = config.fitting(NAME, PEAK_PERCENT, machine)?.as_usize() / BYTES_PER_OBJECT;
        let mut rng = Rng::new(config.seed, usize::MAX);
        let objects = (0..count as u64).map(|index| object(index, &mut rng)).collect();
        Ok(Self { objects, seed: config.seed, sizes: machine.sizes })
    }
}

/// Allocates an object of a random size, of which the first word is written.
#[inline]
fn object(index: u64, rng: &mut Rng) -> Vec<u64> {
    let least = 2_usize << rng.below(6);
    let mut words = Vec::with_capacity(least + rng.below(least));
    words.push(index);
    words
}

impl Workload for Churn {
    fn hot(&self) -> Vec<AddrRange> {
        regions_of(self.objects.iter().filter_map(|object| object.first()), self.sizes)
    }

    fn footprint_bytes(&self) -> u64 {
        (self.objects.len() * BYTES_PER_OBJECT) as u64
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let (part, seed) = (self.objects.len() / threads, self.seed);
        let parts = self.objects.chunks_exact_mut(part).take(threads).enumerate();
        let worker = |(index, objects): (usize, _)| {
            let first = (index * part) as u64;
            Box::new(Replacer { objects, first, wrong: 0, rng: Rng::new(seed, index) }) as Box<_>
        };
        parts.map(worker).collect()
    }
}

struct Replacer<'a> {
    objects: &'a mut [Vec<u64>],
    /// Index of the first object.
    first: u64,
    /// Freed objects that did not begin with their index.
    wrong: u64,
    rng: Rng,
}

impl Worker for Replacer<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        for _ in 0..ops {
            let which = self.rng.below(self.objects.len());
            let index = self.first + which as u64;
            self.wrong += u64::from(self.objects[which].first() != Some(&index));
            self.objects[which] = object(index, &mut self.rng);
        }
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        let sizes = self.objects.iter().map(|object| object.capacity() as u64);
        match self.wrong {
            0 => Ok(sizes.fold(0, u64::wrapping_add)),
            _ => Err(WorkloadError::Damaged { workload: NAME }),
        }
    }
    fn batch(&self) -> u64 {
        1 << 12
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;
    use hugepilot_units::Bytes;

    #[test]
    fn objects_take_the_footprint_and_a_damaged_one_is_found() {
        let config = MemoryConfig { footprint: Bytes::mib(4), ..MemoryConfig::DEFAULT };
        let mut churn = Churn::prepare(config, &ROOMY).unwrap();
        let bytes = |churn: &Churn| -> usize {
            churn.objects.iter().map(|object| 8 * object.capacity() + size_of::<Vec<u64>>()).sum()
        };
        assert!((3 << 20..5 << 20).contains(&bytes(&churn)), "{}", bytes(&churn));
        let count = churn.objects.len();
        for mut worker in churn.workers(2) {
            worker.step(100_000).unwrap();
            assert!(worker.checksum().is_ok());
        }
        assert_eq!(churn.objects.len(), count);
        assert!((3 << 20..5 << 20).contains(&bytes(&churn)), "{}", bytes(&churn));
        churn.objects[0][0] = 7;
        let mut workers = churn.workers(1);
        workers[0].step(1_000_000).unwrap();
        assert!(matches!(workers[0].checksum(), Err(WorkloadError::Damaged { workload: NAME })));
    }
}
