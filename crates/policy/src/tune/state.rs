//! State of the goal between rounds.

use std::collections::BTreeMap;

use hugepilot_record::tune::Prediction;
use hugepilot_record::{Act, Outcome};
use hugepilot_units::{Bytes, Nanos, Region};
use serde::{Deserialize, Serialize};

use crate::trial::{Estimate, NoTrial, Pair, StallShares, TrialVerdict};

/// History of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionHistory {
    /// Promotions that failed.
    pub failures: u32,
    /// Time of the verified promotion.
    pub promoted: Option<Nanos>,
    /// Time of the demotion.
    pub demoted: Option<Nanos>,
}

/// A trial that ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Verdict; `Open` if its time was over.
    pub verdict: TrialVerdict,
    /// Last estimate; `None` if an arm had no samples.
    pub estimate: Option<Estimate>,
    /// Speedup if all eligible memory is huge.
    pub bracket: Option<Prediction>,
    /// Time from the first promotion to the verdict.
    pub took: Nanos,
    /// Whether both arms agreed once both were huge; `None` before the check.
    pub confirmed: Option<bool>,
}

/// Phase of the goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// First observation.
    #[default]
    Observing,
    /// Arm A is huge, both arms are observed.
    Trial {
        /// Pairs, and their samples before the trial.
        pairs: Vec<(Pair, [u32; 2])>,
        /// Stalls before the trial.
        shares: StallShares,
        /// Start.
        since: Nanos,
    },
    /// Everything that pays is huge; both arms are observed once more.
    Check {
        /// Pairs, and their samples before the trial.
        pairs: Vec<(Pair, [u32; 2])>,
    },
    /// New hot memory is promoted as it appears.
    Watching,
    /// Nothing more can change.
    Ended,
}

/// Memory of past rounds. Losing it loses no more than the past.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TuneState {
    /// Phase.
    pub phase: Phase,
    /// Regions that were tried.
    pub regions: BTreeMap<Region, RegionHistory>,
    /// Trial, once it ended.
    pub trial: Option<TrialResult>,
    /// Why there was none.
    pub no_trial: Option<NoTrial>,
    /// Memory on huge pages before the first promotion.
    pub huge_before: Option<Bytes>,
    /// Memory that huge pages added.
    pub added: Bytes,
    /// Time of all promotions, and their number: the cost of one.
    pub promotion_time: Nanos,
    /// Promotions verified.
    pub promoted: u64,
}

impl TuneState {
    /// Notes the outcome of a promotion that was decided with `added` bytes.
    pub fn note(&mut self, act: &Act, added: Bytes, now: Nanos) {
        let history = self.regions.entry(act.region).or_default();
        if act.outcome == Outcome::Verified {
            history.promoted = Some(now);
            history.demoted = None;
            self.added += added;
            self.promotion_time = self.promotion_time + act.took;
            self.promoted += 1;
        } else {
            history.failures += 1;
        }
    }

    /// Notes a demotion.
    pub fn note_demoted(&mut self, region: Region, now: Nanos) {
        let history = self.regions.entry(region).or_default();
        history.promoted = None;
        history.demoted = Some(now);
    }

    /// Mean time of a promotion; `usual` before the first.
    pub fn promotion_cost(&self, usual: Nanos) -> Nanos {
        self.promotion_time.get().checked_div(self.promoted).map_or(usual, Nanos::new)
    }
}
