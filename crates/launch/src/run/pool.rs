//! Hugetlb pool of a run, raised while the run takes.

use hugepilot_kernel::{Root, Unsupported, hugetlb};
use hugepilot_record::ModeUnsupported;
use hugepilot_reports::pool::PoolChange;
use hugepilot_reports::run::{PoolShortage, RunWarning};
use hugepilot_settings::pool::{PoolRequest, set};
use hugepilot_settings::{SettingsGuard, setting_warning};
use hugepilot_units::{Amount, Bytes, Share};

use super::Control;
use super::setup::{Setup, free_pages};
use crate::LaunchError;

/// Percentage of memory that stays available, as in `pool set`.
const FLOOR: f64 = 10.0;

type RaisedPool = (Option<SettingsGuard>, Vec<RunWarning>);

/// Raises the pool of the mode until `bytes` of it are free. [`restore`] or dropping the guard
/// restores the pool; after a crash, the next command does.
///
/// # Errors
/// [`LaunchError::Refused`] for a mode without a pool, or without permission;
/// [`LaunchError::Settings`] while another process changes settings.
pub(crate) fn raise(
    root: &Root,
    setup: &mut Setup,
    bytes: Bytes,
    control: Control<'_>,
) -> Result<RaisedPool, LaunchError> {
    let Some(size) = setup.mode.uses_pool() else {
        return Err(Unsupported::from(ModeUnsupported::NoPool { mode: setup.mode }).into());
    };
    let requested = bytes.get().div_ceil(size.get());
    let missing = requested.saturating_sub(free_pages(root, size).unwrap_or(0));
    if missing == 0 {
        return Ok((None, Vec::new()));
    }
    hugetlb::may_set(root, size, None).map_err(|error| {
        Unsupported::from(ModeUnsupported::PoolRootRequired { error: error.to_string() })
    })?;
    let count = hugetlb::pages(root, size, None)?.persistent() + missing;
    // A signal that arrived earlier, such as SIGCHLD, must not end the change half-way.
    control.check()?;
    let (mut guard, recovery) = SettingsGuard::take(root)?;
    let recovered = recovery.map(|recovery| recovery.warnings()).unwrap_or_default();
    let mut warnings: Vec<_> = recovered.into_iter().map(RunWarning::Setting).collect();
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
    control.check()?;
    warnings.extend(shortage(change, requested));
    if free_pages(root, size).is_some_and(|free| free > 0) {
        setup.obstacles.empty_pool = None;
    }
    Ok((Some(guard), warnings))
}

fn shortage(change: PoolChange, requested: u64) -> Option<RunWarning> {
    let PoolChange { page_bytes, causes, .. } = change;
    let is_short = !causes.is_empty();
    is_short.then_some(RunWarning::PoolTooSmall(PoolShortage { page_bytes, requested, causes }))
}

/// Restores the pool, and warns about settings without their former values.
pub(crate) fn restore(guard: SettingsGuard) -> Vec<RunWarning> {
    let outcomes = guard.put_back();
    let warnings =
        outcomes.iter().filter_map(|(setting, outcome)| setting_warning(setting, outcome));
    warnings.map(RunWarning::Setting).collect()
}
