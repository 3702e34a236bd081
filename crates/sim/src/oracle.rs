//! Oracles of the tests: TLBs, walks and candidate caches as lists, searched from end to end.
//!
//! Of the simulators, they use only the description of a machine: presets, rules and counts.

mod pcc;
mod set;
mod stream;
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use pcc::PccList;
use set::SetList;
pub(crate) use stream::Stream;

use crate::array::SetIndex;
use crate::hierarchy::Coalescing;
use crate::machine::{Counts, MachineConfig};
use crate::pages::PageClass;
use crate::preset::{Preset, Tlb};
use crate::set::Replacement;

/// Page: its class, and its address over its size.
type PageKey = (PageClass, u64);

/// Structure of a TLB level.
struct TlbList {
    tlb: Tlb,
    sets: Vec<SetList<PageKey>>,
}

impl TlbList {
    fn new(tlb: &Tlb) -> Self {
        let ways = tlb.ways.unwrap_or(tlb.entries);
        let set = SetList::new(ways, tlb.replacement);
        Self { tlb: tlb.clone(), sets: vec![set; tlb.entries / ways] }
    }

    /// Uses a page. Returns whether it was there. `index` is the number that selects the set.
    fn touch(&mut self, key: PageKey, index: u64) -> bool {
        let sets = self.sets.len() as u64;
        let set = match self.tlb.index {
            SetIndex::Low => index % sets,
            SetIndex::Xor => (index % sets) ^ (index / sets % sets),
        };
        let all = (0, self.tlb.ways.unwrap_or(self.tlb.entries));
        let of = &self.tlb.ways_of;
        let (first, count) = match key.0 {
            PageClass::Base => of.base,
            PageClass::Huge => of.huge,
            PageClass::Giant => of.giant,
        }
        .unwrap_or(all);
        self.sets[set as usize].touch(key, first..first + count)
    }
}

/// TLBs and candidate caches of a core.
struct CoreList {
    l1: Vec<TlbList>,
    l2: Vec<TlbList>,
    /// Walk caches: level, then entries by the prefix of the address.
    walk_caches: Vec<(u32, Vec<SetList<u64>>)>,
    huge: PccList,
    giant: PccList,
}

impl CoreList {
    fn new(config: &MachineConfig) -> Self {
        let level = |tlbs: &[Tlb]| tlbs.iter().map(TlbList::new).collect();
        let walk_caches = config.preset.walk_caches.iter().map(|cache| {
            let ways = cache.ways.unwrap_or(cache.entries);
            let set = SetList::new(ways, Replacement::Lru);
            (cache.level, vec![set; cache.entries / ways])
        });
        Self {
            l1: level(&config.preset.l1),
            l2: level(&config.preset.l2),
            walk_caches: walk_caches.collect(),
            huge: PccList::new(config.candidates.huge),
            giant: PccList::new(config.candidates.giant),
        }
    }

    /// Memory references of a walk: from the root, or from the lowest table that a cache has. A
    /// table of level 1 has the entries of base pages; the entry of a 2 MiB page is in one of
    /// level 2, so that only caches of level 2 and above help its walk.
    fn walk(&mut self, page: u64, class: PageClass, levels: u32) -> u32 {
        let own_level = match class {
            PageClass::Base => 0,
            PageClass::Huge => 1,
            PageClass::Giant => 2,
        };
        let mut references = levels - own_level;
        for (level, sets) in &mut self.walk_caches {
            if *level > own_level {
                let prefix = page >> (9 * *level);
                let set = (prefix % sets.len() as u64) as usize;
                let ways = sets[set].ways();
                if sets[set].touch(prefix, 0..ways) {
                    references = references.min(*level - own_level);
                }
            }
        }
        references
    }
}

/// References of a walk in a virtual machine: the guest's entries and the page itself have guest
/// physical addresses, each of which is translated by a walk of the host's table.
fn nested(guest_references: u32, host_levels: u32) -> u32 {
    let mut references = 0;
    for _ in 0..guest_references {
        for _ in 0..host_levels {
            references += 1;
        }
        references += 1;
    }
    for _ in 0..host_levels {
        references += 1;
    }
    references
}

/// Region of the footprint.
struct RegionList {
    number: u64,
    class: PageClass,
    accessed: bool,
    /// Whether it walked since its promotion.
    walked_since: bool,
    counts: Counts,
}

/// The machine.
pub(crate) struct MachineList {
    config: MachineConfig,
    cores: Vec<CoreList>,
    regions: Vec<RegionList>,
    index: BTreeMap<u64, usize>,
    /// 1 GiB regions, in the order of first use.
    giants: Vec<u64>,
    accessed_giants: BTreeSet<u64>,
}

impl MachineList {
    pub(crate) fn new(config: MachineConfig) -> Self {
        let (index, accessed_giants) = (BTreeMap::new(), BTreeSet::new());
        let (cores, regions, giants) = (Vec::new(), Vec::new(), Vec::new());
        Self { config, cores, regions, index, giants, accessed_giants }
    }

    pub(crate) fn counts(&self) -> Vec<Counts> {
        self.regions.iter().map(|region| region.counts).collect()
    }
    pub(crate) fn huge_tables(&self) -> Vec<Vec<(u32, u32)>> {
        self.cores.iter().map(|core| core.huge.ranked()).collect()
    }
    pub(crate) fn giant_tables(&self) -> Vec<Vec<(u32, u32)>> {
        self.cores.iter().map(|core| core.giant.ranked()).collect()
    }

