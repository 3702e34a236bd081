//! Set-associative array of translations, and the structure of a TLB level that is built on it.

use serde::{Deserialize, Serialize};

use crate::lru::Lru;
use crate::pages::PageClass;

/// Choice of the entry of a full set that is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// The one used longest ago.
    #[default]
    Lru,
    /// A binary tree of bits that point away from what was used last.
    Plru,
    /// Any, by a generator with a fixed seed.
    Random,
}

/// Selection of a set by a page number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetIndex {
    /// The low bits.
    #[default]
    Low,
    /// The low bits, XOR the bits above them (TLB;DR, USENIX Security 2022: the L2 of Skylake).
    Xor,
}

/// Ways that a page class may use: the first, and how many.
pub(crate) type Ways = [Option<(usize, usize)>; 3];

/// Shape of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Sets, a power of two.
    pub(crate) sets: usize,
    /// Ways of a set.
    pub(crate) ways: usize,
    pub(crate) of_class: Ways,
    pub(crate) replacement: Replacement,
    pub(crate) index: SetIndex,
}

/// Place without an entry. No tag has this value: the class is 0, 1 or 2.
const EMPTY: u64 = u64::MAX;

/// Structure of a TLB level.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    of_class: Ways,
    table: Table,
}

#[derive(Clone, Debug)]
enum Table {
    Sets(Array),
    Full(Lru),
}

impl Structure {
    pub(crate) fn new(shape: Shape) -> Self {
        let same_ways = shape.of_class.iter().flatten().all(|&ways| ways == (0, shape.ways));
        let table = if shape.sets == 1 && shape.replacement == Replacement::Lru && same_ways {
            Table::Full(Lru::new(shape.ways))
        } else {
            Table::Sets(Array::new(shape))
        };
        Self { of_class: shape.of_class, table }
    }

    /// Whether it holds pages of `class`.
    pub(crate) const fn holds(&self, class: PageClass) -> bool {
        self.of_class[class as usize].is_some()
    }

    /// Uses page `number` of `class`: `true` if it is held, else it is filled in.
    #[inline]
    pub(crate) fn touch(&mut self, class: PageClass, number: u64) -> bool {
        match &mut self.table {
            Table::Full(table) => table.touch(tag(class, number)),
            Table::Sets(array) => {
                let Some(ways) = self.of_class[class as usize] else { return false };
                array.touch(tag(class, number), number, ways)
            }
        }
    }

    /// Removes the pages of `class` whose numbers are in `from..to`.
    pub(crate) fn remove(&mut self, class: PageClass, from: u64, to: u64) {
        let stale = |held: u64| held & 3 == class as u64 && (from..to).contains(&(held >> 2));
        match &mut self.table {
            Table::Full(table) => table.remove_if(stale),
            Table::Sets(array) => array.remove_if(stale),
        }
    }
}

/// Returns the name of a page of `class` in a structure that may hold several.
const fn tag(class: PageClass, number: u64) -> u64 {
    number << 2 | class as u64
}

#[derive(Clone, Debug)]
struct Array {
    shape: Shape,
    tags: Vec<u64>,
    /// Time of the last use of each entry, for LRU.
    used: Vec<u64>,
    /// Tree of each set, for PLRU: bit `n` belongs to node `n`, whose children are `2n`, `2n + 1`.
    trees: Vec<u64>,
    /// Bits of the tree on the path to each way, and those of them that point away from it.
    paths: Vec<(u64, u64)>,
    /// Sets that had an empty way when last searched for one.
    open: Vec<bool>,
    time: u64,
    random: u64,
}

