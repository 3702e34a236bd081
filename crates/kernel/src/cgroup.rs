//! Memory limits of a process's control groups, version 1 and 2.

mod limited;
mod owned;
mod reclaim;

use std::path::{Component, Path, PathBuf};

use hugepilot_record::Pid;
use hugepilot_units::Bytes;

use crate::proc::printable;
use crate::{Result, Root};

pub use limited::limited;
pub use owned::OwnedCgroup;
pub use reclaim::{GroupMemory, Reclaim};

/// Version of the hierarchy that limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The memory controller of cgroup v1.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Cgroup that accounts the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCgroup {
    version: Version,
    /// Mount point below the root, such as `sys/fs/cgroup/memory`.
    mount: PathBuf,
    /// Path in the hierarchy, from `/`.
    path: String,
    /// Path below the mount; `None` if the mount shows another part of the hierarchy.
    inside: Option<PathBuf>,
}

/// Headroom below the tightest visible limit of a process's cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitHeadroom {
    /// Limit; `Bytes::MAX` for none.
    pub limit: Bytes,
    /// Limit less usage; `Bytes::MAX` without a limit.
    pub left: Bytes,
}

impl LimitHeadroom {
    /// Headroom without a limit.
    pub const ENDLESS: Self = Self { limit: Bytes::MAX, left: Bytes::MAX };

    /// Returns the share of the limit in use, 0 to 1; 0 without a limit.
    pub fn use_ratio(&self) -> f64 {
        if self.limit == Bytes::MAX { 0.0 } else { (self.limit - self.left).ratio_of(self.limit) }
    }
}

impl MemoryCgroup {
    /// Finds the cgroup from the text of `/proc/PID/cgroup`; `None` if none accounts memory.
    pub fn find(root: &Root, text: &str) -> Option<Self> {
        let Place { version, mount, path, inside } = place(root, text, "memory")?;
        Some(Self { version, mount, path, inside })
    }

    /// Returns the cgroup at `directory`, such as `/sys/fs/cgroup/db.slice`; `None` if it accounts
    /// no memory.
    pub fn of_directory(root: &Root, directory: &Path) -> Option<Self> {
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        let has = |path: &Path, file: &str| root.join(path).join(file).exists();
        // The root of version 2 accounts nothing itself.
        let version = match () {
            () if has(inside, "memory.limit_in_bytes") => Version::V1,
            () if has(inside, "memory.current") => Version::V2,
            () => return None,
        };
        let mount = inside.ancestors().take_while(|path| has(path, "cgroup.procs")).last()?;
        let below = inside.strip_prefix(mount).ok()?;
        let path = Path::new("/").join(below).to_string_lossy().into_owned();
        Some(Self { version, mount: mount.to_owned(), path, inside: Some(below.to_owned()) })
    }

    /// Version of the hierarchy.
    pub const fn version(&self) -> Version {
        self.version
    }
    /// Returns the path in the hierarchy, from `/`, safe on a terminal.
    pub fn path(&self) -> String {
        printable(self.path.as_bytes())
    }
    /// Whether its limits are visible: not in a container that shows another part of the hierarchy,
    /// nor after the cgroup was removed.
    pub fn is_visible(&self, root: &Root) -> bool {
        self.inside
            .as_ref()
            .is_some_and(|path| root.join(&self.mount).join(path).join("cgroup.procs").exists())
    }

    /// Returns the headroom below the tightest limit of this cgroup and its ancestors. Invisible
    /// limits do not count. `memory.high` counts: exceeding it throttles a program.
    pub fn headroom(&self, root: &Root) -> LimitHeadroom {
        self.tightest(root, &["memory.max", "memory.high"])
    }
    /// Returns the headroom below the limits at which the kernel kills processes: without
    /// `memory.high`.
    pub fn hard_headroom(&self, root: &Root) -> LimitHeadroom {
        self.tightest(root, &["memory.max"])
    }

    /// Returns the headroom below its own limits, and below those at which the kernel kills
    /// processes.
    pub fn own_headroom(&self, root: &Root) -> [LimitHeadroom; 2] {
        [&["memory.max", "memory.high"][..], &["memory.max"]].map(|limits| {
            let own = self.inside.as_ref().map(|path| self.mount.join(path));
            own.and_then(|path| self.headroom_at(root, &path, limits))
                .unwrap_or(LimitHeadroom::ENDLESS)
        })
    }

    /// `limits`: files of version 2 that count.
    fn tightest(&self, root: &Root, limits: &[&str]) -> LimitHeadroom {
        let levels = self.levels(root, limits);
        levels.min_by_key(|headroom| headroom.left).unwrap_or(LimitHeadroom::ENDLESS)
    }

