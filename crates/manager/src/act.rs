//! Changes of other processes: promotes selected regions, or [splits](split) bloated huge pages,
//! one at a time, and verifies each.
//!
//! A successful return alone never counts: the kernel also returns it for ranges that it did not
//! change. Plans grow old, so the target, its memory limits and its pages are read again before
//! each region. The first sign of harm to a process ends the action; [`Stop`] lists the signs.

pub mod split;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::{Guard, region_skip};
use hugepilot_record::{Act, Errno, Journal, Outcome, Promotion, SkipReason, Stop};
use hugepilot_units::Region;

/// Promotes regions in order and journals each. Calls `interrupted` before every region, and `each`
/// after every act.
pub fn promote(
    target: &dyn Target,
    promotions: &[Promotion],
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Act),
) -> Journal {
    let mut journal = Journal::default();
    promote_more(&mut journal, target, promotions, guard, interrupted, each);
    journal
}

/// Promotes regions as [`promote`] does, after those of `journal`: failures in a row are counted
/// over both.
pub(crate) fn promote_more(
    journal: &mut Journal,
    target: &dyn Target,
    promotions: &[Promotion],
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Act),
) {
    for (turn, promotion) in promotions.iter().enumerate() {
        if interrupted() {
            journal.stopped = Some(Stop::Interrupted);
        } else {
            journal.stopped = before(target, promotion, guard, Guard::reads_pressure(turn));
        }
        if journal.stopped.is_some() {
            break;
        }
        target.prepare();
        // Right before the call: a region that khugepaged or the program promoted is not counted.
        match changed(target, promotion, guard) {
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
        let act = collapse(target, promotion);
        journal.acts.push(act);
        each(&act);
        let has_pages =
            |region: Region| target.region_pages(region).is_ok_and(|pages| pages.resident > 0);
        journal.stopped = guard.stop_after(&journal.acts, &has_pages);
        if journal.stopped.is_some() {
            break;
        }
    }
}

/// Cause to stop before `promotion`; `None` if there is none.
fn before(
    target: &dyn Target,
    promotion: &Promotion,
    guard: &Guard,
    reads_pressure: bool,
) -> Option<Stop> {
    match target.state() {
        Ok(TargetState::Alive) => {}
        Ok(TargetState::Gone) => return Some(Stop::TargetGone),
        Ok(TargetState::Execed) => return Some(Stop::TargetExeced),
        Err(error) => return Some(unreadable(&error)),
    }
    if reads_pressure {
        let pressure = target.pressure().unwrap_or_default();
        if guard.is_pressed(pressure.some_avg10, pressure.full_avg10) {
            return Some(Stop::MemoryPressure);
        }
    }
    // The kernel allocates the huge page before it frees the base pages.
    let needed = promotion.added + target.sizes().huge;
    match target.headroom() {
        Ok(headroom) => guard.limits.headroom_skip(headroom, needed).map(|_| Stop::MemoryPressure),
        Err(error) => Some(unreadable(&error)),
    }
}

/// Reason why this region is not a candidate any more; `None` if it still is.
///
/// # Errors
/// The cause to stop if its pages cannot be read.
fn changed(
    target: &dyn Target,
    promotion: &Promotion,
    guard: &Guard,
) -> Result<Option<SkipReason>, Stop> {
    let pages = target.region_pages(promotion.region).map_err(|error| unreadable(&error))?;
    Ok(region_skip(&pages, target.sizes(), &guard.limits))
}

/// Cause to stop after `error`, a failed read of the target.
pub(crate) fn unreadable(error: &KernelError) -> Stop {
    match error {
        error if error.is_gone() => Stop::TargetGone,
        error if error.is_denied() => Stop::NotPermitted,
        KernelError::Claimed { .. } => Stop::InUse,
        _ => Stop::Unreadable,
    }
}

/// Promotes one region. Retries once after EAGAIN: a page was pinned or isolated for a moment.
fn collapse(target: &dyn Target, promotion: &Promotion) -> Act {
    let (start, queued) = (target.now(), target.queued());
    let mut answer = target.collapse(promotion.region);
    let mut calls = 1;
    if answer == Err(Errno::EAGAIN) {
        answer = target.collapse(promotion.region);
        calls = 2;
    }
    // Time spent waiting for a processor does not make the collapse slow.
    let took = (target.now() - start) - (target.queued() - queued);
    let outcome = match (answer, target.region_pages(promotion.region)) {
        // Even if the region is huge, this call did not collapse it.
        (Err(errno), _) => Outcome::Failed(errno),
        (Ok(_), Ok(pages)) if pages.huge => Outcome::Verified,
        (Ok(_), Ok(_)) => Outcome::NotVerified,
        // The target ended: the outcome is unknown, so the call counts as failed.
        (Ok(_), Err(error)) => Outcome::Failed(error.errno().unwrap_or(Errno::ESRCH)),
    };
    Act { region: promotion.region, took, calls, outcome }
}

#[cfg(test)]
mod tests;
