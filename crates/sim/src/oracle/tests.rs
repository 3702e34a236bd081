//! Simulators against oracles, on millions of accesses.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::machine::{CandidateRules, CandidateTables, Machine};
use crate::pcc::{Pcc, PccConfig, PccReplacement, Ranked};
use crate::preset::{WalkCache, WaysOf};
use crate::reuse::{Histogram, Reuse, ReuseConfig};
use crate::runs::{Batch, Footprint};

/// 4 GiB with 64 regions, twice as many pages as the largest TLB has entries.
const PAGES: u64 = 64 * 512;
/// Most accesses of a batch, more than simulators execute at once.
const BATCH: u64 = 1500;

/// Executes random and structured accesses of three threads in two processes on a machine and on
/// its oracle, with regions that change their class. Both must agree after each batch, also
/// machines with some of the candidate caches, as policies have.
fn agree(config: &MachineConfig, seed: u64, accesses: u64) {
    let (mut machine, mut oracle) =
        (Machine::new(config.clone()), MachineList::new(config.clone()));
    let tables = [CandidateTables::Huge, CandidateTables::None];
    let with = |tables| Machine::new(MachineConfig { tables, ..config.clone() });
    let mut others = tables.map(with);
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    let (mut stream, mut done) = (Stream::new(seed, PAGES), 0);
    while done < accesses {
        batch.clear();
        for _ in 0..=stream.below(3) {
            let (thread, count) = (stream.below(3) as u16, 1 + stream.below(BATCH));
            let addresses: Vec<u64> = stream.by_ref().take(count as usize).collect();
            for &address in &addresses {
                oracle.access(thread / 2, thread, address);
            }
            footprint.add(thread / 2, thread, addresses, &mut batch);
            done += count;
        }
        machine.run(&batch);
        let counts: Vec<Counts> = machine.counts_of_regions().collect();
        assert_eq!(counts, oracle.counts(), "{} seed {seed}", config.preset.name);
        let ranked = |tables: Vec<Vec<Ranked>>| -> Vec<Vec<(u32, u32)>> {
            let pair = |one: &Ranked| (one.region, one.frequency);
            tables.iter().map(|table| table.iter().map(pair).collect()).collect()
        };
        assert_eq!(ranked(machine.candidates()), oracle.huge_tables(), "seed {seed}");
        assert_eq!(ranked(machine.giant_candidates()), oracle.giant_tables(), "seed {seed}");
        for other in &mut others {
            other.run(&batch);
            let counts: Vec<Counts> = other.counts_of_regions().collect();
            assert_eq!(counts, oracle.counts(), "seed {seed}");
        }
        assert_eq!(ranked(others[0].candidates()), oracle.huge_tables(), "seed {seed}");
        let region = stream.below(footprint.regions().len() as u64) as u32;
        let class = PageClass::ALL[stream.below(3) as usize];
        if stream.below(4) == 0 {
            machine.set_class(region, class);
            others.iter_mut().for_each(|other| other.set_class(region, class));
            oracle.set_class(region as usize, class);
        }
    }
}

/// Machines of each preset: coalescing, virtual machines, first classes and rules take turns.
fn machines() -> impl Iterator<Item = MachineConfig> {
    Preset::names().enumerate().map(|(at, name)| {
        let preset = Preset::built_in(name).unwrap();
        MachineConfig {
            coalescing: if at % 3 == 1 { Coalescing::All } else { Coalescing::None },
            nested_levels: [0, 4, 0, 3][at % 4],
            first_class: if at % 5 == 4 { PageClass::Huge } else { PageClass::Base },
            candidates: match at % 3 {
                0 => CandidateRules::PAPER,
                1 => CandidateRules::ARTIFACT,
                _ => CandidateRules {
                    huge: PccConfig { entries: 8, counter_bits: 4, ..PccConfig::PAPER },
                    cold_filter: false,
                    ..CandidateRules::PAPER
                },
            },
            ..MachineConfig::new(preset)
        }
    })
}

/// Shape of a structure: LRU of few ways and random replacement may divide them among classes, PLRU
/// needs a power of two.
fn tlb(holds: Vec<PageClass>) -> impl Strategy<Value = Tlb> {
    let sets = (0u32..5).prop_map(|log| 1usize << log);
    let lru = (1usize..24).prop_map(|ways| (ways, Replacement::Lru));
    let plru = (0u32..7).prop_map(|log| (1usize << log, Replacement::Plru));
    let random = (1usize..24).prop_map(|ways| (ways, Replacement::Random));
    let index = prop::sample::select(vec![SetIndex::Low, SetIndex::Xor]);
    (sets, prop_oneof![lru, plru, random], index, 1usize..16).prop_map(
        move |(sets, (ways, replacement), index, split)| {
            let is_divided = match replacement {
                Replacement::Lru => split < ways && ways <= 16,
                Replacement::Plru => false,
                Replacement::Random => split < ways,
            };
            let ways_of = if is_divided {
                let (huge, giant) = (Some((0, split)), Some((split, ways - split)));
                WaysOf { huge, giant, ..WaysOf::default() }
            } else {
                WaysOf::default()
            };
            let (entries, ways, holds) = (sets * ways, Some(ways), holds.clone());
            Tlb { holds, entries, ways, ways_of, replacement, index }
        },
    )
}

