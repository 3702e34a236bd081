//! Memory that hugepilot may take itself here, for measurements, workloads and graphs.

use std::{fmt, fs, io};

use hugepilot_units::Bytes;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getppid, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};

use crate::cgroup::MemoryCgroup;
use crate::proc::kib;
use crate::{Root, memory};

/// Largest reserve; that of a limit of 4 GiB or more.
const MOST: Bytes = Bytes::gib(1);
/// The reserve is a quarter of the limit.
const PARTS: u64 = 4;

/// Memory that this process may take: the least that a bound leaves beyond its reserve.
///
/// The bounds are the memory of the system, the limits of every level of the own cgroup
/// (`memory.limit_in_bytes`, `memory.max` and `memory.high`), and RLIMIT_AS. Inactive file cache
/// counts as available, because the kernel drops it before it kills a process.
///
/// ```
/// use hugepilot_kernel::{OwnMemory, Root};
///
/// let memory = OwnMemory::read(&Root::live());
/// assert!(memory.room() <= memory.available);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMemory {
    /// The tightest bound.
    pub bound: MemoryBound,
    /// Memory that the bound leaves.
    pub available: Bytes,
    /// Part of it that stays free, for the other processes below the same bound.
    pub reserve: Bytes,
}

/// Bound of the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// `MemAvailable` of the system.
    System,
    /// Limit of the own cgroup, or of one above it.
    Cgroup {
        /// The limit.
        limit: Bytes,
    },
    /// Limit on address space (`ulimit -v`).
    AddressSpace,
}

impl OwnMemory {
    /// Reads how much memory this process may take now. Unreadable files do not bound it.
    pub fn read(root: &Root) -> Self {
        let group = root.read_text("proc/self/cgroup").ok();
        let group = group.and_then(|text| MemoryCgroup::find(root, &text));
        let levels = group.iter().flat_map(|group| group.limits(root));
        let levels = levels.map(|level| {
            Self::new(MemoryBound::Cgroup { limit: level.limit }, level.limit, level.left)
        });
        let system = memory::mem_info(root).ok();
        let system = system.map(|info| Self::new(MemoryBound::System, info.total, info.available));
        let space = address_space(root);
        let space = space.map(|(limit, left)| Self::new(MemoryBound::AddressSpace, limit, left));
        let endless = Self::system(Bytes::MAX);
        levels.chain(system).chain(space).min_by_key(Self::room).unwrap_or(endless)
    }

    /// Returns the memory that this process may take now, on the running system.
    pub fn room_now() -> Bytes {
        Self::read(&Root::live()).room()
    }

    /// Whether this process may take `times` this many bytes now.
    pub fn fits(bytes: u64, times: u64) -> bool {
        bytes.saturating_mul(times) <= Self::room_now().get()
    }

    /// Memory of a system that has `available`, without a cgroup.
    pub const fn system(available: Bytes) -> Self {
        Self { bound: MemoryBound::System, available, reserve: MOST }
    }

    fn new(bound: MemoryBound, limit: Bytes, available: Bytes) -> Self {
        let reserve = MOST.min(Bytes::new(limit.get() / PARTS));
        Self { bound, available, reserve }
    }

    /// Returns the memory that this process may take.
    pub fn room(&self) -> Bytes {
        self.available - self.reserve
    }
}

impl fmt::Display for OwnMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bound, available, reserve } = self;
        write!(f, "{available} available")?;
        match bound {
            MemoryBound::System => {}
            MemoryBound::Cgroup { limit } => write!(f, " below the cgroup limit of {limit}")?,
            MemoryBound::AddressSpace => write!(f, " below the limit on address space")?,
        }
        write!(f, ", of which {reserve} must stay free")
    }
}

/// Makes this process the first that the kernel kills if memory is short, limits its data to `most`
/// bytes more than now, and ends it with its parent.
///
/// Call it without capabilities: the process becomes dumpable, so that it may write to its own
/// `oom_score_adj`, and other processes of its user may then trace it.
///
/// # Errors
/// Errors of `prctl`, `setrlimit` and of the write.
pub fn make_expendable(root: &Root, most: Bytes) -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    fs::write(root.join("proc/self/oom_score_adj"), "1000")?;
    let status = root.read_text("proc/self/status").unwrap_or_default();
    let data = kib(&status, "VmData:").unwrap_or_default() + most;
    let limit = getrlimit(Resource::Data);
    let lower = limit.current.map_or(data.get(), |now| now.min(data.get()));
    Ok(setrlimit(Resource::Data, Rlimit { current: Some(lower), ..limit })?)
}

