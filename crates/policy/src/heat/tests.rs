//! Tests of the policy `heat`.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{Headroom, Mapping, MappingKind, RegionPages, SkipReason as Skip, VmFlags};
use hugepilot_units::{AddrRange, PageSizes, Region, VirtAddr};
use proptest::prelude::*;

use super::*;

const SIZES: PageSizes = PageSizes::X86_64;

fn mapping(first: u64, regions: u64) -> Mapping {
    let start = VirtAddr::new(first << 21);
    Mapping::anonymous(AddrRange::at(start, SIZES.huge.times(regions)))
}

fn heat(region: u64, samples: u32) -> RegionHeat {
    RegionHeat {
        region: Region::new(region),
        samples,
        streamed: 0,
        tlb_held: 0,
        sampled_pages: samples.min(512),
    }
}

/// Returns regions 10..10+n, fully resident; region i has the i-th heat.
fn snapshot(heats: &[u32]) -> Snapshot {
    let count = heats.len() as u64;
    let regions = (0..count).map(|i| Region::new(10 + i));
    Snapshot {
        sizes: SIZES,
        mappings: vec![mapping(10, count)],
        heat: heats.iter().zip(10..).map(|(&samples, region)| heat(region, samples)).collect(),
        stacks: BTreeSet::new(),
        pages: regions
            .map(|region| {
                (region, RegionPages { region, resident: 512, swapped: 0, huge: false, shared: 0 })
            })
            .collect(),
        thp_disabled: false,
        headroom: Headroom {
            cgroup: Bytes::MAX,
            cgroup_limit: Bytes::MAX,
            system: Bytes::gib(8),
            system_total: Bytes::gib(16),
        },
    }
}

fn plan(state: &Snapshot, pages: u64) -> Plan {
    HeatPolicy::new(1000).plan(state, Budget { huge: SIZES.huge.times(pages), regions: usize::MAX })
}

fn picked(plan: &Plan) -> Vec<u64> {
    plan.picks.iter().map(|pick| pick.region.get()).collect()
}

#[test]
fn hottest_first_within_the_budget() {
    let plan = plan(&snapshot(&[5, 90, 20, 1, 40]), 3);
    assert_eq!(picked(&plan), [11, 14, 12]);
    assert_eq!(plan.picks[0].heat_ratio, 0.09);
    assert_eq!(plan.skipped, BTreeMap::from([(Skip::OverBudget, 1), (Skip::TooCold, 1)]));
    assert_eq!(plan.eligible, 4);
}

#[test]
fn every_reason_to_skip_a_region_is_reported() {
    type Change = fn(&mut Snapshot);
    let cases: Vec<(Skip, Change)> = vec![
        (Skip::AlreadyHuge, |s| s.pages.values_mut().for_each(|p| p.huge = true)),
        (Skip::SharedAfterFork, |s| s.pages.values_mut().for_each(|p| p.shared = 1)),
        (Skip::MostlySwapped, |s| {
            s.pages.values_mut().for_each(|p| (p.swapped, p.resident) = (200, 312))
        }),
        (Skip::TooFewResident, |s| s.pages.values_mut().for_each(|p| p.resident = 255)),
        (Skip::Stack, |s| s.mappings[0].kind = MappingKind::Stack),
        (Skip::Stack, |s| s.stacks = s.pages.keys().copied().collect()),
        (Skip::Nohugepage, |s| s.mappings[0].flags = VmFlags::parse("rd wr nh")),
        (Skip::Mlocked, |s| s.mappings[0].flags = VmFlags::parse("rd wr lo")),
        (Skip::Userfaultfd, |s| s.mappings[0].flags = VmFlags::parse("rd wr um")),
        (Skip::FileOrShared, |s| s.mappings[0].kind = MappingKind::File),
        (Skip::FileOrShared, |s| s.mappings[0].kind = MappingKind::SharedMemory),
        (Skip::Special, |s| s.mappings[0].kind = MappingKind::Hugetlb),
        (Skip::Special, |s| s.pages.clear()),
        (Skip::ThpDisabled, |s| s.thp_disabled = true),
        (Skip::Unaligned, |s| s.mappings.clear()),
        (Skip::Unaligned, |s| s.mappings[0].range.start = VirtAddr::new((10 << 21) + 4096)),
        (Skip::Streamed, |s| s.heat[0].streamed = 30),
        (Skip::TlbFriendly, |s| s.heat[0].tlb_held = 30),
        (Skip::TooCold, |s| s.heat[0].samples = 1),
        (Skip::SystemHeadroom, |s| s.headroom.system = Bytes::mib(100)),
        (Skip::CgroupHeadroom, |s| {
            (s.headroom.cgroup, s.headroom.cgroup_limit) = (Bytes::mib(9), Bytes::mib(12));
        }),
    ];
    assert_eq!(picked(&plan(&snapshot(&[50]), 9)), [10], "the unchanged snapshot is picked");
    for (reason, change) in cases {
        let mut state = snapshot(&[50]);
        change(&mut state);
        assert_eq!(plan(&state, 9).skipped, BTreeMap::from([(reason, 1)]), "{reason}");
        assert!(plan(&state, 9).picks.is_empty(), "{reason}");
    }
}

