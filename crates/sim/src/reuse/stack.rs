//! Exact stack distance: how many distinct pages were used between two uses of a page.
//!
//! Bennett and Kruskal (1975): each page owns the time of its last use, and its distance is the
//! number of owned times after it. Times are bits; a Fenwick tree counts blocks of 512 of them.
//! When the times are used up, the owned ones move together. An access costs the logarithm of a
//! 128th of the pages, and 8 population counts.

use crate::pages::PageMap;

/// Times of a block of the tree, and words of its bits.
const BLOCK: usize = 512;
const WORDS: usize = BLOCK / 64;
/// Least times between two compactions.
const MIN_TIMES: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };
/// Times for each page.
const TIMES_PER_PAGE: usize = 4;

/// Pages in the order of their last use.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    pages: PageMap<u32>,
    /// Time of the last use of each page, by number.
    last: Vec<u32>,
    /// Page that used each time.
    owners: Vec<u32>,
    owned: Vec<u64>,
    /// Fenwick tree: entry `n` has the owned times of the blocks `n & (n + 1)` to `n`.
    tree: Vec<u32>,
    now: usize,
    /// Page used last, which needs no search.
    newest: Option<u64>,
}

/// Use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Number of the page, in the order of first use.
    pub(super) page: u32,
    /// Distinct pages since the last use; `None` at the first.
    pub(super) distance: Option<u32>,
}

impl Stack {
    pub(super) fn new() -> Self {
        let mut stack = Self {
            pages: PageMap::default(),
            last: Vec::new(),
            owners: Vec::new(),
            owned: Vec::new(),
            tree: Vec::new(),
            now: 0,
            newest: None,
        };
        stack.resize(MIN_TIMES);
        stack
    }

    /// Uses a page.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn touch(&mut self, page: u64) -> Use {
        if self.newest == Some(page) {
            return Use { page: self.owners[self.now - 1], distance: Some(0) };
        }
        self.newest = Some(page);
        if self.now == self.owners.len() {
            self.compact();
        }
        let next = self.last.len() as u32;
        let number = *self.pages.entry(page).or_insert(next);
        let mut distance = None;
        if number == next {
            self.last.push(0);
        } else {
            let before = self.last[number as usize] as usize;
            distance = Some(next - self.owned_until(before));
            self.owned[before / 64] &= !(1 << (before % 64));
            self.change(before / BLOCK, -1);
        }
        self.last[number as usize] = self.now as u32;
        self.owners[self.now] = number;
        self.owned[self.now / 64] |= 1 << (self.now % 64);
        self.change(self.now / BLOCK, 1);
        self.now += 1;
        Use { page: number, distance }
    }

    /// Returns the number of owned times up to `time`, itself included.
    #[inline]
    fn owned_until(&self, time: usize) -> u32 {
        let block = time / BLOCK;
        let words = &self.owned[block * WORDS..=time / 64];
        let (last, whole) = words.split_last().unwrap_or((&0, &[]));
        let mut sum = (last << (63 - time % 64)).count_ones();
        sum += whole.iter().map(|word| word.count_ones()).sum::<u32>();
        let mut end = block;
        while end > 0 {
            sum += self.tree[end - 1];
            end &= end - 1;
        }
        sum
    }

    #[inline]
    fn change(&mut self, block: usize, by: i32) {
        let mut at = block;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(by);
            at |= at + 1;
        }
    }

    /// Moves the owned times together, and makes room for more.
    #[allow(clippy::cast_possible_truncation)]
    fn compact(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        let mut kept = 0;
        let mut moved = Vec::with_capacity(self.last.len());
        for (time, owner) in owners.into_iter().enumerate() {
            if self.owned[time / 64] >> (time % 64) & 1 == 1 {
                self.last[owner as usize] = kept;
                moved.push(owner);
                kept += 1;
            }
        }
        self.owners = moved;
        self.now = kept as usize;
        self.resize((self.last.len() * TIMES_PER_PAGE).max(MIN_TIMES));
    }

    /// Makes room for `times`, of which those before `now` are owned.
    fn resize(&mut self, times: usize) {
        let times = times.next_multiple_of(BLOCK);
        self.owners.resize(times, 0);
        self.owned = (0..times / 64).map(|word| ones(self.now.saturating_sub(word * 64))).collect();
        self.tree = vec![0; times / BLOCK];
        for block in 0..self.tree.len() {
            let own: u32 =
                self.owned[block * WORDS..][..WORDS].iter().map(|word| word.count_ones()).sum();
            self.tree[block] += own;
            let above = block | (block + 1);
            if above < self.tree.len() {
                self.tree[above] += self.tree[block];
            }
        }
    }
}

/// Returns a word whose lowest bits are set.
const fn ones(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(list: &mut Vec<u64>, page: u64) -> Option<u32> {
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
            pages in 1u64..700,
            seed in 1u64..u64::MAX,
            skew in 1u32..4,
        ) {
            let (mut stack, mut list, mut state) = (Stack::new(), Vec::new(), seed);
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
                let page = (uniform.powi(skew.cast_signed()) * pages as f64) as u64;
                prop_assert_eq!(stack.touch(page << 9).distance, naive(&mut list, page));
            }
        }
    }

    #[test]
    fn a_cyclic_scan_has_the_distance_of_its_length() {
        let mut stack = Stack::new();
        for round in 0..3 {
            for page in 0..100_000u64 {
                let distance = stack.touch(page).distance;
                assert_eq!(distance, (round > 0).then_some(99_999));
            }
        }
    }
}
