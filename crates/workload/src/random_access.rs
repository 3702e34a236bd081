//! `random-access`: random updates of a buffer whose huge pages have known bloat.
//!
//! The micro-benchmarks RandomAccess-L and RandomAccess-R of EMD (Gangar et al., ISMM 2025, section
//! 3.1, figure 4c-d). The buffer is divided into equal parts. In each huge page of a part, a fixed
//! share of the base pages is bloat: zero-filled, because they are never written. All updates go to
//! the other base pages. With `80,20`, half of the buffer is bloat, and `left` or `right` is the
//! half of the address space with most of it. A policy that splits huge pages in address order
//! splits few of `left` and many of `right` for the same gain.
//!
//! An update inverts bits of one word except bit 0, which is set, so no used page becomes
//! zero-filled. At the end, the parity of the used pages must be the initial one, changed by all
//! updates, so memory that was lost or cleared is detected.

use hugepilot_kernel::{AnonMap, Pages};
use hugepilot_units::{AddrRange, Bytes, HugePages, PageSizes};

use super::memory::{reserve, whole_regions};
use super::rng::{Rng, mix};
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{BloatFault, Result, WorkloadError};

pub(super) const NAME: &str = "random-access";

/// Limit of parts. More do not change the picture, and choosing a part would cost more than the
/// access.
const MAX_PARTS: usize = 64;

/// End of the buffer with the first share of `bloat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Low addresses: RandomAccess-L.
    #[default]
    Left,
    /// High addresses: RandomAccess-R.
    Right,
}

/// Position of the used base pages in a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// At the start.
    #[default]
    Contiguous,
    /// Everywhere, differently in each huge page.
    Scattered,
}

/// Used pages that get more updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hot {
    /// None: all are equally hot, so the most bloated huge pages are the coldest.
    #[default]
    Uniform,
    /// Those of the most bloated part, so the most bloated huge pages are the hottest.
    Bloated,
    /// Those of the least bloated part.
    Dense,
}

/// Parameters of `random-access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomAccessConfig {
    /// Size of the buffer, pages and seed.
    pub memory: MemoryConfig,
    /// Bloat in each huge page, in percent, for each part.
    pub bloat: Vec<u8>,
    /// End of the buffer with the first part.
    pub side: Side,
    /// Position of the used pages.
    pub layout: Layout,
    /// Used pages that get more updates.
    pub hot: Hot,
    /// Share of the updates that go to the hot part, in percent; unused with [`Hot::Uniform`].
    pub skew_percent: u8,
}

impl RandomAccessConfig {
    /// Size of the buffer in the paper.
    pub const FOOTPRINT: Bytes = Bytes::gib(8);
}

impl Default for RandomAccessConfig {
    /// RandomAccess-L of the paper: 8 GiB on huge pages; 80 % of the first half and 20 % of the
    /// second are bloat.
    fn default() -> Self {
        Self {
            memory: MemoryConfig {
                footprint: Self::FOOTPRINT,
                pages: Pages::Huge,
                ..MemoryConfig::DEFAULT
            },
            bloat: vec![80, 20],
            side: Side::Left,
            layout: Layout::Contiguous,
            hot: Hot::Uniform,
            skew_percent: 90,
        }
    }
}

/// Adjacent huge pages with the same share of bloat.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// First huge page, by index in the buffer.
    first: usize,
    end: usize,
    /// Used base pages of each huge page.
    used: usize,
}

/// Used base pages of a huge page: the first ones of an order, rotated by a random number in each
/// huge page.
struct Places {
    /// First word of each page, in the order of use.
    order: Vec<usize>,
    /// Mask that makes a random number a rotation, in words; 0 without rotation.
    turns: usize,
    page_words: usize,
    seed: u64,
}

impl Places {
    fn new(layout: Layout, sizes: PageSizes, seed: u64) -> Self {
        let page_words = sizes.base.as_usize() / size_of::<u64>();
        let mut order: Vec<usize> =
            (0..sizes.base_per_huge() as usize).map(|page| page * page_words).collect();
        let mut turns = 0;
        if layout == Layout::Scattered {
            turns = (order.len() - 1) * page_words;
            let mut rng = Rng::new(seed, usize::MAX);
            (1..order.len()).rev().for_each(|i| order.swap(i, rng.below(i + 1)));
        }
        Self { order, turns, page_words, seed }
    }

    const fn region_words(&self) -> usize {
        self.order.len() * self.page_words
    }

    /// Returns the rotation of huge page `region`, in words.
    fn turn(&self, region: usize) -> usize {
        mix(self.seed ^ region as u64) as usize & self.turns
    }

    /// Returns the first word of used page `page` in a huge page rotated by `turn`.
    #[inline]
    fn word(&self, turn: usize, page: usize) -> usize {
        (self.order[page] + turn) & (self.region_words() - 1)
    }
}

