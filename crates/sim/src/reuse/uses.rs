//! Last use of pages, and the number of their uses.

use std::hint::black_box;

use super::stack::{NEVER, Page};
use crate::runs::AccessRun;

/// Most pages for which the loads alone cost more than they save: 16 bytes each, 512 KiB in all.
/// These stay in the second cache of a Zen 4 core, which has 1 MiB, beside what a batch needs.
const IN_CACHE: usize = 1 << 15;

/// Page. Times and counts are below 2^48, so that all of it is in 16 bytes of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Uses {
    /// Time of the last use in the stack.
    time: u32,
    last_low: u32,
    /// Number of the uses, and above [`COUNT_BITS`] the high bits of the last use.
    count: u64,
}

/// Bits of a count.
const COUNT_BITS: u32 = 48;

impl Default for Uses {
    fn default() -> Self {
        Self { time: NEVER, last_low: 0, count: 0 }
    }
}

impl Page for Uses {
    fn time(&mut self) -> &mut u32 {
        &mut self.time
    }
}

#[allow(clippy::cast_possible_truncation)]
impl Uses {
    const fn last(self) -> u64 {
        self.count >> COUNT_BITS << 32 | self.last_low as u64
    }
    const fn count(self) -> u64 {
        self.count & ((1 << COUNT_BITS) - 1)
    }
    const fn add(&mut self, last: u64, count: u64) {
        self.last_low = last as u32;
        self.count = last >> 32 << COUNT_BITS | (self.count() + count);
    }
}

/// Uses of pages. The first ones are apart, since they are rarely needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Intervals {
    uses: Vec<Uses>,
    first: Vec<u64>,
}

impl Intervals {
    /// Bytes of a page.
    pub(super) const PAGE_BYTES: usize = size_of::<Uses>() + size_of::<u64>();

    pub(super) fn resize(&mut self, pages: usize) {
        self.uses.resize(pages, Uses::default());
        self.first.resize(pages, 0);
    }

    /// Uses the pages of `runs`, of which the first begins at access `time`. Returns the time after
    /// the last.
    pub(super) fn touch_all(
        &mut self,
        mut time: u64,
        runs: &[AccessRun],
        page: impl Fn(&AccessRun) -> usize,
    ) -> u64 {
        if self.uses.len() > IN_CACHE {
            // Loads alone, so that the CPU waits for the memory of many pages at once: a use of one
            // of 524,288 pages took 23 ns instead of 25.
            black_box(runs.iter().fold(0, |sum, run| sum ^ self.uses[page(run)].time));
        }
        for run in runs {
            let (page, first) = (page(run), time);
            time += u64::from(run.accesses);
            let uses = &mut self.uses[page];
            if uses.count == 0 {
                self.first[page] = first;
            }
            uses.add(time - 1, u64::from(run.accesses));
        }
        time
    }

    /// Returns the pages, of which each has its time in a stack.
    pub(super) fn pages(&mut self) -> &mut [impl Page] {
        &mut self.uses
    }
    /// Returns the numbers of pages that were used.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> {
        (0..self.uses.len()).filter(|&page| self.count(page) > 0)
    }
    pub(super) fn count(&self, page: usize) -> u64 {
        self.uses[page].count()
    }

    /// Returns the uses of a page.
    pub(super) fn span(&self, page: usize) -> Span {
        let uses = self.uses[page];
        Span { first: self.first[page], last: uses.last(), count: uses.count() }
    }
}

/// Times of the first and the last use of a page, and the number of its uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    first: u64,
    last: u64,
    count: u64,
}

impl Default for Span {
    fn default() -> Self {
        Self { first: u64::MAX, last: 0, count: 0 }
    }
}

impl Span {
    /// Adds the uses of another page that was used.
    pub(super) fn join(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count += other.count;
    }

    /// Mean time distance, infinite for a page used once: the distances add up to the time between
    /// first and last use.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn mean(self) -> f64 {
        let between = || (self.last - self.first) as f64 / (self.count - 1) as f64;
        if self.count > 1 { between() } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page used for days, with more uses than 32 bits hold.
    #[test]
    fn times_and_counts_have_48_bits() {
        let mut intervals = Intervals::default();
        intervals.resize(1);
        let run = AccessRun { page: 0, accesses: u32::MAX };
        let mut time = 1 << 40;
        for _ in 0..5 {
            time = intervals.touch_all(time + 7, &[run], |_| 0);
        }
        assert_eq!(intervals.count(0), 5 * u64::from(u32::MAX));
        assert_eq!(intervals.uses[0].last(), time - 1);
        assert_eq!(size_of::<Uses>(), 16);
        *intervals.pages()[0].time() = 9;
        assert_eq!((intervals.uses[0].last(), intervals.uses[0].time), (time - 1, 9));
    }
}
