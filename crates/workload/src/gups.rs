//! `gups`: giga-updates per second, random read-modify-writes of a table.
//!
//! Models scatter phases: histograms, counting sorts, hash builds. Each thread updates random words
//! of its own part of the table, so there is no race. Updates are independent and overlap. Each
//! dirties a line and, on base pages, takes a page walk. All regions are equally hot.

use hugepilot_kernel::AnonMap;
use hugepilot_units::AddrRange;

use super::rng::Rng;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "gups";

pub(super) struct Gups {
    table: AnonMap,
    seed: u64,
}

impl Gups {
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        Ok(Self { table: config.resident(NAME, machine)?, seed: config.seed })
    }
}

impl Workload for Gups {
    fn hot(&self) -> Vec<AddrRange> {
        vec![self.table.range()]
    }

    fn footprint_bytes(&self) -> u64 {
        self.table.range().len().get()
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let seed = self.seed;
        let words = self.table.words_mut();
        let part = words.len() / threads;
        let parts = words.chunks_exact_mut(part).take(threads).enumerate();
        parts
            .map(|(index, part)| Box::new(Updater { part, rng: Rng::new(seed, index) }) as Box<_>)
            .collect()
    }
}

struct Updater<'a> {
    part: &'a mut [u64],
    rng: Rng,
}

impl Worker for Updater<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        update(self.part, &mut self.rng, ops);
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        Ok(self.part.iter().fold(0, |sum, word| sum.wrapping_add(*word)))
    }
}

/// Inverts random bits in `updates` random words.
#[inline(never)]
fn update(part: &mut [u64], rng: &mut Rng, updates: u64) {
    let mut random = *rng;
    for _ in 0..updates {
        let bits = random.bits();
        let word = ((u128::from(bits) * part.len() as u128) >> 64) as usize;
        part[word] ^= bits;
    }
    *rng = random;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_updates_twice_undo_each_other() {
        let mut table = vec![7; 1000];
        update(&mut table, &mut Rng::new(3, 0), 5000);
        assert!(table.iter().filter(|&&word| word != 7).count() > 900);
        update(&mut table, &mut Rng::new(3, 0), 5000);
        assert!(table.iter().all(|&word| word == 7));
    }
}
