//! Rules that decide about single regions.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{
    Act, ActOutcome, Headroom, Mapping, MappingKind, Next, Pid, Pressure, ProcessDecision,
    ProcessId, ProcessMemory, ProcessSnapshot, Promotion, RegionHeat, RegionPages,
    SkipReason as Skip, Snapshot, VmFlags, Window,
};
use hugepilot_reports::tune::{NoTrial, TrialVerdict};
use hugepilot_units::{AddrRange, Amount, Bytes, Nanos, PageSizes, Region, Share, VirtAddr};
use proptest::prelude::*;

use super::super::{State, TrialResult, TuneGoal, TunePhase};
use crate::trial::{Estimate, StallShares};
use crate::{Calibration, CalibrationPoint};

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
fn memory(heats: &[u32]) -> ProcessMemory {
    let count = heats.len() as u64;
    let regions = (0..count).map(|i| Region::new(10 + i));
    ProcessMemory {
        time: Nanos::seconds(3),
        sizes: SIZES,
        mappings: vec![mapping(10, count)],
        heat: heats.iter().zip(10..).map(|(&samples, region)| heat(region, samples)).collect(),
        stacks: BTreeSet::new(),
        pages: regions.map(|region| (region, RegionPages::on_base_pages(region, 512))).collect(),
        thp_disabled: false,
        untouched: Bytes::ZERO,
        headroom: Headroom {
            cgroup: Bytes::MAX,
            cgroup_limit: Bytes::MAX,
            system: Bytes::gib(8),
            system_total: Bytes::gib(16),
            free_huge: Bytes::MAX,
        },
        pressure: Pressure::default(),
    }
}

fn id() -> ProcessId {
    ProcessId { pid: Pid(1), start_ticks: 1, command: String::new() }
}

/// Snapshot of the process at the end of `window`.
fn snapshot(window: Window, memory: &ProcessMemory) -> Snapshot {
    let time = window.until;
    let process = ProcessSnapshot { id: id(), window, memory: memory.clone() };
    Snapshot { time, processes: vec![process], interrupted: false }
}

/// Decides by the model, with 1000 samples in 3 s.
fn decide(memory: &ProcessMemory, stalls: &[u32], budget: Bytes) -> ProcessDecision {
    decide_after(&State::default(), TuneGoal::default().horizon, memory, stalls, budget)
}

/// The same with a past.
fn decide_after(
    past: &State,
    horizon: Nanos,
    memory: &ProcessMemory,
    stalls: &[u32],
    budget: Bytes,
) -> ProcessDecision {
    let goal = TuneGoal {
        model_only: true,
        budget: Some(Amount::Bytes(budget)),
        max_added: None,
        horizon,
        min_gain: Share::percent(1.0),
        ..TuneGoal::default()
    };
    decide_by(&goal, past, memory, stalls)
}

/// The same for a goal.
fn decide_by(
    goal: &TuneGoal,
    past: &State,
    memory: &ProcessMemory,
    stalls: &[u32],
) -> ProcessDecision {
    let window = Window {
        until: Nanos::seconds(3),
        cpu: Some(Nanos::seconds(3)),
        samples: 1000,
        stalls: (10..).map(Region::new).zip(stalls.iter().copied().filter(|&n| n > 0)).collect(),
        ..Window::default()
    };
    goal.decide(&snapshot(window, memory), past).processes.remove(0)
}

