//! `pointer-chase`: one random cycle through every cache line of the memory.
//!
//! Models linked data without locality. Each read depends on the one before, so the time per step
//! is the whole latency: memory plus page walk. All regions are equally hot; each huge page gains
//! the same, until the TLB covers the footprint.

use hugepilot_kernel::AnonMap;
use hugepilot_units::AddrRange;

use super::cycle::Lines;
use super::hot_set::Chaser;
use super::rng::Rng;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "pointer-chase";

pub(super) struct PointerChase {
    map: AnonMap,
    lines: Lines,
}

impl PointerChase {
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        let mut map = config.resident(NAME, machine)?;
        let lines = Lines { starts: vec![0], words: map.words().len() };
        lines.link(map.words_mut(), &mut Rng::new(config.seed, usize::MAX));
        Ok(Self { map, lines })
    }
}

impl Workload for PointerChase {
    fn hot(&self) -> Vec<AddrRange> {
        vec![self.map.range()]
    }

    fn footprint_bytes(&self) -> u64 {
        self.map.range().len().get()
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let (words, lines) = (self.map.words(), &self.lines);
        (0..threads)
            .map(|index| Box::new(Chaser::new(words, lines.start(index, threads))) as Box<_>)
            .collect()
    }
}