/// Lets the kernel send this process SIGTERM when its parent ends. Call it in the main thread.
///
/// # Errors
/// ESRCH if the parent ended meanwhile; those of `prctl`.
pub fn end_with_parent() -> io::Result<()> {
    let before = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // A parent that ended before the call sends no signal.
    if getppid() == before { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
}

/// Returns RLIMIT_AS (`ulimit -v`) of this process and what it leaves, if it is limited.
fn address_space(root: &Root) -> Option<(Bytes, Bytes)> {
    let limits = root.read_text("proc/self/limits").ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit = Bytes::new(limit.split_whitespace().next()?.parse().ok()?);
    let status = root.read_text("proc/self/status").ok()?;
    Some((limit, limit - kib(&status, "VmSize:")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 25165824 kB\nMemAvailable: 20971520 kB\n");

    fn of(files: &[(&str, &str)]) -> OwnMemory {
        let (_dir, root) = fixture(&[&[MEMINFO], files].concat());
        OwnMemory::read(&root)
    }

    #[test]
    fn a_system_without_limits_keeps_a_gigabyte() {
        let memory = of(&[]);
        assert_eq!(memory, OwnMemory::system(Bytes::gib(20)));
        assert_eq!(memory.room(), Bytes::gib(19));
        assert_eq!(memory.to_string(), "20GiB available, of which 1GiB must stay free");
        let (_dir, root) = fixture(&[("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 1 kB")]);
        assert_eq!(OwnMemory::read(&root).room(), Bytes::ZERO, "less than the reserve is no room");
    }

    #[test]
    fn in_version_1_each_level_is_a_bound_and_inactive_file_cache_is_available() {
        // A container of 512 MiB in a pod of 300 MiB, as a kubelet writes them.
        let container = "sys/fs/cgroup/memory/kubepods/pod1/c1/memory";
        let pod = "sys/fs/cgroup/memory/kubepods/pod1/memory";
        let group = ("proc/self/cgroup", "4:memory:/kubepods/pod1/c1\n0::/\n");
        let file = |directory: &str, name: &str| format!("{directory}.{name}");
        let names = [
            file("sys/fs/cgroup/memory/memory", "limit_in_bytes"),
            file("sys/fs/cgroup/memory/memory", "usage_in_bytes"),
            file(pod, "limit_in_bytes"),
            file(pod, "usage_in_bytes"),
            file(pod, "stat"),
            file(container, "limit_in_bytes"),
            file(container, "usage_in_bytes"),
        ];
        let values = [
            "9223372036854771712",
            "5",
            "314572800",
            "209715200",
            "inactive_file 1\ntotal_inactive_file 20971520\ntotal_active_file 52428800\n",
            "536870912",
            "104857600",
        ];
        let mut files: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
        files.push(group);
        let memory = of(&files);
        let bound = MemoryBound::Cgroup { limit: Bytes::mib(300) };
        let expected = OwnMemory { bound, available: Bytes::mib(120), reserve: Bytes::mib(75) };
        assert_eq!(memory, expected);
        assert_eq!(
            memory.to_string(),
            "120MiB available below the cgroup limit of 300MiB, of which 75MiB must stay free"
        );
        // Without the pod's limit, that of the container counts.
        files[2].1 = "9223372036854771712";
        assert_eq!(of(&files).room(), Bytes::mib(512 - 100 - 128));
    }

    #[test]
    fn in_version_2_the_lower_of_max_and_high_is_the_bound() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/memory.high", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "536870912\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.high", "268435456\n"),
            ("sys/fs/cgroup/a/b/memory.current", "104857600\n"),
            ("sys/fs/cgroup/a/b/memory.stat", "anon 7\ninactive_file 4194304\n"),
        ];
        let memory = of(&files);
        assert_eq!(memory.bound, MemoryBound::Cgroup { limit: Bytes::mib(256) });
        assert_eq!(memory.room(), Bytes::mib(256 - 96 - 64));
        assert_eq!(of(&files[..5]).room(), Bytes::mib(512 - 256), "the level above");
    }

    #[test]
    fn the_limit_on_address_space_is_a_bound() {
        let limits = "Max address space         419430400            unlimited            bytes\n";
        let files = [("proc/self/limits", limits), ("proc/self/status", "VmSize: 102400 kB\n")];
        let memory = of(&files);
        assert_eq!(memory.bound, MemoryBound::AddressSpace);
        assert_eq!(memory.room(), Bytes::mib(400 - 100 - 100));
    }
}
