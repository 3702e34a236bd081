//! Huge pages to be split, and what came of it.

use hugepilot_units::{Bytes, Nanos, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::{Errno, SkipReason, Skips};

/// One huge page to be split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Index of the process among those that were planned for.
    pub process: usize,
    /// Which huge page.
    pub region: Region,
    /// A zero-filled base page of it: the one to name, because the named page is aged.
    pub page: VirtAddr,
    /// What that should free.
    pub frees: Bytes,
    /// Stall samples expected on it in a stretch as long as the one observed; 0 where nobody looked.
    pub stalls: f64,
}

/// What a de-bloating policy decided: everything that could be split, best first. Work through it until enough is freed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitPlan {
    /// In this order.
    pub splits: Vec<Split>,
    /// Passed over.
    pub skipped: Skips,
}

impl SplitPlan {
    /// How many of the first splits it should take to free `wanted`.
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

/// What came of one split. The return value of the kernel alone never makes it `Freed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitOutcome {
    /// A look afterwards showed base pages, and so much less memory in use.
    Freed(Bytes),
    /// The kernel said yes, and the huge page is still there: it is pinned, or shared.
    StillHuge,
    /// The kernel said no.
    Failed(Errno),
    /// It was not tried.
    Skipped(SkipReason),
}

/// One split that was tried, or passed over when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitAct {
    /// The region.
    pub region: Region,
    /// How long the call took, without waiting for a processor.
    pub took: Nanos,
    /// What came of it.
    pub outcome: SplitOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_worked_off_until_enough_is_freed() {
        let split = |mib| Split {
            process: 0,
            region: Region::new(mib),
            page: VirtAddr::new(0),
            frees: Bytes::mib(mib),
            stalls: 0.0,
        };
        let plan = SplitPlan { splits: vec![split(3), split(2), split(1)], skipped: Skips::new() };
        let enough = [0, 1, 3, 4, 5, 6, 7].map(|mib| plan.enough_for(Bytes::mib(mib)));
        assert_eq!(enough, [0, 1, 1, 2, 2, 3, 3]);
    }
}
