//! Run of a program with changed hardware prefetchers.

use std::ffi::OsString;

use hugepilot_kernel::{Root, Signals};
use hugepilot_record::Ending;
use hugepilot_reports::settings::SettingWarning;
use hugepilot_settings::prefetch::{self, PrefetchSetting};
use hugepilot_settings::setting_warning;

use crate::LaunchError;
use crate::run::setup::Setup;
use crate::run::{Control, FollowedRun, follow};

/// Runs `command` to its end with `setting`, forwards `signals` to it, and restores the
/// prefetchers. For a process without a second thread.
///
/// # Errors
/// [`LaunchError::Settings`] if the prefetchers cannot be changed; [`LaunchError::Start`];
/// [`LaunchError::Signalled`] by a signal before the start.
pub fn run_with_prefetchers(
    root: &Root,
    command: &[OsString],
    setting: PrefetchSetting,
    signals: &[i32],
) -> Result<(Ending, Vec<SettingWarning>), LaunchError> {
    let setup = Setup::unchanged(root, command)?;
    let signals =
        Signals::take(signals).map_err(|source| LaunchError::start(&command[0], source))?;
    let control = Control { signals: Some(&signals), ..Control::default() };
    control.check()?;
    let mut warnings = Vec::new();
    let guard = prefetch::set(root, setting, &mut |recovery| warnings = recovery.warnings())?;
    let followed = follow(command, &setup, control, &mut ());
    let outcomes = prefetch::restore(guard);
    warnings
        .extend(outcomes.iter().filter_map(|(setting, outcome)| setting_warning(setting, outcome)));
    let FollowedRun { run, .. } = followed?;
    Ok((run.ending, warnings))
}
