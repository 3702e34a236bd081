//! Machine: a TLB hierarchy and promotion candidate caches per thread, and the page class of each
//! region.

use serde::{Deserialize, Serialize};

use crate::hierarchy::{Coalescing, Hierarchy, Use};
use crate::pages::PageClass;
use crate::pcc::{Pcc, PccConfig, Ranked};
use crate::preset::Preset;
use crate::runs::{Footprint, RegionPages, Run};

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
    /// Whether walks of promoted regions are counted, too, which shows when they go cold.
    pub counts_promoted: bool,
}

impl CandidateRules {
    /// The paper: 128 and 8 entries, base pages only.
    pub const PAPER: Self = Self {
        huge: PccConfig::PAPER,
        giant: PccConfig::PAPER_GIANT,
        cold_filter: true,
        counts_promoted: false,
    };
    /// The published simulator, whose tables also have promoted regions.
    pub const ARTIFACT: Self = Self { counts_promoted: true, ..Self::PAPER };
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
    /// Counts walks of regions, in order, and sets the accessed bits of themselves and their 1 GiB.
    fn count_candidates(
        &mut self,
        walks: &[Use],
        regions: &mut [Region],
        giants: &mut [bool],
        rules: CandidateRules,
    ) {
        // Walks of one 1 GiB in a row are counted at once.
        let (mut last_giant, mut times) = (0, 0);
        for used in walks {
            let region = &mut regions[used.region as usize];
            let giant = &mut giants[region.giant as usize];
            let known = region.accessed || !rules.cold_filter;
            let giant_known = known || *giant;
            region.accessed = true;
            *giant = true;
            if known && (region.class == PageClass::Base || rules.counts_promoted) {
                self.huge.touch(used.region);
            }
            if giant_known && region.class != PageClass::Giant {
                if region.giant != last_giant {
                    self.giant.touch_times(last_giant, times);
                    (last_giant, times) = (region.giant, 0);
                }
                times += 1;
            }
        }
        self.giant.touch_times(last_giant, times);
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    class: PageClass,
    /// Whether it was walked before: the accessed bit.
    accessed: bool,
    /// Number of its 1 GiB.
    giant: u32,
}

/// Runs of a part: those of all levels stay in the CPU's cache.
const PART: usize = 1 << 9;

/// Uses of a part that reach each level, and the memory references of its walks.
#[derive(Clone, Debug, Default)]
struct Reached {
    l1: Vec<Use>,
    l2: Vec<Use>,
    walks: Vec<Use>,
    references: Vec<u32>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    config: MachineConfig,
    cores: Vec<Core>,
    regions: Vec<Region>,
    /// Counts of each region, apart since not all levels need them.
    counts: Vec<Counts>,
    /// Accessed bits of 1 GiB regions.
    giants: Vec<bool>,
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
            counts: Vec::new(),
            giants: Vec::new(),
            left_class: Default::default(),
            before_class: Vec::new(),
            reached: Reached::default(),
        }
    }

    /// Executes `runs`, which `footprint` made.
    pub fn run(&mut self, runs: &[Run], footprint: &Footprint) {
        while self.cores.len() < usize::from(footprint.threads()) {
            self.cores.push(self.core());
        }
        let class = self.config.first_class;
        let fresh = footprint.regions()[self.regions.len()..].iter().map(|pages| Region {
            class,
            accessed: false,
            giant: pages.giant,
        });
        self.regions.extend(fresh);
        self.counts.resize(self.regions.len(), Counts::default());
        self.giants.resize(footprint.giants(), false);
        for part in runs.chunks(PART) {
            part.chunk_by(|one, next| one.thread == next.thread).for_each(|own| self.run_on(own));
        }
    }

    /// Executes runs of one thread, a level at a time: no lookup in a level depends on another
    /// level, so that the CPU can look up several at once.
    fn run_on(&mut self, runs: &[Run]) {
        let Self { cores, regions, counts, giants, reached, .. } = self;
        let core = &mut cores[usize::from(runs[0].thread)];
        reached.l1.clear();
        reached.l1.extend(runs.iter().map(|run| {
            counts[run.region as usize].accesses += u64::from(run.accesses);
            Use { page: run.page, region: run.region, class: regions[run.region as usize].class }
        }));
        core.tlb.touch_l1(&reached.l1, &mut reached.l2);
        for used in &reached.l2 {
            counts[used.region as usize].l1_misses += 1;
        }
        core.tlb.touch_l2(&reached.l2, &mut reached.walks);
        core.tlb.walk(&reached.walks, &mut reached.references);
        for (used, &references) in reached.walks.iter().zip(&reached.references) {
            let counts = &mut counts[used.region as usize];
            counts.walks += 1;
            counts.walk_references += u64::from(references);
        }
        core.count_candidates(&reached.walks, regions, giants, self.config.candidates);
    }

    /// Maps a region by pages of `class`, or, for [`PageClass::Giant`], all regions of its 1 GiB.
    /// All cores forget its translations, and the candidate caches its entry.
    pub fn set_class(&mut self, region: u32, class: PageClass, footprint: &Footprint) {
        let RegionPages { number, giant, .. } = footprint.regions()[region as usize];
        let before = self.regions[region as usize].class;
        let wide = class.max(before);
        if wide == PageClass::Giant {
            for other in 0..self.regions.len() {
                if self.regions[other].giant == giant {
                    self.change_class(other, class);
                }
            }
        }
        self.change_class(region as usize, class);
        for core in &mut self.cores {
            core.tlb.forget(number << PageClass::Huge.shift(), wide.max(PageClass::Huge));
            core.huge.remove(region);
            if class == PageClass::Giant {
                core.giant.remove(giant);
            }
        }
    }

    fn change_class(&mut self, number: usize, class: PageClass) {
        let region = &mut self.regions[number];
        if number >= self.before_class.len() {
            self.before_class.resize(number + 1, Counts::default());
        }
        let counts = self.counts[number];
        let before = std::mem::replace(&mut self.before_class[number], counts);
        let left = &mut self.left_class[region.class as usize];
        *left = left.and(counts.minus(before));
        region.class = class;
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
        self.counts.iter().copied()
    }
    /// Returns the candidate cache of each core for 2 MiB.
    pub fn candidates(&self) -> Vec<Vec<Ranked>> {
        self.cores.iter().map(|core| core.huge.ranked()).collect()
    }
    /// Returns the candidate cache of each core for 1 GiB, by [`RegionPages::giant`].
    pub fn giant_candidates(&self) -> Vec<Vec<Ranked>> {
        self.cores.iter().map(|core| core.giant.ranked()).collect()
    }

    fn core(&self) -> Core {
        let MachineConfig { preset, coalescing, nested_levels, candidates, .. } = &self.config;
        Core {
            tlb: Hierarchy::new(preset, *coalescing, *nested_levels),
            huge: Pcc::new(candidates.huge),
            giant: Pcc::new(candidates.giant),
        }
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
