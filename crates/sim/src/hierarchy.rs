//! TLB hierarchy of one hardware thread: L1, L2, page-walk caches and the cost of a walk.
//!
//! A page that L1 has not is looked up in L2, then walked. Both levels are filled after a walk, L1
//! after a hit in L2. Neither level is inclusive: what one evicts stays in the other (TLB;DR,
//! USENIX Security 2022, section 4).

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

/// Walk cache of one level.
#[derive(Clone, Debug)]
struct LevelCache {
    /// Bits of a base page's number below the tag.
    shift: u32,
    /// Number used last, which needs no search: it is the newest of its set.
    last: Option<u64>,
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

    /// Uses base page `page`, which a page of `class` maps, in L1. Returns whether L1 had it.
    #[inline]
    pub(crate) fn touch_l1(&mut self, page: u64, class: PageClass) -> bool {
        let number = self.number(page, class);
        touch(&mut self.l1, self.l1_of, class, number)
    }

    /// Uses a page in L2, after L1 missed it. Returns whether L2 had it.
    #[inline]
    pub(crate) fn touch_l2(&mut self, page: u64, class: PageClass) -> bool {
        let held = self.l2_class(class);
        let number = self.number(page, held);
        touch(&mut self.l2, self.l2_of, held, number)
    }

    /// Forgets the translations of the page of `class` that has base page `page`, as after a change
    /// of the page table.
    pub(crate) fn forget(&mut self, page: u64, class: PageClass) {
        let from = page >> class.shift() << class.shift();
        let to = from + (1 << class.shift());
        for held in PageClass::ALL {
            let below = if held == PageClass::Base { self.coalesced } else { held.shift() };
            let range = (from >> below, ((to - 1) >> below) + 1);
            for structure in self.l1.iter_mut().chain(&mut self.l2) {
                if structure.holds(held) {
                    structure.remove(held, range.0, range.1);
                }
            }
        }
        for cache in &mut self.walk_caches {
            cache.last = None;
            cache.structure.remove(
                PageClass::Base,
                from >> cache.shift,
                ((to - 1) >> cache.shift) + 1,
            );
        }
    }

    /// Number of the page in its structures.
    const fn number(&self, page: u64, class: PageClass) -> u64 {
        match class {
            PageClass::Base => page >> self.coalesced,
            PageClass::Huge | PageClass::Giant => page >> class.shift(),
        }
    }

    /// Class under which L2 holds a page: 2 MiB parts of a 1 GiB page if it smashes them.
    const fn l2_class(&self, class: PageClass) -> PageClass {
        match class {
            PageClass::Giant if self.smashes_giant => PageClass::Huge,
            _ => class,
        }
    }

    /// Walks the page table, after L2 missed a page. Returns the memory references.
    ///
    /// A cache holds entries of upper levels only, never the one that maps a page (Intel SDM,
    /// section 4.10.3).
    #[inline]
    pub(crate) fn walk(&mut self, page: u64, class: PageClass) -> u32 {
        let mut references = self.levels - class.shift() / 9;
        // The lowest level that has it is the last to say so.
        for cache in self.walk_caches.iter_mut().rev() {
            if cache.shift > class.shift() && cache.touch(page) {
                references = (cache.shift - class.shift()) / 9;
            }
        }
        // Each guest reference, and the page itself, needs a walk of the host's table.
        (references + 1) * (self.nested_levels + 1) - 1
    }
}

#[inline]
fn touch(level: &mut [Structure], of: [Option<usize>; 3], class: PageClass, number: u64) -> bool {
    of[class as usize].is_some_and(|at| level[at].touch(class, number))
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
        Self { shift: cache.level * 9, last: None, structure: Structure::new(shape) }
    }

    #[inline]
    fn touch(&mut self, page: u64) -> bool {
        let number = Some(page >> self.shift);
        let is_last = number == self.last;
        self.last = number;
        is_last || self.structure.touch(PageClass::Base, page >> self.shift)
    }
}
