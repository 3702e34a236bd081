//! Recovery of kernel settings that a killed command left changed.

use std::io::Write as _;

use hugepilot_kernel::Root;
use hugepilot_reports::setting_warnings_text;
use hugepilot_settings as settings;
use hugepilot_settings::SettingsError;

/// Restores the settings, and reports that on stderr. Failures do not stop the command.
pub(crate) fn pending() {
    let text = match settings::recover(&Root::live()) {
        Ok(None) => return,
        Ok(Some(recovery)) => setting_warnings_text(&recovery.warnings()),
        Err(SettingsError::Busy { .. }) => {
            "note: another hugepilot process is changing kernel settings\n".to_owned()
        }
        Err(error) => format!(
            "warning: kernel settings that another command changed were not restored: {error}\n\
             help: sudo hugepilot doctor\n"
        ),
    };
    // A running program may share stderr.
    let lines = text.lines().map(|line| format!("hugepilot: {line}\n"));
    let _ = std::io::stderr().write_all(lines.collect::<String>().as_bytes());
}