pub(super) struct RandomAccess {
    map: AnonMap,
    config: RandomAccessConfig,
    sizes: PageSizes,
    parts: Vec<Part>,
    places: Places,
}

impl RandomAccess {
    /// Reserves the buffer and writes every word of its used pages.
    pub(super) fn prepare(
        config: RandomAccessConfig,
        machine: &MemoryLimits,
        threads: usize,
    ) -> Result<Self> {
        let (sizes, memory) = (machine.sizes, config.memory);
        let footprint = memory.fitting(NAME, 100, machine)?;
        let parts = parts(&config, HugePages::fitting_in(footprint, sizes).get() as usize, sizes)?;
        let max = parts.iter().map(|part| part.end - part.first).min().unwrap_or(0);
        if threads > max {
            return Err(WorkloadError::Threads { threads, max });
        }
        let places = Places::new(config.layout, sizes, memory.seed);
        let mut this = Self {
            map: reserve(NAME, footprint, memory.pages, sizes)?,
            config,
            sizes,
            parts,
            places,
        };
        this.fill();
        Ok(this)
    }

    fn fill(&mut self) {
        let region_words = self.places.region_words();
        let touch_empty = self.config.memory.pages != Pages::Base;
        let words = self.map.words_mut();
        for part in &self.parts {
            for region in part.first..part.end {
                let words = &mut words[region * region_words..][..region_words];
                if part.used == 0 && touch_empty {
                    // Makes it resident; all of it stays bloat.
                    words[0] = 0;
                }
                let turn = self.places.turn(region);
                for page in 0..part.used {
                    let start = self.places.word(turn, page);
                    let page = &mut words[start..start + self.places.page_words];
                    page.iter_mut()
                        .enumerate()
                        .for_each(|(i, word)| *word = initial(region, start + i));
                }
            }
        }
    }

    /// Returns the hot parts; if all are equally hot, all that have used pages.
    fn hot_parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> =
            self.parts.iter().filter(|part| part.used > 0).copied().collect();
        let used = parts.iter().map(|part| part.used);
        let wanted = match self.config.hot {
            Hot::Uniform => None,
            Hot::Bloated => used.min(),
            Hot::Dense => used.max(),
        };
        parts.retain(|part| wanted.is_none_or(|wanted| part.used == wanted));
        parts
    }
}

/// Returns the initial value of word `at` of huge page `region`. Its bit 0 is set.
#[inline]
fn initial(region: usize, at: usize) -> u64 {
    mix((region as u64) << 32 | at as u64) | 1
}

/// Divides `regions` huge pages into one part for each share of bloat.
fn parts(config: &RandomAccessConfig, regions: usize, sizes: PageSizes) -> Result<Vec<Part>> {
    let mut bloat: Vec<usize> = config.bloat.iter().map(|&percent| usize::from(percent)).collect();
    let count = bloat.len();
    if !(1..=MAX_PARTS).contains(&count) {
        return Err(WorkloadError::Bloat(BloatFault::Count { count }));
    }
    if bloat.iter().any(|&percent| percent > 100) || config.skew_percent > 100 {
        return Err(WorkloadError::Bloat(BloatFault::Percent));
    }
    if config.side == Side::Right {
        bloat.reverse();
    }
    let pages = sizes.base_per_huge() as usize;
    let used = |percent: usize| (pages * (100 - percent) + 50) / 100;
    if bloat.iter().all(|&percent| used(percent) == 0) {
        return Err(WorkloadError::Bloat(BloatFault::NoUsedPage));
    }
    if regions < count {
        let (value, min) = (config.memory.footprint, sizes.huge.times(count as u64));
        return Err(WorkloadError::TooSmall { flag: "--footprint", value, min });
    }
    let cut = |i: usize| regions * i / count;
    let part = |(i, &percent)| Part { first: cut(i), end: cut(i + 1), used: used(percent) };
    Ok(bloat.iter().enumerate().map(part).collect())
}

impl Workload for RandomAccess {
    fn hot(&self) -> Vec<AddrRange> {
        let at = |region: usize| self.map.range().start.plus(self.sizes.huge.times(region as u64));
        let range = |part: &Part| AddrRange::new(at(part.first), at(part.end));
        whole_regions(self.hot_parts().iter().map(range), self.sizes)
    }

    fn footprint_bytes(&self) -> u64 {
        self.map.range().len().get()
    }

    fn bloat_bytes(&self) -> Option<u64> {
        let unused = |part: &Part| (part.end - part.first) * (self.places.order.len() - part.used);
        let pages = self.parts.iter().map(unused).sum::<usize>();
        Some(self.sizes.base.times(pages as u64).get())
    }

