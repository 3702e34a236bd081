//! State of the goal between rounds: memory of the past. Losing it loses no more than that.

use std::collections::BTreeMap;

use hugepilot_record::{Act, ActOutcome, Errno, Pid, ProcessId, ProcessMemory, Promotion, Window};
use hugepilot_reports::tune::{NoTrial, TrialVerdict};
use hugepilot_units::{Bytes, Nanos, Region};
use serde::{Deserialize, Serialize};

use super::exchange::{Contest, LEAST_RATIO, USUAL_RATIO};
use super::pairs::CountedPair;
use super::{Buckets, FirstTouch, ScheduleProgress};
use crate::trial::{Estimate, StallShares};

/// History of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRegion {
    /// Promotions that failed.
    pub failures: u32,
    /// Time of the verified promotion.
    pub promoted: Option<Nanos>,
    /// Time of the demotion.
    pub demoted: Option<Nanos>,
    /// Demotions so far. Each doubles the time for which the next promotion stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub demotions: u32,
    /// Memory that its huge page added and that a split returns.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub added: Bytes,
    /// Stalls in a million samples when its promotion was decided, for the demotion by `pcc`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub before: u64,
    /// Observations in a row without a use, by accessed bits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unused: u32,
}

/// Whether a journal leaves a value out.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// First wait for free huge pages.
const FIRST_WAIT: Nanos = Nanos::seconds(1);
/// Waits in a row: 1, 2 and 4 s, and 8 s each for a persistent goal.
const MAX_WAITS: u32 = 3;
/// Least wait, as a multiple of the time of the attempt before: a twentieth of the CPU time.
const REST: u64 = 20;

/// Doublings of the time for which a promotion stays, at most.
const MAX_DOUBLINGS: u32 = 6;

impl TriedRegion {
    /// Whether its huge page has stayed for long enough that a hotter region may get it. Memory
    /// whose heat comes and goes is exchanged ever more rarely.
    pub(super) fn has_stayed(&self, now: Nanos, horizon: Nanos) -> bool {
        let doublings = self.demotions.min(MAX_DOUBLINGS);
        let time = Nanos::new(horizon.get().saturating_mul(1 << doublings));
        self.promoted.is_some_and(|at| now - at >= time)
    }
}

/// A trial that ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Verdict; `Open` if its time was over.
    pub verdict: TrialVerdict,
    /// Last estimate; `None` if an arm had no samples.
    pub estimate: Option<Estimate>,
    /// Stalls before the trial.
    pub shares: StallShares,
    /// Pairs with a promoted region, if there is no estimate, which has their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<u64>,
    /// Time from the first promotion to the verdict.
    pub took: Nanos,
    /// Whether both arms agreed once both were huge; `None` before the check, or if it was too
    /// short to decide.
    pub confirmed: Option<bool>,
}

impl TrialResult {
    /// The result of a trial of `pairs`, whose arms were not checked yet.
    pub(super) fn new(
        verdict: TrialVerdict,
        estimate: Option<Estimate>,
        pairs: &[CountedPair],
        shares: StallShares,
        took: Nanos,
    ) -> Self {
        let pairs = estimate.is_none().then_some(pairs.len() as u64);
        Self { verdict, estimate, shares, pairs, took, confirmed: None }
    }
}

/// Phase of the goal in a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunePhase {
    /// First observation.
    #[default]
    Observing,
    /// A region of each pair is huge; both are observed.
    Trial {
        /// The pairs.
        pairs: Vec<CountedPair>,
        /// Stalls before the trial.
        shares: StallShares,
        /// Samples before the trial.
        before: Window,
        /// Start.
        since: Nanos,
    },
    /// The rest is promoted.
    Spread {
        /// The pairs of the trial.
        pairs: Vec<CountedPair>,
        /// All samples until the verdict.
        window: Window,
    },
    /// Everything that pays is huge; both regions of each pair are observed once more.
    Check {
        /// The pairs of the trial.
        pairs: Vec<CountedPair>,
    },
    /// New hot memory is promoted as it appears.
    Watching {
        /// Rounds without a promotion since the last one.
        idle: u32,
    },
    /// Nothing more can change.
    Ended,
}

