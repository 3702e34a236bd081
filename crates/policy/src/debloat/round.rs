//! Round of splits: what was seen, planned and done, as its journal has it.

use std::collections::BTreeMap;

use hugepilot_record::{Census, SplitAct, SplitPlan, Stop};
use hugepilot_units::{Bytes, Nanos, Region};
use serde::{Deserialize, Serialize};

use super::{DebloatPolicy, DebloatView, Priority};
use crate::daemon::RegionHistory;

/// Process with everything that the plan depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenProcess {
    /// Its huge pages.
    pub census: Census,
    /// Stall samples per region that huge pages help; `None` if it was not sampled.
    pub stalls: Option<BTreeMap<Region, u32>>,
    /// Priority set by the user.
    pub priority: Priority,
    /// Weight for [`super::Fairness::Weight`].
    pub weight: f64,
    /// Earlier changes of its bloated regions by the daemon.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub past: BTreeMap<Region, RegionHistory>,
}

impl SeenProcess {
    fn view(&self) -> DebloatView<'_> {
        DebloatView {
            census: &self.census,
            stalls: self.stalls.as_ref(),
            priority: self.priority,
            weight: self.weight,
            past: Some(&self.past),
        }
    }
}

/// Splits of a process, with their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitOutcomes {
    /// Splits in order.
    pub acts: Vec<SplitAct>,
    /// Cause of an end before the plan was done.
    pub ended: Option<Stop>,
}

/// A process in a round of splits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitRow {
    /// Its huge pages, as the plan saw them.
    pub seen: SeenProcess,
    /// Its splits; none in a dry run.
    pub outcome: SplitOutcomes,
}

/// Round of splits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitRound {
    /// Time of the plan, on the monotonic clock.
    pub time: Nanos,
    /// The processes.
    pub rows: Vec<SplitRow>,
    /// Memory to free.
    pub wanted: Bytes,
    /// The plan.
    pub plan: SplitPlan,
    /// Whether nothing was to be split.
    pub dry_run: bool,
    /// Cause of an early end of the round.
    pub stopped: Option<Stop>,
}

impl SplitRound {
    /// Plans the round again.
    pub fn plan_again(&self, policy: &DebloatPolicy) -> SplitPlan {
        let views: Vec<DebloatView<'_>> = self.rows.iter().map(|row| row.seen.view()).collect();
        policy.plan(&views, self.time)
    }
}