prop_compose! {
    fn any_preset()(
        l1 in tlb(PageClass::ALL.to_vec()),
        l2 in (tlb(vec![PageClass::Base, PageClass::Huge]), tlb(vec![PageClass::Giant])),
        caches in prop::collection::vec((1u32..4, 0u32..4, 1usize..8), 0..4),
        smashes_giant in prop::bool::ANY,
        levels in 4u32..6,
    ) -> Preset {
        let cache = |(level, log, ways): (u32, u32, usize)| {
            WalkCache { level, entries: ways << log, ways: Some(ways) }
        };
        Preset {
            name: "any".to_owned(),
            cpu: String::new(),
            source: String::new(),
            assumed: Vec::new(),
            levels,
            smashes_giant,
            l1: vec![l1],
            l2: if smashes_giant { vec![l2.0] } else { vec![l2.0, l2.1] },
            walk_caches: caches.into_iter().map(cache).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    /// 2.8 million accesses in all.
    #[test]
    fn each_preset_counts_as_lists_do(seed in any::<u64>()) {
        machines().for_each(|config| agree(&config, seed, 50_000));
    }

    /// 1.2 million accesses in all, to tables of each size with either replacement.
    #[test]
    fn candidate_caches_of_all_sizes_count_as_lists_do(seed in any::<u64>()) {
        for entries in [1, 4, 32, 128, 200] {
            for replacement in [PccReplacement::Lfu, PccReplacement::Lru] {
                let config = PccConfig { entries, counter_bits: 8, replacement };
                let (mut pcc, mut list) = (Pcc::new(config), PccList::new(config));
                let mut stream = Stream::new(seed, 2048 * 512);
                for at in 0..30_000 {
                    let region = (stream.next().unwrap() >> 21) as u32;
                    pcc.touch(region);
                    list.touch(region);
                    if at % 64 == 0 {
                        prop_assert_eq!(pcc.remove(region), list.remove(region));
                        let ranked: Vec<_> =
                            pcc.ranked().iter().map(|one| (one.region, one.frequency)).collect();
                        prop_assert_eq!(ranked, list.ranked());
                    }
                }
            }
        }
    }

    /// 1.6 million accesses in all.
    #[test]
    fn distances_are_those_of_lists(seed in any::<u64>()) {
        let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
        let addresses: Vec<u64> = Stream::new(seed, 4 * 512).take(400_000).collect();
        let mut reuse = Reuse::new(ReuseConfig::default());
        for part in addresses.chunks(70_000) {
            batch.clear();
            footprint.add(0, 0, part.iter().copied(), &mut batch);
            reuse.run(&batch);
        }
        for class in PageClass::ALL {
            let expected = stack_distances(addresses.iter().map(|one| one >> 12 >> class.shift()));
            let found = reuse.histogram(class);
            prop_assert!(found.buckets().eq(expected.buckets()), "{class:?}");
            prop_assert_eq!(found.cold(), expected.cold());
        }
        let pages = time_distances(addresses.iter().map(|one| one >> 12));
        let regions = time_distances(addresses.iter().map(|one| one >> 21));
        let giants = time_distances(addresses.iter().map(|one| one >> 30));
        let mut found = 0;
        for page in reuse.pages(&footprint) {
            prop_assert_eq!(page.base, pages[&page.page]);
            prop_assert_eq!(page.huge, regions[&(page.page >> 9)]);
            prop_assert_eq!(page.giant, giants[&(page.page >> 18)]);
            found += 1;
        }
        prop_assert_eq!(found, pages.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Shapes that no preset has: 0.6 million accesses in all.
    #[test]
    fn tlbs_of_any_shape_count_as_lists_do(
        preset in any_preset(),
        nested_levels in prop::sample::select(vec![0, 3, 4, 5]),
        seed in any::<u64>(),
    ) {
        agree(&MachineConfig { nested_levels, ..MachineConfig::new(preset) }, seed, 10_000);
    }
}

/// Distinct pages since the last use of each page: its place in a list, newest first.
fn stack_distances(pages: impl Iterator<Item = u64>) -> Histogram {
    let (mut list, mut distances) = (Vec::new(), Histogram::new(1.0));
    for page in pages {
        let found = list.iter().position(|&held| held == page);
        if let Some(at) = found {
            list.remove(at);
        }
        list.insert(0, page);
        distances.add(found.map(|at| at as u64), 1);
    }
    distances
}

/// Mean number of accesses from a use of each page to the next.
fn time_distances(pages: impl Iterator<Item = u64>) -> BTreeMap<u64, f64> {
    let mut uses: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (time, page) in pages.enumerate() {
        uses.entry(page).or_default().push(time);
    }
    let mean = |times: &Vec<usize>| {
        let sum: usize = times.windows(2).map(|pair| pair[1] - pair[0]).sum();
        if times.len() > 1 { sum as f64 / (times.len() - 1) as f64 } else { f64::INFINITY }
    };
    uses.iter().map(|(&page, times)| (page, mean(times))).collect()
}
