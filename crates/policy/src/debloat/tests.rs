//! Tests of the orders and of fairness.

use std::collections::BTreeMap;

use hugepilot_record::{BloatedPage, Census, Pid, ProcessId, SkipReason, Skips, SplitPlan};
use hugepilot_units::{Bytes, Nanos, PageSizes, Region, Share};
use proptest::prelude::*;

use super::*;
use crate::daemon::{History, key_of};

mod journal;

/// Returns a process whose huge pages have these bloat densities, in address order.
fn census(zero_pages: &[u32]) -> Census {
    let pages = zero_pages.iter().enumerate().filter(|&(_, &zero_pages)| zero_pages > 0);
    Census {
        process: ProcessId { pid: Pid(1), start_ticks: 1, command: "x".into() },
        sizes: PageSizes::X86_64,
        bloated: pages
            .map(|(i, &zero_pages)| BloatedPage {
                region: Region::new(i as u64 + 1),
                zero_pages,
                first_zero_page: 0,
                table_lines: 64,
            })
            .collect(),
        huge_pages: zero_pages.len() as u64,
        read_pages: zero_pages.len() as u64,
        unread_pages: 0,
        stranded: None,
        skipped: Skips::new(),
        took: Nanos::ZERO,
    }
}

const fn view(census: &Census) -> DebloatView<'_> {
    DebloatView { census, stalls: None, priority: Priority::Normal, weight: 1.0, past: None }
}