#[test]
fn one_sample_is_enough_for_a_program_with_hot_memory() {
    let state = snapshot(&[1, 50]);
    assert_eq!(picked(&plan(&state, 9)), [11]);
    let budget = Budget { huge: SIZES.huge.times(9), regions: usize::MAX };
    let proven = HeatPolicy { proven: true, ..HeatPolicy::new(1000) };
    assert_eq!(picked(&proven.plan(&state, budget)), [11, 10]);
}

#[test]
fn pages_that_were_not_resident_are_added_memory() {
    let mut state = snapshot(&[50]);
    state.pages.values_mut().for_each(|pages| pages.resident = 300);
    assert_eq!(plan(&state, 9).picks[0].added, SIZES.base.times(212));
}

#[test]
fn a_tight_cgroup_is_filled_only_to_its_reserve() {
    let mut state = snapshot(&[50; 40]);
    state.pages.values_mut().for_each(|pages| pages.resident = 256);
    // 30 of 64 MiB are free. 8 stay reserved, a collapse needs 2; each promotion adds 1 MiB.
    (state.headroom.cgroup, state.headroom.cgroup_limit) = (Bytes::mib(30), Bytes::mib(64));
    assert_eq!(plan(&state, 40).picks.len(), 20);
}

proptest! {
    #[test]
    fn a_plan_keeps_its_budget_and_is_pure(
        heats in prop::collection::vec(0_u32..100, 1..60), pages in 0_u64..80, max in 0_usize..80,
    ) {
        let state = snapshot(&heats);
        let budget = Budget { huge: SIZES.huge.times(pages), regions: max };
        let policy = HeatPolicy::new(1000);
        let plan = policy.plan(&state, budget);
        prop_assert!(plan.picks.len() as u64 <= pages && plan.picks.len() <= max);
        prop_assert!(plan.picks.is_sorted_by(|a, b| a.heat_ratio >= b.heat_ratio));
        let skipped = plan.skipped.values().sum::<u64>();
        prop_assert_eq!(plan.picks.len() as u64 + skipped, heats.len() as u64);
        // No region that the budget excluded is hotter than a selected one.
        let coldest = plan.picks.iter().map(|p| p.heat_ratio).fold(f64::INFINITY, f64::min);
        let hotter = heats.iter().filter(|&&h| f64::from(h) / 1000.0 > coldest).count();
        prop_assert!(hotter <= plan.picks.len());
        prop_assert_eq!(policy.plan(&state, budget), plan);
    }
}

#[test]
fn two_samples_on_one_page_are_not_a_hot_region() {
    let mut state = snapshot(&[2, 2, 3]);
    state.heat[0].sampled_pages = 1;
    state.heat[2].sampled_pages = 1;
    let plan = HeatPolicy::new(100).plan(&state, Budget { huge: Bytes::gib(1), regions: 9 });
    assert_eq!(plan.picks.iter().map(|pick| pick.region.get()).collect::<Vec<_>>(), [12, 11]);
    assert_eq!(plan.skipped, [(Skip::TooCold, 1)].into());
}

#[test]
fn a_stream_is_reported_as_one_even_if_its_pages_are_unknown() {
    let mut state = snapshot(&[50]);
    state.heat[0].streamed = 50;
    state.pages.clear();
    let plan = HeatPolicy::new(100).plan(&state, Budget { huge: Bytes::gib(1), regions: 9 });
    assert_eq!(plan.skipped, [(Skip::Streamed, 1)].into());
}
