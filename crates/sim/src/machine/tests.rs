use proptest::prelude::*;

use super::*;
use crate::runs::Footprint;

const PAGE: u64 = 4096;
const REGION: u64 = 2 << 20;

/// Executes the accesses of thread 0 on a machine with the TLBs of a preset.
fn run(preset: &str, class: PageClass, addresses: impl IntoIterator<Item = u64>) -> Machine {
    let config = MachineConfig {
        first_class: class,
        ..MachineConfig::new(Preset::built_in(preset).unwrap())
    };
    execute(config, addresses.into_iter().map(|address| (0, address))).0
}

fn execute(
    config: MachineConfig,
    accesses: impl IntoIterator<Item = (u16, u64)>,
) -> (Machine, Footprint) {
    let (mut footprint, mut batch, mut machine) =
        (Footprint::new(), Batch::default(), Machine::new(config));
    for (thread, address) in accesses {
        footprint.add(0, thread, [address], &mut batch);
    }
    machine.run(&batch);
    (machine, footprint)
}

#[test]
fn a_new_thread_on_a_core_has_an_empty_tlb() {
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    let tables = CandidateTables::All;
    let config =
        MachineConfig { tables, ..MachineConfig::new(Preset::built_in("haswell").unwrap()) };
    let mut machine = Machine::new(config);
    for begins in [false, false, true, true] {
        if begins {
            batch.begin_thread(0);
        }
        footprint.add(0, 0, [0, PAGE, 0], &mut batch);
    }
    machine.run(&batch);
    let counts = machine.counts();
    assert_eq!((counts.accesses, counts.l1_misses, counts.walks), (12, 6, 6));
    assert_eq!(machine.candidates().len(), 1);
    assert!(machine.candidates()[0][0].frequency >= 3, "the candidate cache stays");
}

/// L2 of LRU with `sets` sets: a scan over more pages than entries always misses, one over as many
/// never after the first round.
#[test]
fn a_cyclic_scan_misses_by_its_length() {
    let scan = |pages: u64| (0..10).flat_map(move |_| (0..pages).map(|page| page * PAGE));
    let fits = run("broadwell", PageClass::Base, scan(1536)).counts();
    assert_eq!((fits.accesses, fits.l1_misses, fits.walks), (15_360, 15_360, 1536));
    // 256 sets of 6 ways: each set has one page too many.
    let exceeds = run("broadwell", PageClass::Base, scan(1792)).counts();
    assert_eq!(exceeds.walks, 17_920);
    let in_l1 = run("zen3", PageClass::Base, scan(64)).counts();
    assert_eq!((in_l1.l1_misses, in_l1.walks), (64, 64));
}

/// Random access over N pages with uniform probability hits a cache of C entries with C / N: any
/// replacement that does not know the future (independent reference model).
#[test]
fn random_access_misses_by_the_share_that_does_not_fit() {
    let mut state = 88_172_645_463_325_252u64;
    let random = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 8192 * PAGE
    });
    for (preset, entries) in [("broadwell", 1536.0), ("haswell", 1024.0), ("zen5", 4096.0)] {
        let counts = run(preset, PageClass::Base, random.take(2_000_000)).counts();
        let expected = 1.0 - entries / 8192.0;
        let found = counts.walk_ratio();
        assert!((found - expected).abs() < 0.005, "{preset}: {found} for {expected}");
    }
}

/// A row-major sweep over a matrix of 1,024 rows of one page each walks once a page, a column-major
/// sweep at each access, unless the pages are huge.
#[test]
fn a_nested_loop_walks_by_its_order() {
    let rows = |outer: bool| {
        (0..1024u64 * 64).map(move |at| {
            let (row, column) = if outer { (at / 64, at % 64) } else { (at % 1024, at / 1024) };
            row * 2 * PAGE + column * 64
        })
    };
    let walks = |class, outer| run("ivy-bridge", class, rows(outer)).counts().walks;
    assert_eq!(walks(PageClass::Base, true), 1024);
    assert_eq!(walks(PageClass::Base, false), 65_536);
    assert_eq!(walks(PageClass::Huge, false), 4);
}

/// Hand-worked: four references for the first page, one for its neighbour, whose table is cached,
/// two for a page in the next region, three behind the next 1 GiB.
#[test]
fn a_walk_costs_the_levels_that_no_cache_has() {
    let references = |addresses: &[u64], class| {
        run("haswell", class, addresses.iter().copied()).counts().walk_references
    };
    assert_eq!(references(&[0], PageClass::Base), 4);
    assert_eq!(references(&[0, PAGE], PageClass::Base), 5);
    assert_eq!(references(&[0, REGION], PageClass::Base), 6);
    assert_eq!(references(&[0, 1 << 30], PageClass::Base), 7);
    assert_eq!(references(&[0], PageClass::Huge), 3);
    assert_eq!(references(&[0, REGION], PageClass::Huge), 4);
    assert_eq!(references(&[0], PageClass::Giant), 2);
    let nested = |nested_levels| {
        let preset = Preset::built_in("haswell").unwrap();
        let config = MachineConfig { nested_levels, ..MachineConfig::new(preset) };
        execute(config, [(0, 0)]).0.counts().walk_references
    };
    // (4 + 1)(4 + 1) - 1, and with the host on 2 MiB pages (4 + 1)(3 + 1) - 1.
    assert_eq!((nested(4), nested(3)), (24, 19));
}

