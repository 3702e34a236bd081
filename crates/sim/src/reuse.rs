//! Page reuse: stack distance and time distance at 4 KiB, 2 MiB and 1 GiB in one pass.
//!
//! The *stack distance* of an access is the number of distinct pages since the last use of its
//! page. A fully associative TLB with LRU replacement misses if the distance is at least its
//! entries (Mattson et al., 1970). The *time distance* is the number of accesses since then, which
//! the promotion candidate cache paper plots (Manocha et al., MICRO'23, section 2.2, Figure 2).

mod histogram;
mod stack;

use serde::{Deserialize, Serialize};

pub use histogram::{Histogram, MissRatio};

use self::stack::Stack;
use crate::pages::{BASE_PER_REGION, PageClass, mix};
use crate::runs::{Footprint, Run};

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

/// Last use of a page, and the number of its uses.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    last: u64,
    count: u64,
}

/// Uses of pages. The first ones are apart, since they are rarely needed.
#[derive(Clone, Debug, Default)]
struct Intervals {
    uses: Vec<Uses>,
    first: Vec<u64>,
}

impl Intervals {
    fn resize(&mut self, pages: usize) {
        self.uses.resize(pages, Uses::default());
        self.first.resize(pages, 0);
    }
    #[inline]
    fn touch(&mut self, page: usize, first: u64, last: u64) {
        let uses = &mut self.uses[page];
        if uses.count == 0 {
            self.first[page] = first;
        }
        uses.count += 1 + last - first;
        uses.last = last;
    }
    /// Mean time distance, infinite for a page used once: the distances add up to the time between
    /// first and last use.
    #[allow(clippy::cast_precision_loss)]
    fn mean(&self, page: usize) -> f64 {
        let Uses { last, count } = self.uses[page];
        let between = (last - self.first[page]) as f64;
        if count > 1 { between / (count - 1) as f64 } else { f64::INFINITY }
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
    /// Its kind.
    pub kind: ReuseKind,
}

/// Runs of a part of a batch.
const PART: usize = 1 << 9;

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

    /// Uses the page of `run`, whose number among used ones is `number`.
    #[inline]
    fn touch(&mut self, run: &Run, number: u32) {
        if self.rate < 1.0 {
            return self.touch_sampled(run, number);
        }
        self.histogram.add(self.stack.touch(number).map(u64::from), 1);
        self.histogram.add(Some(0), u64::from(run.accesses - 1));
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[inline(never)]
    fn touch_sampled(&mut self, run: &Run, number: u32) {
        if mix(run.page >> self.class.shift()) > self.threshold {
            return;
        }
        // A sampled page stands for 1 / rate pages, in number and in between.
        let distance = self.stack.touch(number);
        let scaled = distance.map(|distance| (f64::from(distance) / self.rate) as u64);
        self.histogram.add(scaled, 1);
        self.histogram.add(Some(0), u64::from(run.accesses - 1));
    }
}

/// Page reuse of all threads together.
#[derive(Clone, Debug)]
pub struct Reuse {
    levels: [Level; 3],
    accesses: u64,
    /// Base pages, 512 for each region.
    pages: Intervals,
    /// Regions, by number in the footprint.
    regions: Intervals,
}

impl Reuse {
    /// Creates an analysis without accesses.
    pub fn new(config: ReuseConfig) -> Self {
        Self {
            levels: PageClass::ALL.map(|class| Level::new(class, config.rate)),
            accesses: 0,
            pages: Intervals::default(),
            regions: Intervals::default(),
        }
    }

    /// Adds runs, which `footprint` made.
    pub fn run(&mut self, runs: &[Run], footprint: &Footprint) {
        let regions = footprint.regions();
        self.regions.resize(regions.len());
        self.pages.resize(regions.len() * BASE_PER_REGION);
        // One structure at a time: the CPU can wait for the memory of several uses at once.
        for part in runs.chunks(PART) {
            for run in part {
                let (first, last) = (self.accesses, self.accesses + u64::from(run.accesses) - 1);
                self.accesses = last + 1;
                self.pages.touch(page_of(run) as usize, first, last);
                self.regions.touch(run.region as usize, first, last);
            }
            let [base, huge, giant] = &mut self.levels;
            base.stack.load(part.iter().map(page_of));
            part.iter().for_each(|run| base.touch(run, page_of(run)));
            part.iter().for_each(|run| huge.touch(run, run.region));
            part.iter().for_each(|run| giant.touch(run, regions[run.region as usize].giant));
        }
    }

    /// Returns the accesses.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Returns the distances between uses of pages of `class`.
    pub const fn histogram(&self, class: PageClass) -> &Histogram {
        &self.levels[class as usize].histogram
    }

    /// Returns all base pages, in the order of their regions' first use.
    pub fn pages(&self, footprint: &Footprint) -> impl Iterator<Item = PageReuse> {
        let used = (0..self.pages.uses.len()).filter(|&page| self.pages.uses[page].count > 0);
        used.map(|page| {
            let region = page / BASE_PER_REGION;
            let first = footprint.regions()[region].number << PageClass::Huge.shift();
            let (base, huge) = (self.pages.mean(page), self.regions.mean(region));
            PageReuse {
                page: first + (page % BASE_PER_REGION) as u64,
                accesses: self.pages.uses[page].count,
                base,
                huge,
                kind: ReuseKind::of(base, huge),
            }
        })
    }
}

/// Returns the number of a base page among those of all used regions.
#[allow(clippy::cast_possible_truncation)]
const fn page_of(run: &Run) -> u32 {
    run.region * BASE_PER_REGION as u32 + run.page as u32 % BASE_PER_REGION as u32
}

#[cfg(test)]
mod tests;
