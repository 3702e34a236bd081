//! Sentences about kernel settings that a command changed.

use hugepilot_record::settings::SettingWarning;

use crate::sentence::{Sentence, warning_lines};

/// Prints warnings about settings, each with its help.
pub fn setting_warnings_text(warnings: &[SettingWarning]) -> String {
    warning_lines(warnings)
}

impl Sentence for SettingWarning {
    fn text(&self) -> String {
        match self {
            Self::SettingRecovered { pid, name, set_to, before } => format!(
                "hugepilot (pid {pid}) was killed while {name} was changed to {set_to}; it is \
                 restored to {before}"
            ),
            Self::SettingChangedSince { name, set_to, before, now } => format!(
                "{name} stays at {now}: another program changed it after hugepilot had set it to \
                 {set_to}; before, it was {before}"
            ),
            Self::SettingNotRestored { name, before, cause, .. } => {
                format!("cannot restore {name} to {before}: {cause}")
            }
        }
    }
    fn help(&self) -> Vec<String> {
        match self {
            Self::SettingNotRestored { name, path, before, .. } => vec![match register(name) {
                Some((cpu, register)) => {
                    format!("restore it: sudo wrmsr -p {cpu} {register} {before}")
                }
                None => format!("restore it: echo {before} | sudo tee {path}"),
            }],
            _ => Vec::new(),
        }
    }
}

/// Returns processor and register of a setting that is a register, such as `cpu0/msr-0x1a4`.
fn register(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("cpu")?.split_once("/msr-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_restored_comes_with_the_command() {
        let failed = SettingWarning::SettingNotRestored {
            name: "shrink_underused".to_owned(),
            path: "/sys/kernel/mm/transparent_hugepage/shrink_underused".to_owned(),
            before: "0".to_owned(),
            cause: "cannot write it: EROFS".to_owned(),
        };
        assert_eq!(
            setting_warnings_text(&[failed]),
            "warning: cannot restore shrink_underused to 0: cannot write it: EROFS\n\
             help: restore it: echo 0 | sudo tee \
             /sys/kernel/mm/transparent_hugepage/shrink_underused\n"
        );
    }
}
