//! Splits of huge pages of another process, each verified by the pagemap.
//!
//! On a split, the kernel checks each base page under the page lock and frees it only if it is
//! zero-filled, so no write of the program is lost. The call also succeeds without a change, so
//! only the pagemap before and after counts.

use std::collections::BTreeMap;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::split_skip;
use hugepilot_record::{Errno, RegionPages, SkipReason, Split, SplitAct, SplitOutcome};
use hugepilot_units::{AddrRange, Bytes, Nanos, Region, VirtAddr};

/// Calls for a huge page whose split frees nothing of the planned bloat. The kernel maps base pages
/// before it splits the huge page itself, which fails while another user holds the page, such as a
/// scan of the kernel. Another call then splits the page.
const MAX_CALLS: u32 = 3;

/// Splits the huge page of `split`, unless it changed since the plan. Takes about 0.3 ms.
pub(super) fn split(target: &dyn Target, split: &Split) -> SplitAct {
    if split.stranded {
        return free_stranded(target, split);
    }
    let is_unchanged = || still_zero(target, split);
    let mut act = split_at(target, split.region, Some(split.page), &is_unchanged);
    for _ in 1..MAX_CALLS {
        if act.outcome != SplitOutcome::Freed(Bytes::ZERO) || !is_unchanged() {
            break;
        }
        let again = free_again(target, split);
        act = SplitAct { took: act.took + again.took, ..again };
    }
    act
}

/// Splits a large page that is mapped in part, so that the kernel frees the other part. Takes 2 ms.
fn free_stranded(target: &dyn Target, split: &Split) -> SplitAct {
    let region = split.region;
    let page = AddrRange::at(split.page, target.sizes().base);
    let is_stranded = || {
        let found = target.large_pages(&[page], true).map_err(|error| errno_of(&error))?;
        Ok(found.is_some_and(|found| !found.stranded.is_empty()))
    };
    let (start, queued) = (target.now(), target.queued());
    let outcome = match is_stranded() {
        Ok(true) => match target.split(split.page).and_then(|_| is_stranded()) {
            Ok(true) => SplitOutcome::StillHuge,
            Ok(false) => match target.state() {
                Ok(TargetState::Alive) => SplitOutcome::Freed(split.frees),
                _ => SplitOutcome::Failed(Errno::ESRCH),
            },
            Err(errno) => SplitOutcome::Failed(errno),
        },
        Ok(false) => SplitOutcome::Skipped(SkipReason::Changed),
        Err(errno) => SplitOutcome::Failed(errno),
    };
    let took = (target.now() - start) - (target.queued() - queued);
    SplitAct { region, took, outcome }
}

/// Errno of a failed read; ESRCH if the process has ended.
fn errno_of(error: &KernelError) -> Errno {
    let gone = error.is_gone().then_some(Errno::ESRCH);
    gone.or(error.errno()).unwrap_or(Errno::EIO)
}

/// Returns the act of a region that is not split.
pub(super) fn skipped(region: Region, reason: SkipReason) -> SplitAct {
    SplitAct { region, took: Nanos::ZERO, outcome: SplitOutcome::Skipped(reason) }
}

/// Splits the huge page of `region` by ageing `page`, if `is_unchanged`. Without a page, nothing is
/// changed, and the split is said to succeed.
pub(super) fn split_at(
    target: &dyn Target,
    region: Region,
    page: Option<VirtAddr>,
    is_unchanged: &dyn Fn() -> bool,
) -> SplitAct {
    let before = match target.region_pages(region) {
        Ok(pages) => pages,
        Err(error) => {
            let outcome = SplitOutcome::Failed(errno_of(&error));
            return SplitAct { region, took: Nanos::ZERO, outcome };
        }
    };
    if let Some(reason) = split_skip(&before) {
        return skipped(region, reason);
    }
    if !is_unchanged() {
        return skipped(region, SkipReason::Changed);
    }
    page.map_or_else(|| freed_nothing(region), |page| call(target, page, &before))
}

/// Repeats the call for a region that is on base pages and whose bloat is still there.
fn free_again(target: &dyn Target, split: &Split) -> SplitAct {
    match target.region_pages(split.region) {
        Ok(before) if !before.huge && before.shared == 0 => call(target, split.page, &before),
        // The first split is what counts.
        _ => freed_nothing(split.region),
    }
}

/// Returns the act of a region whose split freed nothing.
const fn freed_nothing(region: Region) -> SplitAct {
    SplitAct { region, took: Nanos::ZERO, outcome: SplitOutcome::Freed(Bytes::ZERO) }
}

/// Calls the kernel once. `before` are the pages of the region, which verify the effect.
fn call(target: &dyn Target, page: VirtAddr, before: &RegionPages) -> SplitAct {
    let region = before.region;
    let (start, queued) = (target.now(), target.queued());
    let answer = target.split(page);
    let took = (target.now() - start) - (target.queued() - queued);
    let after = target.region_pages(region);
    let outcome = match (answer, target.state(), after) {
        (Err(errno), ..) => SplitOutcome::Failed(errno),
        // Memory that was freed by an exit or an exec does not count.
        (_, Ok(TargetState::Gone | TargetState::Execed), _) => SplitOutcome::Failed(Errno::ESRCH),
        (_, Err(error), _) | (_, _, Err(error)) => {
            SplitOutcome::Failed(error.errno().unwrap_or(Errno::EIO))
        }
        (Ok(_), Ok(TargetState::Alive), Ok(after)) if after.huge => SplitOutcome::StillHuge,
        (Ok(_), Ok(TargetState::Alive), Ok(after)) => SplitOutcome::Freed(
            target.sizes().base.times(before.resident.saturating_sub(after.resident)),
        ),
    };
    SplitAct { region, took, outcome }
}

/// Whether the base page in the call is still zero-filled. The call ages this page, so that it is
/// reclaimed sooner.
fn still_zero(target: &dyn Target, split: &Split) -> bool {
    let page = AddrRange::at(split.page, target.sizes().base);
    let mut bytes = vec![1; page.len().as_usize()];
    let is_read = target.read_memory(&[page], &mut bytes).is_ok_and(|read| read == bytes.len());
    is_read && bytes.iter().all(|&byte| byte == 0)
}

/// Counts a skipped or failed split by its reason; `still_huge` is a successful call without a
/// change. Returns the freed memory of a split huge page.
pub(crate) fn count(
    outcome: SplitOutcome,
    skipped: &mut BTreeMap<String, u64>,
    failed: &mut BTreeMap<String, u64>,
) -> Option<Bytes> {
    let (counts, key) = match outcome {
        SplitOutcome::Freed(bytes) => return Some(bytes),
        SplitOutcome::StillHuge => (failed, "still_huge".to_owned()),
        SplitOutcome::Failed(errno) => (failed, errno.to_string()),
        SplitOutcome::Skipped(reason) => (skipped, reason.to_string()),
    };
    *counts.entry(key).or_insert(0) += 1;
    None
}

#[cfg(test)]
pub(super) mod tests;
