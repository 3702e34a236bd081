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

/// Runs of a part: those of all levels stay in the CPU's cache.
pub(crate) const PART: usize = 1 << 9;

/// Use of a base page, which a page of `class` maps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    pub(crate) page: u64,
    /// Number of its region, and its own in there.
    base_tag: u32,
    /// Number of its 1 GiB.
    pub(crate) giant: u32,
    pub(crate) class: PageClass,
}

/// Uses of a part.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    uses: Box<[Use; PART]>,
    len: usize,
    /// Whether pages of one class map all.
    is_uniform: bool,
    /// Bits in which the numbers of the base pages differ.
    differing: u64,
}

/// Places of some uses in a part, in order.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    places: Box<[u16; PART]>,
    len: usize,
}

/// All places of a part.
static ALL: [u16; PART] = {
    let mut all = [0; PART];
    let mut at = 0;
    while at < PART {
        all[at] = at as u16;
        at += 1;
    }
    all
};

/// Tags of pages that are not base pages: these bits, and the number of the region or of the 1 GiB.
/// Base tags are below 2^31, and these numbers below 2^30 ([`crate::MAX_REGIONS`]), so that no two
/// pages have one tag, and none is that of an empty place.
const HUGE_TAG: u32 = 1 << 31;
const GIANT_TAG: u32 = 3 << 30;

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
    l1: Level,
    l2: Level,
    /// Caches of upper levels of the page table, lowest first.
    walk_caches: Vec<LevelCache>,
    levels: u32,
    nested_levels: u32,
    coalesced: u32,
}

/// Level of TLBs.
#[derive(Clone, Debug)]
struct Level {
    structures: Vec<Structure>,
    /// Index of the structure of each page class.
    of_class: [Option<usize>; 3],
    /// Class under which it holds the pages of each.
    held_as: [PageClass; 3],
    /// Base pages of an entry, as a shift.
    coalesced: u32,
}

impl Hierarchy {
    /// Creates an empty hierarchy. In a virtual machine, `nested_levels` is the depth of the host's
    /// page table, else 0.
    pub(crate) fn new(preset: &Preset, coalescing: Coalescing, nested_levels: u32) -> Self {
        let coalesced = if coalescing == Coalescing::All { 2 } else { 0 };
        // 2 MiB parts of a 1 GiB page, if the L2 smashes them.
        let giant = if preset.smashes_giant { PageClass::Huge } else { PageClass::Giant };
        let mut walk_caches: Vec<_> = preset.walk_caches.iter().map(LevelCache::new).collect();
        walk_caches.sort_by_key(|cache: &LevelCache| cache.shift);
        Self {
            l1: Level::new(&preset.l1, PageClass::Giant, coalesced),
            l2: Level::new(&preset.l2, giant, coalesced),
            walk_caches,
            levels: preset.levels,
            nested_levels,
            coalesced,
        }
    }

    /// Returns the bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        let caches = self.walk_caches.iter().map(|cache| &cache.structure);
        let all = self.l1.structures.iter().chain(&self.l2.structures).chain(caches);
        all.map(Structure::bytes).sum()
    }

    /// Uses pages in L1, in order. Sets `missed` to the uses that L1 did not hold.
    pub(crate) fn touch_l1(&mut self, part: &Part, missed: &mut Places) {
        self.l1.touch(part, &ALL[..part.len.min(PART)], missed);
    }

    /// Uses pages in L2 that L1 missed, in order. Sets `missed` to the uses that L2 did not hold.
    pub(crate) fn touch_l2(&mut self, part: &Part, places: &Places, missed: &mut Places) {
        self.l2.touch(part, places.as_slice(), missed);
    }

    /// Forgets the translations of the regions that `is_stale` names, and of the 1 GiB `giant`, as
    /// after a change of the page table. `page` is a base page in there.
    pub(crate) fn forget(&mut self, page: u64, giant: u32, is_stale: impl Fn(u32) -> bool) {
        let region_shift = REGION_SHIFT - self.coalesced;
        for structure in self.l1.structures.iter_mut().chain(&mut self.l2.structures) {
            structure.remove_if(|tag| match tag {
                GIANT_TAG.. => tag == GIANT_TAG | giant,
                HUGE_TAG.. => is_stale(tag ^ HUGE_TAG),
                _ => is_stale(tag >> region_shift),
            });
        }
        let used = Use { page, giant, ..Use::default() };
        for cache in &mut self.walk_caches {
            cache.last = NO_NUMBER;
            match cache.shift {
                REGION_SHIFT => cache.structure.remove_if(&is_stale),
                shift => cache.structure.remove_if(|tag| tag == walk_tag(shift, &used)),
            }
        }
    }

    /// Walks the page table for pages that L2 missed, in order. Sets `references` to the memory
    /// references of each walk, by place.
    ///
    /// A cache holds entries of upper levels only, never the one that maps a page (Intel SDM,
    /// section 4.10.3).
    pub(crate) fn walk(&mut self, part: &Part, walks: &Places, references: &mut [u32; PART]) {
        let walks = walks.as_slice();
        let first = part.at(0).page;
        // A cache whose entry used last is that of all pages needs no search.
        let is_same = |cache: &&LevelCache| {
            part.differing >> cache.shift == 0 && first >> cache.shift == cache.last
        };
        let same = self.walk_caches.iter().rev().take_while(is_same).count();
        let searched = self.walk_caches.len() - same;
        let mut most = PageClass::ALL.map(|class| self.levels - class.shift() / 9);
        // The lowest level that has it is the last to say so.
        for cache in self.walk_caches[searched..].iter().rev() {
            for (most, &left) in most.iter_mut().zip(&cache.levels_above) {
                *most = if left == 0 { *most } else { left };
            }
        }
        match part.class() {
            Some(class) => references.fill(most[class as usize]),
            None => walks.iter().for_each(|&at| {
                references[usize::from(at) % PART] = most[part.at(at).class as usize];
            }),
        }
        for cache in self.walk_caches[..searched].iter_mut().rev() {
            cache.touch(part, walks, references);
        }
        if self.nested_levels > 0 {
            for &at in walks {
                // Each guest reference, and the page itself, needs a walk of the host's table.
                let guest = &mut references[usize::from(at) % PART];
                *guest = (*guest + 1) * (self.nested_levels + 1) - 1;
            }
        }
    }
}

