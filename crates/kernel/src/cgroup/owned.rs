//! Memory cgroup that hugepilot makes for a program.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use crate::{KernelError, Result, Root};

/// Possible mount points of memory cgroups, each with its file of the limit.
const HOMES: [(&str, &str); 3] = [
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("sys/fs/cgroup", "memory.max"),
    ("sys/fs/cgroup/unified", "memory.max"),
];
/// A cgroup stays busy for a moment after its last process has ended.
const TRIES: u32 = 1000;

/// Memory cgroup at the top of the hierarchy, version 1 or 2. It stays when this is dropped:
/// [`remove`](OwnedCgroup::remove) it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedCgroup(PathBuf);

impl OwnedCgroup {
    /// Creates a cgroup whose processes may use `limit` of memory together.
    ///
    /// # Errors
    /// EACCES without permission; ENOENT without a memory controller for new cgroups.
    pub fn new(root: &Root, name: &str, limit: Bytes) -> Result<Self> {
        let mut cause = KernelError::write(&root.join(HOMES[0].0), io::ErrorKind::NotFound);
        for (home, file) in HOMES {
            let home = root.join(home);
            // Elsewhere this would create an ordinary folder.
            if !home.join("cgroup.procs").exists() {
                continue;
            }
            let group = Self(home.join(name));
            if let Err(error) = fs::create_dir(&group.0) {
                cause = KernelError::write(&group.0, error);
                continue;
            }
            let limited = fs::write(group.0.join(file), limit.get().to_string());
            match limited {
                Ok(()) => return Ok(group),
                Err(error) => cause = KernelError::write(&group.0.join(file), error),
            }
            group.remove();
        }
        Err(cause)
    }

    /// Returns the cgroup at `path`, which another process created.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves a process there.
    ///
    /// # Errors
    /// ESRCH; EACCES.
    pub fn add(&self, pid: Pid) -> Result<()> {
        let file = self.0.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|error| KernelError::write(&file, error))
    }

    /// Counts the processes that the kernel killed in it for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"].map(|name| self.0.join(name));
        let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }

    /// Removes it; waits up to 5 s for the end of its processes. Returns whether it is gone.
    pub fn remove(&self) -> bool {
        (0..TRIES).any(|_| {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn no_folder_is_made_where_no_cgroups_are() {
        let (_dir, root) = fixture(&[("sys/fs/cgroup/readme", "")]);
        assert!(OwnedCgroup::new(&root, "own", Bytes::gib(1)).is_err());
        assert!(!root.join("sys/fs/cgroup/own").exists());
    }
}
