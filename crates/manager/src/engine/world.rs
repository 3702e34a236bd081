//! The machine, as the engine sees it.

use std::collections::BTreeSet;
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Target};
use hugepilot_policy::daemon::Key;
use hugepilot_policy::tune::TuneGoal;
use hugepilot_record::{
    Mapping, Pid, ProcessId, ProcessMemory, ProcessSnapshot, Promotion, Window,
};
use hugepilot_units::{Nanos, Region};

use crate::debloat::Stalls;

/// Processes and pages that a goal needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Processes with samples, and the pages of their mappings with samples.
    Sampled,
    /// Also processes without samples, and the pages of all mappings.
    All,
}

impl Scope {
    /// Returns the scope of `goal`.
    pub const fn of(goal: &TuneGoal) -> Self {
        if goal.policy.needs_samples() { Self::Sampled } else { Self::All }
    }
}

/// Selects, of the mappings of a process, the regions whose pages are read.
pub type NeededRegions<'a> = &'a dyn Fn(&[Mapping]) -> BTreeSet<Region>;

/// The machine, as every controller sees it.
pub trait World {
    /// Returns the time, on the monotonic clock.
    fn now(&self) -> Nanos;
    /// Samples until `end`; returns earlier if [`World::is_over`].
    fn observe(&mut self, end: Nanos);
    /// Whether the user interrupted, or no process is left.
    fn is_over(&self) -> bool;
    /// Whether the user interrupted.
    fn is_interrupted(&self) -> bool;
    /// Whether the process of this pid and start time has ended. One that cannot be read has not.
    fn has_ended(&self, key: Key) -> bool;
    /// Returns the processes that started a program since the last call, maybe the same one: their
    /// samples and their past are void.
    fn restarted(&mut self) -> Vec<Pid>;
    /// Opens a process.
    ///
    /// # Errors
    /// The process has ended, or may not be read.
    fn target(&mut self, pid: Pid) -> Result<Rc<dyn Target>, KernelError>;
    /// Ends the sampling. Returns the stalls of each process; `None` for one that was not sampled.
    fn end_sampling(&mut self, pids: &[Pid]) -> Vec<Option<Stalls>>;
}

/// The machine, as a tune sees it.
pub trait TuneWorld: World {
    /// Returns the processes with samples and, in [`Scope::All`], those that the user named.
    fn in_view(&self, scope: Scope) -> Vec<Pid>;
    /// Whether the user named a process.
    fn is_named(&self, pid: Pid) -> bool;
    /// Returns the samples of a process since its window began; `None` before the first one.
    fn window(&self, pid: Pid) -> Option<&Window>;
    /// Begins a new window of a process, at a time now or later.
    fn restart(&mut self, pid: Pid, from: Nanos);
    /// Halves the window of a process.
    fn fade(&mut self, pid: Pid);
    /// Drops a process.
    fn forget(&mut self, pid: Pid);
    /// Reads the memory of a process, with the pages of the `needed` regions; without these, of the
    /// scope.
    ///
    /// # Errors
    /// As for [`World::target`].
    fn memory(
        &mut self,
        pid: Pid,
        scope: Scope,
        needed: Option<NeededRegions<'_>>,
    ) -> Result<ProcessMemory, KernelError>;
    /// Samples these processes more often, until the next call; none for the usual rate.
    fn boost(&mut self, pids: &[Pid]);
    /// Is called before a trial promotes `regions`.
    fn trial_begins(&mut self, seen: &ProcessSnapshot, regions: &[Promotion]) {
        let _ = (seen, regions);
    }
    /// Is called after each round of a process that is not in a trial.
    fn trial_ended(&mut self, id: &ProcessId) {
        let _ = id;
    }
    /// Is called when no huge page was free for an act. Returns whether the world freed some of its
    /// own.
    fn lacks_huge_pages(&mut self) -> bool {
        false
    }
    /// Whether [`Self::compact`] is permitted, and 20 times the time of the last one is over.
    fn may_compact(&self) -> bool {
        true
    }
    /// Makes the kernel compact the memory of the whole machine, so that base pages of split huge
    /// pages move together. Takes up to seconds.
    fn compact(&mut self) {}
    /// Is called after each act in a process, with the number of acts of this round and of those
    /// planned.
    fn acted(&mut self, pid: Pid, done: usize, all: usize);
}
