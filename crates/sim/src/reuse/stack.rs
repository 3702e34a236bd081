//! Exact stack distance: how many distinct pages were used between two uses of a page.
//!
//! Bennett and Kruskal (1975): each page owns the time of its last use, and its distance is the
//! number of owned times after it. Times are bits; a tree counts words of them, with as many steps
//! for each word, so that no branch depends on the time. When the times are used up, the owned ones
//! move together.

/// Times of a word.
const WORD: usize = 64;
/// Least times between two compactions.
const MIN_TIMES: usize = 1 << 12;
/// Times for each page.
const TIMES_PER_PAGE: usize = 4;
/// Children of a node of the tree.
const CHILDREN: usize = 16;
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
    /// Levels of a tree, from the words up: each child has the owned times of its siblings before
    /// it. The word of `now` is added when it is full.
    levels: Vec<Vec<[u32; CHILDREN]>>,
    now: usize,
}

impl Stack {
    pub(super) fn new() -> Self {
        let mut stack = Self {
            last: Vec::new(),
            pages: 0,
            owners: Vec::new(),
            owned: Vec::new(),
            levels: Vec::new(),
            now: 0,
        };
        stack.resize(MIN_TIMES);
        stack
    }

    /// Reads what the next uses of `pages` need, so that the CPU waits for all of it at once.
    pub(super) fn load(&self, pages: impl Iterator<Item = u32>) {
        let read = |page: u32| {
            let last = *self.last.get(page as usize)? as usize;
            let owned = *self.owned.get(last / WORD)?;
            Some(owned ^ u64::from(self.levels[0][last / WORD / CHILDREN][0]))
        };
        std::hint::black_box(pages.filter_map(read).fold(0, |sum, read| sum ^ read));
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
            let distance = self.pages - self.release(before);
            Some(distance)
        };
        self.last[at] = self.now as u32;
        self.owners[self.now] = page;
        self.owned[self.now / WORD] |= 1 << (self.now % WORD);
        self.now += 1;
        if self.now.is_multiple_of(WORD) {
            self.count(self.now / WORD - 1);
        }
        distance
    }

    /// Ends the ownership of a time. Returns how many were owned up to it, itself included.
    #[inline]
    fn release(&mut self, time: usize) -> u32 {
        let (mut place, bit) = (time / WORD, time % WORD);
        let mut sum = (self.owned[place] << (WORD - 1 - bit)).count_ones();
        self.owned[place] &= !(1 << bit);
        let counted = u32::from(place < self.now / WORD);
        for level in &mut self.levels {
            let (node, child) = (&mut level[place / CHILDREN], place % CHILDREN);
            sum += node[child];
            add_after(node, child, counted.wrapping_neg());
            place /= CHILDREN;
        }
        sum
    }

    /// Adds the owned times of a full word to the tree.
    fn count(&mut self, word: usize) {
        let (owned, mut place) = (self.owned[word].count_ones(), word);
        for level in &mut self.levels {
            add_after(&mut level[place / CHILDREN], place % CHILDREN, owned);
            place /= CHILDREN;
        }
    }

    /// Moves the owned times together, and makes room for more.
    #[allow(clippy::cast_possible_truncation)]
    fn compact(&mut self) {
        let mut kept = 0;
        for (word, &owned) in self.owned.iter().enumerate() {
            let mut left = owned;
            while left != 0 {
                let owner = self.owners[word * WORD + left.trailing_zeros() as usize];
                self.last[owner as usize] = kept as u32;
                self.owners[kept] = owner;
                kept += 1;
                left &= left - 1;
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
        self.levels.clear();
        let mut places = times / WORD;
        while places > 1 {
            places = places.div_ceil(CHILDREN);
            self.levels.push(vec![[0; CHILDREN]; places]);
        }
        (0..self.now / WORD).for_each(|word| self.count(word));
    }
}

/// Adds to all children of a node behind `child`.
#[inline]
fn add_after(node: &mut [u32; CHILDREN], child: usize, count: u32) {
    // A window of it has a mask for each child. Compilers make vectors of that, not of comparisons.
    const MASKS: [u32; 2 * CHILDREN] = {
        let mut masks = [0; 2 * CHILDREN];
        let mut at = CHILDREN;
        while at < masks.len() {
            masks[at] = u32::MAX;
            at += 1;
        }
        masks
    };
    let masks = &MASKS[CHILDREN - 1 - child % CHILDREN..][..CHILDREN];
    for (sum, mask) in node.iter_mut().zip(masks) {
        *sum = sum.wrapping_add(count & mask);
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
