//! Goal `tune`: promote what pays, after a trial inside the process.
//!
//! A call of [`TuneGoal::decide`] is one round. From the process at one moment and the state of the
//! round before, it returns the actions and the next state. The engine acts, records the outcomes
//! in the state ([`TuneState::note`]), waits as decided, and calls again.
//!
//! ```text
//! observe ──▶ trial ──▶ gain ──▶ promote the rest ──▶ check ──▶ watch for new hot memory
//!    │          ├─▶ no gain ──▶ demote what was promoted ──▶ done
//!    │          └─▶ open ──▶ promote where huge pages cost no memory ──▶ check ──▶ watch
//!    └─▶ no trial possible ──▶ promote by the calibrated model ──▶ watch
//! ```

mod candidates;
mod decide;
mod state;
#[cfg(test)]
mod tests;

pub use candidates::{Candidate, Candidates};
pub use state::{Phase, RegionHistory, TrialResult, TuneState};

use std::collections::BTreeMap;

use hugepilot_record::{Headroom, Skips, Snapshot};
use hugepilot_units::{Amount, Bytes, Nanos, Region, Share};
use serde::{Deserialize, Serialize};

use crate::trial::TrialRules;
use crate::{Calibration, Limits};

/// Samples of one process since a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, on the monotonic clock.
    pub since: Nanos,
    /// End.
    pub until: Nanos,
    /// Samples of all kinds.
    pub samples: u64,
    /// Samples without an address.
    pub unknown: u64,
    /// Samples whose address is that of the next access.
    pub chased: u64,
    /// Stalls on scattered memory with an address, without the chased ones, by region.
    pub stalls: BTreeMap<Region, u32>,
}

impl Window {
    /// Returns the length.
    pub fn length(&self) -> Nanos {
        self.until - self.since
    }
    /// Returns the stalls of all regions.
    pub fn stalled(&self) -> u64 {
        self.stalls.values().map(|&count| u64::from(count)).sum()
    }
}

/// A process at one moment, as the goal sees it.
#[derive(Clone, Copy, Debug)]
pub struct TuneView<'a> {
    /// Now, on the monotonic clock.
    pub time: Nanos,
    /// Mappings, pages and heat.
    pub snapshot: &'a Snapshot,
    /// Samples since the window was last restarted.
    pub window: &'a Window,
}

/// Goal and its limits.
#[derive(Clone, Debug)]
pub struct TuneGoal {
    /// Most memory on huge pages that the goal may make; `None` for as much as pays.
    pub budget: Option<Amount>,
    /// Most memory that huge pages may add, as a share of the resident memory.
    pub max_added: Share,
    /// Time over which a promotion must pay.
    pub horizon: Nanos,
    /// Least predicted gain without a trial.
    pub min_gain: Share,
    /// Leave the promoted regions huge if the trial shows no gain.
    pub keep: bool,
    /// First observation.
    pub observe: Nanos,
    /// Longest trial.
    pub trial_time: Nanos,
    /// Pause between promotion and the trial's samples, and between readings.
    pub settle: Nanos,
    /// Tries per region.
    pub max_tries: u32,
    /// Seed of the trial's coin.
    pub seed: u64,
    /// Rules of the trial.
    pub trial: TrialRules,
    /// Safety limits.
    pub limits: Limits,
    /// Model for processes in which no trial is possible.
    pub calibration: Calibration,
}

/// Region to promote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promotion {
    /// Region.
    pub region: Region,
    /// Expected share of all samples.
    pub heat_ratio: f64,
    /// Memory that the huge page adds.
    pub added: Bytes,
}

/// Next thing the engine does after acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// Observe for this time, and add to the window.
    Observe(Nanos),
    /// Wait for the first time, then start a new window and observe for the second.
    Restart(Nanos, Nanos),
    /// Nothing more can change.
    End,
}

/// Actions of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneDecision {
    /// Regions to promote, in this order.
    pub promote: Vec<Promotion>,
    /// Regions to return to base pages.
    pub demote: Vec<Region>,
    /// Regions skipped, by reason.
    pub skipped: Skips,
    /// Stalls on skipped regions, by reason.
    pub skipped_stalls: BTreeMap<hugepilot_record::SkipReason, u64>,
    /// Next step.
    pub next: Next,
    /// State for the next round.
    pub state: TuneState,
}

/// Memory that a round may still use.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    huge: Bytes,
    added: Bytes,
    headroom: Headroom,
    taken: Bytes,
}