#[test]
fn only_promoted_regions_that_still_are_huge_count_for_the_budget() {
    let (mut past, mut memory) = (State::default(), memory(&[0; 6]));
    for region in [10, 11].map(Region::new) {
        let act = Act { region, took: Nanos::millis(1), calls: 1, outcome: ActOutcome::Verified };
        past.of_mut(&id()).note(
            &act,
            &adding(Bytes::ZERO, Bytes::ZERO),
            SIZES.huge,
            Nanos::seconds(1),
        );
    }
    let mut made = |change: &dyn Fn(&mut ProcessMemory)| {
        change(&mut memory);
        let seen = snapshot(Window::starting(Nanos::seconds(3)), &memory);
        let state = TuneGoal::default().decide(&seen, &past).state;
        state.of(&id()).unwrap().made.get() / SIZES.huge.get()
    };
    let set = |memory: &mut ProcessMemory, region, huge| {
        memory.pages.get_mut(&Region::new(region)).unwrap().huge = huge;
    };
    let all_huge = |memory: &mut ProcessMemory| {
        [10, 11, 15].into_iter().for_each(|region| set(memory, region, true));
    };
    assert_eq!(made(&all_huge), 2, "15 is of the program");
    assert_eq!(made(&|memory| set(memory, 15, false)), 2);
    assert_eq!(made(&|memory| set(memory, 10, false)), 1, "lost");
    assert_eq!(made(&|memory| memory.pages.clear()), 2, "not read");
    assert_eq!(made(&|memory| memory.mappings.clear()), 0, "unmapped");
}

#[test]
fn without_the_clock_there_is_no_trial() {
    let stalls = (10..110).map(|region| (Region::new(region), 10)).collect();
    let until = Nanos::seconds(3);
    for (cpu, expected) in [(None, Some(NoTrial::NoClock)), (Some(until), None)] {
        let window = Window {
            until,
            cpu,
            samples: 1000,
            stalls: BTreeMap::clone(&stalls),
            ..Window::default()
        };
        let seen = snapshot(window, &memory(&[10; 100]));
        let state = TuneGoal::default().decide(&seen, &State::default()).state;
        let state = state.of(&id()).unwrap();
        assert_eq!(state.no_trial, expected);
        assert_eq!(matches!(state.phase, TunePhase::Trial { .. }), expected.is_none());
    }
}

#[test]
fn the_first_window_ends_with_enough_samples_or_after_its_longest_time() {
    let goal = TuneGoal::default();
    let next = |millis: u64, samples: u64| {
        let until = Nanos::millis(millis);
        let window = Window { until, samples, unknown: 10, ..Window::default() };
        let decision = goal.decide(&snapshot(window, &memory(&[0])), &State::default());
        let phases: Vec<&TunePhase> =
            decision.state.processes().map(|state| &state.phase).collect();
        match (&phases[..], decision.processes[0].next) {
            ([TunePhase::Observing], Next::Observe(time)) => Some(time),
            _ => None,
        }
    };
    assert_eq!(next(1000, 1000), Some(Nanos::seconds(2)), "an early look");
    assert_eq!(next(3000, 310), Some(Nanos::seconds(1)), "100 a second: 400 after 4 s");
    assert_eq!(next(3000, 409), Some(goal.settle), "nearly enough");
    assert_eq!(next(3000, 20), Some(Nanos::seconds(2)), "5 s at most");
    assert_eq!(next(4900, 20), Some(Nanos::millis(100)));
    assert_eq!(next(5000, 20), None);
    assert_eq!(next(3000, 410), None, "enough");
    assert_eq!(next(3000, 10), None, "no sample has an address");
}

fn regions(decision: &ProcessDecision) -> Vec<u64> {
    decision.promote.iter().map(|promotion| promotion.region.get()).collect()
}

#[test]
fn hottest_first_within_the_budget() {
    let stalls = [5, 90, 20, 1, 40];
    let decision = decide(&memory(&stalls), &stalls, SIZES.huge.times(3));
    assert_eq!(regions(&decision), [11, 14, 12]);
    assert!(decision.promote.is_sorted_by(|a, b| a.heat_ratio >= b.heat_ratio));
    assert_eq!(decision.skipped, BTreeMap::from([(Skip::OverBudget, 2)]));
    assert_eq!(decision.skipped_stalls, BTreeMap::from([(Skip::OverBudget, 6)]));
    assert_eq!(decision.eligible, 5);
}

