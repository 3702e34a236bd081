//! Memory limits of a process's control groups, version 1 and 2.

use std::path::{Path, PathBuf};

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use crate::{Result, Root};

/// Which hierarchy limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The memory controller of cgroup v1.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The cgroup of a process that accounts its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    version: Version,
    /// Under the root, such as `sys/fs/cgroup/memory`.
    mount: PathBuf,
    /// Within the hierarchy, without the leading slash.
    path: PathBuf,
}

/// What is left in the tightest of a process's cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Its limit; `Bytes::MAX` for none.
    pub limit: Bytes,
    /// Limit less usage; `Bytes::MAX` without a limit.
    pub left: Bytes,
}

impl Room {
    /// No limit anywhere.
    pub const ENDLESS: Self = Self { limit: Bytes::MAX, left: Bytes::MAX };
}

impl MemoryCgroup {
    /// Finds the cgroup from the text of `/proc/PID/cgroup`; `None` when nothing accounts memory.
    pub fn find(root: &Root, text: &str) -> Option<Self> {
        let of = |wanted: fn(&str, &str) -> bool| {
            text.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                wanted(id, controllers).then(|| PathBuf::from(path.trim_start_matches('/')))
            })
        };
        let v1 = of(|_, controllers| controllers.split(',').any(|name| name == "memory"));
        if let Some(path) = v1 {
            return Some(Self { version: Version::V1, mount: "sys/fs/cgroup/memory".into(), path });
        }
        let path = of(|id, controllers| id == "0" && controllers.is_empty())?;
        let mount = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
            .into_iter()
            .find(|mount| root.join(mount).join("cgroup.controllers").exists())?;
        Some(Self { version: Version::V2, mount: mount.into(), path })
    }

    /// The cgroup at `directory`, such as `/sys/fs/cgroup/db.slice`; `None` when no memory is accounted there.
    pub fn at(root: &Root, directory: &Path) -> Option<Self> {
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        let has = |path: &Path, file: &str| root.join(path).join(file).exists();
        // The root of version 2 accounts nothing itself.
        let version = match () {
            () if has(inside, "memory.limit_in_bytes") => Version::V1,
            () if has(inside, "memory.current") => Version::V2,
            () => return None,
        };
        let mount = inside.ancestors().take_while(|path| has(path, "cgroup.procs")).last()?;
        let path = inside.strip_prefix(mount).ok()?.to_owned();
        Some(Self { version, mount: mount.to_owned(), path })
    }

    /// Which version it is.
    pub const fn version(&self) -> Version {
        self.version
    }
    /// Its path in the hierarchy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tightest room of this cgroup and all above it. A cgroup removed meanwhile counts as without limit.
    pub fn room(&self, root: &Root) -> Room {
        self.path
            .ancestors()
            .filter_map(|path| self.room_at(root, &self.mount.join(path)))
            .min_by_key(|room| room.left)
            .unwrap_or(Room::ENDLESS)
    }

    /// PSI of this cgroup; version 1 has none.
    pub fn pressure_file(&self) -> Option<String> {
        let file = self.mount.join(&self.path).join("memory.pressure");
        (self.version == Version::V2).then(|| file.to_string_lossy().into_owned())
    }

    fn room_at(&self, root: &Root, directory: &Path) -> Option<Room> {
        let number = |name: &str| root.read_text(directory.join(name)).ok()?.parse().ok().map(Bytes::new);
        let (limit, usage) = match self.version {
            Version::V1 => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
            // `max` is no number, and no limit. `memory.high` throttles a program, which harms it as well.
            Version::V2 => {
                let limit = [number("memory.max"), number("memory.high")].into_iter().flatten().min()?;
                (limit, number("memory.current")?)
            }
        };
        // Inactive file cache is given up before anybody is killed, so it counts as room (kubelet reckons the same).
        let stat = root.read_text(directory.join("memory.stat")).unwrap_or_default();
        let cache_key = match self.version {
            Version::V1 => "total_inactive_file ",
            Version::V2 => "inactive_file ",
        };
        let cache = stat
            .lines()
            .find_map(|line| line.strip_prefix(cache_key)?.parse().ok())
            .map_or(Bytes::ZERO, Bytes::new);
        // Version 1 writes "no limit" as the largest multiple of the page size below 2^63.
        let limited = limit < Bytes::new(1 << 62);
        limited.then(|| Room { limit, left: limit - (usage - cache) })
    }
}

