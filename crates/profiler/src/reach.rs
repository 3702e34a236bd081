//! Base pages that the TLB holds, as measured on this machine and kept between runs.
//!
//! `hugepilot lab tlb-sweep --store` writes it. Without it, the number comes from the table of
//! CPUs, which a hypervisor can mislead.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use hugepilot_kernel::{Root, cpu};
use hugepilot_recording::TlbSize;
use serde::{Deserialize, Serialize};

use crate::calibrate::MachineCalibration;
use crate::stored;

/// File that stores it.
const FILE: &str = "tlb.json";
/// Base pages that a TLB can hold.
const PLAUSIBLE: RangeInclusive<u32> = 16..=1 << 20;

/// Base pages that the TLB of a machine holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbReach {
    /// The machine, as in [`MachineCalibration::machine`]; other machines do not use it.
    ///
    /// [`MachineCalibration::machine`]: crate::calibrate::MachineCalibration::machine
    pub machine: String,
    /// Base pages.
    pub base_pages: u32,
}

/// Base pages that the TLB of this machine holds: as measured and stored in `directory`, else by
/// the table of CPUs. `None` if the CPU is unknown, too.
pub fn tlb_size(root: &Root, directory: Option<&Path>) -> Option<TlbSize> {
    let machine = MachineCalibration::machine(root);
    if let Some(base_pages) = directory.and_then(|directory| TlbReach::load(directory, &machine)) {
        let source = "measured by hugepilot lab tlb-sweep --store".to_owned();
        return Some(TlbSize { base_pages, source });
    }
    let sizes = cpu::tlb(&cpu::read(root).ok()?);
    Some(TlbSize { base_pages: sizes.l2_4k_entries, source: sizes.source })
}

impl TlbReach {
    /// Reads the number in `directory`; `None` if there is none for this machine, if another user
    /// wrote it, or if it is out of range.
    pub fn load(directory: &Path, machine: &str) -> Option<u32> {
        let Self { machine: of, base_pages } = stored::read(directory, FILE)?;
        (of == machine && PLAUSIBLE.contains(&base_pages)).then_some(base_pages)
    }

    /// Writes the number into `directory`, which is created if it is missing. Returns the file.
    ///
    /// # Errors
    /// `PermissionDenied` if the directory, or one of its parents, belongs to another user; errors
    /// of `open` and `write`.
    pub fn save(&self, directory: &Path) -> io::Result<PathBuf> {
        stored::write(directory, FILE, self).map(|()| directory.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plausible_number_of_this_machine_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot");
        assert_eq!(TlbReach::load(&path, "A"), None, "no file");
        for (base_pages, read) in [(3072, Some(3072)), (16, Some(16)), (15, None), (u32::MAX, None)]
        {
            TlbReach { machine: "A".into(), base_pages }.save(&path).unwrap();
            assert_eq!(TlbReach::load(&path, "A"), read, "{base_pages}");
            assert_eq!(TlbReach::load(&path, "B"), None);
        }
        std::fs::write(path.join(FILE), b"{ torn").unwrap();
        assert_eq!(TlbReach::load(&path, "A"), None);
    }
}
