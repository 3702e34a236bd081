//! `hot-set`: hot regions scattered in a large footprint.
//!
//! Models a server with a large heap whose busy objects lie in some of its regions. All of the
//! footprint is resident. Only the hot regions, chosen at random, are read: in pattern `gather` at
//! independent random words, in pattern `chase` along one random cycle through all their cache
//! lines.
//!
//! A huge page on a hot region removes the page walk from every access there; on any other region
//! it gains nothing. A budget of exactly the hot bytes, spent well, gains everything.

use std::hint::black_box;

use hugepilot_kernel::AnonMap;
use hugepilot_units::{AddrRange, Bytes, HugePages, PageSizes, Region};

use super::cycle::{Lines, chase};
use super::memory::whole_regions;
use super::rng::Rng;
use super::{MemoryConfig, MemoryLimits, Worker, Workload};
use crate::{Result, WorkloadError};

pub(super) const NAME: &str = "hot-set";

/// Access pattern of the hot regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Independent random reads, several at once, as in hash joins and graph pulls.
    #[default]
    Gather,
    /// Dependent reads: each yields the next address, as in lists and trees.
    Chase,
}

impl Pattern {
    /// Returns the name on the command line and in the output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Chase => "chase",
        }
    }
}

/// Parameters of `hot-set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSetConfig {
    /// Footprint, pages and seed.
    pub memory: MemoryConfig,
    /// Hot part of the footprint. Rounded down to huge pages.
    pub hot: Bytes,
    /// Access pattern.
    pub pattern: Pattern,
}

impl HotSetConfig {
    /// 512 MiB hot of 4 GiB, gathered.
    pub const DEFAULT: Self = Self {
        memory: MemoryConfig { footprint: Bytes::gib(4), ..MemoryConfig::DEFAULT },
        hot: Bytes::mib(512),
        pattern: Pattern::Gather,
    };
}

pub(super) struct HotSet {
    map: AnonMap,
    config: HotSetConfig,
    sizes: PageSizes,
    /// Hot regions by first word, in address order.
    hot: Lines,
}

impl HotSet {
    pub(super) fn prepare(config: HotSetConfig, machine: &MemoryLimits) -> Result<Self> {
        let sizes = machine.sizes;
        let footprint = config.memory.fitting(NAME, 100, machine)?;
        if config.hot < sizes.huge {
            return Err(WorkloadError::TooSmall {
                flag: "--hot",
                value: config.hot,
                min: sizes.huge,
            });
        }
        if config.hot > footprint {
            return Err(WorkloadError::PartTooLarge {
                flag: "--hot",
                value: config.hot,
                max: footprint,
            });
        }
        let mut map = config.memory.resident(NAME, machine)?;
        let mut rng = Rng::new(config.memory.seed, usize::MAX);
        let regions = |bytes| HugePages::fitting_in(bytes, sizes).get() as usize;
        let words = sizes.huge.as_usize() / size_of::<u64>();
        let chosen = choose(regions(footprint), regions(config.hot), &mut rng);
        let hot =
            Lines { starts: chosen.into_iter().map(|region| region * words).collect(), words };
        if config.pattern == Pattern::Chase {
            hot.link(map.words_mut(), &mut rng);
        }
        Ok(Self { map, config, sizes, hot })
    }
}

impl Workload for HotSet {
    fn hot(&self) -> Vec<AddrRange> {
        let first = self.sizes.region_of(self.map.range().start).get();
        let region =
            |&start: &usize| Region::new(first + (start / self.hot.words) as u64).range(self.sizes);
        whole_regions(self.hot.starts.iter().map(region), self.sizes)
    }

    fn footprint_bytes(&self) -> u64 {
        self.map.range().len().get()
    }

    fn workers(&mut self, threads: usize) -> Vec<Box<dyn Worker + '_>> {
        let (words, hot, seed) = (self.map.words(), &self.hot, self.config.memory.seed);
        let worker = |index| -> Box<dyn Worker + '_> {
            match self.config.pattern {
                Pattern::Gather => {
                    Box::new(Gatherer { words, hot, rng: Rng::new(seed, index), sum: 0 })
                }
                Pattern::Chase => Box::new(Chaser::new(words, hot.start(index, threads))),
            }
        };
        (0..threads).map(worker).collect()
    }
}

/// Returns `count` distinct numbers below `total`, ascending: the first steps of a Fisher-Yates
/// shuffle.
fn choose(total: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..total).collect();
    for i in 0..count {
        all.swap(i, i + rng.below(total - i));
    }
    all.truncate(count);
    all.sort_unstable();
    all
}

struct Gatherer<'a> {
    words: &'a [u64],
    hot: &'a Lines,
    rng: Rng,
    sum: u64,
}

