//! Changes of other processes: promotes selected regions, or splits bloated huge pages,
//! one at a time, in the loop of a round, and verifies each.
//!
//! A successful return alone never counts: the kernel also returns it for ranges that it did not
//! change. Plans grow old, so the target, its memory limits and its pages are read again before
//! each region. The first sign of harm to a process ends the action; [`Stop`] lists the signs.

pub(crate) mod round;
pub(crate) mod split;

use hugepilot_kernel::{Claim, KernelError, Target};
use hugepilot_policy::{Guard, region_skip};
use hugepilot_record::{Act, ActOutcome, Attempts, Errno, Promotion, SkipReason, Stop};

use round::{Changes, DoneAct, PlannedAct, While, carry_out};

/// Promotes regions in order and notes each. Calls `interrupted` before every region, and `each`
/// after every act. A slow collapse ends it. The caller may change the target: it is not claimed.
pub fn promote(
    target: &dyn Target,
    promotions: &[Promotion],
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Act),
) -> Attempts {
    let mut changes = Changes::new(*guard, Some(Claim::uncontested()));
    let plan = promotions.iter().map(|one| (0, PlannedAct::Promote(one)));
    let mut each = |done: &DoneAct<'_>| {
        if let DoneAct::Promotion(_, act) = done {
            each(act);
        }
    };
    let mut rule = While { goes_on: &|| !interrupted(), each: &mut each };
    let Ok(is_done) = carry_out(plan, &mut [(target, &mut changes)], &mut rule);
    let mut attempts = changes.outcome.attempts;
    if !is_done {
        attempts.stopped = Some(Stop::Interrupted);
    }
    attempts
}

/// # Errors
/// The cause to stop before `promotion`.
fn may_promote(
    target: &dyn Target,
    promotion: &Promotion,
    guard: &Guard,
    reads_pressure: bool,
) -> Result<(), Stop> {
    if reads_pressure && guard.limits.is_pressed(target.pressure().unwrap_or_default()) {
        return Err(Stop::MemoryPressure);
    }
    // The kernel allocates the huge page before it frees the base pages.
    let needed = promotion.added + target.sizes().huge;
    let headroom = target.headroom().map_err(|error| unreadable(&error))?;
    match guard.limits.headroom_skip(headroom, needed) {
        Some(_) => Err(Stop::MemoryPressure),
        None => Ok(()),
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
        // A process in view had memory, so this one has become a zombie.
        KernelError::NoMemory { .. } => Stop::TargetGone,
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
        (Err(errno), _) => ActOutcome::Failed(errno),
        (Ok(_), Ok(pages)) if pages.huge => ActOutcome::Verified,
        (Ok(_), Ok(_)) => ActOutcome::NotVerified,
        // The target ended: the outcome is unknown, so the call counts as failed.
        (Ok(_), Err(error)) => ActOutcome::Failed(error.errno().unwrap_or(Errno::ESRCH)),
    };
    Act { region: promotion.region, took, calls, outcome }
}

#[cfg(test)]
mod tests;
