//! Simulated program: heat of its regions, and the time that huge pages save.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_record::{
    Act, ActOutcome, Errno, Headroom, Mapping, Pid, Pressure, ProcessDecision, ProcessId,
    ProcessMemory, ProcessSnapshot, Promotion, RegionHeat, RegionPages, Snapshot, SplitAct,
    SplitOutcome, Window,
};
use hugepilot_testkit::Rng;
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region, VirtAddr};

use super::super::{NextDecision, ProcessState, State, TuneGoal};
use crate::round::{self, Round, Row};

/// Rounds of a run, more than any test has: time that stands still fails the test.
const MAX_ROUNDS: u32 = 1_000;
pub(super) const SIZES: PageSizes = PageSizes::X86_64;
/// Number of the first region of the simulated mapping.
pub(super) const FIRST: u64 = 1 << 20;

fn shares(heat: &[f64]) -> Vec<f64> {
    let sum: f64 = heat.iter().sum();
    heat.iter().map(|heat| heat / sum.max(1e-9)).collect()
}

/// Change of the huge pages and of the resident pages of a program.
pub(super) type Change = fn(&mut BTreeSet<Region>, &mut [u64]);

/// Process with one mapping. Each region has a share of the stalls on base pages; on a huge page it
/// stalls `ratio` of that time.
pub(super) struct Program {
    pub(super) pid: i32,
    pub(super) rng: Rng,
    pub(super) time: Nanos,
    pub(super) rate: f64,
    pub(super) heat: Vec<f64>,
    /// Heat from a time on.
    pub(super) later: Option<(Nanos, Vec<f64>)>,
    /// Change by the program itself or by others at a time.
    pub(super) others: Option<(Nanos, Change)>,
    pub(super) resident: Vec<u64>,
    pub(super) stalls: f64,
    pub(super) ratio: f64,
    pub(super) chased: f64,
    pub(super) fails: BTreeSet<Region>,
    pub(super) huge: BTreeSet<Region>,
    pub(super) changes: BTreeMap<Region, u32>,
    pub(super) tries: BTreeMap<Region, u32>,
    pub(super) headroom: Headroom,
    /// Heat of regions, which does not change.
    pub(super) sampled: Vec<RegionHeat>,
    /// Rounds, if they are recorded.
    pub(super) rounds: Option<Vec<Round>>,
}

