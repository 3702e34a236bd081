//! Random lookups by index, with each value checked: the loop of all index workloads.

use std::hint::black_box;

use super::Worker;
use super::rng::Rng;
use crate::{Result, WorkloadError};

/// An index with numbered entries.
pub(super) trait Index: Sync {
    /// Name of the workload.
    const NAME: &'static str;
    /// Lookups between two reads of the clock.
    const BATCH: u64;
    /// Returns the number of entries.
    fn entries(&self) -> usize;
    /// Makes the key of entry `number` and looks it up.
    fn look_up(&self, number: usize) -> Option<u64>;
    /// Returns the value of entry `number`.
    fn expected(&self, number: usize) -> u64;
}

/// Returns a reader of `index` for each thread.
pub(super) fn readers<I: Index>(index: &I, seed: u64, threads: usize) -> Vec<Box<dyn Worker + '_>> {
    let reader = |thread| {
        Box::new(Reader { index, rng: Rng::new(seed, thread), sum: 0, wrong: 0 }) as Box<_>
    };
    (0..threads).map(reader).collect()
}

struct Reader<'a, I> {
    index: &'a I,
    rng: Rng,
    sum: u64,
    /// Lookups that returned no value, or a wrong one.
    wrong: u64,
}

impl<I: Index> Worker for Reader<'_, I> {
    fn step(&mut self, ops: u64) -> Result<()> {
        let (sum, wrong) = look_up(self.index, &mut self.rng, ops);
        self.sum = black_box(self.sum.wrapping_add(sum));
        self.wrong += wrong;
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        if self.wrong == 0 {
            Ok(self.sum)
        } else {
            Err(WorkloadError::Damaged { workload: I::NAME })
        }
    }
    fn batch(&self) -> u64 {
        I::BATCH
    }
}

/// Returns the sum of `lookups` random lookups, and the number of wrong ones.
#[inline(never)]
fn look_up<I: Index>(index: &I, rng: &mut Rng, lookups: u64) -> (u64, u64) {
    let (mut random, mut sum, mut wrong) = (*rng, 0_u64, 0);
    for _ in 0..lookups {
        let number = random.below(index.entries());
        let found = index.look_up(number);
        sum = sum.wrapping_add(found.unwrap_or(0));
        wrong += u64::from(found != Some(index.expected(number)));
    }
    *rng = random;
    (sum, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten entries whose value is their index, one of them damaged.
    struct Ten(Option<u64>);

    impl Index for Ten {
        const NAME: &'static str = "ten";
        const BATCH: u64 = 1;
        fn entries(&self) -> usize {
            10
        }
        fn look_up(&self, number: usize) -> Option<u64> {
            if number == 3 { self.0 } else { Some(number as u64) }
        }
        fn expected(&self, number: usize) -> u64 {
            number as u64
        }
    }

    #[test]
    fn every_answer_counts_and_is_compared() {
        let mut rng = Rng::new(1, 0);
        let expected = (0..1000).map(|_| rng.below(10) as u64).sum();
        assert_eq!(look_up(&Ten(Some(3)), &mut Rng::new(1, 0), 1000), (expected, 0));
    }

    #[test]
    fn a_lost_or_changed_value_ends_the_run_with_an_error() {
        for damage in [None, Some(4)] {
            let index = Ten(damage);
            let mut reader = readers(&index, 1, 1).pop().unwrap();
            reader.step(1000).unwrap();
            assert!(matches!(reader.checksum(), Err(WorkloadError::Damaged { workload: "ten" })));
        }
    }
}