#[test]
fn regions_that_a_limit_keeps_from_paying_are_skipped_because_of_it() {
    let point = |hot| CalibrationPoint { hot, chase_ratio: 0.5, gather_ratio: 0.5 };
    let calibration = Calibration(vec![point(Bytes::mib(4)), point(Bytes::gib(1))]);
    let skipped = |budget: u64, stalls: &[u32]| {
        let budget = Some(Amount::Bytes(SIZES.huge.times(budget)));
        let calibration = calibration.clone();
        let min_gain = Share::percent(1.0);
        let goal = TuneGoal { budget, calibration, min_gain, ..TuneGoal::default() };
        decide_by(&goal, &State::default(), &memory(stalls), stalls).skipped
    };
    assert_eq!(skipped(0, &[90; 5]), BTreeMap::from([(Skip::OverBudget, 5)]));
    let both = BTreeMap::from([(Skip::TooCold, 2), (Skip::OverBudget, 3)]);
    assert_eq!(skipped(2, &[12; 5]), both, "two would gain less than 1 %");
    assert_eq!(skipped(0, &[1; 5]), BTreeMap::from([(Skip::TooCold, 5)]), "all gain nothing");
}

#[test]
fn every_reason_to_skip_a_region_is_reported() {
    type Change = fn(&mut ProcessMemory);
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
        (Skip::File, |s| s.mappings[0].kind = MappingKind::File),
        (Skip::SharedMemory, |s| s.mappings[0].kind = MappingKind::SharedMemory),
        (Skip::Special, |s| s.mappings[0].kind = MappingKind::Hugetlb),
        (Skip::Special, |s| s.pages.clear()),
        (Skip::ThpDisabled, |s| s.thp_disabled = true),
        (Skip::Unaligned, |s| s.mappings.clear()),
        (Skip::Unaligned, |s| s.mappings[0].range.start = VirtAddr::new((10 << 21) + 4096)),
        (Skip::Streamed, |s| s.heat[0].streamed = 30),
        (Skip::TlbFriendly, |s| s.heat[0].tlb_held = 30),
        (Skip::SystemHeadroom, |s| s.headroom.system = Bytes::mib(100)),
        (Skip::MemoryPressure, |s| s.pressure.some_avg10 = 10.1),
        (Skip::MemoryPressure, |s| s.pressure.full_avg10 = 2.1),
        (Skip::CgroupHeadroom, |s| {
            (s.headroom.cgroup, s.headroom.cgroup_limit) = (Bytes::mib(9), Bytes::mib(12));
        }),
    ];
    let budget = SIZES.huge.times(9);
    assert_eq!(regions(&decide(&memory(&[50]), &[50], budget)), [10], "unchanged");
    let pressure = Pressure { some_avg10: 10.0, full_avg10: 2.0 };
    let pressed = ProcessMemory { pressure, ..memory(&[50]) };
    assert_eq!(regions(&decide(&pressed, &[50], budget)), [10], "as much as is allowed");
    for (reason, change) in cases {
        let mut memory = memory(&[50]);
        change(&mut memory);
        let decision = decide(&memory, &[50], budget);
        assert_eq!(decision.skipped, BTreeMap::from([(reason, 1)]), "{reason}");
        assert_eq!(decision.skipped_stalls, BTreeMap::from([(reason, 50)]), "{reason}");
        assert!(decision.promote.is_empty(), "{reason}");
    }
}

#[test]
fn pages_that_were_not_resident_are_added_memory() {
    let mut memory = memory(&[50]);
    memory.pages.values_mut().for_each(|pages| pages.resident = 300);
    assert_eq!(decide(&memory, &[50], Bytes::MAX).promote[0].added, SIZES.base.times(212));
}

/// A promotion that adds `added` bytes, of which `lazily_freed` were lazily freed.
fn adding(added: Bytes, lazily_freed: Bytes) -> Promotion {
    let (region, mapping) = (Region::new(10), String::new());
    Promotion { region, heat_ratio: 0.0, sampled_pages: 0, added, lazily_freed, mapping }
}

