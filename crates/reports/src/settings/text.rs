//! Text of warnings about kernel settings that a command changed.

use hugepilot_render::sentence::warning_lines;

use crate::settings::SettingWarning;

/// Prints warnings about settings, each with its help.
pub fn setting_warnings_text(warnings: &[SettingWarning]) -> String {
    warning_lines(warnings)
}