proptest! {
    /// A part of one run uses the upper levels of one page only, which may be those used last.
    #[test]
    fn a_walk_costs_the_same_in_any_part(
        preset in prop::sample::select(vec!["haswell", "zen5", "ice-lake-sp"]),
        class in prop::sample::select(PageClass::ALL.to_vec()),
        places in prop::collection::vec((0u64..4, 0u64..3, 0u64..40), 1..300),
    ) {
        let config = MachineConfig {
            first_class: class,
            ..MachineConfig::new(Preset::built_in(preset).unwrap())
        };
        let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
        let addresses =
            places.iter().map(|(giant, region, page)| giant << 30 | region << 21 | page << 12);
        footprint.add(0, 0, addresses.clone(), &mut batch);
        let (mut whole, mut single) = (Machine::new(config.clone()), Machine::new(config));
        whole.run(&batch);
        let mut footprint = Footprint::new();
        for address in addresses {
            batch.clear();
            footprint.add(0, 0, [address], &mut batch);
            single.run(&batch);
        }
        prop_assert_eq!(whole.counts(), single.counts());
    }
}

/// An entry that maps a 2 MiB page is in no cache of upper levels: a second walk costs the
/// reference to it.
#[test]
fn a_walk_reads_the_entry_that_maps_the_page() {
    let one = FULL.replace("entries = 64", "entries = 1").replace("entries = 256", "entries = 1");
    let caches = "walk_caches = [{ level = 1, entries = 8 }, { level = 2, entries = 8 }]";
    let config = MachineConfig {
        first_class: PageClass::Huge,
        ..MachineConfig::new(Preset::parse(&(one + caches)).unwrap())
    };
    let (machine, _) = execute(config, [0, REGION, 0].map(|address| (0, address)));
    assert_eq!(machine.counts().walk_references, 3 + 1 + 1);
}

/// More 1 GiB pages than L1 has entries: Zen 2 holds their 2 MiB parts in L2, Haswell nothing.
#[test]
fn a_giant_page_is_smashed_where_the_cpu_does_so() {
    let scan = || (0..10).flat_map(|_| (0..100).map(|page| (page << 30) + page % 64 * REGION));
    let zen = run("zen2", PageClass::Giant, scan()).counts();
    assert_eq!((zen.l1_misses, zen.walks), (1000, 100));
    let haswell = run("haswell", PageClass::Giant, scan()).counts();
    assert_eq!((haswell.l1_misses, haswell.walks), (1000, 1000));
}

#[test]
fn coalescing_quarters_the_entries() {
    let preset = Preset::built_in("zen3").unwrap();
    let config = MachineConfig { coalescing: Coalescing::All, ..MachineConfig::new(preset) };
    let scan = (0..10).flat_map(|_| (0..256).map(|page| (0, page * PAGE)));
    assert_eq!(execute(config, scan).0.counts().l1_misses, 64);
}

#[test]
fn each_thread_has_its_own_tlb() {
    let preset = Preset::built_in("haswell").unwrap();
    let accesses = (0..4u16).flat_map(|thread| [(thread, 0), (thread, 0)]);
    let (machine, _) = execute(MachineConfig::new(preset), accesses);
    assert_eq!(machine.counts().walks, 4);
}

/// The first walk of a region sets its accessed bit, later ones count.
#[test]
fn the_cold_filter_drops_the_first_walk() {
    let machine =
        run("haswell", PageClass::Base, [0, PAGE, REGION, 2 * PAGE, 1 << 30, 1 << 30 | PAGE]);
    let found = merge(&machine.candidates());
    let ranked = |region, frequency| Ranked { region, frequency };
    // The second walk of a region inserts it, the third counts 1.
    assert_eq!(found, [ranked(0, 1), ranked(2, 0)]);
    // Only walks of huge pages count.
    assert_eq!(merge(&machine.giant_candidates()), []);
    let machine = run("haswell", PageClass::Huge, [0, REGION, 2 * REGION, 1 << 30]);
    // The first walk of a 1 GiB region sets its accessed bit, the second inserts it.
    assert_eq!(merge(&machine.giant_candidates()), [ranked(0, 1)]);
}