    /// Returns workers that each own every `threads`-th huge page: without races, and all with the
    /// same mix.
    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let hot = self.hot_parts();
        let is_hot = |part: &Part| hot.iter().any(|hot| hot.first == part.first);
        let skew = (hot.len() < self.parts.iter().filter(|part| part.used > 0).count())
            .then(|| f64::from(self.config.skew_percent) / 100.0);
        let region_words = self.places.region_words();
        let mut regions: Vec<_> =
            self.map.words_mut().chunks_exact_mut(region_words).map(Some).collect();
        let mut worker = |thread| {
            let mut mine = Vec::new();
            for part in self.parts.iter().filter(|part| part.used > 0) {
                let numbers = (part.first..part.end).filter(|number| number % threads == thread);
                let take = |number| {
                    Some(Region {
                        number,
                        turn: self.places.turn(number),
                        words: regions[number].take()?,
                    })
                };
                mine.push(Share {
                    regions: numbers.filter_map(take).collect(),
                    used: part.used,
                    hot: is_hot(part),
                });
            }
            let bounds = bounds(&mine, skew);
            let rng = Rng::new(self.config.memory.seed, thread);
            Box::new(Updater { shares: mine, bounds, places: &self.places, rng, flipped: 0 })
                as Box<_>
        };
        (0..threads).map(&mut worker).collect()
    }
}

/// The words of a huge page.
struct Region<'a> {
    /// Index in the buffer.
    number: usize,
    turn: usize,
    words: &'a mut [u64],
}

/// A thread's huge pages of one part.
struct Share<'a> {
    regions: Vec<Region<'a>>,
    used: usize,
    hot: bool,
}

/// Bits of a random number that choose a share: the lowest, since the others choose a place in it.
const CHOICE: u64 = 0xffff;

/// Returns the upper bound of each share among the values of [`CHOICE`], except that of the last.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bounds(shares: &[Share<'_>], skew: Option<f64>) -> Vec<u64> {
    let pages = |share: &Share<'_>| (share.regions.len() * share.used) as f64;
    let total = |hot| shares.iter().filter(|share| share.hot == hot).map(pages).sum::<f64>();
    let (hot, cold) = (total(true), total(false));
    let skew = skew.unwrap_or(hot / (hot + cold));
    let mut end = 0.0;
    let mut bound = |share: &Share<'_>| {
        end += pages(share) * if share.hot { skew / hot } else { (1.0 - skew) / cold };
        (end * (CHOICE + 1) as f64).round() as u64
    };
    shares.iter().map(&mut bound).take(shares.len().saturating_sub(1)).collect()
}

struct Updater<'a> {
    shares: Vec<Share<'a>>,
    bounds: Vec<u64>,
    places: &'a Places,
    rng: Rng,
    /// Parity of all updates.
    flipped: u64,
}

impl Worker for Updater<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        self.flipped ^= update(&mut self.shares, &self.bounds, self.places, &mut self.rng, ops);
        Ok(())
    }

    fn checksum(&self) -> Result<u64> {
        let (mut sum, mut parity) = (0_u64, self.flipped);
        for share in &self.shares {
            for region in &share.regions {
                for start in (0..share.used).map(|page| self.places.word(region.turn, page)) {
                    for (at, word) in
                        region.words.iter().enumerate().skip(start).take(self.places.page_words)
                    {
                        sum = sum.wrapping_add(*word);
                        parity ^= word ^ initial(region.number, at);
                    }
                }
            }
        }
        if parity == 0 { Ok(sum) } else { Err(WorkloadError::Damaged { workload: NAME }) }
    }
}

/// Inverts random bits except bit 0 in `updates` random words of used pages; returns their parity.
///
/// One random number makes all choices: few instructions, so it stalls on memory.
#[inline(never)]
fn update(
    shares: &mut [Share<'_>],
    bounds: &[u64],
    places: &Places,
    rng: &mut Rng,
    updates: u64,
) -> u64 {
    let (mut random, mut flipped) = (*rng, 0);
    for _ in 0..updates {
        let bits = random.bits();
        let choice = match *bounds {
            [bound] => usize::from(bits & CHOICE >= bound),
            _ => bounds.iter().map(|&bound| usize::from(bits & CHOICE >= bound)).sum(),
        };
        let share = &mut shares[choice];
        let (region, rest) = draw(bits, share.regions.len());
        let (page, rest) = draw(rest, share.used);
        let (word, _) = draw(rest, places.page_words);
        let region = &mut share.regions[region];
        let word = &mut region.words[places.word(region.turn, page) + word];
        *word ^= bits & !1;
        flipped ^= bits & !1;
    }
    *rng = random;
    flipped
}

/// Returns a number below `limit` from the upper bits of a random number, and the rest of it.
#[inline]
fn draw(bits: u64, limit: usize) -> (usize, u64) {
    let wide = u128::from(bits) * limit as u128;
    ((wide >> 64) as usize, wide as u64)
}

#[cfg(test)]
mod tests;