#[test]
fn lazily_freed_pages_are_added_memory_within_the_limit_only() {
    let mut memory = memory(&[50; 4]);
    let freed = [0, 5, 100, 300];
    for (pages, freed) in memory.pages.values_mut().zip(freed) {
        pages.lazily_freed = freed;
    }
    // 8 MiB are resident, and 25 % of that are 512 base pages.
    for (share, promoted, skipped) in [(0.0, 1, 3), (1.0, 2, 2), (25.0, 3, 1), (100.0, 3, 1)] {
        let max_added = Some(Share::percent(share));
        let goal = TuneGoal { model_only: true, max_added, ..TuneGoal::default() };
        let decision = decide_by(&goal, &State::default(), &memory, &[50; 4]);
        assert_eq!(decision.promote.len(), promoted, "{share}");
        assert_eq!(decision.skipped, [(Skip::LazilyFreed, skipped)].into(), "{share}");
        let freed = decision.promote.iter().map(|one| one.lazily_freed).sum::<Bytes>();
        assert_eq!(decision.promote.iter().map(|one| one.added).sum::<Bytes>(), freed);
    }
}

#[test]
fn a_tight_cgroup_is_filled_only_to_its_reserve() {
    let mut memory = memory(&[20; 40]);
    memory.pages.values_mut().for_each(|pages| pages.resident = 256);
    // 30 of 64 MiB are free. 8 stay reserved, a collapse needs 2; each promotion adds 1 MiB.
    (memory.headroom.cgroup, memory.headroom.cgroup_limit) = (Bytes::mib(30), Bytes::mib(64));
    assert_eq!(decide(&memory, &[20; 40], Bytes::MAX).promote.len(), 20);
}

/// 30 of 64 MiB are free. 8 stay reserved, and a collapse needs 2.
#[test]
fn what_a_process_may_still_grow_by_is_no_memory_to_add() {
    let mut memory = memory(&[20; 40]);
    memory.pages.values_mut().for_each(|pages| pages.resident = 256);
    (memory.headroom.cgroup, memory.headroom.cgroup_limit) = (Bytes::mib(30), Bytes::mib(64));
    let promoted = |memory: &ProcessMemory| decide(memory, &[20; 40], Bytes::MAX).promote.len();
    // A huge page that fills a region takes the place of growth.
    memory.untouched = Bytes::mib(20);
    assert_eq!(promoted(&memory), 20);
    memory.untouched = Bytes::mib(21);
    assert_eq!(decide(&memory, &[20; 40], Bytes::MAX).skipped, [(Skip::CgroupHeadroom, 40)].into());
    memory.pages.values_mut().for_each(|pages| pages.resident = 512);
    assert_eq!(promoted(&memory), 40, "they add nothing");
    memory.pages.values_mut().for_each(|pages| pages.resident = 256);
    memory.headroom = Headroom { cgroup_limit: Bytes::MAX, ..memory.headroom };
    assert_eq!(promoted(&memory), 40, "no limit");
}

#[test]
fn a_region_of_streams_is_reported_as_one_even_if_its_pages_are_unknown() {
    let mut memory = memory(&[50]);
    memory.heat[0].streamed = 50;
    memory.pages.clear();
    assert_eq!(decide(&memory, &[50], Bytes::MAX).skipped, [(Skip::Streamed, 1)].into());
    assert_eq!(decide(&memory, &[], Bytes::MAX).skipped, [(Skip::Streamed, 1)].into());
}

proptest! {
    #[test]
    fn a_decision_keeps_its_budget_and_is_pure(
        stalls in prop::collection::vec(1_u32..30, 1..30), pages in 0_u64..40,
    ) {
        let (memory, budget) = (memory(&stalls), SIZES.huge.times(pages));
        let decision = decide(&memory, &stalls, budget);
        prop_assert!(decision.promote.len() as u64 <= pages);
        let skipped = decision.skipped.values().sum::<u64>();
        prop_assert_eq!(decision.promote.len() as u64 + skipped, stalls.len() as u64);
        prop_assert_eq!(decide(&memory, &stalls, budget), decision);
    }
}