    /// Returns the headroom below each visible limit, of this cgroup and its ancestors.
    pub(crate) fn limits(&self, root: &Root) -> impl Iterator<Item = LimitHeadroom> {
        self.levels(root, &["memory.max", "memory.high"])
    }

    fn levels(&self, root: &Root, limits: &[&str]) -> impl Iterator<Item = LimitHeadroom> {
        let all = self.inside.iter().flat_map(|path| path.ancestors());
        all.filter_map(move |path| self.headroom_at(root, &self.mount.join(path), limits))
    }

    /// Returns the pressure file of this cgroup; `None` in version 1.
    pub fn pressure_file(&self) -> Option<String> {
        let file = self.mount.join(self.inside.as_ref()?).join("memory.pressure");
        (self.version == Version::V2).then(|| file.to_string_lossy().into_owned())
    }

    fn headroom_at(&self, root: &Root, directory: &Path, limits: &[&str]) -> Option<LimitHeadroom> {
        let limit = self.limit_at(root, directory, limits)?;
        let usage = match self.version {
            Version::V1 => number(root, directory, "memory.usage_in_bytes")?,
            Version::V2 => number(root, directory, "memory.current")?,
        };
        // The kernel drops inactive file cache before it kills a process, so it counts as headroom
        // (kubelet does the same).
        let stat = root.read_text(directory.join("memory.stat")).unwrap_or_default();
        let cache_key = match self.version {
            Version::V1 => "total_inactive_file ",
            Version::V2 => "inactive_file ",
        };
        let cache = stat
            .lines()
            .find_map(|line| line.strip_prefix(cache_key)?.parse().ok())
            .map_or(Bytes::ZERO, Bytes::new);
        Some(LimitHeadroom { limit, left: limit - (usage - cache) })
    }

    fn limit_at(&self, root: &Root, directory: &Path, limits: &[&str]) -> Option<Bytes> {
        let limit = match self.version {
            Version::V1 => number(root, directory, "memory.limit_in_bytes")?,
            // `max` is not a number, and not a limit.
            Version::V2 => limits.iter().filter_map(|name| number(root, directory, name)).min()?,
        };
        // Version 1 writes "no limit" as the largest multiple of the page size below 2^63.
        Some(limit).filter(|&limit| limit < Bytes::new(1 << 62))
    }
}

fn number(root: &Root, directory: &Path, name: &str) -> Option<Bytes> {
    root.read_text(directory.join(name)).ok()?.parse().ok().map(Bytes::new)
}

/// Lists the cgroups right below `directory`, itself below the root.
fn children(root: &Root, directory: &Path) -> impl Iterator<Item = PathBuf> {
    let below = std::fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.map(move |entry| directory.join(entry.file_name()))
}

/// Lists the processes of the cgroup at `directory`, such as `/sys/fs/cgroup/db.slice`, and of its
/// descendants.
///
/// # Errors
/// [`crate::KernelError::Read`] if the cgroup does not exist or may not be read.
pub fn processes(root: &Root, directory: &Path) -> Result<Vec<Pid>> {
    let inside = directory.strip_prefix("/").unwrap_or(directory);
    let listed = root.read_text(inside.join("cgroup.procs"))?;
    let mut pids: Vec<Pid> =
        listed.lines().filter_map(|line| line.trim().parse().ok()).map(Pid).collect();
    for child in children(root, inside) {
        // A cgroup that is removed meanwhile has no processes.
        pids.extend(processes(root, &child).unwrap_or_default());
    }
    pids.sort_unstable();
    Ok(pids)
}

/// Returns the part of the hierarchy that `mount` shows: all of it, `/`, unless the list of mounts
/// has another.
/// Place of a process in the hierarchy of a controller.
pub(crate) struct Place {
    version: Version,
    /// Mount point below the root.
    pub(crate) mount: PathBuf,
    /// Path in the hierarchy, from `/`.
    path: String,
    /// Path below the mount; `None` if the mount shows another part of the hierarchy.
    pub(crate) inside: Option<PathBuf>,
}

/// Finds the place in the hierarchy of `controller` from the text of `/proc/PID/cgroup`.
pub(crate) fn place(root: &Root, text: &str, controller: &str) -> Option<Place> {
    let of = |wanted: &dyn Fn(&str, &str) -> bool| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, controllers).then_some(path)
        })
    };
    let v1 = of(&|_, controllers| controllers.split(',').any(|name| name == controller));
    let (version, mount, path) = match v1 {
        Some(path) => (Version::V1, format!("sys/fs/cgroup/{controller}"), path),
        None => {
            let path = of(&|id, controllers| id == "0" && controllers.is_empty())?;
            let mount = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
            let is_mounted = |mount: &&str| root.join(mount).join("cgroup.controllers").exists();
            let mount = mount.into_iter().find(is_mounted).unwrap_or("sys/fs/cgroup");
            (Version::V2, mount.to_owned(), path)
        }
    };
    let inside = Path::new(path).strip_prefix(shown_at(root, &mount)).ok().map(Path::to_owned);
    // `/..` is outside of this cgroup namespace.
    let inside =
        inside.filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))));
    Some(Place { version, mount: mount.into(), path: path.to_owned(), inside })
}

