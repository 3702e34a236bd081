//! Machine: a TLB hierarchy and promotion candidate caches per thread, and the page class of each
//! region.

use serde::{Deserialize, Serialize};

use crate::hierarchy::{Coalescing, Hierarchy, PART, Part, Places, Use};
use crate::memory::MemoryUse;
use crate::pages::PageClass;
use crate::pcc::{Pcc, PccConfig, Ranked};
use crate::preset::Preset;
use crate::runs::{AccessRun, Batch, RegionId, Turn};

/// Configuration of a machine.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// TLBs.
    pub preset: Preset,
    /// Sharing of entries among base pages.
    pub coalescing: Coalescing,
    /// Levels of the host's page table; 0 outside a virtual machine.
    pub nested_levels: u32,
    /// Page class of a region at its first use.
    pub first_class: PageClass,
    /// Candidate caches.
    pub candidates: CandidateRules,
    /// Candidate caches that count. The others stay empty, which saves time.
    pub tables: CandidateTables,
}

/// Candidate caches that a simulation reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CandidateTables {
    /// No cache.
    None,
    /// Cache of 2 MiB regions.
    Huge,
    /// Caches of 2 MiB and of 1 GiB regions.
    #[default]
    All,
}

impl MachineConfig {
    /// A machine of its own with base pages, and the candidate caches of the paper.
    pub const fn new(preset: Preset) -> Self {
        Self {
            preset,
            coalescing: Coalescing::None,
            nested_levels: 0,
            first_class: PageClass::Base,
            candidates: CandidateRules::PAPER,
            tables: CandidateTables::All,
        }
    }
}

/// Candidate caches of a core, and the walks that they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateRules {
    /// Table of 2 MiB regions.
    pub huge: PccConfig,
    /// Table of 1 GiB regions.
    pub giant: PccConfig,
    /// Whether the first walk of a region is not counted. It only sets the accessed bit (section
    /// 3.2: the cold filter).
    pub cold_filter: bool,
    /// Whether walks of promoted regions are counted, too: those that still walk much may be
    /// demoted (section 3.3.3).
    pub counts_promoted: bool,
    /// Whether the first walk after a promotion is not counted, as that of a region is not.
    pub is_cold_again: bool,
    /// Whether each decision empties the tables.
    pub empties: bool,
}

impl CandidateRules {
    /// The paper: 128 and 8 entries, base pages only.
    pub const PAPER: Self = Self {
        huge: PccConfig::PAPER,
        giant: PccConfig::PAPER_GIANT,
        cold_filter: true,
        counts_promoted: false,
        is_cold_again: false,
        empties: false,
    };
    /// The published simulator of the paper; docs/simulations.md lists its rules.
    pub const ARTIFACT: Self =
        Self { counts_promoted: true, is_cold_again: true, empties: true, ..Self::PAPER };
}

/// Counts of accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Accesses.
    pub accesses: u64,
    /// Those that missed L1.
    pub l1_misses: u64,
    /// Those that missed L2, too: page walks.
    pub walks: u64,
    /// Memory references of the walks.
    pub walk_references: u64,
}

impl Counts {
    /// Returns the walks per access; 0 without accesses.
    #[allow(clippy::cast_precision_loss)]
    pub fn walk_ratio(&self) -> f64 {
        self.walks as f64 / (self.accesses as f64).max(1.0)
    }
}

#[derive(Clone, Debug)]
struct Core {
    tlb: Hierarchy,
    huge: Pcc,
    giant: Pcc,
}