/// Place that a policy reached which goes through the processes in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Last process.
    pub pid: Pid,
    /// Last region.
    pub region: Region,
    /// Time of the decision.
    pub time: Nanos,
}

/// Place that a policy reached, over all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Place of the policies `khugepaged` and `hawkeye`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<Cursor>,
    /// Exchange of the policy `heat` that is not decided yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) contest: Option<Contest>,
}

/// Past of the processes in view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(crate) place: Place,
    processes: BTreeMap<Pid, ProcessState>,
}

impl State {
    /// Returns the state of a process; `None` before its first decision.
    pub fn of(&self, id: &ProcessId) -> Option<&ProcessState> {
        self.processes.get(&id.pid).filter(|state| state.start_ticks == id.start_ticks)
    }
    /// Returns the state of a process, a new one before its first decision.
    pub fn of_mut(&mut self, id: &ProcessId) -> &mut ProcessState {
        let new = || ProcessState { start_ticks: id.start_ticks, ..ProcessState::default() };
        let state = self.processes.entry(id.pid).or_insert_with(new);
        if state.start_ticks != id.start_ticks {
            *state = new();
        }
        state
    }
    /// Begins again with a process: its trial is void and its failures are forgiven. The `resting`
    /// regions are not promoted until the next call.
    pub fn begin_again(&mut self, id: &ProcessId, resting: &[Region]) {
        let state = self.of_mut(id);
        (state.phase, state.trial, state.no_trial) = (TunePhase::Observing, None, None);
        state.waits = 0;
        state.regions.retain(|_, past| past.promoted.is_some());
        for past in state.regions.values_mut() {
            *past = TriedRegion { failures: 0, demoted: None, ..*past };
        }
        for &region in resting {
            // Their rest is longer than a tune: less than any horizon has passed since this time.
            let demoted = Some(Nanos::new(u64::MAX));
            let rests = TriedRegion { demoted, ..TriedRegion::default() };
            // A split of the daemon freed what its huge page had added.
            let before = state.regions.insert(region, rests).unwrap_or_default();
            state.added -= before.added;
        }
    }
    /// Keeps only the processes for which `lives` holds.
    pub fn keep(&mut self, lives: impl Fn(Pid, u64) -> bool) {
        self.processes.retain(|&pid, state| lives(pid, state.start_ticks));
    }
    /// Drops a process that ended or started another program.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }
    /// Returns the states of all processes.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessState> {
        self.processes.values()
    }
    /// Returns the resident memory of all processes, of which a budget may be a share.
    pub fn resident(&self) -> Bytes {
        self.processes.values().map(|state| state.resident).sum()
    }
    /// Returns the pids and start times of all processes.
    pub fn keys(&self) -> impl Iterator<Item = (Pid, u64)> {
        self.processes.iter().map(|(&pid, state)| (pid, state.start_ticks))
    }
    /// Returns the processes whose trial led to promotions that are not complete, and that do not
    /// wait for huge pages.
    pub fn spreading(&self) -> Vec<Pid> {
        let spreads = |state: &ProcessState| matches!(state.phase, TunePhase::Spread { .. });
        self.pids_of(|state| state.waits == 0 && spreads(state))
    }
    /// Returns the processes in which new hot memory is promoted as it appears, except those that
    /// wait for huge pages.
    pub fn watching(&self) -> Vec<Pid> {
        let watches = |state: &ProcessState| matches!(state.phase, TunePhase::Watching { .. });
        self.pids_of(|state| state.waits == 0 && watches(state))
    }
    /// Whether a process is before its first decision.
    pub fn is_new(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_none_or(|state| matches!(state.phase, TunePhase::Observing))
    }
    /// Whether a process takes part in an exchange that is not decided.
    pub fn exchanges(&self, pid: Pid) -> bool {
        self.place.contest.as_ref().is_some_and(|contest| contest.is_of(pid))
    }
    /// Returns the processes with a trial in progress: samples are wanted there, more than usual.
    pub fn in_trial(&self) -> Vec<Pid> {
        self.pids_of(ProcessState::is_in_trial)
    }
    fn pids_of(&self, is: impl Fn(&ProcessState) -> bool) -> Vec<Pid> {
        self.processes.iter().filter(|(_, state)| is(state)).map(|(&pid, _)| pid).collect()
    }
}