/// Walks of two pages: the table has the region with one after the cold one. After a promotion, the
/// published simulator has another cold one.
#[test]
fn the_artifact_drops_the_first_walk_after_a_promotion() {
    let candidates = |rules| {
        let preset = Preset::built_in("haswell").unwrap();
        let config = MachineConfig { candidates: rules, ..MachineConfig::new(preset) };
        let (mut machine, mut footprint) = execute(config, [(0, 0), (0, PAGE)]);
        assert_eq!(merge(&machine.candidates()).len(), 1);
        machine.set_class(0, PageClass::Huge);
        let mut batch = Batch::default();
        footprint.add(0, 0, [2 * PAGE], &mut batch);
        machine.run(&batch);
        let found = merge(&machine.candidates()).len();
        machine.empty_candidates();
        assert_eq!(machine.candidates(), [vec![]]);
        found
    };
    let demote = CandidateRules { counts_promoted: true, ..CandidateRules::PAPER };
    assert_eq!(
        [CandidateRules::PAPER, demote, CandidateRules::ARTIFACT].map(candidates),
        [0, 1, 0]
    );
}

#[test]
fn a_promotion_forgets_base_pages_and_the_candidate() {
    let preset = Preset::built_in("haswell").unwrap();
    let (mut machine, mut footprint) =
        execute(MachineConfig::new(preset), (0..100).map(|page| (0, page * PAGE)));
    assert_eq!(merge(&machine.candidates()).len(), 1);
    machine.set_class(0, PageClass::Huge);
    assert_eq!(machine.candidates(), [vec![]]);
    let mut walks_of_a_scan = |machine: &mut Machine| {
        let (before, mut batch) = (machine.counts().walks, Batch::default());
        footprint.add(0, 0, (0..100).map(|page| page * PAGE), &mut batch);
        machine.run(&batch);
        machine.counts().walks - before
    };
    assert_eq!(walks_of_a_scan(&mut machine), 1);
    let pages = machine.counts_of_class(PageClass::Huge);
    assert_eq!((pages.accesses, pages.walks), (100, 1));
    machine.set_class(0, PageClass::Base);
    let (before, mut batch) = (machine.counts().walks, Batch::default());
    footprint.add(0, 0, [5 * PAGE], &mut batch);
    machine.run(&batch);
    assert_eq!(machine.counts().walks - before, 1, "the huge page is forgotten");
}

/// The simplest hierarchy that can be: lists, searched from end to end.
struct Oracle {
    l1: Vec<(PageClass, u64)>,
    l2: Vec<(PageClass, u64)>,
}

impl Oracle {
    fn walks(&mut self, page: u64, class: PageClass) -> bool {
        let number = page >> class.shift();
        !use_list(&mut self.l1, 64, (class, number))
            && !use_list(&mut self.l2, 256, (class, number))
    }
}

fn use_list(list: &mut Vec<(PageClass, u64)>, entries: usize, key: (PageClass, u64)) -> bool {
    let found = list.iter().position(|&held| held == key);
    found.map(|at| list.remove(at));
    list.insert(0, key);
    list.truncate(entries);
    found.is_some()
}

const FULL: &str = r#"
name = "full"
cpu = "none"
source = "test"
levels = 4
l1 = [{ holds = ["base", "huge", "giant"], entries = 64 }]
l2 = [{ holds = ["base", "huge", "giant"], entries = 256 }]
"#;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Fully associative levels against lists, with regions that change their class.
    #[test]
    fn walks_are_those_of_lists(
        acts in prop::collection::vec((0u64..8, 0u64..512, 0u8..200), 100..4000),
    ) {
        let mut machine = Machine::new(MachineConfig::new(Preset::parse(FULL).unwrap()));
        let mut oracle = Oracle { l1: Vec::new(), l2: Vec::new() };
        let (mut footprint, mut classes) = (Footprint::new(), [PageClass::Base; 8]);
        let (mut walks, mut references) = (0u64, 0u64);
        for (region, page, act) in acts {
            // Skewed, so that some accesses hit.
            let page = (region << 9) + page * page / 4096;
            let mut batch = Batch::default();
            footprint.add(0, 0, [page * PAGE], &mut batch);
            machine.run(&batch);
            if oracle.walks(page, classes[region as usize]) {
                walks += 1;
                references += if classes[region as usize] == PageClass::Base { 4 } else { 3 };
            }
            if act == 0 {
                let class = &mut classes[region as usize];
                *class = if *class == PageClass::Base { PageClass::Huge } else { PageClass::Base };
                machine.set_class(batch.runs()[0].region(), *class);
                let stale = |&(class, number): &(PageClass, u64)| match class {
                    PageClass::Base => number >> 9 != region,
                    _ => number != region,
                };
                oracle.l1.retain(stale);
                oracle.l2.retain(stale);
            }
            prop_assert_eq!(machine.counts().walks, walks);
            prop_assert_eq!(machine.counts().walk_references, references);
        }
    }
}
