//! Memory cgroups that a test owns, version 1 or 2.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, process, thread};

use hugepilot_units::Bytes;

/// Possible mount points of memory cgroups, each with the name of its limit file.
const HOMES: [(&str, &str); 3] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/unified", "memory.max"),
];

/// A memory cgroup. Dropping it removes it; drop its processes first.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a cgroup that limits all memory to `limit`.
    ///
    /// The test begins with `requires!(need::cgroup_memory())`.
    ///
    /// # Panics
    /// If no memory cgroup can be created.
    #[track_caller]
    pub fn new(limit: Bytes) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hugepilot-test-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        for (home, file) in HOMES {
            let group = Self(Path::new(home).join(&name));
            // On a file system without cgroups this would create an ordinary folder.
            if !Path::new(home).join("cgroup.procs").exists() || fs::create_dir(&group.0).is_err() {
                continue;
            }
            if group.0.join(file).exists() {
                fs::write(group.0.join(file), limit.get().to_string()).expect("a limit can be set");
                return group;
            }
        }
        panic!(
            "cannot create a memory cgroup; begin the test with requires!(need::cgroup_memory())"
        );
    }

    /// Creates a child cgroup. Drop the child first.
    ///
    /// # Panics
    /// If it cannot be created.
    #[track_caller]
    pub fn inside(&self) -> Self {
        let group = Self(self.0.join("inside"));
        fs::create_dir(&group.0).expect("a cgroup in a cgroup");
        group
    }

    /// The directory of the cgroup.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The memory that it uses.
    ///
    /// # Panics
    /// If the kernel does not say it.
    #[track_caller]
    pub fn usage(&self) -> Bytes {
        let files = ["memory.usage_in_bytes", "memory.current"].map(|name| self.0.join(name));
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
        let bytes = text.and_then(|text| text.trim().parse().ok());
        Bytes::new(bytes.expect("the kernel accounts memory"))
    }

    /// Counts the processes that the kernel killed in it for lack of memory.
    ///
    /// # Panics
    /// If the kernel does not count them.
    #[track_caller]
    pub fn oom_kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"].map(|name| self.0.join(name));
        let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        count.expect("the kernel counts its kills")
    }

    /// Makes the kernel reclaim what it can: without swap, lazily freed and file pages.
    pub fn reclaim(&self) {
        for (file, amount) in [("memory.force_empty", "0"), ("memory.reclaim", "1G")] {
            // An error only says that less was reclaimed.
            let _ = fs::write(self.0.join(file), amount);
        }
    }

    /// Returns a command that enters the cgroup and then executes `program`.
    ///
    /// The cgroup thus accounts all memory of the program.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$1" && shift && exec "$@""#, "sh"]);
        command.arg(self.0.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The cgroup stays busy for a moment after its last process has ended.
        let removed = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(5));
            fs::remove_dir(&self.0).is_ok()
        });
        if !removed {
            eprintln!("cannot remove {}", self.0.display());
        }
    }
}
