//! TLB hierarchy of one hardware thread: L1, L2, page-walk caches and the cost of a walk.
//!
//! A page that L1 has not is looked up in L2, then walked. Both levels are filled after a walk, L1
//! after a hit in L2. Neither level is inclusive: what one evicts stays in the other (TLB;DR,
//! USENIX Security 2022, section 4).

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use crate::array::{SetIndex, Shape, Structure};
use crate::pages::PageClass;
use crate::preset::{Preset, Tlb, WalkCache};
use crate::set::Replacement;

/// Whether adjacent base pages share an entry, as in AMD Zen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coalescing {
    /// Each base page has an entry of its own.
    #[default]
    None,
    /// Four aligned base pages share one, as if all memory were contiguous: an upper bound, since a
    /// trace does not have physical addresses.
    All,
}

/// Use of a base page, which a page of `class` maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) page: u64,
    /// Number of its region.
    pub(crate) region: u32,
    pub(crate) class: PageClass,
}

/// Number of no page.
const NO_NUMBER: u64 = u64::MAX;

/// Walk cache of one level.
#[derive(Clone, Debug)]
struct LevelCache {
    /// Bits of a base page's number below the tag.
    shift: u32,
    /// Levels between it and a page of each class; 0 if it is not above it.
    levels_above: [u32; 3],
    /// Number used last, which needs no search: it is the newest of its set. [`NO_NUMBER`] at
    /// first.
    last: u64,
    structure: Structure,
}

/// Hierarchy. All memory is allocated at the start.
#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    l1: Vec<Structure>,
    l2: Vec<Structure>,
    /// Index into `l1` and `l2` of the structure of each page class.
    l1_of: [Option<usize>; 3],
    l2_of: [Option<usize>; 3],
    /// Caches of upper levels of the page table, lowest first.
    walk_caches: Vec<LevelCache>,
    levels: u32,
    nested_levels: u32,
    coalesced: u32,
    smashes_giant: bool,
}

impl Hierarchy {
    /// Creates an empty hierarchy. In a virtual machine, `nested_levels` is the depth of the host's
    /// page table, else 0.
    pub(crate) fn new(preset: &Preset, coalescing: Coalescing, nested_levels: u32) -> Self {
        let build = |tlbs: &[Tlb]| tlbs.iter().map(|tlb| Structure::new(tlb.shape())).collect();
        let (l1, l2): (Vec<Structure>, Vec<Structure>) = (build(&preset.l1), build(&preset.l2));
        let of = |level: &[Structure]| {
            PageClass::ALL.map(|class| level.iter().position(|structure| structure.holds(class)))
        };
        let (l1_of, l2_of) = (of(&l1), of(&l2));
        let mut walk_caches: Vec<_> = preset.walk_caches.iter().map(LevelCache::new).collect();
        walk_caches.sort_by_key(|cache: &LevelCache| cache.shift);
        let coalesced = if coalescing == Coalescing::All { 2 } else { 0 };
        Self {
            l1,
            l2,
            l1_of,
            l2_of,
            walk_caches,
            levels: preset.levels,
            nested_levels,
            coalesced,
            smashes_giant: preset.smashes_giant,
        }
    }

    /// Uses pages in L1, in order. Sets `missed` to the uses that L1 did not hold.
    pub(crate) fn touch_l1(&mut self, uses: &[Use], missed: &mut Vec<Use>) {
        missed.clear();
        for same in uses.chunk_by(|one, next| one.class == next.class) {
            let class = same[0].class;
            let shift = self.shift(class);
            let structure = self.l1_of[class as usize].map(|at| &mut self.l1[at]);
            touch(structure, class, shift, same, missed);
        }
    }

    /// Uses pages in L2 that L1 missed, in order. Sets `missed` to the uses that L2 did not hold.
    pub(crate) fn touch_l2(&mut self, uses: &[Use], missed: &mut Vec<Use>) {
        missed.clear();
        for same in uses.chunk_by(|one, next| one.class == next.class) {
            let class = self.l2_class(same[0].class);
            let shift = self.shift(class);
            let structure = self.l2_of[class as usize].map(|at| &mut self.l2[at]);
            touch(structure, class, shift, same, missed);
        }
    }

