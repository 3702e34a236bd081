//! Exact stack distance: how many distinct pages were used between two uses of a page.
//!
//! Bennett and Kruskal (1975): each page owns the time of its last use, and its distance is the
//! number of owned times after it. Times are bits; a Fenwick tree counts words of them. When the
//! times are used up, the owned ones move together. An access costs the logarithm of a sixteenth of
//! the pages.

/// Times of a word.
const WORD: usize = 64;
/// Least times between two compactions.
const MIN_TIMES: usize = 1 << 12;
/// Times for each page.
const TIMES_PER_PAGE: usize = 4;
/// A page that owns no time.
const NEVER: u32 = u32::MAX;

/// Pages in the order of their last use. Pages are numbered from 0, with few gaps.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Time of the last use of each page.
    last: Vec<u32>,
    /// Pages that own a time.
    pages: u32,
    /// Page that used each time.
    owners: Vec<u32>,
    owned: Vec<u64>,
    /// Fenwick tree: entry `n` has the owned times of the words `n & (n + 1)` to `n`. The word of
    /// `now` is added when it is full.
    tree: Vec<u32>,
    now: usize,
}

impl Stack {
    pub(super) fn new() -> Self {
        let mut stack = Self {
            last: Vec::new(),
            pages: 0,
            owners: Vec::new(),
            owned: Vec::new(),
            tree: Vec::new(),
            now: 0,
        };
        stack.resize(MIN_TIMES);
        stack
    }

    /// Uses a page. Returns the distinct pages since its last use; `None` at the first.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn touch(&mut self, page: u32) -> Option<u32> {
        let at = page as usize;
        if at >= self.last.len() {
            self.last.resize((at + 1).next_power_of_two(), NEVER);
        }
        if self.now == self.owners.len() {
            self.compact();
        }
        let before = self.last[at];
        let distance = if before == NEVER {
            self.pages += 1;
            None
        } else {
            let before = before as usize;
            if before + 1 == self.now {
                return Some(0);
            }
            let distance = self.pages - self.owned_until(before);
            self.owned[before / WORD] &= !(1 << (before % WORD));
            if before / WORD < self.now / WORD {
                self.change(before / WORD, -1);
            }
            Some(distance)
        };
        self.last[at] = self.now as u32;
        self.owners[self.now] = page;
        self.owned[self.now / WORD] |= 1 << (self.now % WORD);
        self.now += 1;
        if self.now.is_multiple_of(WORD) {
            let word = self.now / WORD - 1;
            self.change(word, self.owned[word].count_ones().cast_signed());
        }
        distance
    }

    /// Returns the number of owned times up to `time`, itself included.
    #[inline]
    fn owned_until(&self, time: usize) -> u32 {
        let word = time / WORD;
        let mut sum = (self.owned[word] << (WORD - 1 - time % WORD)).count_ones();
        let mut end = word;
        while end > 0 {
            sum += self.tree[end - 1];
            end &= end - 1;
        }
        sum
    }

    #[inline]
    fn change(&mut self, word: usize, by: i32) {
        let mut at = word;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(by);
            at |= at + 1;
        }
    }

    /// Moves the owned times together, and makes room for more.
    #[allow(clippy::cast_possible_truncation)]
    fn compact(&mut self) {
        let mut kept = 0;
        for time in 0..self.owners.len() {
            if self.owned[time / WORD] >> (time % WORD) & 1 == 1 {
                let owner = self.owners[time];
                self.last[owner as usize] = kept as u32;
                self.owners[kept] = owner;
                kept += 1;
            }
        }
        self.now = kept;
        self.resize((self.pages as usize * TIMES_PER_PAGE).max(MIN_TIMES));
    }

    /// Makes room for `times`, of which those before `now` are owned.
    fn resize(&mut self, times: usize) {
        let times = times.next_multiple_of(WORD);
        self.owners.resize(times, 0);
        self.owned.clear();
        self.owned.extend((0..times / WORD).map(|word| ones(self.now.saturating_sub(word * WORD))));
        self.tree.clear();
        self.tree.resize(times / WORD, 0);
        for word in 0..self.tree.len() {
            if word < self.now / WORD {
                self.tree[word] += self.owned[word].count_ones();
            }
            let above = word | (word + 1);
            if above < self.tree.len() {
                self.tree[above] += self.tree[word];
            }
        }
    }
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
        ) {
            let (mut stack, mut list, mut state) = (Stack::new(), Vec::new(), seed);
            for _ in 0..20_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
                let page = (uniform.powi(skew.cast_signed()) * f64::from(pages)) as u32;
                prop_assert_eq!(stack.touch(page), naive(&mut list, page));
            }
        }
    }

    #[test]
    fn a_cyclic_scan_has_the_distance_of_its_length() {
        let mut stack = Stack::new();
        for round in 0..3 {
            for page in 0..100_000 {
                let distance = stack.touch(page);
                assert_eq!(distance, (round > 0).then_some(99_999));
            }
        }
    }
}
