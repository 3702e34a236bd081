//! Memory cgroups that a test owns, version 1 or 2.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, process, thread};

use hugepilot_units::Bytes;

/// Where memory cgroups may be, and the file that limits one.
const HOMES: [(&str, &str); 3] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/unified", "memory.max"),
];

/// A memory cgroup. Removed when dropped; drop what runs in it first.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one with a limit of `limit` on all memory.
    ///
    /// # Panics
    /// Where none can be made; the test begins with `requires!(need::cgroup_memory())`.
    #[track_caller]
    pub fn new(limit: Bytes) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hugepilot-test-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        for (home, file) in HOMES {
            let group = Self(Path::new(home).join(&name));
            // Only where there are cgroups may a folder be made.
            if !Path::new(home).join("cgroup.procs").exists() || fs::create_dir(&group.0).is_err() {
                continue;
            }
            if group.0.join(file).exists() {
                fs::write(group.0.join(file), limit.get().to_string()).expect("a limit can be set");
                return group;
            }
        }
        panic!(
            "no memory cgroup can be made; the test begins with requires!(need::cgroup_memory())"
        );
    }

    /// Makes another one below it. Drop it first.
    ///
    /// # Panics
    /// Where that fails.
    #[track_caller]
    pub fn inside(&self) -> Self {
        let group = Self(self.0.join("inside"));
        fs::create_dir(&group.0).expect("a cgroup in a cgroup");
        group
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A command that enters the cgroup and then becomes `program`, so that all its memory counts.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$1" && shift && exec "$@""#, "sh"]);
        command.arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Busy for a moment after its last process has ended.
        let removed = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(5));
            fs::remove_dir(&self.0).is_ok()
        });
        if !removed {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}