impl Core {
    /// Counts walks of regions, in order, also in the candidate caches, and sets the accessed bits
    /// of the regions and of their 1 GiB.
    fn count_walks(
        &mut self,
        Reached { part, walks, references, .. }: &Reached,
        regions: &mut [Walks],
        giants: &mut [bool],
        cold: &mut [bool],
        MachineConfig { candidates: rules, tables, .. }: &MachineConfig,
    ) {
        // Walks of one 1 GiB in a row are counted at once.
        let (mut last_giant, mut times) = (0, 0);
        for &place in walks.as_slice() {
            let used = part.at(place);
            let region = &mut regions[used.region() as usize];
            region.walks += 1;
            region.references += u64::from(references[usize::from(place) % PART]);
            if *tables == CandidateTables::None {
                continue;
            }
            // As if a promotion cleared the accessed bit.
            let is_cold_again = rules.is_cold_again
                && cold.get_mut(used.region() as usize).is_some_and(std::mem::take);
            // The first walk sets the accessed bit.
            if rules.cold_filter && region.walks == 1 {
                if !std::mem::replace(&mut giants[used.giant as usize], true) {
                    continue;
                }
            } else if !is_cold_again && (used.class == PageClass::Base || rules.counts_promoted) {
                self.huge.touch(used.region());
            }
            if used.class == PageClass::Huge && *tables == CandidateTables::All {
                if used.giant != last_giant {
                    self.giant.touch_times(last_giant, times);
                    (last_giant, times) = (used.giant, 0);
                }
                times += 1;
            }
        }
        self.giant.touch_times(last_giant, times);
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    /// Number among all addresses.
    number: u64,
    accesses: u64,
    /// Number of its 1 GiB.
    giant: u32,
    class: PageClass,
}

/// Walks of a region.
#[derive(Clone, Copy, Debug, Default)]
struct Walks {
    walks: u64,
    references: u64,
}

/// Part, the uses of it that reach each level, and the memory references of its walks, by place.
#[derive(Clone, Debug)]
struct Reached {
    part: Part,
    l2: Places,
    walks: Places,
    references: Box<[u32; PART]>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    config: MachineConfig,
    cores: Vec<Core>,
    regions: Vec<Region>,
    /// L1 misses of each region. What each level counts is apart, so that it stays in the CPU's L1
    /// cache with the tables of that level.
    l1_misses: Vec<u64>,
    walks: Vec<Walks>,
    /// Accessed bits of 1 GiB regions.
    giants: Vec<bool>,
    /// Regions that were promoted, and did not walk since.
    cold: Vec<bool>,
    /// Counts that regions had when they left each class.
    left_class: [Counts; 3],
    /// Counts of each region when its class changed; none for those that never did.
    before_class: Vec<Counts>,
    reached: Reached,
}

impl Machine {
    /// Creates a machine whose TLBs are empty.
    pub fn new(config: MachineConfig) -> Self {
        Self {
            config,
            cores: Vec::new(),
            regions: Vec::new(),
            l1_misses: Vec::new(),
            walks: Vec::new(),
            giants: Vec::new(),
            cold: Vec::new(),
            left_class: Default::default(),
            before_class: Vec::new(),
            reached: Reached {
                part: Part::default(),
                l2: Places::default(),
                walks: Places::default(),
                references: Box::new([0; PART]),
            },
        }
    }

    /// Executes the runs of the next batch.
    pub fn run(&mut self, batch: &Batch) {
        let class = self.config.first_class;
        for &RegionId { number, giant } in batch.regions() {
            self.regions.push(Region { number, accesses: 0, giant, class });
            self.giants.resize(self.giants.len().max(giant as usize + 1), false);
        }
        self.l1_misses.resize(self.regions.len(), 0);
        self.walks.resize(self.regions.len(), Walks::default());
        for Turn { thread, is_new, runs } in batch.turns() {
            while self.cores.len() <= usize::from(thread) {
                self.cores.push(self.core());
            }
            if is_new {
                // The candidate caches of a core stay, as in hardware.
                self.cores[usize::from(thread)].tlb = self.tlb();
            }
            runs.chunks(PART).for_each(|part| self.run_on(thread, part));
        }
    }

    /// Executes runs of one thread, a level at a time: no lookup in a level depends on another
    /// level, so that the CPU can look up several at once.
    fn run_on(&mut self, thread: u16, runs: &[AccessRun]) {
        let Self { cores, regions, l1_misses, giants, cold, reached, config, .. } = self;
        let core = &mut cores[usize::from(thread)];
        let Reached { part, l2, walks, references } = reached;
        let uses = runs.iter().map(|run| {
            let Region { number, accesses, giant, class } = &mut regions[run.region() as usize];
            *accesses += u64::from(run.accesses);
            Use::new(run.base_page(*number), run.region(), *giant, *class)
        });
        part.set(uses);
        core.tlb.touch_l1(part, l2);
        for &place in l2.as_slice() {
            l1_misses[part.at(place).region() as usize] += 1;
        }
        core.tlb.touch_l2(part, l2, walks);
        core.tlb.walk(part, walks, references);
        core.count_walks(reached, &mut self.walks, giants, cold, config);
    }

    /// Maps a region by pages of `class`, or, for [`PageClass::Giant`], all regions of its 1 GiB.
    /// All cores forget the translations of what changes, and the candidate caches its entries.
    #[allow(clippy::cast_possible_truncation)]
    pub fn set_class(&mut self, region: u32, class: PageClass) {
        let Region { number, giant, class: before, .. } = self.regions[region as usize];
        let wide = class.max(before);
        if wide == PageClass::Giant {
            for other in 0..self.regions.len() {
                if self.regions[other].giant == giant {
                    self.change_class(other, class);
                }
            }
        }
        self.change_class(region as usize, class);
        let Self { cores, regions, .. } = self;
        let is_stale = |other: u32| {
            let of_giant = || regions.get(other as usize).is_some_and(|one| one.giant == giant);
            other == region || wide == PageClass::Giant && of_giant()
        };
        let all =
            if wide == PageClass::Giant { 0..regions.len() as u32 } else { region..region + 1 };
        for core in cores {
            core.tlb.forget(number << PageClass::Huge.shift(), giant, is_stale);
            all.clone().filter(|&one| is_stale(one)).for_each(|one| _ = core.huge.remove(one));
            if class == PageClass::Giant {
                core.giant.remove(giant);
            }
        }
    }

