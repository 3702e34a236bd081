//! Splits of huge pages: plan and outcomes.

use hugepilot_units::{Bytes, Nanos, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{Errno, SkipReason, Skips};

/// Huge page to split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Index of the process among those of the plan.
    pub process: usize,
    /// The region of the huge page.
    pub region: Region,
    /// A base page of it, zero-filled if there is one: the call names it, and the kernel ages it.
    pub page: VirtAddr,
    /// Memory that the split should free.
    pub frees: Bytes,
    /// Expected stall samples in an interval as long as the observation; 0 without samples.
    pub stalls: f64,
    /// Whether the process maps only a part of the page, so that no huge entry is lost. `page` is
    /// then a mapped page.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stranded: bool,
}

/// Plan of a debloat policy: every candidate, best first. The caller stops when enough is free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// Splits in order.
    pub splits: Vec<Split>,
    /// Skipped huge pages.
    pub skipped: Skips,
}

impl SplitPlan {
    /// Returns the number of splits, from the first, that should free `wanted`.
    pub fn enough_for(&self, wanted: Bytes) -> usize {
        let mut freed = Bytes::ZERO;
        let enough = self.splits.iter().take_while(|split| {
            let more = freed < wanted;
            freed += split.frees;
            more
        });
        enough.count()
    }
}

/// Outcome of a split. A return value alone never makes it `Freed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitOutcome {
    /// The pagemap shows base pages afterwards, and this much memory was freed.
    Freed(Bytes),
    /// The kernel reported success, and the huge page still exists: it is pinned or shared.
    StillHuge,
    /// The call failed.
    Failed(Errno),
    /// Not attempted.
    Skipped(SkipReason),
}

impl SplitOutcome {
    /// Returns the memory that was freed.
    pub const fn freed(self) -> Bytes {
        match self {
            Self::Freed(bytes) => bytes,
            _ => Bytes::ZERO,
        }
    }
}

/// A split that was attempted, or skipped at its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitAct {
    /// The region.
    pub region: Region,
    /// Time of the call, without time in the run queue.
    pub took: Nanos,
    /// Its outcome.
    pub outcome: SplitOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_ends_when_enough_is_free() {
        let split = |mib| Split {
            process: 0,
            region: Region::new(mib),
            page: VirtAddr::new(0),
            frees: Bytes::mib(mib),
            stalls: 0.0,
            stranded: false,
        };
        let plan = SplitPlan { splits: vec![split(3), split(2), split(1)], skipped: Skips::new() };
        let enough = [0, 1, 3, 4, 5, 6, 7].map(|mib| plan.enough_for(Bytes::mib(mib)));
        assert_eq!(enough, [0, 1, 1, 2, 2, 3, 3]);
    }
}