    /// Executes one access of a thread.
    pub(crate) fn access(&mut self, process: u16, thread: u16, address: u64) {
        while self.cores.len() <= usize::from(thread) {
            self.cores.push(CoreList::new(&self.config));
        }
        let page = (u64::from(process) << 45) + address / 4096;
        let at = self.region(page / 512);
        let class = self.regions[at].class;
        self.regions[at].counts.accesses += 1;
        if self.is_in_l1(thread, page, class) {
            return;
        }
        self.regions[at].counts.l1_misses += 1;
        if self.is_in_l2(thread, page, class) {
            return;
        }
        self.walk(thread, page, at);
    }

    fn region(&mut self, number: u64) -> usize {
        if let Some(&at) = self.index.get(&number) {
            return at;
        }
        if !self.giants.contains(&(number / 512)) {
            self.giants.push(number / 512);
        }
        let (class, counts) = (self.config.first_class, Counts::default());
        self.regions.push(RegionList {
            number,
            class,
            accessed: false,
            walked_since: true,
            counts,
        });
        self.index.insert(number, self.regions.len() - 1);
        self.regions.len() - 1
    }

    /// Key of a page in a TLB, and the number that selects its set.
    fn key(&self, page: u64, class: PageClass) -> (PageKey, u64) {
        let number = match class {
            PageClass::Base if self.config.coalescing == Coalescing::All => page / 4,
            PageClass::Base => page,
            PageClass::Huge => page / 512,
            PageClass::Giant => page / 512 / 512,
        };
        ((class, number), number)
    }

    fn is_in_l1(&mut self, thread: u16, page: u64, class: PageClass) -> bool {
        let (key, index) = self.key(page, class);
        let level = &mut self.cores[usize::from(thread)].l1;
        holder(level, class).is_some_and(|tlb| tlb.touch(key, index))
    }

    fn is_in_l2(&mut self, thread: u16, page: u64, class: PageClass) -> bool {
        let smashed = self.config.preset.smashes_giant && class == PageClass::Giant;
        let class = if smashed { PageClass::Huge } else { class };
        let (key, index) = self.key(page, class);
        let level = &mut self.cores[usize::from(thread)].l2;
        holder(level, class).is_some_and(|tlb| tlb.touch(key, index))
    }

    fn walk(&mut self, thread: u16, page: u64, at: usize) {
        let MachineConfig { candidates: rules, nested_levels, .. } = self.config;
        let Preset { levels, .. } = self.config.preset;
        let core = &mut self.cores[usize::from(thread)];
        let region = &mut self.regions[at];
        let mut references = core.walk(page, region.class, levels);
        if nested_levels > 0 {
            references = nested(references, nested_levels);
        }
        region.counts.walks += 1;
        region.counts.walk_references += u64::from(references);
        let giant = region.number / 512;
        // The walk that sets an accessed bit is not counted.
        let is_cold = rules.cold_filter && !region.accessed;
        let is_cold_giant = rules.cold_filter && self.accessed_giants.insert(giant);
        region.accessed = true;
        let walked = std::mem::replace(&mut region.walked_since, true);
        let is_cold = is_cold || rules.is_cold_again && !walked;
        if !is_cold && (region.class == PageClass::Base || rules.counts_promoted) {
            core.huge.touch(at as u32);
        }
        if !is_cold_giant && region.class == PageClass::Huge {
            let place = self.giants.iter().position(|&known| known == giant);
            core.giant.touch(place.unwrap() as u32);
        }
    }

    /// Maps a region by pages of `class`; if its 1 GiB is or becomes one page, all known regions of
    /// it. The translations of what changes are forgotten, and its entries in the candidate caches.
    pub(crate) fn set_class(&mut self, at: usize, class: PageClass) {
        let (number, giant) = (self.regions[at].number, self.regions[at].number / 512);
        let is_wide = class == PageClass::Giant || self.regions[at].class == PageClass::Giant;
        let changes = |other: u64| other == number || is_wide && other / 512 == giant;
        let coalesced = if self.config.coalescing == Coalescing::All { 4 } else { 1 };
        for region in &mut self.regions {
            if changes(region.number) {
                if region.class != class {
                    region.walked_since = region.class > class;
                }
                region.class = class;
            }
        }
        let is_stale = |&(class, page): &PageKey| match class {
            PageClass::Base => changes(page * coalesced / 512),
            PageClass::Huge => changes(page),
            PageClass::Giant => page == giant,
        };
        for core in &mut self.cores {
            for tlb in core.l1.iter_mut().chain(&mut core.l2) {
                tlb.sets.iter_mut().for_each(|set| set.remove_if(is_stale));
            }
            for (level, sets) in &mut core.walk_caches {
                let stale = |prefix: &u64| match *level {
                    1 => changes(*prefix),
                    level => *prefix == (number << 9) >> (9 * level),
                };
                sets.iter_mut().for_each(|set| set.remove_if(stale));
            }
            for (place, region) in self.regions.iter().enumerate() {
                if changes(region.number) {
                    core.huge.remove(place as u32);
                }
            }
            if class == PageClass::Giant {
                let place = self.giants.iter().position(|&known| known == giant);
                core.giant.remove(place.unwrap() as u32);
            }
        }
    }
}

fn holder(level: &mut [TlbList], class: PageClass) -> Option<&mut TlbList> {
    level.iter_mut().find(|one| one.tlb.holds.contains(&class))
}
