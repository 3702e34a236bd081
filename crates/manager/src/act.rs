//! The only place that changes another process: promotes picked regions, or [splits](split) bloated huge pages, one at a
//! time, and looks after each.
//!
//! What the kernel returns is never counted as success: it says so for ranges it did nothing to. Before each region the
//! target, its memory limits and its pages are looked at again, because a plan grows old; and acting ends at the first
//! sign that somebody is harmed. See [`Stop`] for the signs.

pub mod split;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::{Limits, region_skip};
use hugepilot_record::{Act, Errno, Journal, Outcome, Pick, SkipReason, Stop};
use hugepilot_units::Nanos;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// A collapse that takes longer ends the round: the kernel is compacting or reclaiming for it, as tcmalloc found.
    pub max_collapse: Nanos,
    /// Memory pressure (PSI `some`, percent of ten seconds) from which on nothing is done.
    pub max_pressure: f64,
    /// The same for PSI `full`.
    pub max_full_pressure: f64,
    /// So many regions failing in a row in the same way end the round.
    pub max_failures: usize,
    /// The safety rules of the policy, checked again.
    pub limits: Limits,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            max_collapse: Nanos::millis(30),
            max_pressure: 10.0,
            max_full_pressure: 2.0,
            max_failures: 8,
            limits: Limits::default(),
        }
    }
}

/// Pressure changes in seconds, so it is read once in so many regions.
const PRESSURE_EVERY: usize = 16;

/// Promotes `picks` in order and journals each. `interrupted` is asked before every region; `each` hears of every act.
pub fn promote(
    target: &dyn Target,
    picks: &[Pick],
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Act),
) -> Journal {
    let mut journal = Journal::default();
    for (turn, pick) in picks.iter().enumerate() {
        if interrupted() {
            journal.stopped = Some(Stop::Interrupted);
        } else {
            journal.stopped = before(target, pick, guard, turn % PRESSURE_EVERY == 0);
        }
        if journal.stopped.is_some() {
            break;
        }
        target.prepare();
        // Right before the call: a region that somebody else made huge in the meantime is not ours.
        match changed(target, pick, guard) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                *journal.skipped.entry(reason).or_insert(0) += 1;
                continue;
            }
            Err(stop) => {
                journal.stopped = Some(stop);
                break;
            }
        }
        let act = collapse(target, pick);
        journal.acts.push(act);
        each(&act);
        journal.stopped = after(&journal.acts, target, guard);
        if journal.stopped.is_some() {
            break;
        }
    }
    journal
}

/// Whether something forbids to go on at all.
fn before(target: &dyn Target, pick: &Pick, guard: &Guard, look_at_pressure: bool) -> Option<Stop> {
    match target.state() {
        Ok(TargetState::Alive) => {}
        Ok(TargetState::Gone) => return Some(Stop::TargetGone),
        Ok(TargetState::Execed) => return Some(Stop::TargetExeced),
        Err(error) => return Some(unreadable(&error)),
    }
    if look_at_pressure {
        let pressure = target.pressure().unwrap_or_default();
        if pressure.some_avg10 > guard.max_pressure || pressure.full_avg10 > guard.max_full_pressure
        {
            return Some(Stop::MemoryPressure);
        }
    }
    // Until the base pages are freed, a huge page needs its full size on top of them.
    let needed = pick.added + target.sizes().huge;
    match target.headroom() {
        Ok(headroom) => guard.limits.headroom_skip(headroom, needed).map(|_| Stop::MemoryPressure),
        Err(error) => Some(unreadable(&error)),
    }
}

/// Why this region is no candidate any more; `None` when it still is.
///
/// # Errors
/// Why nothing more may be done: its pages cannot be read.
fn changed(target: &dyn Target, pick: &Pick, guard: &Guard) -> Result<Option<SkipReason>, Stop> {
    let pages = target.region_pages(pick.region).map_err(|error| unreadable(&error))?;
    Ok(region_skip(&pages, target.sizes(), &guard.limits))
}

/// What to call it that something of the target could not be read.
fn unreadable(error: &KernelError) -> Stop {
    match error {
        error if error.is_gone() => Stop::TargetGone,
        error if error.is_denied() => Stop::NotPermitted,
        KernelError::Claimed { .. } => Stop::InUse,
        _ => Stop::Unreadable,
    }
}

/// One promotion, with the one retry that EAGAIN deserves: a page was pinned or on its way between lists.
fn collapse(target: &dyn Target, pick: &Pick) -> Act {
    let (start, queued) = (target.now(), target.queued());
    let mut answer = target.collapse(pick.region);
    let mut calls = 1;
    if answer == Err(Errno::EAGAIN) {
        answer = target.collapse(pick.region);
        calls = 2;
    }
    // Waiting for a processor is the machine's business, not the kernel's slowness.
    let took = (target.now() - start) - (target.queued() - queued);
    let outcome = match (answer, target.region_pages(pick.region)) {
        // Huge or not, it was not this call.
        (Err(errno), _) => Outcome::Failed(errno),
        (Ok(_), Ok(pages)) if pages.huge => Outcome::Verified,
        (Ok(_), Ok(_)) => Outcome::NotVerified,
        // It ended under our hands: then nobody can tell, and nobody lied.
        (Ok(_), Err(error)) => Outcome::Failed(error.errno().unwrap_or(Errno::ESRCH)),
    };
    Act { region: pick.region, took, calls, outcome }
}

/// Whether the last act was a sign to stop.
fn after(acts: &[Act], target: &dyn Target, guard: &Guard) -> Option<Stop> {
    let last = acts.last()?;
    match last.outcome {
        Outcome::Failed(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => {
            return Some(Stop::NotPermitted);
        }
        Outcome::Failed(Errno::ESRCH) => return Some(Stop::TargetGone),
        Outcome::Failed(Errno::EBUSY) => return Some(Stop::CgroupFull),
        _ => {}
    }
    if last.took > guard.max_collapse {
        return Some(Stop::SlowCollapse);
    }
    let same = acts.iter().rev().take_while(|act| act.outcome == last.outcome).count();
    match last.outcome {
        Outcome::Verified => None,
        // Also the answer for a hole; a region that still has pages has none.
        Outcome::Failed(Errno::ENOMEM) if same >= 3 && has_pages(target, last) => {
            Some(Stop::NoHugePages)
        }
        _ => (same >= guard.max_failures).then_some(Stop::RepeatedFailure),
    }
}

fn has_pages(target: &dyn Target, act: &Act) -> bool {
    target.region_pages(act.region).is_ok_and(|pages| pages.resident > 0)
}

#[cfg(test)]
mod tests;
