//! De-bloating without reading memory: the kernel's own shrinker of underused huge pages, asked by a reclaim of a cgroup.
//!
//! A huge page counts as underused when more of its base pages are zero-filled than `khugepaged/max_ptes_none` says (Linux
//! 6.12, Usama Arif, "mm: split underused THPs"). The kernel queues a huge page when it is made, and takes it from the queue
//! at the first reclaim, split or not: so one that was found full enough once is never looked at again.

mod look;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use hugepilot_kernel::cgroup::{MemoryCgroup, Reclaim};
use hugepilot_kernel::{KernelError, Root, Unsupported, memory, thp};
use hugepilot_record::Errno;
use hugepilot_record::shrink::ShrinkReport;
use hugepilot_units::{Bytes, PageSizes, Share};

use crate::SettingsError;
use crate::{Outcome, Recovery, SettingsGuard, changes};
use look::Look;

/// How to shrink.
#[derive(Clone, Debug)]
pub struct ShrinkOptions {
    /// The directory of the cgroup, such as `/sys/fs/cgroup/db.slice`.
    pub cgroup: PathBuf,
    /// Split huge pages of which at least this share is zero-filled.
    pub min_bloat: Share,
    /// How much to ask for, page cache included; `None` for all that can be had.
    pub amount: Option<Bytes>,
    /// Say what would be set and asked for; change nothing.
    pub dry_run: bool,
}

/// What will be asked of the kernel, and all that is known before.
struct Request {
    options: ShrinkOptions,
    group: MemoryCgroup,
    sizes: PageSizes,
    reclaim: Reclaim,
    max_ptes_none: u64,
    before: Look,
}

/// What came of it.
#[derive(Default)]
struct Done {
    /// Seconds that the reclaim took; `None` when it never began.
    reclaim_seconds: Option<f64>,
    /// Seconds that the settings were changed.
    changed_seconds: f64,
    settings: Vec<Outcome>,
    interrupted: bool,
    failed: Option<Errno>,
    after: Option<Look>,
}

/// Has the kernel split underused huge pages of a cgroup, with its settings changed for as long as that takes. `recovered` hears
/// what a run that was killed had left changed.
///
/// # Errors
/// [`SettingsError::Refused`] where this kernel or this user cannot; [`SettingsError::Busy`] when another run is under way;
/// what the kernel said to a setting or to the request.
pub fn shrink(
    root: &Root,
    options: ShrinkOptions,
    interrupted: &dyn Fn() -> bool,
    recovered: &mut dyn FnMut(Recovery),
) -> Result<ShrinkReport, SettingsError> {
    refuse_without_setting(root)?;
    // The lock comes first: what a killed run left changed must not be taken for how things are.
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

    let mut done = Done { interrupted: interrupted(), ..Done::default() };
    if !done.interrupted {
        let begun = Instant::now();
        guard.change(&wanted).map_err(denied)?;
        let answer = request.group.reclaim(root, request.reclaim);
        done.reclaim_seconds = Some(begun.elapsed().as_secs_f64());
        done.settings = guard.put_back();
        done.changed_seconds = begun.elapsed().as_secs_f64();
        done.note(answer)?;
        done.interrupted |= interrupted();
    }
    // A cgroup that went away meanwhile leaves nothing to compare with.
    done.after = request.before.again(root, &request.group).ok();
    Ok(request.report(root, planned, Some(done)))
}

impl Done {
    /// What the kernel said to the request. That less than the amount could be had is no error.
    fn note(&mut self, answer: Result<(), KernelError>) -> Result<(), SettingsError> {
        /// EINTR: a signal came.
        const INTERRUPTED: Errno = Errno(4);
        let Err(error) = answer else { return Ok(()) };
        match error.errno() {
            Some(INTERRUPTED) => self.interrupted = true,
            Some(errno @ Errno::EAGAIN) => self.failed = Some(errno),
            Some(Errno::EINVAL) => {
                let why = format!("the kernel does not take the request: {error}");
                let fix =
                    "a kernel of Linux 6.9 or newer, which can be told not to swap; or swapoff -a";
                return Err(Unsupported::because(why).fixed_by(fix).into());
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
            let why = format!("no memory is accounted to {}", options.cgroup.display());
            Unsupported::because(why).fixed_by(
                "name a directory below the memory controller's, such as /sys/fs/cgroup/db.slice, or \
                 /sys/fs/cgroup/memory/db with cgroups of version 1; `hugepilot doctor` says which there is",
            )
        })?;
        let reclaim = group.reclaim_by(root, options.amount)?;
        let before = Look::new(root, &group, &options.cgroup)?;
        Ok(Self { options, group, sizes, reclaim, max_ptes_none, before })
    }

    fn wanted(&self) -> [(&'static str, String); 2] {
        [
            (thp::MAX_PTES_NONE, self.max_ptes_none.to_string()),
            (thp::SHRINK_UNDERUSED, "1".to_owned()),
        ]
    }
}

fn refuse_without_setting(root: &Root) -> Result<(), Unsupported> {
    if root.join(thp::file(thp::SHRINK_UNDERUSED)).exists() {
        return Ok(());
    }
    Err(Unsupported::because(
        "this kernel does not split underused huge pages: it has no shrink_underused",
    )
    .fixed_by("a kernel of Linux 6.12 or newer with transparent huge pages"))
}

/// The largest `max_ptes_none` by which a huge page with a share of `min_bloat` zero-filled pages is still underused.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn max_ptes_none(min_bloat: Share, sizes: PageSizes) -> Result<u64, Unsupported> {
    let all = sizes.base_per_huge();
    let least = (min_bloat.get() * all as f64).ceil() as u64;
    // All but one is the kernel's default and means never, as documented; some kernels take it for what it says.
    if least >= all {
        let why = format!("with --min-bloat {min_bloat} no huge page counts as underused");
        return Err(Unsupported::because(why).fixed_by("--min-bloat 99% or less"));
    }
    Ok(least.saturating_sub(1))
}

/// A right that is missing, or a setting that nobody may write here, is a refusal with the way out.
fn denied(error: SettingsError) -> SettingsError {
    /// EROFS: a file system mounted read-only.
    const READ_ONLY: Errno = Errno(30);
    match &error {
        SettingsError::Kernel(kernel @ KernelError::Write { .. })
            if kernel.is_denied() || kernel.errno() == Some(READ_ONLY) =>
        {
            Unsupported::because(format!(
                "settings of the kernel may not be changed here: {kernel}"
            ))
            .fixed_by("run as root, on the host or in a container that may write /sys")
            .into()
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
