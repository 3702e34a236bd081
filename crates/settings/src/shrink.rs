//! Debloating without reading memory: the kernel's shrinker of underused huge pages.
//!
//! A reclaim of a cgroup calls it. A huge page is underused if it has more zero-filled base pages
//! than `khugepaged/max_ptes_none` (Linux 6.12, Usama Arif, "mm: split underused THPs"). The kernel
//! queues a huge page when it is allocated, and removes it from the queue at the first reclaim,
//! split or not. So a huge page that was kept once is never examined again.

mod report;
mod usage;

use std::path::PathBuf;
use std::time::Instant;

use hugepilot_kernel::cgroup::{MemoryCgroup, Reclaim};
use hugepilot_kernel::{KernelError, Root, Unsupported, memory, thp};
use hugepilot_record::{Errno, ShrinkUnsupported};
use hugepilot_reports::shrink::ShrinkReport;
use hugepilot_units::{Bytes, PageSizes, Share};

use usage::GroupUsage;

use crate::{Outcome, Recovery, SettingsError, SettingsGuard, changes};

/// Options of one shrink.
#[derive(Clone, Debug)]
pub struct ShrinkOptions {
    /// Directory of the cgroup, such as `/sys/fs/cgroup/db.slice`.
    pub cgroup: PathBuf,
    /// Minimum zero-filled share of a huge page to split.
    pub min_bloat: Share,
    /// Bytes to request, including page cache; `None` for all reclaimable memory.
    pub amount: Option<Bytes>,
    /// Whether to report the settings and the request only, and change nothing.
    pub dry_run: bool,
}

/// The request, and the usage before.
struct Request {
    options: ShrinkOptions,
    group: MemoryCgroup,
    sizes: PageSizes,
    reclaim: Reclaim,
    max_ptes_none: u64,
    before: GroupUsage,
}

/// Outcome of a request.
#[derive(Default)]
struct ReclaimOutcome {
    /// Time of the reclaim; `None` if it never started.
    reclaim_seconds: Option<f64>,
    /// Time for which settings were changed.
    changed_seconds: f64,
    settings: Vec<Outcome>,
    interrupted: bool,
    failed: Option<Errno>,
    after: Option<GroupUsage>,
}

/// Requests reclaim of a cgroup, so that the kernel splits its underused huge pages, with settings
/// changed meanwhile. `recovered` receives settings that a killed command left changed.
///
/// # Errors
/// [`SettingsError::Refused`] if this kernel or this user cannot; [`SettingsError::Busy`] while
/// another command changes settings; errors of the settings and of the request.
pub fn shrink(
    root: &Root,
    options: ShrinkOptions,
    interrupted: &dyn Fn() -> bool,
    recovered: &mut dyn FnMut(Recovery),
) -> Result<ShrinkReport, SettingsError> {
    require_shrinker(root)?;
    // The lock comes first: settings of a killed command must not count as the former values.
    let guard = if options.dry_run {
        None
    } else {
        let (guard, recovery) = SettingsGuard::take(root).map_err(denied)?;
        recovery.into_iter().for_each(recovered);
        Some(guard)
    };
    let request = Request::new(root, options)?;
    let wanted = request.wanted();
    let planned = changes(root, &wanted)?;
    let Some(mut guard) = guard else { return Ok(request.report(root, planned, None)) };

    let mut outcome = ReclaimOutcome { interrupted: interrupted(), ..ReclaimOutcome::default() };
    if !outcome.interrupted {
        let begun = Instant::now();
        guard.change(&wanted).map_err(denied)?;
        let answer = request.group.reclaim(root, request.reclaim);
        outcome.reclaim_seconds = Some(begun.elapsed().as_secs_f64());
        outcome.settings = guard.put_back();
        outcome.changed_seconds = begun.elapsed().as_secs_f64();
        outcome.note(answer)?;
        outcome.interrupted |= interrupted();
    }
    // A cgroup that was removed meanwhile has no usage after.
    outcome.after = request.before.again(root, &request.group).ok();
    Ok(request.report(root, planned, Some(outcome)))
}

impl ReclaimOutcome {
    /// Records the answer to the request. EAGAIN, less than the amount, is not an error.
    fn note(&mut self, answer: Result<(), KernelError>) -> Result<(), SettingsError> {
        /// EINTR: a signal came.
        const INTERRUPTED: Errno = Errno(4);
        let Err(error) = answer else { return Ok(()) };
        match error.errno() {
            Some(INTERRUPTED) => self.interrupted = true,
            Some(errno @ Errno::EAGAIN) => self.failed = Some(errno),
            Some(Errno::EINVAL) => {
                let cause = ShrinkUnsupported::ReclaimRejected { error: error.to_string() };
                return Err(Unsupported::from(cause).into());
            }
            _ => return Err(denied(error.into())),
        }
        Ok(())
    }
}

impl Request {
    fn new(root: &Root, options: ShrinkOptions) -> Result<Self, SettingsError> {
        let sizes = memory::page_sizes(root)?;
        let max_ptes_none = max_ptes_none(options.min_bloat, sizes)?;
        let group = MemoryCgroup::of_directory(root, &options.cgroup).ok_or_else(|| {
            let cgroup = options.cgroup.display().to_string();
            Unsupported::from(ShrinkUnsupported::NoMemoryController { cgroup })
        })?;
        let reclaim = group.reclaim_by(root, options.amount)?;
        let before = GroupUsage::new(root, &group, &options.cgroup)?;
        Ok(Self { options, group, sizes, reclaim, max_ptes_none, before })
    }

    fn wanted(&self) -> [(&'static str, String); 2] {
        [
            (thp::MAX_PTES_NONE, self.max_ptes_none.to_string()),
            (thp::SHRINK_UNDERUSED, "1".to_owned()),
        ]
    }
}

fn require_shrinker(root: &Root) -> Result<(), Unsupported> {
    if root.join(thp::file(thp::SHRINK_UNDERUSED)).exists() {
        return Ok(());
    }
    Err(ShrinkUnsupported::NoShrinker.into())
}

/// Returns the largest `max_ptes_none` by which a huge page with a zero-filled share of `min_bloat`
/// is underused.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn max_ptes_none(min_bloat: Share, sizes: PageSizes) -> Result<u64, Unsupported> {
    let all = sizes.base_per_huge();
    let least = (min_bloat.get() * all as f64).ceil() as u64;
    // All but one is the kernel's default. It is documented as "never", but some kernels still
    // split wholly zero-filled pages.
    if least >= all {
        return Err(ShrinkUnsupported::MinBloat { min_bloat: min_bloat.to_string() }.into());
    }
    Ok(least.saturating_sub(1))
}

/// Turns a missing permission, or a read-only `/sys`, into [`SettingsError::Refused`] with help.
fn denied(error: SettingsError) -> SettingsError {
    /// EROFS: a file system mounted read-only.
    const READ_ONLY: Errno = Errno(30);
    match &error {
        SettingsError::Kernel(kernel @ KernelError::Write { .. })
            if kernel.is_denied() || kernel.errno() == Some(READ_ONLY) =>
        {
            let cause = ShrinkUnsupported::SettingsForbidden { error: kernel.to_string() };
            Unsupported::from(cause).into()
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
