//! Machine: a TLB hierarchy and promotion candidate caches per thread, and the page class of each
//! region.

use serde::{Deserialize, Serialize};

use crate::hierarchy::{Coalescing, Hierarchy};
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

#[derive(Clone, Copy, Debug)]
struct Region {
    class: PageClass,
    /// Whether it was walked before: the accessed bit.
    accessed: bool,
    counts: Counts,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    config: MachineConfig,
    cores: Vec<Core>,
    regions: Vec<Region>,
    /// Accessed bits of 1 GiB regions.
    giants: Vec<bool>,
    of_class: [Counts; 3],
    /// Runs of a batch that miss L1, and those that walk.
    l1_misses: Vec<Run>,
    walks: Vec<Run>,
}

impl Machine {
    /// Creates a machine whose TLBs are empty.
    pub fn new(config: MachineConfig) -> Self {
        Self {
            config,
            cores: Vec::new(),
            regions: Vec::new(),
            giants: Vec::new(),
            of_class: Default::default(),
            l1_misses: Vec::new(),
            walks: Vec::new(),
        }
    }

    /// Executes `runs`, which `footprint` made.
    pub fn run(&mut self, runs: &[Run], footprint: &Footprint) {
        while self.cores.len() < usize::from(footprint.threads()) {
            self.cores.push(self.core());
        }
        let fresh =
            Region { class: self.config.first_class, accessed: false, counts: Counts::default() };
        self.regions.resize(footprint.regions().len(), fresh);
        self.giants.resize(footprint.giants(), false);
        let (l1_misses, walks) = (&mut self.l1_misses, &mut self.walks);
        l1_misses.clear();
        walks.clear();
        // A level at a time: no lookup in one level depends on another level.
        for run in runs {
            let region = &mut self.regions[run.region as usize];
            region.counts.accesses += u64::from(run.accesses);
            self.of_class[region.class as usize].accesses += u64::from(run.accesses);
            let core = &mut self.cores[usize::from(run.thread)];
            if !core.tlb.touch_l1(run.page, region.class) {
                l1_misses.push(*run);
            }
        }
        for run in &*l1_misses {
            let region = &mut self.regions[run.region as usize];
            region.counts.l1_misses += 1;
            self.of_class[region.class as usize].l1_misses += 1;
            let core = &mut self.cores[usize::from(run.thread)];
            if !core.tlb.touch_l2(run.page, region.class) {
                walks.push(*run);
            }
        }
        self.walk(footprint);
    }

    /// Walks for each run of `walks`, and counts the candidates.
    fn walk(&mut self, footprint: &Footprint) {
        let rules = self.config.candidates;
        for run in &self.walks {
            let region = &mut self.regions[run.region as usize];
            let core = &mut self.cores[usize::from(run.thread)];
            let references = u64::from(core.tlb.walk(run.page, region.class));
            for counts in [&mut region.counts, &mut self.of_class[region.class as usize]] {
                counts.walks += 1;
                counts.walk_references += references;
            }
            let giant = footprint.regions()[run.region as usize].giant;
            let known = region.accessed || !rules.cold_filter;
            let giant_known = known || self.giants[giant as usize];
            if !region.accessed {
                region.accessed = true;
                self.giants[giant as usize] = true;
            }
            if known && (region.class == PageClass::Base || rules.counts_promoted) {
                core.huge.touch(run.region);
            }
            if giant_known && region.class != PageClass::Giant {
                core.giant.touch(giant);
            }
        }
    }

    /// Maps a region by pages of `class`, or, for [`PageClass::Giant`], all regions of its 1 GiB.
    /// All cores forget its translations, and the candidate caches its entry.
    pub fn set_class(&mut self, region: u32, class: PageClass, footprint: &Footprint) {
        let RegionPages { number, giant, .. } = footprint.regions()[region as usize];
        let before = self.regions[region as usize].class;
        let wide = class.max(before);
        if wide == PageClass::Giant {
            let own = footprint.regions().iter().zip(&mut self.regions);
            own.filter(|(pages, _)| pages.giant == giant)
                .for_each(|(_, region)| region.class = class);
        }
        self.regions[region as usize].class = class;
        for core in &mut self.cores {
            core.tlb.forget(number << PageClass::Huge.shift(), wide.max(PageClass::Huge));
            core.huge.remove(region);
            if class == PageClass::Giant {
                core.giant.remove(giant);
            }
        }
    }

    /// Returns the page class of a region.
    pub fn class(&self, region: u32) -> PageClass {
        self.regions.get(region as usize).map_or(self.config.first_class, |region| region.class)
    }
    /// Returns the counts of all accesses.
    pub fn counts(&self) -> Counts {
        self.of_class.iter().fold(Counts::default(), |sum, &counts| sum.and(counts))
    }
    /// Returns the counts of accesses to pages of `class`.
    pub const fn counts_of_class(&self, class: PageClass) -> Counts {
        self.of_class[class as usize]
    }
    /// Returns the counts of each region, by number.
    pub fn counts_of_regions(&self) -> impl Iterator<Item = Counts> {
        self.regions.iter().map(|region| region.counts)
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
    pub const fn and(self, other: Self) -> Self {
        Self {
            accesses: self.accesses + other.accesses,
            l1_misses: self.l1_misses + other.l1_misses,
            walks: self.walks + other.walks,
            walk_references: self.walk_references + other.walk_references,
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