impl Use {
    /// Creates the use of a base page in the region with this number.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    pub(crate) const fn new(page: u64, region: u32, giant: u32, class: PageClass) -> Self {
        let base_tag = (region << REGION_SHIFT) | (page as u32 % (1 << REGION_SHIFT));
        Self { page, base_tag, giant, class }
    }
    /// Returns the number and the tag of the page of `class` that has it.
    #[inline(always)]
    const fn page_of(&self, class: PageClass, coalesced: u32) -> (u64, u32) {
        match class {
            PageClass::Base => (self.page >> coalesced, self.base_tag >> coalesced),
            PageClass::Huge => (self.page >> REGION_SHIFT, HUGE_TAG | self.region()),
            PageClass::Giant => (self.page >> GIANT_SHIFT, GIANT_TAG | self.giant),
        }
    }
    /// Returns the same as [`Self::page_of`], without a branch.
    #[inline(always)]
    fn page_of_any(&self, class: PageClass, coalesced: u32) -> (u64, u32) {
        let pages = PageClass::ALL.map(|class| self.page_of(class, coalesced));
        pages[class as usize]
    }
    /// Returns the number of its region.
    #[inline]
    pub(crate) const fn region(&self) -> u32 {
        self.base_tag >> REGION_SHIFT
    }
}

impl Default for Part {
    fn default() -> Self {
        Self { uses: Box::new([Use::default(); PART]), len: 0, is_uniform: true, differing: 0 }
    }
}

impl Part {
    /// Sets the uses, at most [`PART`].
    #[inline]
    pub(crate) fn set(&mut self, uses: impl ExactSizeIterator<Item = Use>) {
        self.len = uses.len().min(PART);
        let (mut any, mut all) = (0, u8::MAX);
        let (mut any_page, mut all_pages) = (0, u64::MAX);
        for (own, used) in self.uses.iter_mut().zip(uses) {
            let class = 1 << used.class as u8;
            (any, all) = (any | class, all & class);
            (any_page, all_pages) = (any_page | used.page, all_pages & used.page);
            *own = used;
        }
        (self.is_uniform, self.differing) = (any == all, any_page & !all_pages);
    }

    /// Returns the use at a place.
    #[inline]
    pub(crate) fn at(&self, place: u16) -> &Use {
        &self.uses[usize::from(place) % PART]
    }

    /// Returns the class of all uses, if they have one.
    #[inline]
    fn class(&self) -> Option<PageClass> {
        self.is_uniform.then(|| self.uses[0].class)
    }
}

impl Default for Places {
    fn default() -> Self {
        Self { places: Box::new([0; PART]), len: 0 }
    }
}

impl Places {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u16] {
        &self.places[..self.len.min(PART)]
    }
    /// Appends a place on a condition, without a branch, which would depend on the accesses.
    #[inline]
    fn push_if(&mut self, place: u16, is_wanted: bool) {
        self.places[self.len % PART] = place;
        self.len += usize::from(is_wanted);
    }
}

