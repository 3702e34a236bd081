//! A pool that has what a run needs, for as long as the run takes.

use hugepilot_kernel::{Root, Unsupported, hugetlb};
use hugepilot_record::pool::PoolChange;
use hugepilot_units::{Amount, Bytes, Share};

use super::Control;
use super::setup::{Setup, free_pages};
use crate::LaunchError;
use hugepilot_settings::pool::{PoolRequest, set};
use hugepilot_settings::{SettingsGuard, not_restored};

/// Percent of memory that stay available, as `pool set` has it.
const FLOOR: f64 = 10.0;

type Raised = (Option<SettingsGuard>, Vec<String>);

/// Raises the pool of the mode until `bytes` of it are free. It is given back by [`give_back`], by dropping the guard, and after
/// a crash by the next command.
///
/// # Errors
/// [`LaunchError::Refused`] for a mode without a pool, or without the right; [`LaunchError::SettingsBusy`].
pub(crate) fn raise(
    root: &Root,
    setup: &mut Setup,
    bytes: Bytes,
    control: Control<'_>,
) -> Result<Raised, LaunchError> {
    let Some(size) = setup.mode.uses_pool() else {
        return Err(Unsupported::because(format!("{} uses no pool", setup.mode))
            .fixed_by("leave --pool out")
            .into());
    };
    let wanted = bytes.get().div_ceil(size.get());
    let lacking = wanted.saturating_sub(free_pages(root, size).unwrap_or(0));
    if lacking == 0 {
        return Ok((None, Vec::new()));
    }
    hugetlb::may_set(root, size, None).map_err(|error| {
        Unsupported::because(format!("only root may set a pool: {error}"))
            .fixed_by("run it as root, or have root set the pool: hugepilot pool set --help")
    })?;
    let count = hugetlb::pages(root, size, None)?.persistent() + lacking;
    // What came before, such as the end of a child of ours, is no reason to stop half-way.
    control.goes_on()?;
    let (mut guard, recovery) = SettingsGuard::take(root)?;
    let mut warnings: Vec<String> = recovery.iter().flat_map(|recovery| recovery.told()).collect();
    let floor = Amount::Share(Share::percent(FLOOR));
    let request = PoolRequest {
        size,
        count,
        node: None,
        floor,
        force: false,
        compact: false,
        dry_run: false,
    };
    let change = guard
        .raise_pool(size, count, || set(&mut root.clone(), &request, &|| control.is_wanted()))?;
    control.goes_on()?;
    warnings.extend(came_short(&change, size, wanted));
    if free_pages(root, size).is_some_and(|free| free > 0) {
        (setup.obstacles.empty_pool, setup.obstacles.pool_fix) = (None, None);
    }
    Ok((Some(guard), warnings))
}

fn came_short(change: &PoolChange, size: Bytes, wanted: u64) -> Option<String> {
    let why = change.why.join("; ");
    (!change.is_complete())
        .then(|| format!("the pool could not be given {wanted} free pages of {size}: {why}"))
}

/// Gives it back, and says what is not as before.
pub(crate) fn give_back(guard: SettingsGuard) -> Vec<String> {
    guard
        .put_back()
        .iter()
        .filter_map(|(setting, outcome)| not_restored(setting, outcome))
        .collect()
}
