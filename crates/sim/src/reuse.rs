//! Page reuse: stack distance and time distance at 4 KiB, 2 MiB and 1 GiB in one pass.
//!
//! The *stack distance* of an access is the number of distinct pages since the last use of its
//! page. A fully associative TLB with LRU replacement misses if the distance is at least its
//! entries (Mattson et al., 1970). The *time distance* is the number of accesses since then, which
//! the promotion candidate cache paper plots (Manocha et al., MICRO'23, section 2.2, Figure 2).

mod few;
mod histogram;
mod stack;
mod sums;
mod uses;

use serde::{Deserialize, Serialize};

pub use histogram::{Histogram, MissRatio};

use self::stack::{NEVER, PART, Page, Stack};
use self::uses::{Intervals, Span};
use crate::memory::MemoryUse;
use crate::pages::{BASE_PER_REGION, PageClass, mix};
use crate::runs::{AccessRun, Batch, Footprint, RegionId, RegionPages};

/// Time distance below which a TLB of the paper's size holds a page: its 1,024 entries.
pub const NEAR: f64 = 1024.0;

/// How a page would use a TLB (section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReuseKind {
    /// Used again soon: base pages suffice.
    TlbFriendly,
    /// Used again late, its 2 MiB region soon: a huge page pays.
    Hub,
    /// Used again late, and its region, too.
    LowReuse,
}

impl ReuseKind {
    /// Classifies a page by the mean time distances of itself and of its region.
    pub fn of(base: f64, huge: f64) -> Self {
        if base < NEAR {
            Self::TlbFriendly
        } else if huge < NEAR {
            Self::Hub
        } else {
            Self::LowReuse
        }
    }
}

/// Configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReuseConfig {
    /// Share of the pages that is measured, chosen by a hash of their numbers (SHARDS, FAST'15);
    /// 1 for all. Only stack distances are sampled.
    pub rate: f64,
}

impl Default for ReuseConfig {
    fn default() -> Self {
        Self { rate: 1.0 }
    }
}

/// Page and its mean time distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageReuse {
    /// Number of the base page.
    pub page: u64,
    /// Accesses.
    pub accesses: u64,
    /// Mean time distance of the page; infinite if it was used once.
    pub base: f64,
    /// Mean time distance of its 2 MiB region.
    pub huge: f64,
    /// Mean time distance of its 1 GiB region.
    pub giant: f64,
    /// Its kind.
    pub kind: ReuseKind,
}

#[derive(Clone, Debug)]
struct Level {
    class: PageClass,
    stack: Stack,
    histogram: Histogram,
    rate: f64,
    threshold: u64,
}

impl Level {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn new(class: PageClass, rate: f64) -> Self {
        let rate = rate.clamp(1e-6, 1.0);
        let threshold = if rate < 1.0 { (rate * u64::MAX as f64) as u64 } else { u64::MAX };
        let (stack, histogram) = (Stack::new(), Histogram::new(1.0 / rate));
        Self { class, stack, histogram, rate, threshold }
    }