#[test]
fn a_demoted_region_rests_for_the_horizon_and_what_it_added_counts_no_more() {
    let mut past = State::default();
    let state = past.of_mut(&id());
    let (region, took) = (Region::new(10), Nanos::millis(1));
    let act = Act { region, took, calls: 1, outcome: ActOutcome::Verified };
    let added = adding(Bytes::mib(1), Bytes::kib(4));
    state.note(&act, &added, SIZES.huge, Nanos::seconds(1));
    assert_eq!((state.added, state.made), (Bytes::mib(1), SIZES.huge));
    state.note_demoted(region, SIZES.huge, Nanos::seconds(2));
    // A split returns the new pages, but not the lazily freed one.
    assert_eq!((state.added, state.made), (Bytes::kib(4), Bytes::ZERO));
    state.added = Bytes::ZERO;
    let stalls = [300, 300];
    let promoted = |past: &State, horizon| {
        regions(&decide_after(past, horizon, &memory(&stalls), &stalls, Bytes::MAX))
    };
    assert_eq!(promoted(&past, Nanos::seconds(60)), [11]);
    assert_eq!(promoted(&past, Nanos::seconds(1)), [10, 11]);
    let act = Act { region: Region::new(11), ..act };
    past.of_mut(&id()).note(&act, &added, SIZES.huge, Nanos::seconds(2));
    past.begin_again(&id(), &[act.region]);
    assert_eq!(past.of_mut(&id()).added, Bytes::kib(4), "the daemon split it");
    assert_eq!(promoted(&past, Nanos::seconds(1)), [10], "until the next beginning");
}

#[test]
fn a_region_that_lost_its_huge_page_rests_for_the_horizon() {
    let mut past = State::default();
    let act = Act {
        region: Region::new(10),
        took: Nanos::millis(1),
        calls: 1,
        outcome: ActOutcome::Verified,
    };
    let state = past.of_mut(&id());
    state.note(&act, &adding(Bytes::ZERO, Bytes::ZERO), SIZES.huge, Nanos::seconds(1));
    let decide = |past: &State, seconds| {
        decide_after(past, Nanos::seconds(seconds), &memory(&[300]), &[300], Bytes::MAX)
    };
    let skipped = |past: &State| decide(past, 60).skipped.into_keys().collect::<Vec<_>>();
    assert_eq!(skipped(&past), [Skip::LostHugePage]);
    past.of_mut(&id()).note_lost(act.region, Nanos::seconds(2));
    assert!(!past.of_mut(&id()).is_promoted(act.region));
    assert_eq!(skipped(&past), [Skip::CoolingDown]);
    assert_eq!(regions(&decide(&past, 1)), [10]);
}

#[test]
fn a_void_trial_promotes_nothing_more() {
    let stalls = [300, 300];
    let estimate = Estimate { log_ratio: -0.5, standard_error: 0.05, samples: 1000, pairs: 50 };
    for (confirmed, wanted) in [(None, &[10, 11][..]), (Some(true), &[10, 11]), (Some(false), &[])]
    {
        let mut past = State::default();
        let state = past.of_mut(&id());
        state.phase = TunePhase::Watching { idle: 0 };
        state.trial = Some(TrialResult {
            verdict: TrialVerdict::Gain,
            estimate: Some(estimate),
            shares: StallShares::default(),
            pairs: None,
            took: Nanos::seconds(1),
            confirmed,
        });
        let horizon = TuneGoal::default().horizon;
        let decision = decide_after(&past, horizon, &memory(&stalls), &stalls, Bytes::MAX);
        assert_eq!(regions(&decision), wanted, "{confirmed:?}");
        assert_eq!(decision.eligible, wanted.len() as u64);
    }
}
