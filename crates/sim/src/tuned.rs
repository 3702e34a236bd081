//! Machine under a policy, in simulated time.
//!
//! The decisions are those of [`TuneGoal::decide`], on snapshots of the same form as those of a
//! live process. So a decision of a simulation and a live one on the same snapshot are equal.
//! Differences are in what the snapshot counts:
//!
//! - policy `pcc` gets the frequencies of the simulated candidate caches as stalls, summed over
//!   cores (Manocha et al., MICRO'23, section 3.3), and by core if the cores take turns;
//! - policy `hawkeye` gets the access coverage, as a decaying mean ([`Coverage`]);
//! - other policies get samples in proportion to the cycles of a [`CostModel`].
//!
//! Time is the number of accesses over [`TunedConfig::rate`]. Promotions take effect at once.
//! The loop of a live tune differs from this one, which reads the memory for each decision, also of
//! processes with few samples. A lack of huge pages ends the acts of a round only, and processes
//! that waited for a trial of another one decide at their own times.

mod coverage;
mod giants;
mod samples;
mod tables;

use std::collections::BTreeMap;

use hugepilot_policy::round::{ProcessOutcome, Round};
use hugepilot_policy::tune::{NextDecision, Policy, State, TuneGoal};
use hugepilot_record::{
    Act, ActOutcome, Next, Pid, ProcessDecision, ProcessId, ProcessSnapshot, Snapshot, SplitAct,
    SplitOutcome, Stop, Window,
};
use hugepilot_units::{Bytes, Nanos, PageSizes, Region};

use crate::cost::CostModel;
use crate::layout::Layout;
use crate::machine::{Machine, MachineConfig, merge};
use crate::memory::MemoryUse;
use crate::pages::PageClass;
use crate::pcc::Ranked;
use crate::runs::{Batch, Footprint, count};

pub use coverage::Coverage;
use coverage::{Scan, pages_of};
use samples::Samples;

const SIZES: PageSizes = PageSizes::X86_64;
/// Samples of a simulated second, if each access costs [`CostModel::mean`].
const SAMPLES_PER_SECOND: f64 = 1000.0;
/// Time of a promotion, as policies count it.
const PROMOTION: Nanos = Nanos::new(500_000);

/// Bytes of a region in a snapshot, in the state of a policy and in its heat table, about.
const DECISION_BYTES: u64 = 1152;

/// Configuration.
#[derive(Clone, Debug)]
pub struct TunedConfig {
    /// TLBs and candidate caches.
    pub machine: MachineConfig,
    /// Policy and its limits.
    pub goal: TuneGoal,
    /// Accesses of a simulated second, at least 1.
    pub rate: u64,
    /// Huge pages that the fragmented memory has; `None` for as many as wanted.
    pub frames: Option<u64>,
    /// Mean of the access coverage.
    pub coverage: Coverage,
    /// Costs from which samples follow.
    pub cost: CostModel,
    /// Whether regions of 1 GiB are promoted, too, whose huge pages walk (section 3.2.3).
    pub giant: bool,
}

impl TunedConfig {
    /// Cycles of a sample.
    #[allow(clippy::cast_precision_loss)]
    fn period(&self) -> f64 {
        (self.rate as f64 / SAMPLES_PER_SECOND).max(1.0) * self.cost.mean()
    }
}

/// State of the simulated processes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Accesses so far.
    pub accesses: u64,
    /// Name of each process.
    pub names: &'a [String],
    /// Regions in use.
    pub footprint: &'a Footprint,
    /// Mappings.
    pub layout: &'a Layout,
}

/// Promotion or demotion that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunedAct {
    /// Accesses before.
    pub accesses: u64,
    /// Number of the region in the footprint.
    pub region: u32,
    /// Whether it was promoted.
    pub promotes: bool,
}