/// Past of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Start time, which differs from that of a later process with the same pid.
    pub start_ticks: u64,
    /// Phase.
    pub phase: TunePhase,
    /// Regions that were tried.
    pub regions: BTreeMap<Region, TriedRegion>,
    /// Trial, once it ended.
    pub trial: Option<TrialResult>,
    /// Why there was none.
    pub no_trial: Option<NoTrial>,
    /// Memory that was promoted and still is on huge pages: as last read, with what was promoted
    /// and demoted after that. Huge pages of the program's own do not count.
    pub made: Bytes,
    /// Resident memory, as last read.
    pub resident: Bytes,
    /// Time at which the memory was last read.
    pub read: Option<Nanos>,
    /// Memory that huge pages added.
    pub added: Bytes,
    /// Time of all promotions, and their number: the cost of one.
    pub promotion_time: Nanos,
    /// Promotions verified.
    pub promoted: u64,
    /// Waits for free huge pages since the last verified promotion.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waits: u32,
    /// Time from which huge pages that the kernel gave without a request may be split for hotter
    /// regions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spare_from: Nanos,
    /// Order in which its regions were first seen present, for the policy `linux`.
    #[serde(default, skip_serializing_if = "FirstTouch::is_empty")]
    pub touched: FirstTouch,
    /// Its regions by access coverage, for the policy `hawkeye`.
    #[serde(default, skip_serializing_if = "Buckets::is_empty")]
    pub buckets: Buckets,
    /// Progress of the policy `schedule`.
    #[serde(default, skip_serializing_if = "ScheduleProgress::is_empty")]
    pub schedule: ScheduleProgress,
}

impl ProcessState {
    /// Whether the last round promoted nothing, and no trial is in progress.
    pub const fn is_calm(&self) -> bool {
        matches!(self.phase, TunePhase::Ended | TunePhase::Watching { idle: 1.. })
    }

    /// Whether a trial is in progress.
    pub const fn is_in_trial(&self) -> bool {
        matches!(self.phase, TunePhase::Trial { .. })
    }

    /// Whether a trial is in progress, or what follows from it.
    pub const fn is_trying(&self) -> bool {
        matches!(
            self.phase,
            TunePhase::Trial { .. } | TunePhase::Spread { .. } | TunePhase::Check { .. }
        )
    }

    /// Stall time on huge pages over that on base pages: of the trial, or the usual one.
    pub(super) fn stall_ratio(&self) -> f64 {
        let estimate = self.trial.and_then(|trial| trial.estimate);
        estimate.map_or(USUAL_RATIO, |estimate| estimate.ratio().clamp(LEAST_RATIO, 1.0))
    }

    /// Lower bound of [`Self::stall_ratio`].
    pub(super) fn least_ratio(&self, alpha: f64) -> f64 {
        let estimate = self.trial.and_then(|trial| trial.estimate);
        estimate.map_or(LEAST_RATIO, |estimate| {
            estimate.interval(alpha).0.clamp(LEAST_RATIO / 2.0, 1.0)
        })
    }

    /// Notes memory that was read since the last decision.
    pub(super) fn note_memory(&mut self, memory: &ProcessMemory) {
        if self.read.is_some_and(|read| read >= memory.time) {
            return;
        }
        let promoted = self.regions.iter().filter(|(_, past)| past.promoted.is_some());
        let huge = promoted.filter(|&(&region, _)| memory.is_huge(region)).count();
        self.made = memory.sizes.huge.times(huge as u64);
        (self.resident, self.read) = (memory.resident(), Some(memory.time));
    }

