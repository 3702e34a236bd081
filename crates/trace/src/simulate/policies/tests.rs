use hugepilot_policy::Limits;
use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece, TraceWriter};
use hugepilot_sim::{Layout, Pattern, Preset, ReuseConfig};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};
use proptest::prelude::*;

use super::*;
use crate::simulate::{AccessSource, reuse};
use crate::source::{Engine, TraceOptions, TraceSource};

fn setup() -> PolicySetup {
    PolicySetup {
        cpu: CpuSetup {
            preset: Preset::built_in("haswell").unwrap(),
            name: "haswell".to_owned(),
            coalescing: false,
            nested: false,
        },
        candidates: CandidateRules::PAPER,
        pcc: PccRules::default(),
        hawkeye: HawkeyeRules::default(),
        coverage: Coverage { scan: Share::ALL, ..Coverage::PAPER },
        khugepaged: KhugepagedRules::default(),
        prefix: vec!["[anon]".to_owned()],
        interval: 120_000,
        frames: None,
        cost: CostModel::default(),
        giant: false,
        used: None,
    }
}

fn with_job<T>(pattern: &str, accesses: u64, each: impl FnOnce(&mut Job<'_>) -> T) -> T {
    let pattern: Pattern = pattern.parse().unwrap();
    with_source(AccessSource::Pattern(pattern, 1), Some(accesses), each)
}

fn with_source<T>(
    source: AccessSource,
    max_accesses: Option<u64>,
    each: impl FnOnce(&mut Job<'_>) -> T,
) -> T {
    let (sources, names) = ([source], ["x".to_owned()]);
    let trace = TraceOptions { max_accesses, ..TraceOptions::default() };
    let (interrupted, mut progress) = (|| false, |_, _| {});
    each(&mut Job {
        sources: &sources,
        names: &names,
        trace,
        interrupted: &interrupted,
        progress: &mut progress,
    })
}

#[test]
fn any_interval_has_a_rate() {
    for (interval, rate) in [(120, 4), (1, 1), (u64::MAX, u64::MAX / 30)] {
        assert_eq!(PolicySetup { interval, ..setup() }.rate(), rate);
    }
}

#[test]
fn a_prefix_that_no_mapping_has_is_named() {
    let setup = PolicySetup { prefix: vec!["[anon]".into(), "nosuch".into()], ..setup() };
    let not_found = |policy: &str| {
        let (policies, budgets) = ([policy.parse().unwrap()], [Share::percent(4.0)]);
        with_job("random:4MiB", 1000, |job| utility(job, &setup, &policies, &budgets).unwrap())
            .prefix_not_found
    };
    let simulated = |frames| {
        let setup = PolicySetup { frames, ..setup.clone() };
        with_job("random:4MiB", 1000, |job| {
            policy(job, &setup, SimPolicy::Prefix, None, &mut |_| {}).unwrap().report
        })
    };
    assert_eq!(simulated(Some(1)).run.promotions, 1);
    let prefix = simulated(None);
    assert_eq!((prefix.prefix_not_found, prefix.run.promotions), (vec!["nosuch".to_owned()], 2));
    assert!(prefix.rounds > 0);
    assert_eq!(not_found("prefix"), ["nosuch"]);
    assert!(not_found("linux").is_empty());
}

#[test]
fn candidates_are_promoted_first_and_gain_most() {
    let budgets = [0.0, 12.5, 100.0].map(Share::percent);
    let policies = ["pcc", "heat", "linux", "prefix"].map(|name| name.parse().unwrap());
    let report = with_job("skewed:512MiB", 3_000_000, |job| {
        utility(job, &setup(), &policies, &budgets).unwrap()
    });
    assert!(report.base.counts.walks > 2_000_000 && report.ideal.speedup > 1.2, "{report:?}");
    for run in &report.points[0].runs {
        assert_eq!((run.counts, run.promotions), (report.base.counts, 0), "budget 0");
    }
    // The hot eighth is the first one, so `prefix` knows it from the begin.
    let avoided = |at: usize| report.points[1].runs[at].walks_avoided_ratio;
    let [pcc, heat, linux, prefix] = [0, 1, 2, 3].map(avoided);
    assert!(prefix > 0.8 && pcc > 0.7 && heat > 0.6, "{pcc} {heat} {linux} {prefix}");
    for run in &report.points[1].runs {
        assert!(run.huge_ratio <= 0.125 + 1e-9, "{run:?}");
    }
    let all = &report.points[2].runs;
    assert!(all[2].walks_avoided_ratio > 0.9 * report.ideal.walks_avoided_ratio, "{all:?}");
}

/// Pages of 64 regions in turn, sixty times. On base pages, each access misses in both TLBs, and
/// its walk reads one entry: two at the first page of a region, unless the cache of the level above
/// has all regions, which are at most 32. A region on a huge page misses nowhere, if at most 32
/// are, or once in each turn in the L1 TLB.
#[test]
fn predictions_of_a_cyclic_scan_are_those_of_its_closed_form() {
    const REGIONS: f64 = 64.0;
    const TURNS: f64 = 60.0;
    let CostModel { access, visit, l2, reference } = setup().cost;
    let visits = 512.0 * (access + visit);
    let base = |walk_references: f64| visits + 512.0 * l2 + walk_references * reference;
    let budgets = [0.0, 25.0, 50.0, 100.0].map(Share::percent);
    let policies = ["linux", "prefix"].map(|name| name.parse().unwrap());
    let setup = PolicySetup { used: Some(Bytes::mib(128)), ..setup() };
    let report = with_job("cyclic:128MiB", 60 * 64 * 512, |job| {
        utility(job, &setup, &policies, &budgets).unwrap()
    });
    let cycles = [
        REGIONS * base(513.0),
        48.0 * base(513.0) + 16.0 * visits,
        32.0 * base(512.0) + 32.0 * visits,
        REGIONS * (visits + l2),
    ];
    for ((point, cycles), budget) in report.points.iter().zip(cycles).zip(budgets) {
        for run in &point.runs {
            let (ratio, speedup) = (1.0 - budget.get(), REGIONS * base(513.0) / cycles);
            // Promotions are in the first turn, after at most all of its walks.
            let more = (run.counts.walk_ratio - ratio) * TURNS;
            assert!((-1e-3..1.0).contains(&more), "{budget}: {more} of a turn");
            let turns = run.speedup * (cycles * (TURNS - 1.0) + REGIONS * base(513.0));
            let least = turns / (REGIONS * base(513.0) * TURNS);
            assert!(least > 0.999 && run.speedup < 1.001 * speedup, "{budget}: {least} {speedup}");
        }
    }
    assert!((report.ideal.speedup / (REGIONS * base(513.0) / cycles[3]) - 1.0).abs() < 1e-3);
}

/// Pieces that no program makes.
fn pieces() -> impl Strategy<Value = Vec<TracePiece>> {
    let access = (0u64..1 << 57, 0u32..50, any::<bool>());
    let access =
        access.prop_map(|(address, shift, store)| TraceAccess { address: address >> shift, store });
    let bound = (any::<u64>(), 0u32..50).prop_map(|(address, shift)| address >> shift);
    let names = ["[anon]", "[stack]", "/lib/c.so", "", "[unknown]"];
    let mapping = (bound.clone(), bound, prop::sample::select(names.to_vec()));
    let mapping = mapping.prop_map(|(one, other, name)| {
        let range = AddrRange::new(VirtAddr::new(one.min(other)), VirtAddr::new(one.max(other)));
        TraceMapping { range, name: name.to_owned() }
    });
    let accesses = (0u16..9, prop::collection::vec(access, 1..30));
    let piece = prop_oneof![
        3 => accesses.prop_map(|(thread, accesses)| TracePiece::Accesses { thread, accesses }),
        2 => prop::collection::vec(mapping, 0..9).prop_map(TracePiece::Mappings),
        1 => (0u16..9).prop_map(TracePiece::ThreadEnd),
    ];
    prop::collection::vec(piece, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Mappings of any range, and accesses and ends of threads anywhere: every access is counted,
    /// in a mapping.
    #[test]
    fn any_trace_is_simulated(
        mut pieces in pieces(),
        interval in prop::sample::select(vec![120u64, 2400, u64::MAX]),
        is_known in any::<bool>(),
    ) {
        let accesses = vec![TraceAccess { address: 7, store: false }];
        pieces.push(TracePiece::Accesses { thread: 0, accesses });
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = TraceWriter::new(&mut file).unwrap();
        pieces.iter().for_each(|piece| writer.piece(piece).unwrap());
        let all = writer.written();
        writer.finish(0, &[]).unwrap();
        let source = AccessSource::Trace(TraceSource::File(file.path().to_owned()));
        let budgets = [50.0, 100.0].map(Share::percent);
        let policies: Vec<SimPolicy> = SimPolicy::all().collect();
        let report = with_source(source.clone(), None, |job| {
            let used = if is_known { job.used().unwrap() } else { None };
            let setup = PolicySetup { interval, used, ..setup() };
            utility(job, &setup, &policies, &budgets).unwrap()
        });
        for run in report.points.iter().flat_map(|point| &point.runs).chain([&report.base]) {
            let mapped: u64 = run.per_mapping.iter().map(|one| one.counts.accesses).sum();
            prop_assert_eq!((run.counts.accesses, mapped), (all, all), "{}", run.policy);
            prop_assert!(run.counts.walks <= all);
        }
        let mut pages = 0;
        let reuse = with_source(source, None, |job| {
            reuse(job, ReuseConfig::default(), |page| -> Result<(), TraceError> {
                pages += page.accesses;
                Ok(())
            })
        });
        prop_assert_eq!((reuse.unwrap().input.accesses, pages), (all, all));
    }
}

#[test]
fn the_rounds_of_a_journal_are_those_of_its_goal() {
    let (setup, pcc) = (setup(), SimPolicy::Tune(PolicyName::Pcc));
    let mut rounds = Vec::new();
    let budget = Some(Share::percent(5.0));
    let result = with_job("skewed:256MiB", 1_000_000, |job| {
        policy(job, &setup, pcc, budget, &mut |round| rounds.push(round.clone())).unwrap()
    });
    assert_eq!(result.report.rounds, 8);
    assert_eq!(result.acts.len() as u64, result.report.run.promotions);
    let Some(Goal::Tune(goal)) = goal_of(&setup, pcc, budget) else { panic!("a tune") };
    for round in &rounds {
        assert!(round.again(&goal).decisions().eq(round.decisions()));
    }
    let first = &result.report.candidates[0];
    assert_eq!((first.mapping.as_str(), first.ordinal), ("[anon]", 0));
    assert!(first.index < 128 && first.frequency > 0, "{first:?}");
    assert_eq!(first.mapping_bytes, Bytes::mib(256));
    assert_eq!(first.inside_index, Some(first.index), "patterns are aligned");
}

/// The counts by page size and by mapping are those of the run, before and after promotions.
#[test]
fn a_run_has_its_counts_by_page_size_and_mapping() {
    let pcc = SimPolicy::Tune(PolicyName::Pcc);
    let report = with_job("skewed:256MiB", 500_000, |job| {
        policy(job, &setup(), pcc, None, &mut |_| {}).unwrap().report
    });
    let sizes = |run: &PolicyRun| -> Vec<(Bytes, u64)> {
        run.per_page_size.iter().map(|one| (one.page_bytes, one.counts.accesses)).collect()
    };
    assert_eq!(sizes(&report.base), [(Bytes::kib(4), 500_000)]);
    assert_eq!(sizes(&report.ideal), [(Bytes::mib(2), 500_000)]);
    let [(smallest, base), (_, huge)] = sizes(&report.run)[..] else { panic!("{report:?}") };
    assert!(base >= 120_000 && huge > 0 && base + huge == 500_000, "{base} {huge}");
    assert_eq!(smallest, Bytes::kib(4));
    let [mapping] = &report.run.per_mapping[..] else { panic!("{:?}", report.run.per_mapping) };
    assert_eq!((mapping.mapping.as_str(), mapping.counts), ("[anon]", report.run.counts));
}

/// The hot eighth is used most during each observation; it is promoted first.
#[test]
fn the_candidates_of_hawkeye_are_by_coverage() {
    let hawkeye = SimPolicy::Tune(PolicyName::Hawkeye);
    let budget = Some(Share::percent(0.0));
    let report = with_job("skewed:256MiB", 500_000, |job| {
        policy(job, &setup(), hawkeye, budget, &mut |_| {}).unwrap().report
    });
    let candidates = &report.candidates;
    assert!(candidates.is_sorted_by(|one, next| one.frequency >= next.frequency));
    assert!(candidates.iter().take(16).all(|one| one.index < 16), "{candidates:?}");
    assert!(candidates[0].frequency > 5 && candidates[0].mapping == "[anon]", "{candidates:?}");
}

#[test]
fn the_counts_of_processes_sum_to_those_of_the_run() {
    let patterns = ["random:64MiB", "stream:128MiB"].map(|text| text.parse::<Pattern>().unwrap());
    let trace = TraceOptions { max_accesses: Some(500_000), ..TraceOptions::default() };
    let (interrupted, mut progress) = (|| false, |_, _| {});
    let mut job = Job {
        sources: &patterns.map(|pattern| AccessSource::Pattern(pattern, 1)),
        names: &patterns.map(|pattern| pattern.to_string()),
        trace,
        interrupted: &interrupted,
        progress: &mut progress,
    };
    let pcc = SimPolicy::Tune(PolicyName::Pcc);
    let report = policy(&mut job, &setup(), pcc, None, &mut |_| {}).unwrap().report;
    let [random, stream] = &report.processes[..] else { panic!("{:?}", report.processes) };
    assert_eq!((random.process, stream.process), (0, 1));
    assert_eq!((random.accesses, random.regions), (500_000, 32));
    assert!(random.huge_regions > stream.huge_regions, "{random:?} {stream:?}");
    assert!(random.walks < random.base_walks, "{random:?}");
    let sum = |of: fn(&ProcessRun) -> u64| report.processes.iter().map(of).sum::<u64>();
    assert_eq!(sum(|one| one.base_walks), report.base.counts.walks);
    assert_eq!(sum(|one| one.walks), report.run.counts.walks);
    assert_eq!(sum(|one| one.ideal_walks), report.ideal.counts.walks);
}

/// The pattern touches its pages one after the other. With a budget of all memory, the first ones
/// have huge pages before the last ones are touched.
#[test]
fn a_budget_is_a_share_of_all_memory_if_the_sources_repeat() {
    let linux = SimPolicy::Tune(PolicyName::Linux);
    let budget = Some(Share::percent(50.0));
    let early = |used: bool| {
        with_job("cyclic:128MiB", 100_000, |job| {
            let used = if used { job.used().unwrap() } else { None };
            assert!(used.is_none_or(|used| used == Bytes::mib(128)), "{used:?}");
            let acts = policy(job, &PolicySetup { used, ..setup() }, linux, budget, &mut |_| {});
            let acts = acts.unwrap().acts;
            acts.iter().filter(|act| act.accesses < 10_000).count()
        })
    };
    let (of_all, so_far) = (early(true), early(false));
    assert!(of_all > so_far && so_far > 0, "{of_all} {so_far}");
    let program = TraceSource::Program { command: Vec::new(), engine: Engine::Qemu };
    assert!(!AccessSource::Trace(program).is_repeatable());
}

/// Regions in the order of their promotion in four intervals, by whether they are hot. A quarter of
/// the pages of 24 hot regions is used again and again: more pages than the TLB holds. All pages of
/// eight cold ones are used, once in an interval. Huge pages for all hot ones add more memory than
/// is resident.
fn promoted(setup: &PolicySetup, name: PolicyName) -> Vec<bool> {
    let names = ["main".to_owned()];
    let mut machine = setup.tuned(name, None).unwrap();
    let (mut footprint, mut layout) = (Footprint::new(), Layout::default());
    let range = AddrRange::at(VirtAddr::new(0), Bytes::mib(2 * 32));
    layout.set(0, vec![TraceMapping { range, name: "[anon]".to_owned() }]);
    let pages = |first: u64, last: u64, count: u64| -> Vec<u64> {
        let of = |region: u64| (0..count).map(move |page| region << 21 | page << 12);
        (first..last).flat_map(of).collect()
    };
    let (hot, cold) = (pages(0, 24, 128), pages(24, 32, 512));
    machine.decide(&View { accesses: 0, names: &names, footprint: &footprint, layout: &layout });
    for number in 1..=4 {
        let mut batch = Batch::default();
        footprint.add(0, 0, cold.iter().chain(&hot).copied(), &mut batch);
        machine.run(&batch);
        machine.note_coverage(&footprint);
        footprint.clear_covered();
        batch.clear();
        footprint.add(0, 0, hot.iter().copied().cycle().take(100_000), &mut batch);
        machine.run(&batch);
        let (accesses, footprint, layout) = (number * setup.interval, &footprint, &layout);
        machine.decide(&View { accesses, names: &names, footprint, layout });
    }
    let address = |act: &TunedAct| footprint.regions()[act.region as usize].address();
    machine.acts().iter().map(|act| address(act) < 24 << 21).collect()
}

/// Section 5.1: a region of which a quarter is in use may have most of the walks. The candidate
/// cache knows it, access coverage does not.
#[test]
fn a_hot_quarter_of_a_region_comes_first_by_walks_and_last_by_coverage() {
    let pcc = promoted(&setup(), PolicyName::Pcc);
    assert!(pcc.len() > 24 && pcc.is_sorted_by_key(|is_hot| !is_hot), "{pcc:?}");
    assert_eq!(pcc.iter().filter(|is_hot| **is_hot).count(), 24);
    // All regions are scanned, and eight promoted in an interval.
    let hawkeye = promoted(&setup(), PolicyName::Hawkeye);
    assert_eq!(hawkeye, [[false; 8].as_slice(), &[true; 24]].concat());
}

/// The kernels of the papers have no such limits; `heat` is simulated as it runs live. The paper
/// lets no demoted region rest.
#[test]
fn only_heat_has_the_limits_of_a_live_process() {
    for policy in SimPolicy::all() {
        let SimPolicy::Tune(name) = policy else { continue };
        let goal = setup().goal(name, None).unwrap();
        assert_eq!(goal.limits == Limits::default(), name == PolicyName::Heat, "{name}");
        assert_eq!(goal.max_added.is_some(), name == PolicyName::Heat, "{name}");
        assert_eq!(goal.horizon == Nanos::ZERO, name == PolicyName::Pcc, "{name}");
    }
}

/// Hot regions lack 384 pages. They have the lower addresses, so scans come to them first.
#[test]
fn khugepaged_skips_regions_that_lack_too_many_pages() {
    let with = |max_ptes_none| {
        let khugepaged = KhugepagedRules { max_ptes_none, ..KhugepagedRules::default() };
        promoted(&PolicySetup { khugepaged, ..setup() }, PolicyName::Khugepaged)
    };
    assert_eq!(with(384), [[true; 24].as_slice(), &[false; 8]].concat());
    assert_eq!(with(383), [false; 8]);
}

/// A region has 262,144 words, and comes into use with the first. It is promoted at the next tick.
#[test]
fn linux_decides_at_the_tick_after_the_first_touch() {
    let setup = PolicySetup { interval: 2_000_000, ..setup() };
    let linux = SimPolicy::Tune(PolicyName::Linux);
    let result = with_job("stream:64MiB", 2_000_000, |job| {
        policy(job, &setup, linux, None, &mut |_| {}).unwrap()
    });
    let (region, tick) = (262_144_u64, setup.interval / 120);
    let expected = (0..8).map(|number| (number as u32, (number * region / tick + 1) * tick));
    let acts = result.acts.iter().map(|act| (act.region, act.accesses));
    assert_eq!(acts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// At the paper's proportions, HawkEye scans and promotes 0.16 % of the regions in an interval: one
/// of 128 in five. It comes late to a hot eighth, which the candidate cache finds at once.
#[test]
fn hawkeye_is_late_at_its_pace() {
    let hawkeye = HawkeyeRules { pace: Some(HawkeyeRules::PACE), ..HawkeyeRules::default() };
    let coverage = Coverage::PAPER;
    let setup = PolicySetup { hawkeye, coverage, interval: 12_000, ..setup() };
    let acts = |name| {
        let result = with_job("skewed:256MiB", 600_000, |job| {
            policy(job, &setup, SimPolicy::Tune(name), None, &mut |_| {}).unwrap()
        });
        (result.acts.len(), result.report.run.walks_avoided_ratio)
    };
    let (hawkeye, late) = acts(PolicyName::Hawkeye);
    // 50 intervals of 128 regions: 0.2 of a region in each.
    assert!((5..=10).contains(&hawkeye), "{hawkeye}");
    let (pcc, early) = acts(PolicyName::Pcc);
    assert!(pcc > 100 && late < early / 2.0, "{pcc} {early} {late}");
}

/// The paper's demotion returns promoted memory that still walks much. Here the TLB holds the
/// promoted regions, so that none does, of programs with a hot set, a uniform one, and one that
/// moves on.
#[test]
fn demotion_leaves_regions_that_walk_no_more() {
    let run = |pattern: &str, interval, demote| {
        let pcc = PccRules { demote, ..PccRules::default() };
        let candidates = CandidateRules { counts_promoted: demote, ..CandidateRules::PAPER };
        let budget = Some(Share::percent(25.0));
        let setup = PolicySetup { pcc, candidates, interval, ..setup() };
        let name = SimPolicy::Tune(PolicyName::Pcc);
        let result = with_job(pattern, 500_000, |job| {
            let used = job.used().unwrap();
            policy(job, &PolicySetup { used, ..setup }, name, budget, &mut |_| {}).unwrap()
        });
        let run = result.report.run;
        (run.promotions, run.demotions, run.walks_avoided_ratio)
    };
    for pattern in ["skewed:256MiB", "random:256MiB", "gather:128MiB", "cyclic:128MiB"] {
        for interval in [12_000, 50_000] {
            let [none, with] = [false, true].map(|demote| run(pattern, interval, demote));
            assert!(with.0 > 0 && with.1 == 0, "{pattern} {interval}: {with:?}");
            assert_eq!(with, none, "{pattern} {interval}");
        }
    }
}
