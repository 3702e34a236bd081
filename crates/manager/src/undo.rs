//! Undo of a tune: returns the regions that its journal shows as promoted to base pages.
//!
//! Only the process that was tuned is changed: it has the pid and the start time of the journal,
//! and the stack and the executable that the journal saw last.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::round::Round;
use hugepilot_record::{
    Errno, Mapping, MappingKind, Pid, ProcessId, ProcessSnapshot, SkipReason, SplitAct,
    SplitOutcome, Stop,
};
use hugepilot_reports::undo::{SCHEMA, UndoReport, UndoState, UndoneProcess};
use hugepilot_units::{Bytes, Region, VirtAddr};
use serde::{Deserialize, Serialize};

use crate::act::round::{Changes, DoneAct, PlannedAct, While, carry_out};
use crate::act::split::count;
use crate::act::unreadable;

/// Place of a program in memory. Address-space randomisation gives each start of a program another
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramMark {
    /// End of the main thread's stack.
    stack: Option<VirtAddr>,
    /// Inode and address of the first executable file.
    executable: Option<(u64, VirtAddr)>,
}

impl ProgramMark {
    fn of(mappings: &[Mapping]) -> Self {
        let stack = mappings.iter().find(|mapping| mapping.kind == MappingKind::Stack);
        let executable = mappings
            .iter()
            .find(|mapping| mapping.kind == MappingKind::File && mapping.protection.execute);
        Self {
            stack: stack.map(|mapping| mapping.range.end),
            executable: executable.map(|mapping| (mapping.inode, mapping.range.start)),
        }
    }

    /// Whether it can identify a program.
    const fn is_known(&self) -> bool {
        self.stack.is_some() || self.executable.is_some()
    }
}

/// A process of a journal, and its regions that the tune left on huge pages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Promoted {
    id: ProcessId,
    mark: ProgramMark,
    regions: BTreeSet<Region>,
}

impl Promoted {
    /// Regions of a process that was read.
    pub(crate) fn of(seen: &ProcessSnapshot, regions: BTreeSet<Region>) -> Self {
        let mark = ProgramMark::of(&seen.memory.mappings);
        Self { id: seen.id.clone(), mark, regions }
    }
}

/// Fold over the rounds of a journal: what its tune promoted and did not demote.
#[derive(Clone, Debug, Default)]
pub struct Promotions {
    processes: BTreeMap<(Pid, u64), Promoted>,
}

impl Promotions {
    /// Adds the next round.
    pub fn add(&mut self, round: &Round) {
        for row in &round.rows {
            let seen = &row.seen;
            let mark = ProgramMark::of(&seen.memory.mappings);
            let key = (seen.id.pid, seen.id.start_ticks);
            let new =
                || Promoted { id: seen.id.clone(), mark: mark.clone(), regions: BTreeSet::new() };
            let process = self.processes.entry(key).or_insert_with(new);
            if process.mark != mark {
                // It started another program, which has no regions of the former one.
                *process = new();
            }
            for change in row.changes().filter(|change| change.is_verified) {
                match change.is_promotion {
                    true => process.regions.insert(change.region),
                    false => process.regions.remove(&change.region),
                };
            }
        }
    }

    /// Adds the regions that a trial is about to promote.
    pub(crate) fn begin(&mut self, promoted: Promoted) {
        self.processes.insert((promoted.id.pid, promoted.id.start_ticks), promoted);
    }

    /// Returns the processes.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessId> {
        self.processes.values().map(|process| &process.id)
    }

    /// Returns the regions of a process as JSON, for [`Self::restore`]; `None` if none is left.
    pub fn saved(&self, id: &ProcessId) -> Option<String> {
        let process = self.processes.get(&(id.pid, id.start_ticks))?;
        (!process.regions.is_empty()).then(|| serde_json::to_string(process).ok()).flatten()
    }

    /// Adds the regions of a process that [`Self::saved`] returned.
    ///
    /// # Errors
    /// If `text` is another.
    pub fn restore(&mut self, text: &[u8]) -> serde_json::Result<()> {
        self.begin(serde_json::from_slice(text)?);
        Ok(())
    }

    /// Drops the regions of a process that `other` has.
    pub fn drop_regions(&mut self, id: &ProcessId, other: &Self) {
        let key = (id.pid, id.start_ticks);
        if let (Some(own), Some(other)) = (self.processes.get_mut(&key), other.processes.get(&key))
        {
            own.regions.retain(|region| !other.regions.contains(region));
        }
    }

    /// Drops a process, whose regions stay as they are.
    pub(crate) fn forget(&mut self, id: &ProcessId) {
        self.processes.remove(&(id.pid, id.start_ticks));
    }

    /// Returns the regions to base pages, unless `dry_run`. `open` opens a process by its pid.
    pub fn undo(
        &self,
        dry_run: bool,
        cut_bytes: u64,
        open: &dyn Fn(Pid) -> Result<Rc<dyn Target>, KernelError>,
        interrupted: &dyn Fn() -> bool,
    ) -> UndoReport {
        let promoted = self.processes.values().filter(|process| !process.regions.is_empty());
        let processes = promoted
            .map(|process| {
                let mut undone = empty(process);
                let done = undo(process, dry_run, open, interrupted, &mut undone);
                undone.state = done.err().unwrap_or(UndoState::Running);
                if undone.state == UndoState::Ended {
                    // With its end, nothing is huge any more.
                    undone.skipped.clear();
                    undone.failed.clear();
                }
                undone
            })
            .collect();
        UndoReport { schema: SCHEMA.to_owned(), dry_run, processes, cut_bytes }
    }
}