/// Returns `A1 B1 …`: a letter for the process, the index of the region.
fn names(plan: &SplitPlan) -> String {
    let name =
        |split: &Split| format!("{}{}", (b'A' + split.process as u8) as char, split.region.get());
    plan.splits.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn plan(policy: DebloatPolicy, views: &[DebloatView<'_>]) -> String {
    names(&policy.plan(views, Nanos::ZERO))
}

/// Returns the three processes of Figure 5 of the EMD paper; section 4.3 has the sequence.
fn figure_5() -> [Census; 3] {
    [census(&[470, 370, 220, 60]), census(&[455, 355, 390, 210]), census(&[512, 360, 350])]
}

#[test]
fn emd_gives_the_sequence_of_figure_5() {
    let [a, b, c] = figure_5();
    let views = [view(&a), view(&b), view(&c)];
    let emd = DebloatPolicy::new(Order::EMD);
    assert_eq!(plan(emd, &views), "A1 B1 C1 A2 B2 B3 C2 C3 A3 B4 A4");
}

#[test]
fn the_quantum_is_the_number_in_a_row() {
    let (a, b) = (census(&[500; 5]), census(&[500; 3]));
    let emd = DebloatPolicy { quantum: 2, ..DebloatPolicy::new(Order::EMD) };
    assert_eq!(plan(emd, &[view(&a), view(&b)]), "A1 A2 B1 B2 A3 A4 B3 A5");
    let zero = DebloatPolicy { quantum: 0, ..emd };
    assert_eq!(
        plan(zero, &[view(&a), view(&b)]),
        "A1 B1 A2 B2 A3 B3 A4 A5",
        "a quantum of 0 is one"
    );
}

#[test]
fn stranded_memory_comes_first_but_not_of_protected_processes() {
    let [mut a, mut b, mut c] = [census(&[500]), census(&[500]), census(&[500])];
    let page = |region: u64| Region::new(region).range(PageSizes::X86_64).start;
    for (census, region) in [(&mut a, 7), (&mut b, 8), (&mut c, 9)] {
        census.stranded = Some(vec![Stranded { page: page(region), bytes: Bytes::mib(1) }]);
    }
    let with = |census, priority| DebloatView { priority, ..view(census) };
    let views = [view(&a), with(&b, Priority::Preferred), with(&c, Priority::Protected)];
    assert_eq!(plan(DebloatPolicy::new(Order::Exact), &views), "B8 A7 B1 A1");
}

#[test]
fn hawkeye_goes_by_address_and_process() {
    let [a, b, c] = figure_5();
    let views = [view(&a), view(&b), view(&c)];
    let order = plan(DebloatPolicy::new(Order::Hawkeye), &views);
    assert_eq!(order, "A1 A2 A3 A4 B1 B2 B3 B4 C1 C2 C3");
}

#[test]
fn exact_goes_by_density_across_processes() {
    let [a, b, c] = figure_5();
    let views = [view(&a), view(&b), view(&c)];
    // 512 470 455 390 370 360 355 350 220 210 60
    let order = plan(DebloatPolicy::new(Order::Exact), &views);
    assert_eq!(order, "C1 A1 B1 B3 A2 C2 B2 C3 A3 B4 A4");
}

/// The paper's buckets: 0–49, 50–99, …, from 450 on the last (section 4.2, Figure 6).
#[test]
fn emds_buckets_are_the_papers() {
    let bucket = |zero_pages| Order::EMD.class(zero_pages, 512);
    assert_eq!([1, 49, 50, 99, 100, 449, 450, 512].map(bucket), [0, 0, 1, 1, 2, 8, 9, 9]);
    let many = Order::Emd { buckets: 100_000 };
    assert_eq!(many.class(512, 512), 512, "not finer than a page");
    assert_eq!(Order::Emd { buckets: 0 }.class(512, 512), 0);
}

/// Plans four huge pages of the first density and four of the second, with these stalls on each.
fn heat_of(densities: [u32; 2], stalls: [u32; 2]) -> String {
    let a = census(&densities.map(|density| [density; 4]).concat());
    let stalls: BTreeMap<_, _> =
        (1..=8).map(|region| (Region::new(region), stalls[usize::from(region > 4)])).collect();
    plan(DebloatPolicy::new(Order::Heat), &[DebloatView { stalls: Some(&stalls), ..view(&a) }])
}

#[test]
fn heat_splits_cold_pages_that_free_much() {
    let (densest_first, coldest_first) = ("A1 A2 A3 A4 A5 A6 A7 A8", "A5 A6 A7 A8 A1 A2 A3 A4");
    // The first are the hottest, and free hardly more.
    assert_eq!(heat_of([300, 250], [97, 3]), coldest_first);
    // They free four times as much for three times the cost, measured with nine times the stalls.
    assert_eq!(heat_of([410, 102], [90, 10]), densest_first);
    assert_eq!(heat_of([300, 250], [5, 5]), densest_first);
}

#[test]
fn a_process_without_samples_beside_sampled_ones_is_cold() {
    let (a, b) = (census(&[300, 300]), census(&[250, 250]));
    let hot: BTreeMap<_, _> = (1..=2).map(|region| (Region::new(region), 50)).collect();
    let views = [DebloatView { stalls: Some(&hot), ..view(&a) }, view(&b)];
    let cold = BTreeMap::new();
    let with_samples = [views[0], DebloatView { stalls: Some(&cold), ..views[1] }];
    let heat = DebloatPolicy::new(Order::Heat);
    assert_eq!(plan(heat, &views), "B1 B2 A1 A2");
    assert_eq!(heat.plan(&views, Nanos::ZERO), heat.plan(&with_samples, Nanos::ZERO));
}

#[test]
fn heat_without_samples_is_exact() {
    let [a, b, c] = figure_5();
    let views = [view(&a), view(&b), view(&c)];
    let heat = DebloatPolicy::new(Order::Heat).plan(&views, Nanos::ZERO);
    assert!(heat.splits.iter().all(|split| split.stalls == 0.0), "a guess is not reported");
    assert_eq!(heat.splits, DebloatPolicy::new(Order::Exact).plan(&views, Nanos::ZERO).splits);
}

/// Counts that differ by chance must not decide.
#[test]
fn heat_splits_equal_processes_equally() {
    let same = census(&[[410; 100], [102; 100]].concat());
    let samples = |process: u32| -> BTreeMap<Region, u32> {
        (1..=200).map(|n| (Region::new(n), (8 + process) * if n > 100 { 4 } else { 1 })).collect()
    };
    let stalls: Vec<_> = [0, 1, 2, 3].map(samples).into();
    let views: Vec<_> =
        stalls.iter().map(|stalls| DebloatView { stalls: Some(stalls), ..view(&same) }).collect();
    let splits = DebloatPolicy::new(Order::Heat).plan(&views, Nanos::ZERO).splits;
    for upto in [64, 200, 390] {
        let split_of =
            |process| splits[..upto].iter().filter(|split| split.process == process).count();
        let counts: Vec<_> = (0..4).map(split_of).collect();
        assert!(
            counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 8,
            "{upto}: {counts:?}"
        );
    }
}

#[test]
fn huge_pages_with_little_bloat_are_skipped() {
    let a = census(&[25, 26, 512]);
    let split_plan = DebloatPolicy::new(Order::Exact).plan(&[view(&a)], Nanos::ZERO);
    assert_eq!(names(&split_plan), "A3 A2");
    assert_eq!(split_plan.skipped[&SkipReason::LittleBloat], 1);
    let all = DebloatPolicy { min_bloat: Share::percent(0.0), ..DebloatPolicy::new(Order::Exact) };
    assert_eq!(plan(all, &[view(&a)]), "A3 A2 A1");
}

#[test]
fn protected_processes_are_skipped_and_preferred_ones_come_first() {
    let (a, b, c) = (census(&[512, 512]), census(&[100]), census(&[300]));
    let b = DebloatView { priority: Priority::Preferred, ..view(&b) };
    let protected = DebloatView { priority: Priority::Protected, ..view(&a) };
    let split_plan = DebloatPolicy::new(Order::EMD).plan(&[protected, b, view(&c)], Nanos::ZERO);
    assert_eq!(names(&split_plan), "B1 C1");
    assert_eq!(split_plan.skipped[&SkipReason::Protected], 2);
}

#[test]
fn shares_by_bloat_and_by_weight_hold_for_every_prefix() {
    let (a, b) = (census(&[400; 30]), census(&[400; 10]));
    let by_bloat = DebloatPolicy { fairness: Fairness::Bloat, ..DebloatPolicy::new(Order::Exact) };
    let first: String =
        plan(by_bloat, &[view(&a), view(&b)]).replace(|c: char| c.is_ascii_digit(), "");
    // Three of A for one of B, throughout.
    for (index, window) in first.split(' ').collect::<Vec<_>>().chunks(4).enumerate() {
        assert_eq!(window.iter().filter(|&&name| name == "A").count(), 3, "after {}", index * 4);
    }
    let by_weight = DebloatPolicy { fairness: Fairness::Weight, ..by_bloat };
    let heavy = DebloatView { weight: 4.0, ..view(&b) };
    let order = by_weight.plan(&[view(&a), heavy], Nanos::ZERO);
    let of_b = order.splits[..10].iter().filter(|split| split.process == 1).count();
    assert_eq!(of_b, 8);
}

/// Returns the fewest splits that free `wanted` pages, by brute force over all subsets.
fn fewest(densities: &[u32], wanted: u32) -> usize {
    let subsets = (0_u32..1 << densities.len()).filter(|subset| {
        let freed: u32 =
            (0..densities.len()).filter(|i| subset >> i & 1 == 1).map(|i| densities[i]).sum();
        freed >= wanted
    });
    subsets.map(u32::count_ones).min().unwrap() as usize
}

#[test]
fn a_region_that_was_changed_rests() {
    let one = census(&[400, 300]);
    let rules = CoolDown { time: Nanos::seconds(10), max_recollapses: 3 };
    let mut history = History::default();
    history.note_promoted(key_of(&one.process), Region::new(1), Nanos::seconds(5));
    let past = history.past_of(&one);
    let policy = DebloatPolicy { cool_down: Some(rules), ..DebloatPolicy::new(Order::Exact) };
    let view = DebloatView { past: Some(&past), ..view(&one) };
    let at = |second| policy.plan(&[view], Nanos::seconds(second));
    assert_eq!((names(&at(14)), names(&at(15))), ("A2".to_owned(), "A1 A2".to_owned()));
    assert_eq!(at(14).skipped, BTreeMap::from([(SkipReason::CoolingDown, 1)]));
}

proptest! {
    /// Every order plans each candidate once, with all parameters.
    #[test]
    fn every_candidate_is_planned_once(
        densities in prop::collection::vec(prop::collection::vec(0_u32..=512, 0..40), 1..5),
        quantum in 0_usize..10,
        which in 0_usize..4,
        fair in 0_usize..4,
    ) {
        let order = [Order::Hawkeye, Order::EMD, Order::Exact, Order::Heat][which];
        let fairness =
            [Fairness::Off, Fairness::RoundRobin, Fairness::Bloat, Fairness::Weight][fair];
        let all: Vec<Census> = densities.iter().map(|zeros| census(zeros)).collect();
        let views: Vec<_> = all.iter().map(view).collect();
        let min_bloat = Share::percent(0.0);
        let policy = DebloatPolicy { quantum, fairness, min_bloat, ..DebloatPolicy::new(order) };
        let splits = policy.plan(&views, Nanos::ZERO).splits;
        let mut planned: Vec<_> = splits.iter().map(|s| (s.process, s.region)).collect();
        planned.sort_unstable();
        let regions = |(process, census): (usize, &Census)| -> Vec<(usize, Region)> {
            census.bloated.iter().map(|page| (process, page.region)).collect()
        };
        let expected: Vec<_> = all.iter().enumerate().flat_map(regions).collect();
        prop_assert_eq!(planned, expected);
    }

    /// Density order needs the fewest possible splits to free any amount.
    #[test]
    fn exact_splits_the_fewest(
        densities in prop::collection::vec(1_u32..=512, 1..10),
        part in 0.0..1.0_f64,
    ) {
        let one = census(&densities);
        let min_bloat = Share::percent(0.0);
        let policy = DebloatPolicy { min_bloat, ..DebloatPolicy::new(Order::Exact) };
        let wanted = Share::ratio(part).of(one.bloat());
        let pages = u32::try_from(wanted.get().div_ceil(4096)).unwrap();
        let enough = policy.plan(&[view(&one)], Nanos::ZERO).enough_for(wanted);
        prop_assert_eq!(enough, fewest(&densities, pages));
    }

    /// Equal processes never differ by more than one quantum in a class.
    #[test]
    fn round_robin_is_fair(
        pages in 1_usize..60,
        quantum in 1_usize..12,
        processes in 2_usize..5,
        stop in 0_usize..200,
    ) {
        let same = census(&vec![300; pages]);
        let views = vec![view(&same); processes];
        let policy = DebloatPolicy { quantum, ..DebloatPolicy::new(Order::EMD) };
        let splits = policy.plan(&views, Nanos::ZERO).splits;
        let split_of =
            |process| splits.iter().take(stop).filter(|split| split.process == process).count();
        let counts: Vec<_> = (0..processes).map(split_of).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= quantum);
    }
}
