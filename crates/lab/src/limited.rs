//! Program in a memory cgroup with a limit.

use std::ffi::OsString;
use std::path::Path;

use hugepilot_kernel::Root;
use hugepilot_kernel::cgroup::OwnedCgroup;
use hugepilot_units::Bytes;

use crate::Result;
use crate::condition::{Unchanged, run};
use crate::holder::Remover;

/// Memory cgroup for one program. Dropping it removes the cgroup; so does a process beside this one
/// if this one is killed.
#[derive(Debug)]
pub struct LimitedProgram {
    group: OwnedCgroup,
    remover: Option<Remover>,
}

impl LimitedProgram {
    /// Makes a cgroup with this limit, version 1 or 2. `executable`: see [`crate::holder`].
    ///
    /// # Errors
    /// [`crate::LabError::Kernel`] without permission or a memory controller;
    /// [`crate::LabError::NoHolder`].
    pub fn begin(limit: Bytes, executable: &Path) -> Result<Self> {
        let name = format!("hugepilot-lab-{}", std::process::id());
        let group = OwnedCgroup::new(&Root::live(), &name, limit)?;
        let mut limited = Self { group, remover: None };
        limited.remover = Some(Remover::start(executable, &limited.group)?);
        Ok(limited)
    }

    /// Runs `command` in it, as [`crate::keep_for`] does. A program that exceeds the limit is
    /// killed.
    ///
    /// # Errors
    /// [`crate::LabError::Program`], [`crate::LabError::Kernel`].
    pub fn run(&self, command: &[OsString], stopped: &dyn Fn() -> bool) -> Result<i32> {
        run(&mut Unchanged, command, Some(&self.group), stopped)
    }

    /// Counts the processes that the kernel killed at the limit.
    pub fn oom_kills(&self) -> u64 {
        self.group.oom_kills()
    }
}

impl Drop for LimitedProgram {
    fn drop(&mut self) {
        self.group.remove();
    }
}