    /// Notes the outcome of `promotion` to a `huge` page.
    pub fn note(&mut self, act: &Act, promotion: &Promotion, huge: Bytes, now: Nanos) {
        let history = self.regions.entry(act.region).or_default();
        if act.is_verified() {
            history.promoted = Some(now);
            history.demoted = None;
            history.added += promotion.added - promotion.lazily_freed;
            self.added += promotion.added;
            self.made += huge;
            self.promotion_time = self.promotion_time + act.took;
            self.promoted += 1;
            self.waits = 0;
        } else {
            history.failures += 1;
        }
    }

    /// Forgives the failures of these acts for lack of huge pages, which say nothing about their
    /// regions.
    pub fn forgive_lack(&mut self, acts: &[Act]) {
        for act in acts.iter().filter(|act| act.outcome == ActOutcome::Failed(Errno::ENOMEM)) {
            if let Some(region) = self.regions.get_mut(&act.region) {
                region.failures = region.failures.saturating_sub(1);
            }
        }
    }

    /// Returns the time after which the next attempt is due, as no huge page was free for these
    /// acts. It doubles with each wait. `None` after three waits, unless the goal is
    /// `persistent`.
    ///
    /// An attempt makes the kernel compact memory, so the time is a multiple of that of the acts.
    pub fn wait_for_huge_pages(&mut self, acts: &[Act], persistent: bool) -> Option<Nanos> {
        if self.waits >= MAX_WAITS && !persistent {
            return None;
        }
        let pause = Nanos::new(FIRST_WAIT.get() << self.waits.min(MAX_WAITS));
        self.waits += 1;
        let lacked = acts.iter().filter(|act| act.outcome == ActOutcome::Failed(Errno::ENOMEM));
        let took: u64 = lacked.map(|act| act.took.get()).sum();
        Some(pause.max(Nanos::new(took.saturating_mul(REST))))
    }

    /// Whether huge pages that the kernel gave without a request may be split for hotter regions at
    /// `now`.
    pub(super) fn may_split_spare(&self, now: Nanos) -> bool {
        self.lacks_huge_pages() && now >= self.spare_from
    }

    /// Notes that splits of such huge pages freed few: none is split until `time`.
    pub const fn rest_spare(&mut self, time: Nanos) {
        self.spare_from = time;
    }

    /// Whether the last attempt found no free huge page.
    pub const fn lacks_huge_pages(&self) -> bool {
        self.waits > 0
    }

    /// Notes the demotion of a `huge` page.
    pub fn note_demoted(&mut self, region: Region, huge: Bytes, now: Nanos) {
        let history = self.regions.entry(region).or_default();
        if history.promoted.is_some() {
            self.made -= huge;
        }
        // A split frees the pages that the program never used.
        self.added -= std::mem::take(&mut history.added);
        history.promoted = None;
        history.demoted = Some(now);
        history.demotions += 1;
    }

    /// Notes that a region was on base pages already when it was to be demoted. It rests as if it
    /// had been demoted.
    pub fn note_lost(&mut self, region: Region, now: Nanos) {
        let history = self.regions.entry(region).or_default();
        (history.promoted, history.demoted) = (None, Some(now));
    }

    /// Mean time of a promotion; `usual` before the first.
    pub fn promotion_cost(&self, usual: Nanos) -> Nanos {
        self.promotion_time.get().checked_div(self.promoted).map_or(usual, Nanos::new)
    }

    /// Whether `region` was promoted and, as far as is known, still is huge.
    pub fn is_promoted(&self, region: Region) -> bool {
        self.regions.get(&region).is_some_and(|past| past.promoted.is_some())
    }

    /// Whether `region` was promoted and, if `memory` was read since, is huge in it.
    pub(super) fn is_still_huge(&self, region: Region, memory: &ProcessMemory) -> bool {
        let promoted = self.regions.get(&region).and_then(|past| past.promoted);
        promoted.is_some_and(|at| memory.time <= at || memory.is_huge(region))
    }
}
