//! `stream`: the triad `a = b + s·c` over three arrays, repeated.
//!
//! Models dense numerical code. It is bound by memory bandwidth: one page walk serves 512 elements
//! of an array and the prefetchers hide it, so huge pages gain a few percent at most. It has no hot
//! regions: a sampler that counts misses without their cost would spend all its huge pages here. An
//! operation is one element.

use hugepilot_kernel::AnonMap;
use hugepilot_units::{AddrRange, Bytes};

use super::memory::{reserve, touch};
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::Result;

pub(super) const NAME: &str = "stream";

const SCALE: f64 = 0.5;

pub(super) struct Stream {
    a: AnonMap,
    b: AnonMap,
    c: AnonMap,
}

impl Stream {
    /// Reserves three arrays, each a third of the footprint, rounded up to huge pages.
    pub(super) fn prepare(config: MemoryConfig, machine: &MemoryLimits) -> Result<Self> {
        let third = Bytes::new(config.fitting(NAME, 100, machine)?.get() / 3);
        let array = |name: &str| reserve(name, third, config.pages, machine.sizes);
        let (mut a, mut b, mut c) = (array("stream-a")?, array("stream-b")?, array("stream-c")?);
        touch(a.words_mut(), machine.sizes.base);
        fill(b.words_mut(), 1.0);
        fill(c.words_mut(), 2.0);
        Ok(Self { a, b, c })
    }
}

/// Writes `first`, `first + 1`, … as floating-point bits.
#[allow(clippy::cast_precision_loss)]
fn fill(array: &mut [u64], first: f64) {
    for (i, word) in array.iter_mut().enumerate() {
        *word = (first + i as f64).to_bits();
    }
}

impl Workload for Stream {
    fn hot(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn footprint_bytes(&self) -> u64 {
        [&self.a, &self.b, &self.c]
            .into_iter()
            .map(|array| array.range().len())
            .sum::<Bytes>()
            .get()
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let part = self.a.words().len() / threads;
        let sources = self.b.words().chunks_exact(part).zip(self.c.words().chunks_exact(part));
        let parts = self.a.words_mut().chunks_exact_mut(part).zip(sources).take(threads);
        parts.map(|(a, (b, c))| Box::new(Triad { a, b, c, at: 0 }) as Box<_>).collect()
    }
}

struct Triad<'a> {
    a: &'a mut [u64],
    b: &'a [u64],
    c: &'a [u64],
    /// Next element.
    at: usize,
}

impl Worker for Triad<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        let mut left = ops as usize;
        while left > 0 {
            let part = self.at..self.at + left.min(self.a.len() - self.at);
            left -= part.len();
            triad(&mut self.a[part.clone()], &self.b[part.clone()], &self.c[part.clone()]);
            self.at = if part.end == self.a.len() { 0 } else { part.end };
        }
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        Ok(self.a.iter().fold(0, |sum, word| sum.wrapping_add(*word)))
    }
    fn batch(&self) -> u64 {
        1 << 16
    }
}

/// Computes `a = b + s·c`, element by element.
#[inline(never)]
fn triad(a: &mut [u64], b: &[u64], c: &[u64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = (f64::from_bits(*b) + SCALE * f64::from_bits(*c)).to_bits();
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;

    #[test]
    #[allow(clippy::cast_precision_loss)]
    fn after_one_round_every_element_is_the_sum() {
        let config = MemoryConfig { footprint: Bytes::mib(6), ..MemoryConfig::DEFAULT };
        let mut stream = Stream::prepare(config, &ROOMY).unwrap();
        let len = stream.a.words().len();
        for mut worker in stream.workers(2) {
            for _ in 0..5 {
                worker.step(len as u64 / 8).unwrap();
            }
        }
        for (i, word) in stream.a.words().iter().enumerate() {
            assert!((f64::from_bits(*word) - (2.0 + 1.5 * i as f64)).abs() < 1e-9);
        }
        assert!(stream.hot().is_empty());
    }
}