/// The processes of the cgroup at `directory`, such as `/sys/fs/cgroup/db.slice`, and of all below it.
///
/// # Errors
/// [`KernelError::Read`] when there is no such cgroup, or it may not be read.
pub fn processes(root: &Root, directory: &Path) -> Result<Vec<Pid>> {
    let inside = directory.strip_prefix("/").unwrap_or(directory);
    let listed = root.read_text(inside.join("cgroup.procs"))?;
    let mut pids: Vec<Pid> = listed.lines().filter_map(|line| line.trim().parse().ok()).map(Pid).collect();
    let below = std::fs::read_dir(root.join(inside)).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        // One that is removed while we look has no processes any more.
        pids.extend(processes(root, &inside.join(entry.file_name())).unwrap_or_default());
    }
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn v1_takes_the_tightest_ancestor() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 50000\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "100000\n"),
        ]);
        let group = MemoryCgroup::find(&root, "9:name=systemd:/\n4:memory:/a/b\n0::/\n").unwrap();
        assert_eq!(group.version(), Version::V1);
        assert_eq!(group.room(&root), Room { limit: Bytes::new(1_000_000), left: Bytes::new(150_000) });
    }

    #[test]
    fn v2_knows_max_and_high() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/s.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/s.slice/memory.high", "max\n"),
            ("sys/fs/cgroup/s.slice/memory.current", "7\n"),
            ("sys/fs/cgroup/s.slice/x y/memory.max", "4096000\n"),
            ("sys/fs/cgroup/s.slice/x y/memory.high", "2048000\n"),
            ("sys/fs/cgroup/s.slice/x y/memory.current", "2000000\n"),
        ]);
        let group = MemoryCgroup::find(&root, "0::/s.slice/x y\n").unwrap();
        assert_eq!(group.room(&root), Room { limit: Bytes::new(2_048_000), left: Bytes::new(48_000) });
        assert_eq!(group.pressure_file().unwrap(), "sys/fs/cgroup/s.slice/x y/memory.pressure");
        let free = MemoryCgroup::find(&root, "0::/s.slice\n").unwrap();
        assert_eq!(free.room(&root), Room::ENDLESS);
    }

    #[test]
    fn a_cgroup_is_found_by_its_directory() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/memory/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ("sys/fs/cgroup/unified/b/cgroup.procs", ""),
            ("sys/fs/cgroup/unified/b/memory.current", "7\n"),
            ("home/memory.current", "7\n"),
        ]);
        let at = |directory: &str| MemoryCgroup::at(&root, Path::new(directory));
        let v1 = at("/sys/fs/cgroup/memory/a").unwrap();
        assert_eq!((v1.version(), v1.path()), (Version::V1, Path::new("a")));
        assert_eq!(v1.room(&root).left, Bytes::new(100_000));
        let v2 = at("/sys/fs/cgroup/unified/b/").unwrap();
        assert_eq!(v2.pressure_file().unwrap(), "sys/fs/cgroup/unified/b/memory.pressure");
        for no_cgroup in ["/sys/fs/cgroup/unified", "/home", "/none", "/"] {
            assert_eq!(at(no_cgroup), None, "{no_cgroup}");
        }
    }

    #[test]
    fn a_cgroup_that_is_gone_limits_nothing() {
        let (_dir, root) = fixture(&[]);
        let group = MemoryCgroup::find(&root, "4:memory:/gone\n").unwrap();
        assert_eq!(group.room(&root), Room::ENDLESS);
        assert!(MemoryCgroup::find(&root, "").is_none());
    }

    #[test]
    fn processes_of_a_cgroup_are_those_below_it_too() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/db/cgroup.procs", "12\n7\n"),
            ("sys/fs/cgroup/db/a/cgroup.procs", ""),
            ("sys/fs/cgroup/db/a/b/cgroup.procs", "3\n"),
        ]);
        let found = processes(&root, Path::new("/sys/fs/cgroup/db")).unwrap();
        assert_eq!(found, [3, 7, 12].map(Pid));
        assert!(processes(&root, Path::new("/sys/fs/cgroup/none")).is_err());
    }
}
