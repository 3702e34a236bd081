//! What can go wrong with memory of our own, with the cause and a fix in words.

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use crate::{Backing, Nodes, Setting, Sys};

/// Why memory is not to be had as it was asked for. Plain data: making one takes no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// A region of no bytes was asked for.
    #[error("a region needs at least one byte")]
    Empty,
    /// More than the address space can hold, or a product of count and size that no number holds.
    #[error("{count} times {} is more than the address space holds", Bytes::new(*size as u64))]
    Overflow {
        /// How many items.
        count: usize,
        /// The size of one, in bytes.
        size: usize,
    },
    /// An alignment that is none.
    #[error(
        "an alignment of {0} is not to be had: it must be a power of two of at most {MAX_ALIGN}"
    )]
    Alignment(Bytes),
    /// A name that the kernel would refuse.
    #[error("a name has 1 to 79 printable ASCII characters, none of []\\$`")]
    Label,
    /// The limit of an arena is reached.
    #[error("the limit of {limit} is reached: {used} are in use, {wanted} more are wanted")]
    Limit {
        /// The limit.
        limit: Bytes,
        /// Mapped by now.
        used: Bytes,
        /// What was to be mapped besides.
        wanted: Bytes,
    },
    /// The pool has too few free pages.
    #[error("{wanted} pages of {page} are wanted, and the pool has {} of {} free ({errno})", pool.spare(), pool.total)]
    PoolEmpty {
        /// The size of its pages.
        page: Bytes,
        /// How many are wanted.
        wanted: u64,
        /// The pool at that moment.
        pool: Pool,
        /// The kernel's answer.
        errno: Errno,
    },
    /// There is no pool of this size.
    #[error("this processor or kernel has no pool of {page} pages ({errno})")]
    NoPool {
        /// The size of its pages.
        page: Bytes,
        /// The kernel's answer.
        errno: Errno,
    },
    /// THP is off for the system, by this setting.
    #[error("transparent huge pages are set to never")]
    ThpNever(Setting),
    /// THP is off for this process.
    #[error(
        "transparent huge pages are off for this process: prctl(PR_SET_THP_DISABLE), which children inherit"
    )]
    ThpDisabled,
    /// The kernel does not take advice that a backing is made of.
    #[error("the kernel does not know the advice for {backing} ({errno})")]
    Advice {
        /// The backing.
        backing: Backing,
        /// The kernel's answer.
        errno: Errno,
    },
    /// No address space, or none that may be used.
    #[error("{len} cannot be mapped ({errno})")]
    Map {
        /// How much.
        len: Bytes,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Nodes that do not exist or have no memory.
    #[error("memory nodes {requested} are wanted, and this machine has {available}")]
    Nodes {
        /// Those asked for.
        requested: Nodes,
        /// Those with memory.
        available: Nodes,
    },
    /// The kernel refuses to bind memory to nodes.
    #[error("memory cannot be put on nodes {nodes} ({errno})")]
    Bind {
        /// Those asked for.
        nodes: Nodes,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Memory was mapped, but its pages are not to be had.
    #[error("the pages of {len} on {backing} are not to be had ({errno})")]
    Prefault {
        /// How much was to be prefaulted.
        len: Bytes,
        /// On which backing.
        backing: Backing,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The page map cannot be read.
    #[error("the page map cannot be read ({0})")]
    Pagemap(Errno),
}

/// The largest alignment: that of the largest page.
pub(crate) const MAX_ALIGN: Bytes = Bytes::gib(1);

/// The pages of a hugetlb pool, when they were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// All.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// Not in use, but set aside for a mapping.
    pub reserved: u64,
}

impl Pool {
    /// Those that a new mapping can have.
    pub const fn spare(self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// The pool of this page size. Three small files read; what cannot be read is 0.
    pub(crate) fn read(page: Bytes, sys: &impl Sys) -> Self {
        let settings = if page == Bytes::gib(1) {
            [Setting::Pool1GTotal, Setting::Pool1GFree, Setting::Pool1GReserved]
        } else {
            [Setting::Pool2MTotal, Setting::Pool2MFree, Setting::Pool2MReserved]
        };
        let [total, free, reserved] = settings.map(|setting| {
            let mut buffer = [0; 32];
            sys.setting(setting, &mut buffer).and_then(|text| text.parse().ok()).unwrap_or(0)
        });
        Self { total, free, reserved }
    }
}

impl AllocError {
    /// What to change, as a command where there is one.
    pub fn fix(&self) -> Option<String> {
        let fixed = |text: &str| Some(text.to_owned());
        match *self {
            Self::PoolEmpty { page, wanted, pool, .. } => {
                let count = pool.total + wanted.saturating_sub(pool.spare());
                let kib = page.get() >> 10;
                let late = if page > Bytes::mib(512) {
                    "; surest at boot: hugepagesz=1G hugepages=N"
                } else {
                    ""
                };
                Some(format!(
                    "echo {count} | sudo tee /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages{late}"
                ))
            }
            Self::ThpNever(setting) => Some(format!(
                "echo madvise | sudo tee {}",
                setting.path().to_str().unwrap_or_default()
            )),
            Self::ThpDisabled => fixed("start the program from a shell that is not under it"),
            Self::Advice { backing: Backing::Collapse(_), .. } => {
                fixed("a kernel of Linux 6.1 or newer with CONFIG_TRANSPARENT_HUGEPAGE")
            }
            Self::Advice { .. } => fixed("a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
            Self::Map { errno: Errno::ENOMEM, .. } => fixed(
                "raise ulimit -v, vm.max_map_count, or vm.overcommit_ratio where vm.overcommit_memory is 2",
            ),
            Self::Bind { errno: Errno::EINVAL, .. } => {
                fixed("raise cpuset.mems of the cgroup, or name other nodes")
            }
            Self::Bind { errno: Errno::ENOSYS, .. } => {
                fixed("a kernel with CONFIG_NUMA, or no nodes")
            }
            Self::Prefault { errno: Errno::EINVAL, .. } => fixed("a kernel of Linux 5.14 or newer"),
            Self::Prefault { backing: Backing::Hugetlb2M | Backing::Hugetlb1G, .. } => {
                fixed("raise the pool of the nodes asked for, or the hugetlb limit of the cgroup")
            }
            Self::Prefault { errno: Errno::ENOMEM, .. } => {
                fixed("free memory, or raise memory.max of the cgroup")
            }
            // ENOTTY
            Self::Pagemap(Errno(25)) => fixed("a kernel of Linux 6.7 or newer"),
            _ => None,
        }
    }

    /// The error number behind it, where the kernel gave one.
    pub const fn errno(&self) -> Option<Errno> {
        match *self {
            Self::PoolEmpty { errno, .. }
            | Self::NoPool { errno, .. }
            | Self::Advice { errno, .. }
            | Self::Map { errno, .. }
            | Self::Bind { errno, .. }
            | Self::Prefault { errno, .. }
            | Self::Pagemap(errno) => Some(errno),
            Self::Empty
            | Self::Overflow { .. }
            | Self::Alignment(_)
            | Self::Label
            | Self::Limit { .. }
            | Self::ThpNever(_)
            | Self::ThpDisabled
            | Self::Nodes { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pool_says_what_is_free_and_how_to_raise_it() {
        let pool = Pool { total: 10, free: 5, reserved: 3 };
        let error =
            AllocError::PoolEmpty { page: Bytes::mib(2), wanted: 8, pool, errno: Errno::ENOMEM };
        assert_eq!(
            error.to_string(),
            "8 pages of 2MiB are wanted, and the pool has 2 of 10 free (ENOMEM)"
        );
        let fix = error.fix().unwrap();
        assert_eq!(
            fix,
            "echo 16 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        );
        assert_eq!(error.errno(), Some(Errno::ENOMEM));
        let pool = Pool::default();
        let error =
            AllocError::PoolEmpty { page: Bytes::gib(1), wanted: 1, pool, errno: Errno::ENOMEM };
        let fix = error.fix().unwrap();
        assert!(
            fix.starts_with("echo 1 ") && fix.contains("1048576kB") && fix.contains("boot"),
            "{fix}"
        );
    }

    #[test]
    fn every_error_has_its_cause_in_words() {
        let table = [
            (AllocError::Overflow { count: 3, size: 1 << 40 }, "3 times 1TiB"),
            (AllocError::Alignment(Bytes::new(3)), "3B"),
            (AllocError::ThpNever(Setting::ThpEnabled), "never"),
            (
                AllocError::Map { len: Bytes::gib(1), errno: Errno::ENOMEM },
                "1GiB cannot be mapped (ENOMEM)",
            ),
            (AllocError::Pagemap(Errno(25)), "page map"),
        ];
        for (error, words) in table {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