impl Program {
    pub(super) fn new(seed: u64, heat: Vec<f64>) -> Self {
        Self {
            pid: 1,
            rng: Rng::new(seed),
            time: Nanos::seconds(100),
            rate: 500.0,
            resident: vec![512; heat.len()],
            heat: shares(&heat),
            later: None,
            others: None,
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
                free_huge: Bytes::MAX,
            },
            sampled: Vec::new(),
            rounds: None,
        }
    }

    pub(super) fn uniform(seed: u64, regions: usize) -> Self {
        Self::new(seed, vec![1.0; regions])
    }

    /// Time of the same work, 1 on base pages.
    pub(super) fn work_time(&self) -> f64 {
        let stall = |(index, heat): (usize, &f64)| {
            let region = Region::new(FIRST + index as u64);
            heat * if self.huge.contains(&region) { self.ratio } else { 1.0 }
        };
        1.0 - self.stalls + self.stalls * self.heat.iter().enumerate().map(stall).sum::<f64>()
    }

    pub(super) fn speedup(&self) -> f64 {
        1.0 / self.work_time()
    }

    pub(super) fn observe(&mut self, window: &mut Window, time: Nanos) {
        let now = self.time;
        if let Some((_, heat)) = self.later.take_if(|(from, _)| *from <= now) {
            self.heat = shares(&heat);
        }
        if let Some((_, change)) = self.others.take_if(|(from, _)| *from <= now) {
            change(&mut self.huge, &mut self.resident);
        }
        self.time = self.time + time;
        window.until = self.time;
        window.cpu = Some(window.cpu.unwrap_or(Nanos::ZERO) + time);
        let samples = self.rate * time.as_seconds();
        let all = self.work_time();
        let mut stalled = 0;
        for index in 0..self.heat.len() {
            let region = Region::new(FIRST + index as u64);
            let is_freed = self.resident[index] == 0;
            let ratio = if self.huge.contains(&region) { self.ratio } else { 1.0 };
            let ratio = if is_freed { 0.0 } else { ratio };
            let share = self.stalls * self.heat[index] * ratio / all;
            let count = self.rng.poisson(samples * share);
            stalled += u64::from(count);
            let chased = (0..count).filter(|_| self.rng.unit() < self.chased).count() as u64;
            if chased > 0 {
                *window.chases.entry(region).or_insert(0) += chased as u32;
            }
            if u64::from(count) > chased {
                *window.stalls.entry(region).or_insert(0) += count - chased as u32;
            }
        }
        let others = self.rng.poisson(samples * (1.0 - self.stalls) / all);
        window.samples += stalled + u64::from(others);
        window.cpu = Some(window.length());
    }

    pub(super) fn memory(&self) -> ProcessMemory {
        let regions = (0..self.heat.len() as u64).map(|index| Region::new(FIRST + index));
        let pages = regions.zip(&self.resident).map(|(region, &resident)| {
            let huge = self.huge.contains(&region);
            (region, RegionPages { huge, ..RegionPages::on_base_pages(region, resident) })
        });
        let start = VirtAddr::new(FIRST << 21);
        let range = AddrRange::at(start, SIZES.huge.times(self.heat.len() as u64));
        let mut mapping = Mapping::anonymous(range);
        mapping.resident = SIZES.base.times(self.resident.iter().sum());
        mapping.huge = SIZES.huge.times(self.huge.len() as u64);
        ProcessMemory {
            time: self.time,
            sizes: SIZES,
            mappings: vec![mapping],
            heat: self.sampled.clone(),
            stacks: BTreeSet::new(),
            pages: pages.collect(),
            thp_disabled: false,
            untouched: Bytes::ZERO,
            headroom: self.headroom,
            pressure: Pressure::default(),
        }
    }

    pub(super) fn id(&self) -> ProcessId {
        ProcessId { pid: Pid(self.pid), start_ticks: 1, command: "simulated".to_owned() }
    }

    pub(super) fn promote(&mut self, promotion: &Promotion) -> Act {
        *self.tries.entry(promotion.region).or_insert(0) += 1;
        let took = Nanos::millis(1);
        self.time = self.time + took;
        let outcome = if self.fails.contains(&promotion.region) {
            ActOutcome::Failed(Errno::EAGAIN)
        } else {
            assert!(self.huge.insert(promotion.region), "promoted twice");
            let index = usize::try_from(promotion.region.get() - FIRST).unwrap();
            self.resident[index] = 512;
            *self.changes.entry(promotion.region).or_insert(0) += 1;
            ActOutcome::Verified
        };
        Act { region: promotion.region, took, calls: 1, outcome }
    }

    /// Runs the goal for `time`. Returns the last state.
    pub(super) fn run(&mut self, goal: &TuneGoal, time: Nanos) -> ProcessState {
        let end = self.time + time;
        let mut state = State::default();
        let mut window = Window::starting(self.time);
        self.observe(&mut window, goal.first_look());
        let mut rounds = 0..MAX_ROUNDS;
        while self.time < end {
            rounds.next().expect("time passes between rounds");
            let memory = self.memory();
            let process = ProcessSnapshot { id: self.id(), window: window.clone(), memory };
            let snapshot =
                Snapshot { time: self.time, processes: vec![process], interrupted: false };
            let decision = goal.decide(&snapshot, &state);
            if let Some(needed) = decide_by_needed_pages(goal, snapshot.clone(), &state) {
                assert_eq!(needed.processes, decision.processes);
            }
            let number = self.rounds.as_ref().map_or(0, Vec::len) as u64 + 1;
            let mut round = decision.begin(number, snapshot, &mut state);
            let Row { decision, outcome, .. } = &mut round.rows[0];
            *outcome = self.act(decision, state.of_mut(&decision.process));
            let next = NextDecision::after(decision.next, window.length(), self.time);
            self.rounds.iter_mut().for_each(|rounds| rounds.push(round.clone()));
            let Some(due) = next.at else { break };
            if next.fades {
                window.fade();
            }
            if let Some(begin) = next.window {
                let settle = begin - self.time;
                self.observe(&mut Window::default(), settle);
                window = Window::starting(self.time);
            }
            let time = due - self.time;
            self.observe(&mut window, time);
        }
        state.of(&self.id()).cloned().unwrap_or_default()
    }

    pub(super) fn act(
        &mut self,
        decided: &ProcessDecision,
        state: &mut ProcessState,
    ) -> round::ProcessOutcome {
        let mut outcome = round::ProcessOutcome::default();
        for promotion in &decided.promote {
            let act = self.promote(promotion);
            state.note(&act, promotion, SIZES.huge, self.time);
            outcome.attempts.acts.push(act);
        }
        for &region in &decided.demote {
            if self.huge.remove(&region) {
                *self.changes.entry(region).or_insert(0) += 1;
                state.note_demoted(region, SIZES.huge, self.time);
                let (took, freed) = (Nanos::millis(1), SplitOutcome::Freed(Bytes::ZERO));
                outcome.demotions.push(SplitAct { region, took, outcome: freed });
            }
        }
        outcome
    }

    /// Gain so far over the gain with all memory huge.
    pub(super) fn share_of_gain(&mut self) -> f64 {
        let now = self.speedup() - 1.0;
        let huge = std::mem::take(&mut self.huge);
        self.huge = (0..self.heat.len() as u64).map(|index| Region::new(FIRST + index)).collect();
        let all = self.speedup() - 1.0;
        self.huge = huge;
        now / all
    }
}

/// Decision about a process of which only the pages that the goal needs were read; `None` if all
/// are needed.
fn decide_by_needed_pages(
    goal: &TuneGoal,
    mut snapshot: Snapshot,
    state: &State,
) -> Option<super::Decision> {
    let time = snapshot.time;
    let ProcessSnapshot { id, memory, .. } = &mut snapshot.processes[0];
    let needed = goal.needed_regions(state.of(id), memory.sizes, time)?(&memory.mappings);
    memory.pages.retain(|region, _| needed.contains(region));
    Some(goal.decide(&snapshot, state))
}
