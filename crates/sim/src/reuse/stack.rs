//! Exact stack distance: how many distinct pages were used between two uses of a page.
//!
//! Bennett and Kruskal (1975): each page owns the time of its last use, and its distance is the
//! number of owned times after it. Times are bits; a tree counts words of them. When the times are
//! used up, the owned ones move together: each page gets the number of owned times before its own.

use super::few::{FEW, Few};
use super::sums::Sums;

/// Times of a word.
const WORD: usize = 64;
/// Least times between two compactions.
const MIN_TIMES: usize = 1 << 13;
/// Page numbers, used or not, for each time that is free after a compaction, which reads them all.
const NUMBERS_PER_TIME: usize = 2;
/// Uses that are handled together, at most.
pub(super) const PART: usize = 512;
/// A page that owns no time.
pub(super) const NEVER: u32 = u32::MAX;
/// A page that was used last.
const LAST: u32 = u32::MAX - 1;

/// Page, which the caller keeps: its other data is then in the same cache line.
pub(super) trait Page {
    /// Time of its last use, [`NEVER`] at first. Only the stack changes it.
    fn time(&mut self) -> &mut u32;
}

impl Page for u32 {
    fn time(&mut self) -> &mut u32 {
        self
    }
}

/// Pages in the order of their last use. Pages are numbered from 0, with few gaps.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// The pages, while there are at most [`FEW`].
    few: Option<Few>,
    /// Pages that own a time.
    pages: u32,
    /// Times until a compaction.
    times: usize,
    owned: Vec<u64>,
    sums: Sums,
    now: usize,
    /// Former time of each use of a part, or [`NEVER`] or [`LAST`].
    before: Vec<u32>,
}

impl Stack {
    /// Bytes of a page: the bits of two times, the sums of them, and those of a compaction.
    pub(super) const PAGE_BYTES: usize = 1;

    pub(super) fn new() -> Self {
        let mut stack = Self {
            few: Some(Few::new()),
            pages: 0,
            times: 0,
            owned: Vec::new(),
            sums: Sums::default(),
            now: 0,
            before: Vec::with_capacity(PART),
        };
        stack.resize(MIN_TIMES);
        stack
    }

    /// Uses pages, at most [`PART`]. Calls `each` with the distinct pages since the last use of
    /// each one; `None` at the first.
    pub(super) fn touch_all<P: Page>(
        &mut self,
        pages: &mut [P],
        used: impl Iterator<Item = u32>,
        mut each: impl FnMut(Option<u32>),
    ) {
        if let Some(few) = &mut self.few {
            if pages.len() <= FEW {
                return used.for_each(|page| each(few.touch(page)));
            }
            let order = few.oldest_first();
            self.few = None;
            self.touch_many(pages, order, |_| ());
        }
        self.touch_many(pages, used, each);
    }

    fn touch_many<P: Page>(
        &mut self,
        pages: &mut [P],
        used: impl Iterator<Item = u32>,
        mut each: impl FnMut(Option<u32>),
    ) {
        if self.now + PART > self.times {
            self.compact(pages);
        }
        let begin = self.now;
        self.take_times(pages, used);
        self.own(begin);
        let Self { pages, owned, sums, before, .. } = self;
        for &before in &*before {
            each(match before {
                LAST => Some(0),
                NEVER => {
                    *pages += 1;
                    None
                }
                before => Some(*pages - release(owned, sums, before as usize)),
            });
        }
    }

    /// Gives each page of a batch its time, and notes the former ones. Apart from the rest, so that
    /// the CPU waits for the memory of many pages at once: with the tree of 16 bits, an access to
    /// 524,288 pages took 61 ns instead of 74.
    #[allow(clippy::cast_possible_truncation)]
    fn take_times<P: Page>(&mut self, pages: &mut [P], used: impl Iterator<Item = u32>) {
        let Self { before, now, .. } = self;
        let mut time = *now;
        before.clear();
        before.extend(used.map(|page| {
            let last = pages[page as usize].time();
            if *last as usize + 1 == time {
                return LAST;
            }
            let before = std::mem::replace(last, time as u32);
            time += 1;
            before
        }));
        *now = time;
    }

    /// Sets the bits of the times of a part, all at once. Its uses count owned times only up to
    /// their former one, so the bits of later uses do not matter.
    #[allow(clippy::cast_possible_truncation)]
    fn own(&mut self, mut time: usize) {
        while time < self.now {
            let (word, bit) = (time / WORD, time % WORD);
            let count = (WORD - bit).min(self.now - time);
            self.owned[word] |= ones(count) << bit;
            self.sums.add(word, count as u32);
            time += count;
        }
    }