impl Worker for Gatherer<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        let sum = gather(self.words, &self.hot.starts, self.hot.words, &mut self.rng, ops);
        self.sum = black_box(self.sum.wrapping_add(sum));
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        Ok(self.sum)
    }
}

/// Sums `reads` random words of the blocks of `piece` words (a power of two) at `starts`.
///
/// One random number gives both choices: its upper half the block, its lower bits the word. The
/// table of starts stays in the cache, so only the load of the word stalls.
#[inline(never)]
pub(super) fn gather(
    words: &[u64],
    starts: &[usize],
    piece: usize,
    rng: &mut Rng,
    reads: u64,
) -> u64 {
    let (mut random, mut sum) = (*rng, 0_u64);
    for _ in 0..reads {
        let bits = random.bits();
        let start = starts[(((bits >> 32) * starts.len() as u64) >> 32) as usize];
        sum = sum.wrapping_add(words[start + (bits as usize & (piece - 1))]);
    }
    *rng = random;
    sum
}

/// Walker on a cycle, also for `pointer-chase`.
pub(super) struct Chaser<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Chaser<'a> {
    pub(super) fn new(words: &'a [u64], at: usize) -> Self {
        Self { words, at }
    }
}

impl Worker for Chaser<'_> {
    fn step(&mut self, ops: u64) -> Result<()> {
        self.at = black_box(chase(self.words, self.at, ops));
        Ok(())
    }
    fn checksum(&self) -> Result<u64> {
        Ok(self.at as u64)
    }
    fn batch(&self) -> u64 {
        1 << 12
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::ROOMY;
    use super::*;

    fn config(footprint: u64, hot: u64, pattern: Pattern) -> HotSetConfig {
        let memory = MemoryConfig { footprint: Bytes::mib(footprint), ..MemoryConfig::DEFAULT };
        HotSetConfig { memory, hot: Bytes::mib(hot), pattern }
    }

    #[test]
    fn hot_regions_are_distinct_aligned_inside_and_of_the_requested_size() {
        for seed in 0..8 {
            let mut config = config(32, 13, Pattern::Gather);
            config.memory.seed = seed;
            let set = HotSet::prepare(config, &ROOMY).unwrap();
            let hot = set.hot();
            assert!(hot.iter().all(|&range| set.map.range().covers(range)));
            assert!(hot.iter().all(|range| range.start.get() % (2 << 20) == 0));
            assert!(
                hot.windows(2).all(|pair| pair[0].end < pair[1].start),
                "ordered, merged, no overlap"
            );
            assert_eq!(hot.iter().map(|range| range.len()).sum::<Bytes>(), Bytes::mib(12));
        }
    }

    #[test]
    fn every_region_is_chosen_about_equally_often() {
        let mut times = [0_u32; 16];
        for seed in 0..4000 {
            for region in choose(16, 4, &mut Rng::new(seed, 0)) {
                times[region] += 1;
            }
        }
        assert!(times.iter().all(|count| (850..1150).contains(count)), "{times:?}");
    }

    #[test]
    fn a_gather_reads_hot_words_only_and_all_of_them() {
        let (starts, mut words) = ([16, 48], vec![u64::MAX; 64]);
        for (i, word) in (16..24).chain(48..56).enumerate() {
            words[word] = 1 << (4 * i);
        }
        let mut seen = 0;
        let mut rng = Rng::new(5, 0);
        for _ in 0..500 {
            let word = gather(&words, &starts, 8, &mut rng, 1);
            assert_ne!(word, u64::MAX);
            seen |= word;
        }
        assert_eq!(seen, 0x1111_1111_1111_1111);
        assert_eq!(gather(&words, &starts, 8, &mut Rng::new(5, 0), 0), 0);
    }

    #[test]
    fn a_chase_visits_each_hot_line_once_and_nothing_else() {
        let set = HotSet::prepare(config(16, 4, Pattern::Chase), &ROOMY).unwrap();
        let start = set.hot.start(0, 1);
        let (mut at, mut visited) = (start, vec![false; set.map.words().len()]);
        for _ in 0..set.hot.len() {
            assert!(!std::mem::replace(&mut visited[at], true) && at % 8 == 0);
            assert!(
                set.hot.starts.iter().any(|&start| (start..start + set.hot.words).contains(&at))
            );
            at = chase(set.map.words(), at, 1);
        }
        assert_eq!((at, set.hot.len()), (start, 4 << 14));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let fails = |footprint, hot| {
            HotSet::prepare(config(footprint, hot, Pattern::Gather), &ROOMY).err().unwrap()
        };
        assert!(matches!(fails(16, 18), WorkloadError::PartTooLarge { .. }));
        assert!(matches!(fails(16, 1), WorkloadError::TooSmall { flag: "--hot", .. }));
        assert!(matches!(fails(1 << 20, 512), WorkloadError::TooLarge { .. }));
    }
}