/// Process in view.
#[derive(Clone, Debug)]
struct Watched {
    id: ProcessId,
    /// Next decision; `None` if nothing more can change.
    due: Option<Nanos>,
    window: Window,
    /// Visits and references of its regions that the window has.
    counted: Vec<(u64, u64)>,
    /// Accesses that the window has.
    accesses: u64,
    /// Cycles since the last sample.
    carry: f64,
    /// Accesses and walks at the last decision of `pcc`.
    walked: (u64, u64),
}

impl Watched {
    fn is_due(&self, time: Nanos) -> bool {
        self.due.is_some_and(|due| due <= time)
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct TunedMachine {
    config: TunedConfig,
    machine: Machine,
    state: State,
    watched: BTreeMap<u16, Watched>,
    /// Access coverage of each region.
    covered: Vec<f64>,
    scan: Scan,
    /// Heat and streams, for the policy `heat`.
    samples: Option<Samples>,
    frames: Option<u64>,
    acts: Vec<TunedAct>,
    giants: u64,
    rounds: u64,
    /// Regions in use at the last decision.
    known: usize,
}

impl TunedMachine {
    /// Creates a machine whose TLBs are empty.
    pub fn new(config: TunedConfig) -> Self {
        let is_heat = matches!(config.goal.policy, Policy::Heat);
        Self {
            machine: Machine::new(config.machine.clone()),
            state: State::default(),
            watched: BTreeMap::new(),
            covered: Vec::new(),
            scan: Scan::default(),
            samples: is_heat.then(|| Samples::new(config.cost, config.period())),
            frames: config.frames,
            config,
            acts: Vec::new(),
            giants: 0,
            rounds: 0,
            known: 0,
        }
    }

    /// Returns the TLBs.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }
    /// Returns what was promoted and demoted, in order.
    pub fn acts(&self) -> &[TunedAct] {
        &self.acts
    }
    /// Returns how many 1 GiB regions were promoted.
    pub const fn giants(&self) -> u64 {
        self.giants
    }
    /// Returns the access coverage of the regions on base pages, highest first, ties by number.
    pub fn covered(&self) -> Vec<Ranked> {
        let ranked = |(region, &mean): (u32, &f64)| {
            let is_candidate = self.machine.class(region) == PageClass::Base && mean > 0.0;
            is_candidate.then(|| Ranked { region, frequency: pages_of(mean) })
        };
        let mut all: Vec<Ranked> = (0..).zip(&self.covered).filter_map(ranked).collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.frequency), one.region));
        all
    }
    /// Returns the configuration.
    pub const fn config(&self) -> &TunedConfig {
        &self.config
    }

    /// Returns the memory that it takes.
    pub fn memory(&self) -> MemoryUse {
        let decision = MemoryUse { region_bytes: DECISION_BYTES, ..MemoryUse::default() };
        self.machine.memory().and(decision)
    }

    /// Executes the runs of the next batch. Decisions are not due meanwhile.
    pub fn run(&mut self, batch: &Batch) {
        self.machine.run(batch);
        if let Some(samples) = &mut self.samples {
            samples.run(batch);
        }
    }

    /// Notes the coverage of an observation: [`crate::RegionPages::covered`] since it began, of the
    /// regions that it scans.
    pub fn note_coverage(&mut self, footprint: &Footprint) {
        self.covered.resize(footprint.regions().len(), 0.0);
        let regions = footprint.regions();
        for number in self.scan.next(self.config.coverage.scan, regions) {
            let mean = &mut self.covered[number];
            *mean = self.config.coverage.after(*mean, count(&regions[number].covered));
        }
    }

    /// Returns the simulated time after `accesses`.
    #[allow(clippy::cast_possible_truncation)]
    pub fn time(&self, accesses: u64) -> Nanos {
        let rate = u128::from(self.config.rate.max(1));
        Nanos::new((u128::from(accesses) * 1_000_000_000 / rate) as u64)
    }

    /// Whether [`Self::decide`] has something to do after `accesses`, with this number of regions
    /// in use: at first, it notes when the decisions are due.
    pub fn is_due(&self, accesses: u64, regions: usize) -> bool {
        let time = self.time(accesses);
        let is_due = |one: &Watched| one.is_due(time);
        self.watched.is_empty() || self.has_touched(regions) || self.watched.values().any(is_due)
    }

    /// Whether the policy acts at the first touch of a region, and regions came into use since the
    /// last decision.
    fn has_touched(&self, regions: usize) -> bool {
        matches!(self.config.goal.policy, Policy::Linux | Policy::All) && regions != self.known
    }

    /// Decides what is due, and acts. Returns the round, if one was due.
    pub fn decide(&mut self, view: &View<'_>) -> Option<Round> {
        let (time, regions) = (self.time(view.accesses), view.footprint.regions().len());
        self.admit(time, view.names);
        let touched = self.has_touched(regions);
        self.known = regions;
        let is_due = |one: &Watched| one.is_due(time) || touched && one.due.is_some();
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        let due: Vec<u16> = due.map(|(&process, _)| process).collect();
        if due.is_empty() {
            return None;
        }
        if self.config.giant {
            self.promote_giants(view.footprint);
        }
        let processes = due.iter().map(|&process| self.look(process, view)).collect();
        let mut round = self.begin(Snapshot { time, processes, interrupted: false });
        if self.config.machine.candidates.empties {
            self.machine.empty_candidates();
        }
        for (&process, row) in due.iter().zip(&mut round.rows) {
            row.outcome = self.act(process, &row.decision, view);
            self.plan_next(process, row.decision.next, time);
        }
        Some(round)
    }

    /// Starts the round of a snapshot.
    fn begin(&mut self, snapshot: Snapshot) -> Round {
        self.rounds += 1;
        let decision = self.config.goal.decide(&snapshot, &self.state);
        decision.begin(self.rounds, snapshot, &mut self.state)
    }

    /// Changes the class of a region, and the number of free huge pages with it, after `accesses`.
    pub fn set_class(&mut self, region: u32, class: PageClass, accesses: u64) {
        if self.machine.class(region) == class {
            return;
        }
        let promotes = class == PageClass::Huge;
        self.machine.set_class(region, class);
        self.frames =
            self.frames.map(|free| if promotes { free.saturating_sub(1) } else { free + 1 });
        self.acts.push(TunedAct { accesses, region, promotes });
    }

    /// Begins to watch new processes.
    fn admit(&mut self, time: Nanos, names: &[String]) {
        for (process, name) in (0..).zip(names) {
            self.watched.entry(process).or_insert_with(|| Watched {
                id: ProcessId {
                    pid: Pid(i32::from(process) + 1),
                    start_ticks: 0,
                    command: name.clone(),
                },
                due: Some(time + self.config.goal.first_decision()),
                window: Window { cpu: Some(Nanos::ZERO), ..Window::starting(time) },
                counted: Vec::new(),
                accesses: 0,
                carry: 0.0,
                walked: (0, 0),
            });
        }
    }

    /// Reads a process.
    fn look(&mut self, process: u16, view: &View<'_>) -> ProcessSnapshot {
        let View { accesses, footprint, layout, .. } = *view;
        self.count(process, view);
        let covered: Vec<u32> = if matches!(self.config.goal.policy, Policy::Hawkeye(_)) {
            self.covered.iter().map(|&mean| pages_of(mean)).collect()
        } else {
            footprint.regions().iter().map(|region| count(&region.covered)).collect()
        };
        let mut memory =
            layout.memory(process, self.time(accesses), footprint, &self.machine, &covered);
        if let Some(samples) = &self.samples {
            memory.heat = samples.heat(process, self.config.machine.preset.base_entries());
        }
        let window = match self.config.goal.policy {
            Policy::Pcc(_) => self.tables(process, footprint),
            _ => self.watched[&process].window.clone(),
        };
        ProcessSnapshot { id: self.watched[&process].id.clone(), window, memory }
    }

    /// Adds the samples since the last count to the window of a process.
    #[allow(clippy::cast_precision_loss)]
    fn count(&mut self, process: u16, view: &View<'_>) {
        let (time, footprint) = (self.time(view.accesses), view.footprint);
        let Some(watched) = self.watched.get_mut(&process) else { return };
        let cost = self.config.cost;
        let period = self.config.period();
        let mut carry = watched.carry;
        let mut sample = |cycles: f64| {
            carry += cycles;
            let samples = (carry / period).floor();
            carry -= samples * period;
            samples
        };
        watched.counted.resize(footprint.regions().len(), (0, 0));
        let counts = self.machine.counts_of_regions();
        let mut accesses = 0;
        let regions = footprint.regions().iter().zip(counts).zip(&mut watched.counted);
        for (number, ((region, counts), counted)) in regions.enumerate() {
            if region.process() != process {
                continue;
            }
            accesses += counts.accesses;
            let (visits, references) = (region.visits, counts.walk_references);
            let stalled = (visits - counted.0) as f64 * cost.visit
                + (references - counted.1) as f64 * cost.reference;
            *counted = (visits, references);
            let (all, streamed) = (sample(stalled), self.samples.as_mut());
            let streamed = streamed.map_or(0.0, |samples| samples.take_streamed_share(number));
            // Samples of streams do not count as stalls, as on a live process.
            let streamed = (all * streamed).round();
            add_stalls(&mut watched.window, region.region(), all - streamed);
            add_samples(&mut watched.window, streamed);
        }
        let others = sample((accesses - watched.accesses) as f64 * cost.access);
        watched.accesses = accesses;
        watched.carry = carry;
        add_samples(&mut watched.window, others);
        let length = time - watched.window.until;
        watched.window.until = time;
        watched.window.cpu = watched.window.cpu.map(|cpu| cpu + length);
    }

    fn act(&mut self, process: u16, decided: &ProcessDecision, view: &View<'_>) -> ProcessOutcome {
        let (accesses, time) = (view.accesses, self.time(view.accesses));
        let mut outcome = ProcessOutcome::default();
        let number = |region: Region| view.footprint.find(process, region.range(SIZES).start.get());
        for &region in &decided.demote {
            let Some(found) = number(region) else { continue };
            self.set_class(found, PageClass::Base, accesses);
            self.state.of_mut(&decided.process).note_demoted(region, SIZES.huge, time);
            let freed = SplitOutcome::Freed(Bytes::ZERO);
            outcome.demotions.push(SplitAct { region, took: PROMOTION, outcome: freed });
        }
        for promotion in &decided.promote {
            let region = promotion.region;
            let Some(found) = number(region) else { continue };
            if self.frames == Some(0) {
                outcome.attempts.stopped = Some(Stop::NoHugePages);
                break;
            }
            self.set_class(found, PageClass::Huge, accesses);
            let act = Act { region, took: PROMOTION, calls: 1, outcome: ActOutcome::Verified };
            self.state.of_mut(&decided.process).note(&act, promotion, SIZES.huge, time);
            outcome.attempts.acts.push(act);
        }
        if !outcome.demotions.is_empty() || !outcome.attempts.acts.is_empty() {
            (outcome.begun, outcome.ended) = (Some(time), Some(time));
        }
        outcome
    }

    /// Notes when the next decision is due.
    fn plan_next(&mut self, process: u16, next: Next, time: Nanos) {
        let Some(watched) = self.watched.get_mut(&process) else { return };
        let next = NextDecision::after(next, watched.window.length(), time);
        watched.due = next.at;
        if next.window.is_some() {
            // Promotions took effect at once, so nothing has to settle.
            watched.window = Window { cpu: Some(Nanos::ZERO), ..Window::starting(time) };
        } else if next.fades {
            watched.window.fade();
            self.samples.iter_mut().for_each(|samples| samples.fade(process));
        }
    }
}

fn add_stalls(window: &mut Window, region: Region, samples: f64) {
    if samples >= 1.0 {
        add_samples(window, samples);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let samples = samples as u32;
        let stalls = window.stalls.entry(region).or_insert(0);
        *stalls = stalls.saturating_add(samples);
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn add_samples(window: &mut Window, samples: f64) {
    window.samples += samples as u64;
}

#[cfg(test)]
mod tests;
