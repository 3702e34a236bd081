//! Each policy against an oracle that keeps plain lists, over several readings of random processes.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{
    Act, ActOutcome, Errno, Headroom, Mapping, MappingKind, Pid, Pressure, ProcessId,
    ProcessMemory, ProcessSnapshot, RegionHeat, RegionPages, Snapshot, VmFlags, Window,
};
use hugepilot_testkit::Rng;
use hugepilot_units::{AddrRange, Amount, Bytes, Nanos, Region, Share, VirtAddr};
use proptest::prelude::*;

use super::super::{HawkeyeRules, KhugepagedRules, Policy, State, TuneGoal};
use super::program::SIZES;

/// Place of a region: pid and number.
type Place = (i32, u64);

#[derive(Clone, Debug)]
struct Process {
    pid: i32,
    mappings: Vec<Mapping>,
    pages: BTreeMap<Region, RegionPages>,
    stalls: BTreeMap<Region, u32>,
    heat: Vec<RegionHeat>,
    stacks: BTreeSet<Region>,
    thp_disabled: bool,
}

impl Process {
    fn random(pid: i32, rng: &mut Rng) -> Self {
        let mut next = 100 + rng.bits() % 20;
        let mut mappings = Vec::new();
        for _ in 0..1 + rng.bits() % 4 {
            let (start, count) = (VirtAddr::new(next << 21), rng.bits() % 12);
            let mut mapping = Mapping::anonymous(AddrRange::at(start, SIZES.huge.times(count)));
            match rng.bits() % 10 {
                0 => mapping.kind = MappingKind::File,
                1 => mapping.flags = VmFlags::parse("rd wr nh"),
                2 => mapping.range.end = VirtAddr::new(mapping.range.end.get() + 4096),
                _ => {}
            }
            mappings.push(mapping);
            next += count + 1 + rng.bits() % 3;
        }
        let (pages, stalls, heat, stacks) = Default::default();
        let thp_disabled = rng.bits().is_multiple_of(12);
        let mut made = Self { pid, mappings, pages, stalls, heat, stacks, thp_disabled };
        made.change(rng);
        made
    }

    /// Changes some of its pages, and all of its samples.
    fn change(&mut self, rng: &mut Rng) {
        for mapping in &self.mappings {
            for region in SIZES.regions_inside(mapping.range) {
                let resident = [0, 1, 200, 256, 400, 512, 512, 512][(rng.bits() % 8) as usize];
                let swapped = if rng.bits().is_multiple_of(6) { rng.bits() % 100 } else { 0 };
                let shared = u64::from(rng.bits().is_multiple_of(15));
                let swapped = swapped.min(512 - resident);
                let some =
                    |rng: &mut Rng| rng.bits() % 300 * u64::from(rng.bits().is_multiple_of(5));
                let lazily_freed = some(rng).min(resident);
                let plain = RegionPages::on_base_pages(region, resident);
                let new = RegionPages { swapped, shared, lazily_freed, ..plain };
                match rng.bits() % 3 {
                    0 => drop(self.pages.insert(region, new)),
                    1 => drop(self.pages.entry(region).or_insert(new)),
                    _ if rng.bits().is_multiple_of(9) => drop(self.pages.remove(&region)),
                    _ => {}
                }
            }
        }
        let regions: Vec<Region> = self.pages.keys().copied().collect();
        let count = |rng: &mut Rng| (rng.bits() % 40 * (rng.bits() % 3)) as u32;
        self.stalls = regions.iter().map(|&region| (region, count(rng))).collect();
        self.stalls.retain(|_, count| *count > 0);
        let heat = |&region: &Region| RegionHeat {
            region,
            samples: 600,
            streamed: (rng.bits() % 600) as u32,
            tlb_held: 0,
            sampled_pages: (rng.bits() % 513 * (rng.bits() % 2)) as u32,
        };
        self.heat = regions.iter().map(heat).collect();
        let stacks = regions.iter().filter(|_| rng.bits().is_multiple_of(20));
        self.stacks = stacks.copied().collect();
    }

    fn memory(&self, time: Nanos, headroom: Headroom) -> ProcessMemory {
        let mut mappings = self.mappings.clone();
        for mapping in &mut mappings {
            let inside = SIZES.regions_inside(mapping.range);
            let pages: Vec<_> = inside.filter_map(|region| self.pages.get(&region)).collect();
            mapping.resident = SIZES.base.times(pages.iter().map(|one| one.resident).sum());
            mapping.huge = SIZES.huge.times(pages.iter().filter(|one| one.huge).count() as u64);
        }
        ProcessMemory {
            time,
            sizes: SIZES,
            mappings,
            heat: self.heat.clone(),
            stacks: self.stacks.clone(),
            pages: self.pages.clone(),
            thp_disabled: self.thp_disabled,
            untouched: Bytes::ZERO,
            headroom,
            pressure: Pressure::default(),
        }
    }

