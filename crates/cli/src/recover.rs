//! Settings of the kernel that a run of ours left changed because it was killed.

use hugepilot_kernel::Root;
use hugepilot_manager::{ManagerError, settings};

/// Puts them back, and says so. Whether or not that can be done, the verb can go on.
pub(crate) fn pending() {
    let root = Root::live();
    match settings::recover(&root) {
        Ok(None) => {}
        Ok(Some(recovery)) => recovery.told().iter().for_each(|told| eprintln!("hugepilot: {told}")),
        Err(ManagerError::SettingsBusy { .. }) => {
            eprintln!("hugepilot: another run of hugepilot has settings of the kernel changed just now");
        }
        Err(error) => eprintln!(
            "hugepilot: a run of hugepilot is under way, or was killed and left settings of the kernel changed: {error}\n\
             fix: sudo hugepilot doctor"
        ),
    }
}