impl Level {
    fn new(tlbs: &[Tlb], giant: PageClass, coalesced: u32) -> Self {
        let structures: Vec<_> = tlbs.iter().map(|tlb| Structure::new(tlb.shape())).collect();
        let held_as = [PageClass::Base, PageClass::Huge, giant];
        let of_class = held_as.map(|class| structures.iter().position(|one| one.holds(class)));
        Self { structures, of_class, held_as, coalesced }
    }

    /// Uses pages in order. Sets `missed` to the uses that no structure held.
    fn touch(&mut self, part: &Part, places: &[u16], missed: &mut Places) {
        missed.len = 0;
        match part.class().map(|class| self.held_as[class as usize]) {
            None => self.touch_mixed(part, places, missed),
            Some(PageClass::Base) => self.touch_class(PageClass::Base, part, places, missed),
            Some(PageClass::Huge) => self.touch_class(PageClass::Huge, part, places, missed),
            Some(PageClass::Giant) => self.touch_class(PageClass::Giant, part, places, missed),
        }
    }

    /// Uses pages of one class.
    #[inline(always)]
    fn touch_class(&mut self, class: PageClass, part: &Part, places: &[u16], missed: &mut Places) {
        let coalesced = self.coalesced;
        let Some(at) = self.of_class[class as usize] else {
            return places.iter().for_each(|&place| missed.push_if(place, true));
        };
        let pages = places.iter().map(|&place| {
            let (number, tag) = part.at(place).page_of(class, coalesced);
            (class, number, tag, place)
        });
        self.structures[at].touch_all(pages, |place, held| missed.push_if(place, !held));
    }

    /// Uses pages of several classes: one structure after the other, each in order, since none
    /// depends on another one. It does not branch by class, which would depend on the accesses.
    fn touch_mixed(&mut self, part: &Part, places: &[u16], missed: &mut Places) {
        let (held_as, coalesced) = (self.held_as, self.coalesced);
        let mut is_missed = [true; PART];
        let mut own = [0; PART];
        for (at, structure) in self.structures.iter_mut().enumerate() {
            let is_own = self.of_class.map(|of_class| of_class == Some(at));
            let own = select(places, &mut own, |place| is_own[part.at(place).class as usize]);
            let pages = own.iter().map(|&place| {
                let used = part.at(place);
                let class = held_as[used.class as usize];
                let (number, tag) = used.page_of_any(class, coalesced);
                (class, number, tag, place)
            });
            structure.touch_all(pages, |place, held| is_missed[usize::from(place) % PART] = !held);
        }
        for &place in places {
            missed.push_if(place, is_missed[usize::from(place) % PART]);
        }
    }
}

/// Copies the places that are wanted, without a branch.
#[inline]
fn select<'a>(
    places: &[u16],
    selected: &'a mut [u16; PART],
    is_wanted: impl Fn(u16) -> bool,
) -> &'a [u16] {
    let mut len = 0;
    for &place in places {
        selected[len % PART] = place;
        len += usize::from(is_wanted(place));
    }
    &selected[..len.min(PART)]
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

    /// Uses entries of pages, in order. Sets the memory references of each walk that begins here.
    #[inline(always)]
    fn touch(&mut self, part: &Part, places: &[u16], references: &mut [u32; PART]) {
        let Self { shift, levels_above, last, structure } = self;
        let (shift, left) = (*shift, *levels_above);
        let mut own = [0; PART];
        let places = match part.class() {
            Some(class) if left[class as usize] == 0 => return,
            Some(_) => places,
            None => select(places, &mut own, |place| left[part.at(place).class as usize] > 0),
        };
        let Some(&newest) = places.last() else { return };
        *last = part.at(newest).page >> shift;
        let searched = places.iter().map(|&place| {
            let used = part.at(place);
            let left = left[used.class as usize];
            (PageClass::Base, used.page >> shift, walk_tag(shift, used), (place, left))
        });
        structure.touch_all(searched, |(place, left), held| {
            // Without a branch.
            let references = &mut references[usize::from(place) % PART];
            *references = if held { left } else { *references };
        });
    }
}

/// Bits of a base page's number within its region.
const REGION_SHIFT: u32 = PageClass::Huge.shift();
const GIANT_SHIFT: u32 = PageClass::Giant.shift();

/// Tag of an entry of the page table that maps `1 << shift` base pages. Those above 1 GiB have less
/// than 2^32 numbers, with at most [`crate::MAX_PROCESSES`].
#[allow(clippy::cast_possible_truncation)]
#[inline]
const fn walk_tag(shift: u32, used: &Use) -> u32 {
    match shift {
        REGION_SHIFT => used.region(),
        GIANT_SHIFT => used.giant,
        _ => (used.page >> shift) as u32,
    }
}