    /// Forgets the translations of the page of `class` that has base page `page`, as after a change
    /// of the page table.
    pub(crate) fn forget(&mut self, page: u64, class: PageClass) {
        let from = page >> class.shift() << class.shift();
        let to = from + (1 << class.shift());
        for held in PageClass::ALL {
            let below = self.shift(held);
            let range = (from >> below, ((to - 1) >> below) + 1);
            for structure in self.l1.iter_mut().chain(&mut self.l2) {
                if structure.holds(held) {
                    structure.remove(held, range.0, range.1);
                }
            }
        }
        for cache in &mut self.walk_caches {
            cache.last = NO_NUMBER;
            cache.structure.remove(
                PageClass::Base,
                from >> cache.shift,
                ((to - 1) >> cache.shift) + 1,
            );
        }
    }

    /// Bits of a base page's number below that of its page of `class` in the structures.
    const fn shift(&self, class: PageClass) -> u32 {
        match class {
            PageClass::Base => self.coalesced,
            PageClass::Huge | PageClass::Giant => class.shift(),
        }
    }

    /// Class under which L2 holds a page: 2 MiB parts of a 1 GiB page if it smashes them.
    const fn l2_class(&self, class: PageClass) -> PageClass {
        match class {
            PageClass::Giant if self.smashes_giant => PageClass::Huge,
            _ => class,
        }
    }

    /// Walks the page table for pages that L2 missed, in order. Sets `references` to the memory
    /// references of each walk.
    ///
    /// A cache holds entries of upper levels only, never the one that maps a page (Intel SDM,
    /// section 4.10.3).
    pub(crate) fn walk(&mut self, uses: &[Use], references: &mut Vec<u32>) {
        references.clear();
        references.extend(uses.iter().map(|used| self.levels - used.class.shift() / 9));
        let cells = Cell::from_mut(references.as_mut_slice()).as_slice_of_cells();
        let first = uses.first().map_or(0, |used| used.page);
        let differing = uses.iter().fold(0, |bits, used| bits | used.page ^ first);
        // The lowest level that has it is the last to say so.
        for cache in self.walk_caches.iter_mut().rev() {
            if differing >> cache.shift == 0 && first >> cache.shift == cache.last {
                cache.repeat_last(uses, cells);
            } else {
                cache.touch(uses, cells);
            }
        }
        if self.nested_levels > 0 {
            // Each guest reference, and the page itself, needs a walk of the host's table.
            let nested = |guest: &mut u32| *guest = (*guest + 1) * (self.nested_levels + 1) - 1;
            references.iter_mut().for_each(nested);
        }
    }
}

/// Uses pages of `class` in a structure of a level, if it has one. Appends those that it did not
/// hold to `missed`.
fn touch(
    structure: Option<&mut Structure>,
    class: PageClass,
    shift: u32,
    uses: &[Use],
    missed: &mut Vec<Use>,
) {
    let Some(structure) = structure else { return missed.extend_from_slice(uses) };
    let (before, mut count) = (missed.len(), 0);
    missed.extend_from_slice(uses);
    let kept = &mut missed[before..];
    let numbers = uses.iter().map(move |used| (used.page >> shift, used));
    structure.touch_all(class, numbers, |used, held| {
        // Without a branch, which would depend on the accesses.
        kept[count] = *used;
        count += usize::from(!held);
    });
    missed.truncate(before + count);
}

impl LevelCache {
    fn new(cache: &WalkCache) -> Self {
        let ways = cache.ways.unwrap_or(cache.entries);
        let shape = Shape {
            sets: cache.entries / ways,
            ways,
            of_class: [Some((0, ways)), None, None],
            replacement: Replacement::Lru,
            index: SetIndex::Low,
        };
        let shift = cache.level * 9;
        let levels_above = PageClass::ALL.map(|class| shift.saturating_sub(class.shift()) / 9);
        Self { shift, levels_above, last: NO_NUMBER, structure: Structure::new(shape) }
    }

    /// Uses the entry used last for all pages. It stays the newest.
    fn repeat_last(&self, uses: &[Use], references: &[Cell<u32>]) {
        for (used, references) in uses.iter().zip(references) {
            match self.levels_above[used.class as usize] {
                0 => {}
                left => references.set(left),
            }
        }
    }

    /// Uses entries of pages, in order. Sets the memory references of each walk that begins here.
    fn touch(&mut self, uses: &[Use], references: &[Cell<u32>]) {
        let Self { shift, levels_above, last, structure } = self;
        let (shift, levels_above) = (*shift, *levels_above);
        let searched = uses.iter().zip(references).filter_map(|(used, references)| {
            let (number, left) = (used.page >> shift, levels_above[used.class as usize]);
            if left == 0 {
                return None;
            }
            if *last == number {
                references.set(left);
                return None;
            }
            *last = number;
            Some((number, (references, left)))
        });
        structure.touch_all(PageClass::Base, searched, |(references, left), held| {
            if held {
                references.set(left);
            }
        });
    }
}