    fn seen(&self, time: Nanos, headroom: Headroom) -> ProcessSnapshot {
        let window = Window {
            until: time,
            samples: self.stalls.values().map(|&count| u64::from(count)).sum(),
            stalls: self.stalls.clone(),
            ..Window::default()
        };
        let id = ProcessId { pid: Pid(self.pid), start_ticks: 1, command: "random".to_owned() };
        ProcessSnapshot { id, window, memory: self.memory(time, headroom) }
    }

    fn resident(&self) -> u64 {
        self.pages.values().map(|pages| pages.resident).sum()
    }
}

/// Past of the processes, for the oracle.
#[derive(Default)]
struct Memory {
    /// Regions in the order in which they were seen.
    touched: Vec<Place>,
    /// Covered regions with their bucket, in the order in which they entered it.
    entered: Vec<(Place, u32)>,
    scanned: Option<(Place, Nanos)>,
    last_turn: i32,
    failures: BTreeMap<Place, u32>,
    promoted: BTreeMap<Place, Nanos>,
    added: u64,
}

/// Oracle of one reading.
struct Oracle<'a> {
    goal: &'a TuneGoal,
    processes: &'a [Process],
    headroom: Headroom,
    now: Nanos,
}

impl Oracle<'_> {
    fn pages(&self, place: Place) -> Option<&RegionPages> {
        let process = self.processes.iter().find(|process| process.pid == place.0)?;
        process.pages.get(&Region::new(place.1))
    }

    /// Regions that lie in a mapping which may have huge pages.
    fn scannable(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for process in self.processes {
            for region in process.pages.keys() {
                let (start, end) = (region.get() << 21, (region.get() + 1) << 21);
                let holds = |mapping: &&Mapping| {
                    let range = mapping.range;
                    range.start.get() <= start && end <= range.end.get()
                };
                let mapping = process.mappings.iter().find(holds);
                if mapping.is_some_and(|one| one.kind != MappingKind::File && !one.flags.has("nh"))
                {
                    places.push((process.pid, region.get()));
                }
            }
        }
        places
    }

    fn is_eligible(&self, place: Place, memory: &Memory) -> bool {
        let process = self.processes.iter().find(|process| process.pid == place.0).unwrap();
        let pages = self.pages(place).unwrap();
        let lost = memory.promoted.get(&place).is_some_and(|&at| self.now - at < self.goal.horizon);
        let is_stack = process.stacks.contains(&Region::new(place.1));
        !process.thp_disabled
            && !is_stack
            && !pages.huge
            && pages.shared == 0
            && pages.swapped <= 64
            && pages.resident - pages.lazily_freed >= 256
            && memory.failures.get(&place).is_none_or(|&failures| failures < 3)
            && !lost
    }

    fn coverage(&self, place: Place) -> u32 {
        let process = self.processes.iter().find(|process| process.pid == place.0).unwrap();
        let heat = process.heat.iter().find(|heat| heat.region.get() == place.1);
        heat.map_or(0, |heat| heat.sampled_pages)
    }

    /// Eligible regions in the order of the policy, and how many of them a decision promotes.
    fn order(&self, memory: &mut Memory) -> (Vec<Place>, usize) {
        let scannable = self.scannable();
        let present = |place: &Place| self.pages(*place).is_some_and(|p| p.huge || p.resident > 0);
        memory.touched.retain(present);
        let all = self
            .processes
            .iter()
            .flat_map(|process| process.pages.keys().map(|region| (process.pid, region.get())));
        let new = all.filter(present).filter(|place| !memory.touched.contains(place));
        let new: Vec<Place> = new.collect();
        memory.touched.extend(new);
        let eligible =
            |place: &Place| scannable.contains(place) && self.is_eligible(*place, memory);
        match &self.goal.policy {
            Policy::All => {
                let all = scannable.iter().copied().filter(eligible).collect();
                (all, self.goal.regions_per_round)
            }
            Policy::Linux => {
                let all = memory.touched.iter().copied().filter(eligible).collect();
                (all, self.goal.regions_per_round)
            }
            Policy::Hawkeye(rules) => {
                let covered = scannable.iter().copied().filter(eligible);
                let mut covered: Vec<Place> =
                    covered.filter(|place| self.coverage(*place) > 0).collect();
                let bucket = |place: Place| Self::bucket(rules, self.coverage(place));
                let now: Vec<_> = covered.iter().map(|&place| (place, bucket(place))).collect();
                memory.entered.retain(|one| now.contains(one));
                let new: Vec<_> =
                    now.into_iter().filter(|one| !memory.entered.contains(one)).collect();
                memory.entered.extend(new);
                let all = covered.clone();
                covered.retain(|&(pid, _)| {
                    let in_use = all.iter().filter(|&&one| one.0 == pid && bucket(one) >= 2);
                    in_use.count() >= rules.least_regions
                });
                let queue = memory.entered.iter().map(|&(place, _)| place);
                let queue = queue.filter(|place| covered.contains(place)).collect();
                (Self::in_turn(queue, memory.last_turn, bucket), rules.promotions)
            }
            Policy::Khugepaged(rules) => {
                let chosen = self.scan(&scannable, rules, memory);
                let all = chosen.into_iter().filter(|place| self.is_eligible(*place, memory));
                (all.collect(), usize::MAX)
            }
            _ => (Vec::new(), 0),
        }
    }

    /// Bucket of a coverage: ten of 50 base pages, or the first power of two that is not below.
    fn bucket(rules: &HawkeyeRules, coverage: u32) -> u32 {
        if rules.doubling {
            return (0..rules.buckets - 1)
                .find(|&n| coverage <= 1 << n)
                .unwrap_or(rules.buckets - 1);
        }
        (coverage / 50).min(9)
    }

    /// Takes regions one by one: of the highest bucket, of the process whose turn it is, the first
    /// of `left`.
    fn in_turn(mut left: Vec<Place>, mut last: i32, bucket: impl Fn(Place) -> u32) -> Vec<Place> {
        let first_turn_after = last;
        let mut order = Vec::new();
        while let Some(top) = left.iter().map(|&place| bucket(place)).max() {
            if order.last().is_some_and(|&before| bucket(before) > top) {
                last = first_turn_after;
            }
            let pids: BTreeSet<i32> =
                left.iter().filter(|&&place| bucket(place) == top).map(|place| place.0).collect();
            let pid = *pids.iter().find(|&&pid| pid > last).or(pids.first()).unwrap();
            let is_next = |place: &&Place| place.0 == pid && bucket(**place) == top;
            let taken = *left.iter().find(is_next).unwrap();
            left.retain(|place| *place != taken);
            order.push(taken);
            last = pid;
        }
        order
    }

    fn scan(&self, all: &[Place], rules: &KhugepagedRules, memory: &mut Memory) -> Vec<Place> {
        let last = memory.scanned;
        if last.is_some_and(|(_, at)| at + rules.scan_sleep > self.now) || all.is_empty() {
            return Vec::new();
        }
        let after = all.iter().filter(|place| last.is_none_or(|(last, _)| **place > last));
        let before = all.iter().filter(|place| last.is_some_and(|(last, _)| **place <= last));
        let count = usize::try_from(rules.pages_to_scan.div_ceil(512)).unwrap();
        let passed: Vec<Place> = after.chain(before).copied().take(count).collect();
        memory.scanned = passed.last().map(|&last| (last, self.now)).or(memory.scanned);
        let none = |place: Place| {
            let pages = self.pages(place).unwrap();
            512 - pages.resident - pages.swapped
        };
        passed.into_iter().filter(|&place| none(place) <= rules.max_ptes_none).collect()
    }

    /// Regions that the limits allow, in the order of the policy.
    fn decide(&self, memory: &mut Memory) -> Vec<Place> {
        let (order, most) = self.order(memory);
        let resident: u64 = self.processes.iter().map(Process::resident).sum();
        let resident = SIZES.base.times(resident);
        // Huge pages of the program's own do not count; what was not read is still huge.
        let is_huge = |place: &&Place| self.pages(**place).is_none_or(|pages| pages.huge);
        let made = memory.promoted.keys().filter(is_huge).count() as u64;
        let budget = self.goal.budget.map_or(u64::MAX, |budget| budget.of(resident).get() >> 21);
        let mut huge = budget.saturating_sub(made);
        let added = self.goal.max_added.map_or(u64::MAX, |share| share.of(resident).get());
        let mut added = added.saturating_sub(memory.added);
        let (mut taken, mut chosen) = (0, Vec::new());
        for place in order {
            let pages = self.pages(place).unwrap();
            let adds = (512 - pages.resident + pages.lazily_freed) * 4096;
            let reserve = self.headroom.system_total.get() / 25;
            let fits = taken + adds + (2 << 20) + reserve <= self.headroom.system.get();
            if chosen.len() < most && huge > 0 && adds <= added && fits {
                (huge, added, taken) = (huge - 1, added - adds, taken + adds);
                chosen.push(place);
            }
        }
        if let Some(last) = chosen.last() {
            memory.last_turn = last.0;
        }
        chosen
    }
}

