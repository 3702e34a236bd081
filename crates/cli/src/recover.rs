//! Settings of the kernel that a run of ours left changed because it was killed.

use std::io::Write as _;

use hugepilot_kernel::Root;
use hugepilot_settings::{self as settings, SettingsError};

/// Puts them back, and says so. Whether or not that can be done, or be said, the verb can go on.
pub(crate) fn pending() {
    let root = Root::live();
    let say = |text: &str| _ = writeln!(std::io::stderr(), "hugepilot: {text}");
    match settings::recover(&root) {
        Ok(None) => {}
        Ok(Some(recovery)) => recovery.told().iter().for_each(|told| say(told)),
        Err(SettingsError::Busy { .. }) => {
            say("another run of hugepilot has settings of the kernel changed just now");
        }
        Err(error) => say(&format!(
            "a run of hugepilot is under way, or was killed and left settings of the kernel changed: {error}\n\
             fix: sudo hugepilot doctor"
        )),
    }
}
