//! The goal in simulated programs, whose gain is known.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{Act, Errno, Headroom, Mapping, Outcome, RegionHeat, RegionPages, Snapshot};
use hugepilot_units::{AddrRange, Amount, Bytes, Nanos, PageSizes, Region, Share, VirtAddr};

use super::*;
use crate::trial::{NoTrial, TrialRules, TrialVerdict};

const SIZES: PageSizes = PageSizes::X86_64;
/// Number of the first region of the simulated mapping.
const FIRST: u64 = 1 << 20;

fn goal() -> TuneGoal {
    TuneGoal {
        budget: None,
        max_added: Share::percent(1.0),
        horizon: Nanos::seconds(60),
        min_gain: Share::percent(1.0),
        keep: false,
        observe: Nanos::seconds(3),
        trial_time: Nanos::seconds(8),
        settle: Nanos::millis(250),
        max_tries: 3,
        seed: 1,
        trial: TrialRules::default(),
        limits: crate::Limits::default(),
        calibration: crate::Calibration::default(),
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    #[allow(clippy::cast_precision_loss)]
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
    fn poisson(&mut self, mean: f64) -> u32 {
        // The product of a large mean underflows; sums of Poisson numbers are Poisson numbers.
        if mean > 100.0 {
            return self.poisson(100.0) + self.poisson(mean - 100.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

/// Process with one mapping. Each region has a share of the stalls on base pages; on a huge page it
/// stalls `ratio` of that time.
struct Program {
    rng: Rng,
    time: Nanos,
    rate: f64,
    heat: Vec<f64>,
    resident: Vec<u64>,
    stalls: f64,
    ratio: f64,
    chased: f64,
    fails: BTreeSet<Region>,
    huge: BTreeSet<Region>,
    changes: BTreeMap<Region, u32>,
    tries: BTreeMap<Region, u32>,
    headroom: Headroom,
}

impl Program {
    fn new(seed: u64, heat: Vec<f64>) -> Self {
        let sum: f64 = heat.iter().sum();
        Self {
            rng: Rng(seed),
            time: Nanos::seconds(100),
            rate: 500.0,
            resident: vec![512; heat.len()],
            heat: heat.iter().map(|heat| heat / sum.max(1e-9)).collect(),
            stalls: 0.9,
            ratio: 0.7,
            chased: 0.0,
            fails: BTreeSet::new(),
            huge: BTreeSet::new(),
            changes: BTreeMap::new(),
            tries: BTreeMap::new(),
            headroom: Headroom {
                cgroup: Bytes::MAX,
                cgroup_limit: Bytes::MAX,
                system: Bytes::gib(64),
                system_total: Bytes::gib(128),
            },
        }
    }

    fn uniform(seed: u64, regions: usize) -> Self {
        Self::new(seed, vec![1.0; regions])
    }

    /// Time of the same work, 1 on base pages.
    fn work_time(&self) -> f64 {
        let stall = |(index, heat): (usize, &f64)| {
            let region = Region::new(FIRST + index as u64);
            heat * if self.huge.contains(&region) { self.ratio } else { 1.0 }
        };
        1.0 - self.stalls + self.stalls * self.heat.iter().enumerate().map(stall).sum::<f64>()
    }

    fn speedup(&self) -> f64 {
        1.0 / self.work_time()
    }

    fn observe(&mut self, window: &mut Window, time: Nanos) {
        self.time = self.time + time;
        window.until = self.time;
        let samples = self.rate * time.as_seconds();
        let all = self.work_time();
        let mut stalled = 0;
        for index in 0..self.heat.len() {
            let region = Region::new(FIRST + index as u64);
            let ratio = if self.huge.contains(&region) { self.ratio } else { 1.0 };
            let share = self.stalls * self.heat[index] * ratio / all;
            let count = self.rng.poisson(samples * share);
            stalled += u64::from(count);
            let chased = (0..count).filter(|_| self.rng.unit() < self.chased).count() as u64;
            window.chased += chased;
            if u64::from(count) > chased {
                *window.stalls.entry(region).or_insert(0) += count - chased as u32;
            }
        }
        let others = self.rng.poisson(samples * (1.0 - self.stalls) / all);
        window.samples += stalled + u64::from(others);
    }

    fn snapshot(&self, window: &Window) -> Snapshot {
        let regions = (0..self.heat.len() as u64).map(|index| Region::new(FIRST + index));
        let pages = regions.zip(&self.resident).map(|(region, &resident)| {
            let huge = self.huge.contains(&region);
            (region, RegionPages { region, resident, swapped: 0, huge, shared: 0 })
        });
        let start = VirtAddr::new(FIRST << 21);
        let range = AddrRange::at(start, SIZES.huge.times(self.heat.len() as u64));
        let mut mapping = Mapping::anonymous(range);
        mapping.resident = SIZES.base.times(self.resident.iter().sum());
        mapping.huge = SIZES.huge.times(self.huge.len() as u64);
        let heat = |(&region, &samples): (&Region, &u32)| RegionHeat {
            region,
            samples,
            streamed: 0,
            tlb_held: 0,
            sampled_pages: samples.min(512),
        };
        Snapshot {
            sizes: SIZES,
            mappings: vec![mapping],
            heat: window.stalls.iter().map(heat).collect(),
            stacks: BTreeSet::new(),
            pages: pages.collect(),
            thp_disabled: false,
            headroom: self.headroom,
        }
    }

    fn promote(&mut self, promotion: &Promotion) -> Act {
        *self.tries.entry(promotion.region).or_insert(0) += 1;
        let took = Nanos::millis(1);
        self.time = self.time + took;
        let outcome = if self.fails.contains(&promotion.region) {
            Outcome::Failed(Errno::EAGAIN)
        } else {
            assert!(self.huge.insert(promotion.region), "promoted twice");
            let index = usize::try_from(promotion.region.get() - FIRST).unwrap();
            self.resident[index] = 512;
            *self.changes.entry(promotion.region).or_insert(0) += 1;
            Outcome::Verified
        };
        Act { region: promotion.region, took, calls: 1, outcome }
    }

    /// Runs the goal for `time`. Returns the last state.
    fn run(&mut self, goal: &TuneGoal, time: Nanos) -> TuneState {
        let end = self.time + time;
        let mut state = TuneState::default();
        let mut window = Window { since: self.time, until: self.time, ..Window::default() };
        self.observe(&mut window, goal.observe);
        while self.time < end {
            let snapshot = self.snapshot(&window);
            let view = TuneView { time: self.time, snapshot: &snapshot, window: &window };
            let decision = goal.decide(&view, &state);
            state = decision.state;
            for promotion in &decision.promote {
                let act = self.promote(promotion);
                state.note(&act, promotion.added, self.time);
            }
            for region in &decision.demote {
                if self.huge.remove(region) {
                    *self.changes.entry(*region).or_insert(0) += 1;
                    state.note_demoted(*region, self.time);
                }
            }
            match decision.next {
                Next::End => break,
                Next::Observe(time) => self.observe(&mut window, time),
                Next::Restart(wait, time) => {
                    self.observe(&mut Window::default(), wait);
                    window = Window { since: self.time, until: self.time, ..Window::default() };
                    self.observe(&mut window, time);
                }
            }
        }
        state
    }

    /// Gain so far over the gain with all memory huge.
    fn share_of_gain(&mut self) -> f64 {
        let now = self.speedup() - 1.0;
        let huge = std::mem::take(&mut self.huge);
        self.huge = (0..self.heat.len() as u64).map(|index| Region::new(FIRST + index)).collect();
        let all = self.speedup() - 1.0;
        self.huge = huge;
        now / all
    }
}

#[test]
fn a_uniform_heap_is_promoted_whole() {
    for regions in [300, 1000, 4000] {
        let mut program = Program::uniform(1, regions);
        let state = program.run(&goal(), Nanos::seconds(15));
        let share = program.share_of_gain();
        assert!(share > 0.95, "{regions} regions: {share}, {:?}", state.trial);
        let trial = state.trial.unwrap();
        // 128 pairs of 4000 regions have too few samples for a verdict.
        let wanted = if regions > 2000 { TrialVerdict::Open } else { TrialVerdict::Gain };
        assert_eq!(trial.verdict, wanted);
        let (bracket, gain) = (trial.bracket.unwrap(), program.speedup());
        assert!(bracket.low <= gain && gain <= bracket.high, "{gain} in {bracket:?}");
    }
}

#[test]
fn without_a_gain_everything_is_taken_back() {
    let mut program = Program::uniform(2, 256);
    (program.ratio, program.rate) = (1.0, 4000.0);
    let state = program.run(&goal(), Nanos::seconds(15));
    assert_eq!(state.trial.unwrap().verdict, TrialVerdict::NoGain);
    assert!(program.huge.is_empty());
    assert!(program.changes.values().all(|&changes| changes == 2));
}

#[test]
fn kept_if_the_user_says_so() {
    let mut program = Program::uniform(2, 256);
    (program.ratio, program.rate) = (1.0, 4000.0);
    program.run(&TuneGoal { keep: true, ..goal() }, Nanos::seconds(15));
    assert_eq!(program.huge.len(), 128);
}

#[test]
fn only_hot_regions_of_a_sparse_heap_are_promoted() {
    let mut rng = Rng(3);
    let heat: Vec<f64> = (0..2048).map(|_| f64::from(u8::from(rng.unit() < 0.1))).collect();
    let hot: BTreeSet<Region> = (FIRST..)
        .zip(&heat)
        .filter(|(_, heat)| **heat > 0.0)
        .map(|(number, _)| Region::new(number))
        .collect();
    let mut program = Program::new(3, heat);
    program.run(&goal(), Nanos::seconds(15));
    assert!(program.huge.is_subset(&hot));
    assert!(program.share_of_gain() > 0.95, "{}", program.share_of_gain());
}

#[test]
fn pointer_chases_are_promoted_by_the_model() {
    let mut program = Program::uniform(4, 300);
    program.chased = 0.6;
    let state = program.run(&goal(), Nanos::seconds(15));
    assert!(matches!(state.no_trial, Some(NoTrial::PointerChases { .. })), "{:?}", state.no_trial);
    assert!(program.share_of_gain() > 0.9);
}

#[test]
fn a_program_that_hardly_stalls_is_left_on_base_pages() {
    let mut program = Program::uniform(5, 300);
    program.stalls = 0.02;
    let state = program.run(&goal(), Nanos::seconds(15));
    assert!(matches!(state.no_trial, Some(NoTrial::FewStalls { .. })));
    assert!(program.huge.is_empty());
}

#[test]
fn a_budget_goes_to_the_hottest() {
    let heat: Vec<f64> = (0..1000_u32).map(|i| if i < 40 { 20.0 } else { 1.0 }).collect();
    let mut program = Program::new(6, heat);
    program.rate = 2000.0;
    let budget = Some(Amount::Share(Share::percent(20.0)));
    program.run(&TuneGoal { budget, ..goal() }, Nanos::seconds(15));
    assert!(program.huge.len() <= 200);
    let hottest = (FIRST..FIRST + 40).filter(|n| program.huge.contains(&Region::new(*n))).count();
    assert!(hottest >= 38, "{hottest} of 40");
}

#[test]
fn memory_added_stays_within_its_share() {
    let mut program = Program::uniform(7, 500);
    program.resident = vec![500; 500];
    program.run(&goal(), Nanos::seconds(15));
    let added = program.huge.len() as u64 * 12;
    assert!(added * 100 <= 512 * 500, "{added}");
}

/// Whatever the program: limits hold, no region changes more than twice, and none that fails is
/// tried more often than allowed.
#[test]
fn no_limit_is_broken() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let regions = 1 + usize::try_from(rng.next() % 400).unwrap();
        let skew = 6.0 * rng.unit();
        let heat = (0..regions).map(|_| rng.unit().powf(skew)).collect();
        let mut program = Program::new(seed, heat);
        (program.ratio, program.stalls) = (0.3 + 0.8 * rng.unit(), 0.99 * rng.unit());
        program.resident = (0..regions).map(|_| 100 + rng.next() % 413).collect();
        program.fails = (FIRST..FIRST + rng.next() % 400).map(Region::new).collect();
        program.headroom.system = Bytes::gib(4 + rng.next() % 66);
        let budget = (seed % 2 == 0).then(|| Share::percent(100.0 * rng.unit()));
        check_limits(&mut program, budget);
    }
}

fn check_limits(program: &mut Program, budget: Option<Share>) {
    let before: u64 = program.resident.iter().sum();
    let goal = TuneGoal { budget: budget.map(Amount::Share), ..goal() };
    let state = program.run(&goal, Nanos::seconds(20));
    let (after, huge): (u64, u64) = (program.resident.iter().sum(), program.huge.len() as u64);
    if let Some(budget) = budget {
        // The budget is a share of the resident memory, which promotions increase.
        assert!(SIZES.huge.times(huge) <= budget.of(SIZES.base.times(after)) + SIZES.huge);
    }
    // Promoted regions are whole; the share of memory that this may add holds in each round.
    assert!((after - before) * 99 <= before + 512 * 100, "{before} to {after} pages");
    assert!(program.changes.values().all(|&changes| changes <= 2));
    assert!(program.tries.values().all(|&tries| tries <= 3));
    assert!(state.added >= SIZES.base.times(after - before));
}
