//! Structure of a TLB level: sets of translations, by page number and page class.

use serde::{Deserialize, Serialize};

use crate::lru::Lru;
use crate::pages::PageClass;
use crate::set::{LISTED_WAYS, List, Random, Replacement, Sets, Tree};

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

/// Shape of a structure.
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

/// Structure of a TLB level.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// Ways of each class, as bits; none for a class that it does not hold.
    ways_of: [u64; 3],
    /// The set of a number: `(number ^ number >> fold) & mask`.
    fold: u32,
    mask: u64,
    table: Table,
}

/// Sets by replacement and size.
#[derive(Clone, Debug)]
enum Table {
    List8(Sets<1, List>),
    List16(Sets<2, List>),
    Tree8(Sets<1, Tree>),
    Tree64(Sets<8, Tree>),
    Random(Sets<8, Random>),
    Full(Vec<Lru>),
}

impl Structure {
    pub(crate) fn new(shape: Shape) -> Self {
        let Shape { sets, ways, replacement, .. } = shape;
        let table = match replacement {
            Replacement::Lru if ways <= 8 => Table::List8(Sets::new(sets, ways)),
            Replacement::Lru if ways <= LISTED_WAYS => Table::List16(Sets::new(sets, ways)),
            Replacement::Lru => Table::Full(vec![Lru::new(ways); sets]),
            Replacement::Plru if ways <= 8 => Table::Tree8(Sets::new(sets, ways)),
            Replacement::Plru => Table::Tree64(Sets::new(sets, ways)),
            Replacement::Random => Table::Random(Sets::new(sets, ways)),
        };
        let bits = |(first, count): (usize, usize)| u64::MAX >> (64 - count.clamp(1, 64)) << first;
        Self {
            ways_of: shape.of_class.map(|ways| ways.map_or(0, bits)),
            fold: match shape.index {
                SetIndex::Low => 63,
                SetIndex::Xor => sets.trailing_zeros(),
            },
            mask: sets as u64 - 1,
            table,
        }
    }

    /// Whether it holds pages of `class`.
    pub(crate) const fn holds(&self, class: PageClass) -> bool {
        self.ways_of[class as usize] != 0
    }

    /// Uses pages of classes that it holds, in order. An item of `pages` has the class, the number,
    /// which selects the set, and the tag, which no other page of any class has. `each` gets the
    /// rest of the item, and whether the page was held; if not, it is filled in.
    ///
    /// The table is selected once for all pages, not once for each.
    #[inline(always)]
    pub(crate) fn touch_all<T>(
        &mut self,
        pages: impl Iterator<Item = (PageClass, u64, u32, T)>,
        mut each: impl FnMut(T, bool),
    ) {
        let (ways_of, fold, mask) = (self.ways_of, self.fold, self.mask);
        #[allow(clippy::cast_possible_truncation)]
        let entries = pages.map(move |(class, number, tag, item)| {
            (((number ^ number >> fold) & mask) as usize, tag, ways_of[class as usize], item)
        });
        match &mut self.table {
            Table::List8(sets) => sets.touch_all(entries, each),
            Table::List16(sets) => sets.touch_all(entries, each),
            Table::Tree8(sets) => sets.touch_all(entries, each),
            Table::Tree64(sets) => sets.touch_all(entries, each),
            Table::Random(sets) => sets.touch_all(entries, each),
            Table::Full(sets) => match sets.as_mut_slice() {
                [only] => only.touch_all(entries.map(|(_, tag, _, item)| (tag, item)), each),
                sets => entries.for_each(|(set, tag, _, item)| each(item, sets[set].touch(tag))),
            },
        }
    }

    /// Returns the bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        let of_table = match &self.table {
            Table::List8(sets) => sets.bytes(),
            Table::List16(sets) => sets.bytes(),
            Table::Tree8(sets) => sets.bytes(),
            Table::Tree64(sets) => sets.bytes(),
            Table::Random(sets) => sets.bytes(),
            Table::Full(sets) => sets.iter().map(Lru::bytes).sum(),
        };
        size_of::<Self>() as u64 + of_table
    }

    /// Removes the pages whose tags are stale.
    pub(crate) fn remove_if(&mut self, stale: impl Fn(u32) -> bool) {
        match &mut self.table {
            Table::List8(sets) => sets.remove_if(stale),
            Table::List16(sets) => sets.remove_if(stale),
            Table::Tree8(sets) => sets.remove_if(stale),
            Table::Tree64(sets) => sets.remove_if(stale),
            Table::Random(sets) => sets.remove_if(stale),
            Table::Full(sets) => sets.iter_mut().for_each(|set| set.remove_if(&stale)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tag of a page: the number, with the class in the lowest bits.
    fn tag(class: PageClass, number: u64) -> u32 {
        (number << 2) as u32 | class as u32
    }

    impl Structure {
        fn touch(&mut self, class: PageClass, number: u64) -> bool {
            let mut held = false;
            let page = (class, number, tag(class, number), ());
            self.touch_all(std::iter::once(page), |(), found| held = found);
            held
        }
    }

    fn structure(sets: usize, ways: usize, replacement: Replacement) -> Structure {
        let of_class = [Some((0, ways)), Some((0, ways)), None];
        Structure::new(Shape { sets, ways, of_class, replacement, index: SetIndex::Low })
    }

    proptest! {
        /// The oracle keeps a list of each set, newest first.
        #[test]
        fn lru_behaves_as_lists(
            (sets, ways) in (0u32..4).prop_flat_map(|log| (Just(1usize << log), 1usize..20)),
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
            tested.remove_if(|held| held == tag(PageClass::Base, removed));
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
            tested.remove_if(|held| (2..5).any(|page| held == tag(PageClass::Base, page)));
            let held: Vec<_> =
                (0..8).filter(|&page| tested.clone().touch(PageClass::Base, page)).collect();
            assert_eq!(held, [0, 1, 5, 6, 7]);
        }
    }
}