impl Array {
    fn new(shape: Shape) -> Self {
        let entries = shape.sets * shape.ways;
        Self {
            shape,
            tags: vec![EMPTY; entries],
            used: vec![0; if shape.replacement == Replacement::Lru { entries } else { 0 }],
            trees: vec![0; shape.sets],
            paths: if shape.replacement == Replacement::Plru {
                paths(shape.ways)
            } else {
                Vec::new()
            },
            open: vec![true; shape.sets],
            time: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    fn touch(&mut self, tag: u64, number: u64, (first, count): (usize, usize)) -> bool {
        let bits = match self.shape.index {
            SetIndex::Low => number,
            SetIndex::Xor => number ^ number >> self.shape.sets.trailing_zeros(),
        };
        let set = bits as usize & (self.shape.sets - 1);
        let start = set * self.shape.ways;
        let tags = &self.tags[start + first..][..count];
        let found = tags.iter().position(|&held| held == tag);
        let way = first + found.unwrap_or_else(|| self.victim(set, first, count));
        self.tags[start + way] = tag;
        match self.shape.replacement {
            Replacement::Lru => {
                self.time += 1;
                self.used[start + way] = self.time;
            }
            Replacement::Plru => {
                let (bits, away) = self.paths[way];
                self.trees[set] = self.trees[set] & !bits | away;
            }
            Replacement::Random => {}
        }
        found.is_some()
    }

    /// Returns the way to fill, relative to `first`: an empty one if there is one.
    #[allow(clippy::cast_possible_truncation)]
    fn victim(&mut self, set: usize, first: usize, count: usize) -> usize {
        let start = set * self.shape.ways + first;
        if self.shape.replacement == Replacement::Lru {
            // An empty way was never used.
            let used = &self.used[start..][..count];
            return (0..count).min_by_key(|&way| used[way]).unwrap_or(0);
        }
        if self.open[set] {
            let empty = self.tags[start..][..count].iter().position(|&held| held == EMPTY);
            if let Some(empty) = empty {
                return empty;
            }
            // With ways of their own, another class may still find one.
            self.open[set] = count < self.shape.ways;
        }
        if self.shape.replacement == Replacement::Plru {
            return self.pointed_at(set);
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % count as u64) as usize
    }

    fn remove_if(&mut self, stale: impl Fn(u64) -> bool) {
        for (entry, held) in self.tags.iter_mut().enumerate().filter(|(_, held)| stale(**held)) {
            *held = EMPTY;
            self.open[entry / self.shape.ways] = true;
            self.used.get_mut(entry).into_iter().for_each(|used| *used = 0);
        }
    }

    /// Follows the tree to the way that it points at.
    fn pointed_at(&self, set: usize) -> usize {
        let mut node = 1;
        while node < self.shape.ways {
            node = node * 2 + usize::from(self.trees[set] >> node & 1 == 1);
        }
        node - self.shape.ways
    }
}

fn paths(ways: usize) -> Vec<(u64, u64)> {
    (0..ways).map(|way| path(way, ways)).collect()
}

/// Returns the nodes on the path to `way`, and those of them that must be set to point away.
fn path(way: usize, ways: usize) -> (u64, u64) {
    let (mut node, mut bits, mut away) = (1, 0, 0);
    for level in (0..ways.trailing_zeros()).rev() {
        let right = way >> level & 1;
        bits |= 1 << node;
        away |= u64::from(right == 0) << node;
        node = node * 2 + right;
    }
    (bits, away)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(sets: usize, ways: usize, replacement: Replacement) -> Structure {
        let of_class = [Some((0, ways)), Some((0, ways)), None];
        Structure::new(Shape { sets, ways, of_class, replacement, index: SetIndex::Low })
    }

    proptest! {
        /// The oracle keeps a list of each set, newest first.
        #[test]
        fn lru_behaves_as_lists(
            (sets, ways) in (0u32..4).prop_flat_map(|log| (Just(1usize << log), 1usize..9)),
            touches in prop::collection::vec((0u64..64, prop::bool::ANY), 1..500),
        ) {
            let mut tested = structure(sets, ways, Replacement::Lru);
            let mut lists = vec![Vec::<(PageClass, u64)>::new(); sets];
            for (number, huge) in touches {
                let class = if huge { PageClass::Huge } else { PageClass::Base };
                let list = &mut lists[number as usize % sets];
                let found = list.iter().position(|&held| held == (class, number));
                found.map(|at| list.remove(at));
                list.insert(0, (class, number));
                list.truncate(ways);
                prop_assert_eq!(tested.touch(class, number), found.is_some());
            }
        }

        /// Two ways have one bit of tree, which is the exact order.
        #[test]
        fn plru_of_two_ways_is_lru(touches in prop::collection::vec(0u64..16, 1..400)) {
            let mut plru = structure(4, 2, Replacement::Plru);
            let mut lru = structure(4, 2, Replacement::Lru);
            for number in touches {
                let (of_plru, of_lru) =
                    (plru.touch(PageClass::Base, number), lru.touch(PageClass::Base, number));
                prop_assert_eq!(of_plru, of_lru);
            }
        }

        #[test]
        fn the_page_used_last_is_never_the_victim(
            replacement in prop::sample::select(vec![Replacement::Lru, Replacement::Plru]),
            touches in prop::collection::vec(0u64..40, 2..400),
        ) {
            let mut tested = structure(2, 8, replacement);
            for pair in touches.windows(2) {
                tested.touch(PageClass::Base, pair[0]);
                tested.touch(PageClass::Base, pair[1]);
                prop_assert!(tested.touch(PageClass::Base, pair[0]));
            }
        }
    }

    /// Hand-worked: ways 0 to 3 are filled in order, so that the tree points at way 0. Way 0 is
    /// used; the tree then points at way 2, and after its replacement at way 1.
    #[test]
    fn plru_of_four_ways_follows_its_tree() {
        let mut tested = structure(1, 4, Replacement::Plru);
        for page in [10, 11, 12, 13, 10] {
            tested.touch(PageClass::Base, page);
        }
        assert!(!tested.touch(PageClass::Base, 14));
        assert!(!tested.touch(PageClass::Base, 12), "14 replaced 12");
        let held = |page: &u64| tested.clone().touch(PageClass::Base, *page);
        let held: Vec<_> = (10..15).filter(held).collect();
        assert_eq!(held, [10, 12, 13, 14], "12 replaced 11");
    }

    /// Ice Lake's L2: huge pages in the first half of the ways, 1 GiB pages in the second, base
    /// pages in all.
    #[test]
    fn classes_keep_to_their_ways() {
        let of_class = [Some((0, 4)), Some((0, 2)), Some((2, 2))];
        let (replacement, index) = (Replacement::Lru, SetIndex::Low);
        let mut tested = Structure::new(Shape { sets: 1, ways: 4, of_class, replacement, index });
        for page in 0..4 {
            tested.touch(PageClass::Base, page);
        }
        for page in 0..8 {
            tested.touch(PageClass::Huge, page);
        }
        let held = |page: &u64| tested.clone().touch(PageClass::Base, *page);
        let held = (0..4).filter(held).count();
        assert_eq!(held, 2, "huge pages replace base pages in their own ways");
        assert!(!tested.touch(PageClass::Giant, 0) && tested.touch(PageClass::Giant, 0));
    }

    #[test]
    fn random_replacement_of_one_page_too_many_misses_sometimes() {
        let mut tested = structure(1, 8, Replacement::Random);
        let hits = (0..9000).filter(|n| tested.touch(PageClass::Base, n % 9)).count();
        assert!((4000..8500).contains(&hits), "{hits} hits");
    }

    /// Numbers whose low 7 bits are those above them are all in set 0; multiples of 128 are not.
    #[test]
    fn the_xor_index_folds_the_bits_above() {
        let of_class = [Some((0, 2)), None, None];
        let (replacement, index) = (Replacement::Lru, SetIndex::Xor);
        let shape = Shape { sets: 128, ways: 2, of_class, replacement, index };
        let hits = |number: fn(u64) -> u64| {
            let mut tested = Structure::new(shape);
            (0..30).filter(|n| tested.touch(PageClass::Base, number(n % 3))).count()
        };
        assert_eq!(hits(|n| n << 7 | n), 0);
        assert_eq!(hits(|n| n << 7), 27);
    }

    #[test]
    fn a_removed_page_leaves_its_way_to_the_next() {
        for replacement in [Replacement::Lru, Replacement::Plru, Replacement::Random] {
            let mut tested = structure(2, 4, replacement);
            // More pages than ways, so that no set has an empty one.
            (0..20).for_each(|page| _ = tested.touch(PageClass::Base, page));
            let held = |tested: &Structure| -> Vec<u64> {
                let held = |page: &u64| tested.clone().touch(PageClass::Base, *page);
                (0..40).filter(held).collect()
            };
            let before = held(&tested);
            assert_eq!(before.len(), 8, "{replacement:?}");
            let removed = before[0];
            tested.remove(PageClass::Base, removed, removed + 1);
            tested.touch(PageClass::Base, 30 + removed % 2);
            let mut expected: Vec<_> = before[1..].to_vec();
            expected.push(30 + removed % 2);
            assert_eq!(held(&tested), expected, "{replacement:?}");
        }
    }

    #[test]
    fn pages_of_a_range_are_removed() {
        for replacement in [Replacement::Lru, Replacement::Plru] {
            let mut tested = structure(1, 8, replacement);
            for page in 0..8 {
                tested.touch(PageClass::Base, page);
            }
            tested.remove(PageClass::Base, 2, 5);
            let held: Vec<_> =
                (0..8).filter(|&page| tested.clone().touch(PageClass::Base, page)).collect();
            assert_eq!(held, [0, 1, 5, 6, 7]);
        }
    }
}