    /// Uses those of `pages` that `runs` use. `number` has that of a page.
    fn touch_all<P: Page>(
        &mut self,
        known: &[RegionId],
        pages: &mut [P],
        runs: &[AccessRun],
        number: impl Fn(&AccessRun) -> u32,
    ) {
        let Self { stack, histogram, .. } = self;
        if self.rate < 1.0 {
            return self.touch_sampled(known, pages, runs, number);
        }
        let add = |distance: Option<u32>| histogram.add(distance.map(u64::from), 1);
        stack.touch_all(pages, runs.iter().map(number), add);
        histogram.add(Some(0), runs.iter().map(again).sum());
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[inline(never)]
    fn touch_sampled<P: Page>(
        &mut self,
        known: &[RegionId],
        pages: &mut [P],
        runs: &[AccessRun],
        number: impl Fn(&AccessRun) -> u32,
    ) {
        let Self { class, stack, histogram, rate, threshold } = self;
        let page = |run: &AccessRun| run.base_page(known[run.region() as usize].number);
        let is_sampled = |run: &&AccessRun| mix(page(run) >> class.shift()) <= *threshold;
        let sampled = || runs.iter().filter(is_sampled);
        // A sampled page stands for 1 / rate pages, in number and in between.
        let scaled = |distance: u32| (f64::from(distance) / *rate) as u64;
        let add = |distance: Option<u32>| histogram.add(distance.map(scaled), 1);
        stack.touch_all(pages, sampled().map(number), add);
        histogram.add(Some(0), sampled().map(again).sum());
    }
}

/// Returns the accesses of a run after the first.
fn again(run: &AccessRun) -> u64 {
    u64::from(run.accesses - 1)
}

/// Page reuse of all threads together. Its parts may run at the same time.
#[derive(Clone, Debug)]
pub struct Reuse {
    /// Reuse of base pages.
    pub pages: ReuseOfPages,
    /// Reuse of regions of 2 MiB and 1 GiB.
    pub regions: ReuseOfRegions,
}

/// Reuse of base pages.
#[derive(Clone, Debug)]
pub struct ReuseOfPages {
    level: Level,
    known: Vec<RegionId>,
    /// Base pages, 512 for each region.
    pages: Intervals,
    accesses: u64,
}

/// Reuse of regions.
#[derive(Clone, Debug)]
pub struct ReuseOfRegions {
    huge: Level,
    giant: Level,
    known: Vec<RegionId>,
    /// Regions, by number in the footprint.
    regions: Intervals,
    /// Time of each 1 GiB in its stack.
    giants: Vec<u32>,
    accesses: u64,
}

/// Returns the memory of an analysis with these pages for each region. Vectors double.
const fn memory_of(pages: usize) -> MemoryUse {
    let of_pages = pages * (Intervals::PAGE_BYTES + Stack::PAGE_BYTES);
    let region_bytes = 2 * (of_pages + size_of::<RegionId>()) as u64;
    MemoryUse { core_bytes: 0, region_bytes, core_region_bytes: 0 }
}

impl ReuseOfPages {
    /// Returns the memory that it takes.
    pub const fn memory(&self) -> MemoryUse {
        memory_of(BASE_PER_REGION)
    }
    /// Adds the runs of the next batch.
    pub fn run(&mut self, batch: &Batch) {
        let Self { level, known, pages, accesses } = self;
        known.extend_from_slice(batch.regions());
        pages.resize(known.len() * BASE_PER_REGION);
        // One structure at a time: the CPU can wait for the memory of several uses at once.
        for part in batch.runs().chunks(PART) {
            *accesses = pages.touch_all(*accesses, part, |run| run.page as usize);
            level.touch_all(known, pages.pages(), part, |run| run.page);
        }
    }
}

impl ReuseOfRegions {
    /// Returns the memory that it takes: each region may have a 1 GiB of its own.
    pub const fn memory(&self) -> MemoryUse {
        memory_of(2)
    }
    /// Adds the runs of the next batch.
    pub fn run(&mut self, batch: &Batch) {
        let Self { huge, giant, known, regions, giants, accesses } = self;
        known.extend_from_slice(batch.regions());
        regions.resize(known.len());
        let last = batch.regions().iter().map(|region| region.giant as usize + 1).max();
        giants.resize(giants.len().max(last.unwrap_or(0)), NEVER);
        for part in batch.runs().chunks(PART) {
            *accesses = regions.touch_all(*accesses, part, |run| run.region() as usize);
            huge.touch_all(known, regions.pages(), part, AccessRun::region);
            giant.touch_all(known, giants, part, |run| known[run.region() as usize].giant);
        }
    }

    /// Returns the uses of each 1 GiB: those of its regions together.
    fn giant_spans(&self) -> Vec<Span> {
        let mut giants = vec![Span::default(); self.giants.len()];
        for region in self.regions.used() {
            giants[self.known[region].giant as usize].join(self.regions.span(region));
        }
        giants
    }
}

impl Reuse {
    /// Creates an analysis without accesses.
    pub fn new(config: ReuseConfig) -> Self {
        let [base, huge, giant] = PageClass::ALL.map(|class| Level::new(class, config.rate));
        Self {
            pages: ReuseOfPages {
                level: base,
                known: Vec::new(),
                pages: Intervals::default(),
                accesses: 0,
            },
            regions: ReuseOfRegions {
                huge,
                giant,
                known: Vec::new(),
                regions: Intervals::default(),
                giants: Vec::new(),
                accesses: 0,
            },
        }
    }

    /// Adds the runs of the next batch to all parts.
    pub fn run(&mut self, batch: &Batch) {
        self.pages.run(batch);
        self.regions.run(batch);
    }

    /// Returns the accesses.
    pub const fn accesses(&self) -> u64 {
        self.pages.accesses
    }

    /// Returns the distances between uses of pages of `class`.
    pub const fn histogram(&self, class: PageClass) -> &Histogram {
        let level = match class {
            PageClass::Base => &self.pages.level,
            PageClass::Huge => &self.regions.huge,
            PageClass::Giant => &self.regions.giant,
        };
        &level.histogram
    }

    /// Returns all base pages, in the order of their regions' first use.
    pub fn pages(&self, footprint: &Footprint) -> impl Iterator<Item = PageReuse> {
        let (pages, regions) = (&self.pages.pages, &self.regions.regions);
        let giants = self.regions.giant_spans();
        pages.used().map(move |page| {
            let region = page / BASE_PER_REGION;
            let RegionPages { number, giant, .. } = footprint.regions()[region];
            let first = number << PageClass::Huge.shift();
            let (base, huge) = (pages.span(page).mean(), regions.span(region).mean());
            PageReuse {
                page: first + (page % BASE_PER_REGION) as u64,
                accesses: pages.count(page),
                base,
                huge,
                giant: giants[giant as usize].mean(),
                kind: ReuseKind::of(base, huge),
            }
        })
    }
}

#[cfg(test)]
mod tests;