fn shown_at(root: &Root, mount: &str) -> String {
    let text = root.read_text("proc/self/mountinfo").unwrap_or_default();
    let mut parts = text.lines().rev().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (shown, point) = (fields.next()?, fields.next()?);
        (point.strip_prefix('/') == Some(mount) && line.contains(" - cgroup"))
            .then(|| shown.to_owned())
    });
    parts.next().unwrap_or_else(|| "/".to_owned())
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
        assert_eq!(
            group.headroom(&root),
            LimitHeadroom { limit: Bytes::new(1_000_000), left: Bytes::new(150_000) }
        );
    }

    #[test]
    fn v2_reads_max_and_high() {
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
        assert_eq!(
            group.headroom(&root),
            LimitHeadroom { limit: Bytes::new(2_048_000), left: Bytes::new(48_000) }
        );
        let hard = LimitHeadroom { limit: Bytes::new(4_096_000), left: Bytes::new(2_096_000) };
        assert_eq!(group.hard_headroom(&root), hard, "memory.high kills no process");
        assert_eq!(group.pressure_file().unwrap(), "sys/fs/cgroup/s.slice/x y/memory.pressure");
        let free = MemoryCgroup::find(&root, "0::/s.slice\n").unwrap();
        assert_eq!(free.headroom(&root), LimitHeadroom::ENDLESS);
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
        let at = |directory: &str| MemoryCgroup::of_directory(&root, Path::new(directory));
        let v1 = at("/sys/fs/cgroup/memory/a").unwrap();
        assert_eq!((v1.version(), v1.path()), (Version::V1, "/a".to_owned()));
        assert_eq!(v1.headroom(&root).left, Bytes::new(100_000));
        let v2 = at("/sys/fs/cgroup/unified/b/").unwrap();
        assert_eq!(v2.pressure_file().unwrap(), "sys/fs/cgroup/unified/b/memory.pressure");
        for no_cgroup in ["/sys/fs/cgroup/unified", "/home", "/none", "/"] {
            assert_eq!(at(no_cgroup), None, "{no_cgroup}");
        }
    }

    #[test]
    fn an_invisible_cgroup_differs_from_one_without_limit() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/here/cgroup.procs", ""),
        ]);
        let is_visible = |line: &str| MemoryCgroup::find(&root, line).unwrap().is_visible(&root);
        assert!(is_visible("0::/") && is_visible("0::/here\n"));
        assert!(!is_visible("0::/gone\n"), "removed, or of another container");
        assert!(!is_visible("0::/../here\n"), "outside of this cgroup namespace");
        assert!(!is_visible("4:memory:/\n"), "its hierarchy is not mounted");
        let above = MemoryCgroup::find(&root, "0::/../x\u{1b}[31m\n").unwrap();
        assert_eq!(above.path(), "/../x\\u{1b}[31m");
        assert_eq!((above.headroom(&root), above.pressure_file()), (LimitHeadroom::ENDLESS, None));
        assert!(MemoryCgroup::find(&root, "").is_none());
    }

    #[test]
    fn processes_of_descendants_belong_to_a_cgroup() {
        let (_dir, root) = fixture(&[
            ("sys/fs/cgroup/db/cgroup.procs", "12\n7\n"),
            ("sys/fs/cgroup/db/a/cgroup.procs", ""),
            ("sys/fs/cgroup/db/a/b/cgroup.procs", "3\n"),
        ]);
        let found = processes(&root, Path::new("/sys/fs/cgroup/db")).unwrap();
        assert_eq!(found, [3, 7, 12].map(Pid));
        assert!(processes(&root, Path::new("/sys/fs/cgroup/none")).is_err());
    }

    #[test]
    fn a_mount_may_show_a_part_of_the_hierarchy() {
        let (_dir, root) = fixture(&[
            (
                "proc/self/mountinfo",
                "33 24 0:28 /docker/a /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n"),
        ]);
        let headroom = |line: &str| {
            let group = MemoryCgroup::find(&root, line).unwrap();
            (group.is_visible(&root), group.headroom(&root).left)
        };
        assert_eq!(headroom("4:memory:/docker/a\n"), (true, Bytes::new(100_000)));
        assert_eq!(
            headroom("4:memory:/docker/other\n"),
            (false, Bytes::MAX),
            "the limit of another cgroup"
        );
    }
}
