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
use crate::pages::{PageClass, PageMap, mix};
use crate::runs::Run;

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

/// Mean time distance of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    last: u64,
    uses: u64,
    sum: f64,
}

impl Interval {
    #[allow(clippy::cast_precision_loss)]
    fn touch(&mut self, first: u64, last: u64) {
        if self.uses > 0 {
            self.sum += (first - self.last) as f64;
        }
        // The other accesses of the run have distance 1.
        self.sum += (last - first) as f64;
        self.uses += 1 + last - first;
        self.last = last;
    }
    /// Mean, infinite for a page used once.
    #[allow(clippy::cast_precision_loss)]
    fn mean(&self) -> f64 {
        if self.uses > 1 { self.sum / (self.uses - 1) as f64 } else { f64::INFINITY }
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
        let (stack, histogram) = (Stack::new(), Histogram::default());
        Self { class, stack, histogram, rate, threshold }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn touch(&mut self, run: &Run) {
        let page = run.page >> self.class.shift();
        if mix(page) > self.threshold {
            return;
        }
        let distance = self.stack.touch(page).distance;
        // A sampled page stands for 1 / rate pages, in number and in between.
        let scaled = distance.map(|distance| (f64::from(distance) / self.rate) as u64);
        self.histogram.add(scaled, 1.0 / self.rate);
        if run.accesses > 1 {
            self.histogram.add(Some(0), f64::from(run.accesses - 1) / self.rate);
        }
    }
}

/// Page reuse of all threads together.
#[derive(Clone, Debug)]
pub struct Reuse {
    levels: [Level; 3],
    accesses: u64,
    pages: PageMap<Interval>,
    /// Regions, by number in the footprint.
    regions: Vec<Interval>,
}

impl Reuse {
    /// Creates an analysis without accesses.
    pub fn new(config: ReuseConfig) -> Self {
        Self {
            levels: PageClass::ALL.map(|class| Level::new(class, config.rate)),
            accesses: 0,
            pages: PageMap::default(),
            regions: Vec::new(),
        }
    }

    /// Adds runs.
    pub fn run(&mut self, runs: &[Run]) {
        for run in runs {
            let (first, last) = (self.accesses, self.accesses + u64::from(run.accesses) - 1);
            self.accesses = last + 1;
            self.levels.iter_mut().for_each(|level| level.touch(run));
            self.pages.entry(run.page).or_default().touch(first, last);
            let region = run.region as usize;
            if region >= self.regions.len() {
                self.regions.resize(region + 1, Interval::default());
            }
            self.regions[region].touch(first, last);
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

    /// Returns all base pages, by number. `region_of` gives the number of a page's region.
    pub fn pages(&self, region_of: impl Fn(u64) -> Option<u32>) -> Vec<PageReuse> {
        let of = |(&page, interval): (&u64, &Interval)| {
            let region = region_of(page >> PageClass::Huge.shift())?;
            let (base, huge) = (interval.mean(), self.regions.get(region as usize)?.mean());
            let kind = ReuseKind::of(base, huge);
            Some(PageReuse { page, accesses: interval.uses, base, huge, kind })
        };
        let mut pages: Vec<_> = self.pages.iter().filter_map(of).collect();
        pages.sort_by_key(|page| page.page);
        pages
    }
}

#[cfg(test)]
mod tests;
