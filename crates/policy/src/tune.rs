//! Goal `tune`: promote what pays, after a trial inside each process.
//!
//! A call of [`TuneGoal::decide`] is one round. From the processes at one moment and the state of
//! the round before, it returns the actions and the next state. The engine acts, records the
//! outcomes in the state ([`ProcessState::note`]), waits as decided, and calls again.
//!
//! Each process has phases of its own; all share budget and headroom:
//!
//! ```text
//! observe ──▶ trial ──▶ gain ──▶ spread: promote the rest ──▶ check ──▶ watch for new hot memory
//!    │          ├─▶ no gain ──▶ demote what was promoted ──▶ done
//!    │          └─▶ open ──▶ spread where huge pages cost no memory ──▶ check ──▶ watch
//!    └─▶ no trial possible ──▶ promote by the calibrated model ──▶ watch
//! ```

mod all;
mod allowance;
mod candidates;
mod decide;
mod exchange;
mod expected;
pub(crate) mod explain;
mod hawkeye;
mod interval;
mod khugepaged;
mod linux;
mod never;
mod next_decision;
mod pairs;
mod pcc;
mod policy;
mod process;
mod schedule;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use hugepilot_record::Mapping;
use hugepilot_units::{Amount, Nanos, PageSizes, Region, Share};
use serde::{Deserialize, Serialize};

pub use candidates::{AddedMemory, Candidate, Candidates};
pub use decide::Decision;
pub use expected::prediction_input;
pub use hawkeye::{Buckets, HawkeyeRules};
pub use khugepaged::KhugepagedRules;
pub use linux::FirstTouch;
pub use next_decision::NextDecision;
pub use pcc::{PccRules, Selection};
pub use policy::Policy;
pub use schedule::{
    FoundMapping, JournalSchedule, NoSchedule, NoTime, ScheduleProgress, ScheduleRules,
    find_mappings, index_of, region_at,
};
pub use state::{Cursor, Place, ProcessState, State, TrialResult, TriedRegion, TunePhase};

use crate::trial::TrialRules;
use crate::{Calibration, Limits};

/// Samples of a process below which nothing is decided or predicted by them.
pub const MIN_SAMPLES: u64 = 50;

/// Goal and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneGoal {
    /// Policy.
    #[serde(default)]
    pub policy: Policy,
    /// Most memory on huge pages that the goal may make; `None` for as much as pays.
    pub budget: Option<Amount>,
    /// Most memory that huge pages may add, as a share of the resident memory: base pages that are
    /// not resident, and those that the program freed lazily. `None` for no limit, as in the
    /// kernel.
    pub max_added: Option<Share>,
    /// Time over which a promotion must pay.
    pub horizon: Nanos,
    /// Least predicted gain without a trial. The model can be wrong by a factor of two.
    pub min_gain: Share,
    /// Leave the promoted regions huge if the trial shows no gain.
    pub keep: bool,
    /// Decide everything by the model after the first observation, without a trial.
    pub model_only: bool,
    /// Watch until the process ends, also if nothing is left to promote.
    pub persistent: bool,
    /// First observation, and the time between later ones.
    pub observe: Nanos,
    /// Samples with an address that the first observation should have. Fewer do not distinguish a
    /// hot page from hot memory.
    pub min_addresses: u64,
    /// Longest first observation while they are fewer.
    pub max_observe: Nanos,
    /// Samples with an address that end the first observation after half its time. If set, the
    /// engine samples until the first decision at the rate of a trial, for [`Policy::Heat`]. `None`
    /// for the whole time at the usual rate.
    #[serde(default)]
    pub enough_addresses: Option<u64>,
    /// Longest trial.
    pub trial_time: Nanos,
    /// Pause between promotion and the trial's samples, and between readings.
    pub settle: Nanos,
    /// Tries per region.
    pub max_tries: u32,
    /// Regions that one round promotes at most.
    pub regions_per_round: usize,
    /// Seed of the trial's coin.
    pub seed: u64,
    /// Rules of the trial.
    pub trial: TrialRules,
    /// Safety limits.
    pub limits: Limits,
    /// Model of this machine, for processes in which no trial is possible.
    pub calibration: Calibration,
}

impl Default for TuneGoal {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            budget: None,
            max_added: Some(Share::percent(1.0)),
            horizon: Nanos::seconds(60),
            min_gain: Share::percent(2.0),
            keep: false,
            model_only: false,
            persistent: false,
            observe: Nanos::seconds(3),
            min_addresses: 400,
            max_observe: Nanos::seconds(5),
            enough_addresses: Some(1000),
            trial_time: Nanos::seconds(8),
            settle: Nanos::millis(250),
            max_tries: 3,
            regions_per_round: 512,
            seed: 1,
            trial: TrialRules::default(),
            limits: Limits::default(),
            calibration: Calibration::default(),
        }
    }
}

impl TuneGoal {
    /// Returns how many regions a round promotes at most. The model decides once, so that no later
    /// round would show the rest.
    pub(crate) fn round_regions(&self) -> usize {
        if self.model_only { usize::MAX } else { self.regions_per_round }
    }

    /// Whether the first observation is sampled closely, so that it may end early.
    pub const fn looks_closely(&self) -> bool {
        self.enough_addresses.is_some() && matches!(self.policy, Policy::Heat)
    }

    /// Returns the time from the first sight of a process to its first decision, unless it is
    /// sampled closely.
    pub fn first_decision(&self) -> Nanos {
        match &self.policy {
            Policy::Schedule(_) => schedule::FIRST_LOOK.min(self.observe),
            Policy::Pcc(PccRules { early, .. }) if *early > Nanos::ZERO => *early,
            _ => self.observe,
        }
    }

    /// Returns the function that selects, of the mappings of a process, the regions whose pages a
    /// decision at `now` needs; `None` if it needs those of all mappings, or of those with samples.
    pub fn needed_regions<'a>(
        &'a self,
        past: Option<&'a ProcessState>,
        sizes: PageSizes,
        now: Nanos,
    ) -> Option<impl Fn(&[Mapping]) -> BTreeSet<Region> + 'a> {
        let Policy::Schedule(rules) = &self.policy else { return None };
        Some(move |mappings: &[Mapping]| rules.needed_regions(self, past, mappings, sizes, now))
    }

    /// Returns the time from the first sample of a process to the first reading of its memory.
    pub const fn first_look(&self) -> Nanos {
        let parts = if self.looks_closely() { 2 } else { 1 };
        Nanos::new(self.observe.get() / parts)
    }
}
