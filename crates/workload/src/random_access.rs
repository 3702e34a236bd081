//! `random-access`: random updates of a buffer whose huge pages are bloated to known shares.
//!
//! The micro-benchmarks RandomAccess-L and RandomAccess-R of EMD (Gangar et al., ISMM 2025, section 3.1, figure 4c-d):
//! the buffer is divided into equal parts, and in each huge page of a part a fixed share of the base pages is bloat, zero
//! because nobody ever writes it. All updates fall on the other base pages. With `80,20` half of the buffer is bloat,
//! and `left` or `right` says which half of the address space holds most of it: one that splits huge pages in address
//! order breaks few of `left` and many of `right` for the same gain.
//!
//! An update flips bits of one word and leaves bit 0, which is set, as it is, so no used page becomes all zero. After
//! the run the parity of the used pages must be the one they began with, changed by all updates: memory that somebody
//! lost or zeroed in between shows.

use hugepilot_kernel::{AnonMap, Pages};
use hugepilot_units::{AddrRange, Bytes, HugePages, PageSizes};

use super::memory::{reserve, whole_regions};
use super::rng::{Rng, mix};
use super::{Machine, MemoryConfig, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "random-access";

/// More parts than that make no clearer picture, and the choice among them would cost more than the access.
const MOST_PARTS: usize = 64;

/// Which end of the buffer the first share of `bloat` belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The low addresses: RandomAccess-L.
    #[default]
    Left,
    /// The high addresses: RandomAccess-R.
    Right,
}

/// Where the used base pages of a huge page lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// At its start.
    #[default]
    Contiguous,
    /// All over it, differently in each huge page.
    Scattered,
}

/// Which used pages get more than their share of the updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hot {
    /// None: all are equally hot, so the emptiest huge pages are the coldest.
    #[default]
    Uniform,
    /// Those of the most bloated part: the emptiest huge pages are the hottest.
    Bloated,
    /// Those of the least bloated part.
    Dense,
}

/// Parameters of `random-access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomAccessConfig {
    /// The buffer, its pages, the seed.
    pub memory: MemoryConfig,
    /// Percent of bloat in each huge page, part by part.
    pub bloat: Vec<u8>,
    /// Which end the first of them is for.
    pub side: Side,
    /// Where the used pages lie.
    pub layout: Layout,
    /// Which of them are updated more often.
    pub hot: Hot,
    /// Percent of the updates that fall on the hot part, unless all are equally hot.
    pub skew_percent: u8,
}

impl Default for RandomAccessConfig {
    /// RandomAccess-L of the paper: 8 GiB on huge pages, 80 % of the first half and 20 % of the second are bloat.
    fn default() -> Self {
        Self {
            memory: MemoryConfig {
                footprint: Bytes::gib(8),
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

/// Huge pages with the same share of bloat, neighbours in the buffer.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its huge pages, by number in the buffer.
    first: usize,
    end: usize,
    /// Base pages of each that are used.
    used: usize,
}

/// Which base pages of a huge page are used: the first so many of an order, turned by a random number in each huge page.
struct Places {
    /// Where each page begins, in words.
    order: Vec<usize>,
    /// Cuts a random number to a turn, in words; 0 where nothing is turned.
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

    /// How far the order is turned in huge page `region`, in words.
    fn turn(&self, region: usize) -> usize {
        mix(self.seed ^ region as u64) as usize & self.turns
    }

    /// The word of a huge page turned by `turn` at which its used page number `page` begins.
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
        machine: &Machine,
        threads: usize,
    ) -> Result<Self> {
        let (sizes, memory) = (machine.sizes, config.memory);
        let footprint = memory.fitting(NAME, 100, machine)?;
        let parts = parts(&config, HugePages::fitting_in(footprint, sizes).get() as usize, sizes)?;
        let most = parts.iter().map(|part| part.end - part.first).min().unwrap_or(0);
        if threads > most {
            return Err(WorkloadError::Threads { found: threads, most });
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
                    words[0] = 0; // makes it resident, and leaves it all bloat
                }
                let turn = self.places.turn(region);
                for page in 0..part.used {
                    let start = self.places.word(turn, page);
                    let page = &mut words[start..start + self.places.page_words];
                    page.iter_mut()
                        .enumerate()
                        .for_each(|(i, word)| *word = first(region, start + i));
                }
            }
        }
    }

    /// The parts that `--hot` means; all that have used pages, when they are equally hot.
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

/// What the word `at` of huge page `region` is before any update: its bit 0 is set.
#[inline]
fn first(region: usize, at: usize) -> u64 {
    mix((region as u64) << 32 | at as u64) | 1
}

/// Divides `regions` huge pages into as many parts as `config` has shares.
fn parts(config: &RandomAccessConfig, regions: usize, sizes: PageSizes) -> Result<Vec<Part>> {
    let mut bloat: Vec<usize> = config.bloat.iter().map(|&percent| usize::from(percent)).collect();
    let count = bloat.len();
    let senseless = |what| Err(WorkloadError::Bloat { what });
    if !(1..=MOST_PARTS).contains(&count) {
        return senseless("needs between 1 and 64 shares");
    }
    if bloat.iter().any(|&percent| percent > 100) || config.skew_percent > 100 {
        return senseless("and --skew go from 0 to 100 percent");
    }
    if config.side == Side::Right {
        bloat.reverse();
    }
    let pages = sizes.base_per_huge() as usize;
    let used = |percent: usize| (pages * (100 - percent) + 50) / 100;
    if bloat.iter().all(|&percent| used(percent) == 0) {
        return senseless("leaves no page to use; make one share less than 100");
    }
    if regions < count {
        let (found, least) = (config.memory.footprint, sizes.huge.times(count as u64));
        return Err(WorkloadError::TooSmall { flag: "--footprint", found, least });
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

    /// Each thread has every so-many-th huge page for itself, so there is no race and all see the same mix.
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

/// A huge page's worth.
struct Region<'a> {
    /// Its number in the buffer.
    number: usize,
    turn: usize,
    words: &'a mut [u64],
}

/// What one thread has of a part.
struct Share<'a> {
    regions: Vec<Region<'a>>,
    used: usize,
    hot: bool,
}

/// The bits of a random number that choose a share: its lowest, since the others choose a place in it.
const CHOICE: u64 = 0xffff;

/// Below which [`CHOICE`] the shares end, the last one's end left out.
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
    /// The parity of all updates.
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
                        parity ^= word ^ first(region.number, at);
                    }
                }
            }
        }
        if parity == 0 { Ok(sum) } else { Err(WorkloadError::Damaged { workload: NAME }) }
    }
}

/// Flips random bits, but never bit 0, in `updates` random words of used pages; gives the parity of what it flipped.
///
/// One random number makes all choices: few instructions, so that the memory is what it waits for.
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

/// A number below `limit` made from the upper bits of a random number, and the rest of it.
#[inline]
fn draw(bits: u64, limit: usize) -> (usize, u64) {
    let wide = u128::from(bits) * limit as u128;
    ((wide >> 64) as usize, wide as u64)
}

#[cfg(test)]
mod tests;