    /// Moves the owned times together, and makes room for more. It reads the pages by number, not
    /// by time: a use of one of 524,288 pages took 25 ns instead of 27.
    #[allow(clippy::cast_possible_truncation)]
    fn compact<P: Page>(&mut self, pages: &mut [P]) {
        let mut kept = 0;
        let before = |word: &u64| {
            kept += word.count_ones();
            kept - word.count_ones()
        };
        let before: Vec<u32> = self.owned.iter().map(before).collect();
        for time in pages.iter_mut().map(Page::time).filter(|time| **time != NEVER) {
            let (word, bit) = (*time as usize / WORD, *time as usize % WORD);
            *time = before[word] + (self.owned[word] & ones(bit)).count_ones();
        }
        self.now = kept as usize;
        let free = self.now.max(pages.len() / NUMBERS_PER_TIME);
        self.resize((self.now + free).max(MIN_TIMES));
    }

    /// Makes room for `times`, of which those before `now` are owned.
    fn resize(&mut self, times: usize) {
        self.times = times.next_multiple_of(WORD);
        let words = self.times / WORD;
        self.owned.clear();
        self.owned.extend((0..words).map(|word| ones(self.now.saturating_sub(word * WORD))));
        self.sums = Sums::new(words);
        for word in 0..self.now.div_ceil(WORD) {
            self.sums.add(word, self.owned[word].count_ones());
        }
    }
}

/// Ends the ownership of a time. Returns how many were owned up to it, itself included.
#[inline]
fn release(owned: &mut [u64], sums: &mut Sums, time: usize) -> u32 {
    let (word, bit) = (time / WORD, time % WORD);
    let bits = owned[word];
    owned[word] = bits & !(1 << bit);
    (bits << (WORD - 1 - bit)).count_ones() + sums.remove(word)
}

/// Returns a word whose lowest bits are set.
const fn ones(count: usize) -> u64 {
    if count >= WORD { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(list: &mut Vec<u32>, page: u32) -> Option<u32> {
        let found = list.iter().position(|&held| held == page);
        found.map(|at| list.remove(at));
        list.insert(0, page);
        found.map(|at| at as u32)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// Against a list searched from its end, over several compactions.
        #[test]
        fn distances_are_those_of_a_list(
            pages in 1u32..3000,
            seed in 1u64..u64::MAX,
            skew in 1u32..4,
            batch in 1usize..=PART,
            gap in prop::sample::select(vec![1u32, 40]),
        ) {
            let (mut stack, mut list, mut state) = (Stack::new(), Vec::new(), seed);
            let mut times: Vec<u32> = Vec::new();
            let random = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
                (uniform.powi(skew.cast_signed()) * f64::from(pages)) as u32 * gap
            });
            let used: Vec<u32> = random.take(20_000).collect();
            for batch in used.chunks(batch) {
                let mut expected = batch.iter().map(|&page| naive(&mut list, page));
                let most = batch.iter().fold(0, |most, &page| most.max(page as usize + 1));
                times.resize(times.len().max(most), NEVER);
                stack.touch_all(&mut times, batch.iter().copied(), |distance| {
                    assert_eq!(Some(distance), expected.next());
                });
                prop_assert_eq!(expected.next(), None);
            }
        }
    }

    /// Pages come into use one after the other, so that the list of few ends between two batches.
    #[test]
    fn distances_stay_when_pages_are_no_longer_few() {
        let (mut stack, mut list, mut times) = (Stack::new(), Vec::new(), Vec::new());
        for batch in 1..60u32 {
            times.resize(batch as usize, NEVER);
            // Page 3 is not used before the others are many.
            let used = (0..50).map(|at| (at * 7 + batch) % batch).filter(|&page| page != 3);
            let used: Vec<u32> = used.chain((batch > 30).then_some(3)).collect();
            let mut expected = used.iter().map(|&page| naive(&mut list, page));
            stack.touch_all(&mut times, used.iter().copied(), |distance| {
                assert_eq!(Some(distance), expected.next(), "batch {batch}");
            });
            assert_eq!(stack.few.is_some(), times.len() <= FEW);
        }
    }

    #[test]
    fn a_cyclic_scan_has_the_distance_of_its_length() {
        let (mut stack, mut times) = (Stack::new(), vec![NEVER; 100_000]);
        for round in 0..3 {
            for page in 0..100_000 {
                stack.touch_all(&mut times, std::iter::once(page), |distance| {
                    assert_eq!(distance, (round > 0).then_some(99_999));
                });
            }
        }
    }
}
