//! Allowance: what a round may still use, of all processes together.

use hugepilot_record::{Headroom, ProcessMemory, SkipReason};
use hugepilot_units::Bytes;

use super::{AddedMemory, State, TuneGoal};
use crate::Limits;

impl TuneGoal {
    /// Returns the memory that may be on huge pages, of processes with this resident memory
    /// together; `None` for as much as pays.
    pub fn budget_of(&self, resident: Bytes) -> Option<Bytes> {
        self.budget.map(|budget| budget.of(resident))
    }
}

/// Huge pages, memory and regions that a round may still use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    limits: Limits,
    /// Memory on huge pages.
    huge: Bytes,
    /// Memory that huge pages may add.
    added: Bytes,
    /// Memory that this round adds.
    taken: Bytes,
    regions: usize,
}

impl Allowance {
    /// Allowance of a round. `state` has the usage of all processes.
    pub(super) fn new(goal: &TuneGoal, state: &State) -> Self {
        let sum = |bytes: fn(&super::ProcessState) -> Bytes| -> Bytes {
            state.processes().map(bytes).sum()
        };
        let resident = state.resident();
        let budget = goal.budget_of(resident).unwrap_or(Bytes::MAX);
        let most_added = goal.max_added.map_or(Bytes::MAX, |share| share.of(resident));
        Self {
            limits: goal.limits,
            huge: budget - sum(|process| process.made),
            added: most_added - sum(|process| process.added),
            taken: Bytes::ZERO,
            regions: goal.round_regions(),
        }
    }

    /// Allowance of a round that promotes at most `regions`.
    pub(super) fn of_interval(goal: &TuneGoal, state: &State, regions: usize) -> Self {
        Self { regions, ..Self::new(goal, state) }
    }

    /// Without the limit of regions per round.
    pub(super) fn of_all_rounds(self) -> Self {
        Self { regions: usize::MAX, ..self }
    }

    /// Whether the round may promote no more regions; the next one may.
    pub(super) fn is_full(&self) -> bool {
        self.regions == 0
    }

    /// Whether the budget has no huge page left.
    pub(super) fn is_spent(&self, memory: &ProcessMemory) -> bool {
        self.huge < memory.sizes.huge
    }

    /// Takes one huge page, which adds memory to a process with this memory.
    ///
    /// # Errors
    /// The limit that forbids it.
    pub(super) fn take(
        &mut self,
        memory: &ProcessMemory,
        AddedMemory { total: added, lazily_freed }: AddedMemory,
    ) -> Result<(), SkipReason> {
        let huge = memory.sizes.huge;
        if self.is_spent(memory) || self.added < added - lazily_freed {
            return Err(SkipReason::OverBudget);
        }
        if self.added < added {
            return Err(SkipReason::LazilyFreed);
        }
        if self.limits.is_pressed(memory.pressure) {
            return Err(SkipReason::MemoryPressure);
        }
        let needed = self.taken + added + huge;
        if let Some(reason) = self.limits.headroom_skip(memory.headroom, needed) {
            return Err(reason);
        }
        // A huge page that adds memory leaves the process what it may still grow by.
        let growth = Headroom { system: Bytes::MAX, ..memory.headroom };
        let needed = (self.taken + added).max(memory.untouched) + huge;
        if !added.is_zero() && self.limits.headroom_skip(growth, needed).is_some() {
            return Err(SkipReason::CgroupHeadroom);
        }
        self.huge -= huge;
        self.added -= added;
        self.taken += added;
        self.regions = self.regions.saturating_sub(1);
        Ok(())
    }
}