    fn change_class(&mut self, number: usize, class: PageClass) {
        let counts = self.counts_of(number);
        if number >= self.before_class.len() {
            self.before_class.resize(number + 1, Counts::default());
        }
        let before = std::mem::replace(&mut self.before_class[number], counts);
        let former = std::mem::replace(&mut self.regions[number].class, class);
        self.cold.resize(self.regions.len(), false);
        if class != former {
            self.cold[number] = class > former;
        }
        let left = &mut self.left_class[former as usize];
        *left = left.and(counts.minus(before));
    }

    /// Empties the candidate caches of all cores.
    pub fn empty_candidates(&mut self) {
        let CandidateRules { huge, giant, .. } = self.config.candidates;
        for core in &mut self.cores {
            (core.huge, core.giant) = (Pcc::new(huge), Pcc::new(giant));
        }
    }

    /// Returns the page class of a region.
    pub fn class(&self, region: u32) -> PageClass {
        self.regions.get(region as usize).map_or(self.config.first_class, |region| region.class)
    }
    /// Returns the counts of all accesses. Cost: the number of regions.
    pub fn counts(&self) -> Counts {
        self.counts_of_regions().fold(Counts::default(), Counts::and)
    }
    /// Returns the counts of accesses to pages of `class`. Cost: the number of regions.
    pub fn counts_of_class(&self, class: PageClass) -> Counts {
        let before = self.before_class.iter().copied().chain(std::iter::repeat(Counts::default()));
        let own = self.regions.iter().zip(self.counts_of_regions()).zip(before);
        own.filter(|((region, _), _)| region.class == class)
            .map(|((_, counts), before)| counts.minus(before))
            .fold(self.left_class[class as usize], Counts::and)
    }
    /// Returns the counts of each region, by number.
    pub fn counts_of_regions(&self) -> impl Iterator<Item = Counts> {
        (0..self.regions.len()).map(|number| self.counts_of(number))
    }
    fn counts_of(&self, region: usize) -> Counts {
        let Walks { walks, references: walk_references } = self.walks[region];
        let (accesses, l1_misses) = (self.regions[region].accesses, self.l1_misses[region]);
        Counts { accesses, l1_misses, walks, walk_references }
    }
    /// Returns the candidate cache of each core for 2 MiB.
    pub fn candidates(&self) -> Vec<Vec<Ranked>> {
        self.cores.iter().map(|core| core.huge.ranked()).collect()
    }
    /// Returns the candidate cache of each core for 1 GiB, by [`giant`].
    ///
    /// [`giant`]: crate::RegionPages::giant
    pub fn giant_candidates(&self) -> Vec<Vec<Ranked>> {
        self.cores.iter().map(|core| core.giant.ranked()).collect()
    }

    /// Returns the memory that it takes.
    pub fn memory(&self) -> MemoryUse {
        let Core { tlb, huge, giant } = self.core();
        let tables = tlb.bytes() + huge.bytes() + giant.bytes();
        // Vectors double, and each has counts before and after a change of class.
        let of_region = size_of::<Region>() + size_of::<u64>() + size_of::<Walks>();
        let of_region = of_region + size_of::<Counts>();
        MemoryUse {
            core_bytes: size_of::<Core>() as u64 + tables,
            region_bytes: 2 * of_region as u64,
            core_region_bytes: Pcc::REGION_BYTES,
        }
    }

    fn core(&self) -> Core {
        let CandidateRules { huge, giant, .. } = self.config.candidates;
        Core { tlb: self.tlb(), huge: Pcc::new(huge), giant: Pcc::new(giant) }
    }

    fn tlb(&self) -> Hierarchy {
        let MachineConfig { preset, coalescing, nested_levels, .. } = &self.config;
        Hierarchy::new(preset, *coalescing, *nested_levels)
    }
}

impl Counts {
    /// Returns the sums.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.combine(other, u64::wrapping_add)
    }
    fn minus(self, other: Self) -> Self {
        self.combine(other, u64::wrapping_sub)
    }
    fn combine(self, other: Self, act: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            accesses: act(self.accesses, other.accesses),
            l1_misses: act(self.l1_misses, other.l1_misses),
            walks: act(self.walks, other.walks),
            walk_references: act(self.walk_references, other.walk_references),
        }
    }
}

/// Returns the candidates of all cores as one list: the sum of the frequencies of each region,
/// highest first, ties by number (section 3.3: the system aggregates the tables).
pub fn merge(tables: &[Vec<Ranked>]) -> Vec<Ranked> {
    let mut sums = std::collections::BTreeMap::new();
    for entry in tables.iter().flatten() {
        *sums.entry(entry.region).or_insert(0) += entry.frequency;
    }
    let mut merged: Vec<_> =
        sums.into_iter().map(|(region, frequency)| Ranked { region, frequency }).collect();
    merged.sort_by_key(|entry| (std::cmp::Reverse(entry.frequency), entry.region));
    merged
}

#[cfg(test)]
mod tests;
