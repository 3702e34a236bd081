//! Splits of huge pages of another process, each verified by the pagemap.
//!
//! On a split, the kernel checks each base page under the page lock and frees it only if it is
//! zero-filled, so no write of the program is lost. The call also succeeds without a change, so
//! only the pagemap before and after counts.

use std::collections::BTreeMap;

use hugepilot_kernel::{Claim, KernelError, Target, TargetState};
use hugepilot_policy::{SplitGuard, mapping_split_skip, split_skip};
use hugepilot_record::{
    Errno, Mapping, RegionPages, SkipReason, Split, SplitAct, SplitOutcome, Stop,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, Region, VirtAddr};

use super::unreadable;

/// Calls for a huge page whose split frees nothing of the planned bloat. The kernel maps base pages
/// before it splits the huge page itself, which fails while another user holds the page, such as a
/// scan of the kernel. Another call then splits the page.
const MAX_CALLS: u32 = 3;

/// Splits the huge page of `split`, unless it changed since the plan. Takes about 0.3 ms.
pub fn split(target: &dyn Target, split: &Split) -> SplitAct {
    let is_unchanged = || still_zero(target, split);
    let mut act = split_at(target, split.region, split.page, &is_unchanged);
    for _ in 1..MAX_CALLS {
        if act.outcome != SplitOutcome::Freed(Bytes::ZERO) || !is_unchanged() {
            break;
        }
        let again = free_again(target, split);
        act = SplitAct { took: act.took + again.took, ..again };
    }
    act
}

/// Returns regions that hugepilot promoted to base pages, with the contents that they have. The
/// kernel frees zero-filled base pages. Takes about 0.3 ms for each.
///
/// # Errors
/// The cause to stop if the mappings of the target cannot be read.
pub fn demote(target: &dyn Target, regions: &[Region]) -> Result<Vec<SplitAct>, Stop> {
    // Reading the mappings walks all page tables of the target.
    if regions.is_empty() {
        return Ok(Vec::new());
    }
    let forbidden = forbidden(target).map_err(|error| unreadable(&error))?;
    let demote = |&region: &Region| {
        let start = region.range(target.sizes()).start;
        match forbidden.iter().find(|(range, _)| range.contains(start)) {
            Some(&(_, reason)) => skipped(region, reason),
            None => split_at(target, region, start, &|| true),
        }
    };
    Ok(regions.iter().map(demote).collect())
}

/// Ranges where splits are not allowed, each with its reason.
fn forbidden(target: &dyn Target) -> Result<Vec<(AddrRange, SkipReason)>, KernelError> {
    let forbidden = |mapping: &Mapping| Some((mapping.range, mapping_split_skip(mapping)?));
    Ok(target.mappings()?.iter().filter_map(forbidden).collect())
}

fn skipped(region: Region, reason: SkipReason) -> SplitAct {
    SplitAct { region, took: Nanos::ZERO, outcome: SplitOutcome::Skipped(reason) }
}

/// Splits the huge page of `region` by ageing `page`, if `is_unchanged`.
fn split_at(
    target: &dyn Target,
    region: Region,
    page: VirtAddr,
    is_unchanged: &dyn Fn() -> bool,
) -> SplitAct {
    let before = match target.region_pages(region) {
        Ok(pages) => pages,
        Err(error) if error.is_gone() => return skipped(region, SkipReason::Special),
        Err(error) => {
            let outcome = SplitOutcome::Failed(error.errno().unwrap_or(Errno::EIO));
            return SplitAct { region, took: Nanos::ZERO, outcome };
        }
    };
    if let Some(reason) = split_skip(&before) {
        return skipped(region, reason);
    }
    if !is_unchanged() {
        return skipped(region, SkipReason::Changed);
    }
    call(target, page, &before)
}

/// Repeats the call for a region that is on base pages and whose bloat is still there.
fn free_again(target: &dyn Target, split: &Split) -> SplitAct {
    match target.region_pages(split.region) {
        Ok(before) if !before.huge && before.shared == 0 => call(target, split.page, &before),
        // The first split is what counts.
        _ => SplitAct {
            region: split.region,
            took: Nanos::ZERO,
            outcome: SplitOutcome::Freed(Bytes::ZERO),
        },
    }
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
pub fn count(
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

/// All splits of one process.
#[derive(Debug, Default)]
pub struct Splits {
    /// Splits in order.
    pub acts: Vec<SplitAct>,
    /// Cause of an end before the plan was done.
    ended: Option<Stop>,
    guard: SplitGuard,
    claim: Option<Claim>,
    /// Ranges where splits are not allowed, each with its reason.
    forbidden: Vec<(AddrRange, SkipReason)>,
}

impl Splits {
    /// Makes one more split of `target`; `None` if the process is skipped from now on.
    pub fn split(&mut self, target: &dyn Target, planned: &Split) -> Option<SplitOutcome> {
        self.ended = self.ended.or_else(|| match target.state() {
            Ok(TargetState::Alive) => self.guard.stop(),
            Ok(TargetState::Gone) => Some(Stop::TargetGone),
            Ok(TargetState::Execed) => Some(Stop::TargetExeced),
            Err(error) => Some(unreadable(&error)),
        });
        if self.ended.is_some() {
            return None;
        }
        self.ended = self.take_claim(target).and_then(|()| self.read_mappings(target)).err();
        if self.ended.is_some() {
            return None;
        }
        let start = planned.region.range(target.sizes()).start;
        let forbidden = self.forbidden.iter().find(|(range, _)| range.contains(start));
        let act = match forbidden {
            Some(&(_, reason)) => SplitAct {
                region: planned.region,
                took: Nanos::ZERO,
                outcome: SplitOutcome::Skipped(reason),
            },
            None => split(target, planned),
        };
        self.guard.note(act.outcome);
        self.acts.push(act);
        Some(act.outcome)
    }

    /// Cause why the process is skipped from now on, if it is.
    pub fn ended(&self) -> Option<Stop> {
        self.ended.or_else(|| self.guard.stop())
    }

    /// Claims the process at the first split, so that no other run of hugepilot changes it.
    fn take_claim(&mut self, target: &dyn Target) -> Result<(), Stop> {
        if self.claim.is_none() {
            self.claim = Some(target.claim().map_err(|error| unreadable(&error))?);
        }
        Ok(())
    }

    /// Reads where splits are not allowed, if it is time to. If that fails, the last read counts.
    ///
    /// # Errors
    /// The cause to stop if the first read fails.
    fn read_mappings(&mut self, target: &dyn Target) -> Result<(), Stop> {
        let begun = target.now();
        if !self.guard.reads_mappings(begun) {
            return Ok(());
        }
        match forbidden(target) {
            Ok(forbidden) => self.forbidden = forbidden,
            Err(error) if !self.guard.has_read() => {
                return Err(unreadable(&error));
            }
            // The split itself detects that the target ended.
            Err(_) => {}
        }
        self.guard.note_read(begun, target.now());
        Ok(())
    }

    /// Freed memory by the pagemap.
    pub fn freed(&self) -> Bytes {
        let freed = self.acts.iter().map(|act| match act.outcome {
            SplitOutcome::Freed(bytes) => bytes,
            _ => Bytes::ZERO,
        });
        freed.sum()
    }
}

#[cfg(test)]
mod tests;