fn empty(process: &Promoted) -> UndoneProcess {
    UndoneProcess {
        pid: process.id.pid,
        command: process.id.command.clone(),
        state: UndoState::Running,
        promoted_regions: process.regions.len() as u64,
        returned_regions: 0,
        freed_bytes: Bytes::ZERO,
        not_huge_regions: 0,
        skipped: BTreeMap::new(),
        failed: BTreeMap::new(),
    }
}

/// Returns the regions of one process, and counts them in `undone`.
///
/// # Errors
/// The state that ends it, or why the process is unchanged.
fn undo(
    process: &Promoted,
    dry_run: bool,
    open: &dyn Fn(Pid) -> Result<Rc<dyn Target>, KernelError>,
    interrupted: &dyn Fn() -> bool,
    undone: &mut UndoneProcess,
) -> Result<(), UndoState> {
    let target = open(process.id.pid).map_err(|error| ended_or_stopped(&error))?;
    let target = &*target;
    if target.id().start_ticks != process.id.start_ticks {
        return Err(UndoState::PidReused);
    }
    let mappings = target.mappings().map_err(|error| ended_or_stopped(&error))?;
    if !process.mark.is_known() || ProgramMark::of(&mappings) != process.mark {
        return Err(UndoState::OtherProgram);
    }
    let stopped = Cell::new(None);
    let goes_on = || {
        stopped.set(stopped.get().or_else(|| interrupted().then_some(Stop::Interrupted)));
        stopped.get().is_none()
    };
    let mut each = |done: &DoneAct<'_>| {
        let DoneAct::Split(SplitAct { outcome, .. }) = done else { return };
        note(undone, *outcome);
        if let SplitOutcome::Failed(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) = outcome {
            stopped.set(Some(Stop::NotPermitted));
        }
    };
    let mut changes = Changes::default();
    changes.dry_run = dry_run;
    let plan = process.regions.iter().map(|&region| (0, PlannedAct::Demote(region)));
    let mut rule = While { goes_on: &goes_on, each: &mut each };
    let Ok(_) = carry_out(plan, &mut [(target, &mut changes)], &mut rule);
    stopped.set(stopped.get().or(changes.outcome.attempts.stopped));
    // If it ended meanwhile, its end returned the rest.
    check_state(target)?;
    stopped.get().map_or(Ok(()), |cause| Err(UndoState::Stopped { cause }))
}

/// State that a failed read of the target means.
fn ended_or_stopped(error: &KernelError) -> UndoState {
    match unreadable(error) {
        Stop::TargetGone => UndoState::Ended,
        cause => UndoState::Stopped { cause },
    }
}

/// # Errors
/// The target has ended, runs another program, or cannot be read.
fn check_state(target: &dyn Target) -> Result<(), UndoState> {
    match target.state() {
        Ok(TargetState::Alive) => Ok(()),
        Ok(TargetState::Gone) => Err(UndoState::Ended),
        Ok(TargetState::Execed) => Err(UndoState::OtherProgram),
        Err(error) => Err(ended_or_stopped(&error)),
    }
}

fn note(undone: &mut UndoneProcess, outcome: SplitOutcome) {
    if outcome == SplitOutcome::Skipped(SkipReason::AlreadySplit) {
        undone.not_huge_regions += 1;
    } else if let Some(freed) = count(outcome, &mut undone.skipped, &mut undone.failed) {
        undone.returned_regions += 1;
        undone.freed_bytes += freed;
    }
}

#[cfg(test)]
mod tests;