/// Three to eight readings of the same processes.
fn check(policy: Policy, seed: u64) -> Result<(), TestCaseError> {
    let mut rng = Rng::new(seed);
    let share = |rng: &mut Rng| Share::ratio(rng.unit());
    let goal = TuneGoal {
        policy,
        budget: rng.bits().is_multiple_of(2).then(|| Amount::Share(share(&mut rng))),
        max_added: (!rng.bits().is_multiple_of(4)).then(|| share(&mut rng)),
        regions_per_round: 1 + (rng.bits() % 40) as usize,
        ..TuneGoal::default()
    };
    let mut processes: Vec<Process> =
        (1..=1 + (rng.bits() % 3) as i32).map(|pid| Process::random(pid, &mut rng)).collect();
    let (mut state, mut memory, mut now) = (State::default(), Memory::default(), Nanos::seconds(9));
    for _ in 0..3 + rng.bits() % 6 {
        let system = Bytes::mib(700 + rng.bits() % 100);
        let headroom = Headroom { system, system_total: Bytes::gib(16), ..Headroom::UNLIMITED };
        let seen = processes.iter().map(|process| process.seen(now, headroom)).collect();
        let snapshot = Snapshot { time: now, processes: seen, interrupted: false };
        let oracle = Oracle { goal: &goal, processes: &processes, headroom, now };
        let expected = oracle.decide(&mut memory);
        let decision = goal.decide(&snapshot, &state);
        prop_assert_eq!(&goal.decide(&snapshot, &state), &decision);
        let mut decided = Vec::new();
        for one in &decision.processes {
            prop_assert!(one.demote.is_empty());
            decided.extend(one.promote.iter().map(|p| (one.process.pid.0, p.region.get())));
        }
        // A decision is by process; the order is that within each.
        let mut expected_by_process = expected.clone();
        expected_by_process.sort_by_key(|place| place.0);
        prop_assert_eq!(decided, expected_by_process);
        state = decision.state;
        for one in &decision.processes {
            let process = processes.iter_mut().find(|p| p.pid == one.process.pid.0).unwrap();
            for promotion in &one.promote {
                let (place, region) = ((process.pid, promotion.region.get()), promotion.region);
                let fails = rng.bits().is_multiple_of(4);
                let outcome =
                    if fails { ActOutcome::Failed(Errno::EAGAIN) } else { ActOutcome::Verified };
                let act = Act { region, took: Nanos::millis(1), calls: 1, outcome };
                state.of_mut(&one.process).note(&act, promotion, SIZES.huge, now);
                if fails {
                    *memory.failures.entry(place).or_insert(0) += 1;
                    continue;
                }
                memory.added += promotion.added.get();
                memory.promoted.insert(place, now);
                let pages = process.pages.get_mut(&region).unwrap();
                (pages.resident, pages.swapped, pages.huge) = (512, 0, true);
            }
        }
        now = now + Nanos::seconds(3 + rng.bits() % 30);
        processes.iter_mut().for_each(|process| process.change(&mut rng));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn all_promotes_what_its_oracle_does(seed in any::<u64>()) {
        check(Policy::All, seed)?;
    }

    #[test]
    fn linux_promotes_what_its_oracle_does(seed in any::<u64>()) {
        check(Policy::Linux, seed)?;
    }

    #[test]
    fn hawkeye_promotes_what_its_oracle_does(seed in any::<u64>(), promotions in 0_usize..20) {
        check(Policy::Hawkeye(HawkeyeRules { promotions, ..HawkeyeRules::default() }), seed)?;
    }

    #[test]
    fn the_kernel_of_hawkeye_promotes_what_its_oracle_does(seed in any::<u64>()) {
        check(Policy::Hawkeye(HawkeyeRules::KERNEL), seed)?;
    }

    #[test]
    fn khugepaged_promotes_what_its_oracle_does(
        seed in any::<u64>(), pages_to_scan in 0_u64..16_384, max_ptes_none in 0_u64..513,
    ) {
        let rules = KhugepagedRules { pages_to_scan, max_ptes_none, ..KhugepagedRules::default() };
        check(Policy::Khugepaged(rules), seed)?;
    }

    #[test]
    fn never_promotes_nothing(seed in any::<u64>()) {
        check(Policy::Never, seed)?;
    }
}
