//! Errors with their cause and a suggested fix.

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use crate::{Backing, Help, Nodes, Setting, Sys};

/// Cause of a failed request. Plain data: creating one never allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The requested length is 0.
    #[error("a region needs at least 1 byte")]
    Empty,
    /// The request exceeds the address space, or count times size overflows.
    #[error("{count} x {} exceeds the address space", Bytes::new(*size as u64))]
    Overflow {
        /// Number of items.
        count: usize,
        /// Size of one item, in bytes.
        size: usize,
    },
    /// The alignment is not a power of two, or above 1 GiB.
    #[error("alignment {0}: not a power of two up to {MAX_ALIGN}")]
    Alignment(Bytes),
    /// The kernel refuses the name.
    #[error("a name has 1 to 79 printable ASCII characters, without []\\$`")]
    Label,
    /// The request exceeds the limit of an arena.
    #[error("limit of {limit} reached: {used} mapped, {wanted} more requested")]
    Limit {
        /// Limit of the arena.
        limit: Bytes,
        /// Bytes mapped so far.
        used: Bytes,
        /// Bytes requested.
        wanted: Bytes,
    },
    /// The pool has too few free pages.
    #[error(
        "hugetlb pool of {page} pages: {wanted} requested, {} of {} free ({errno})",
        pool.spare(), pool.total
    )]
    PoolEmpty {
        /// Page size of the pool.
        page: Bytes,
        /// Pages requested.
        wanted: u64,
        /// Pool counters at that time.
        pool: Pool,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The pool has free pages, and the process may not have them: by a limit of its cgroup, or
    /// because they are on memory nodes that it may not use.
    #[error(
        "the cgroup grants less than {wanted} pages of the hugetlb pool of {page} pages, or they \
         are on other memory nodes ({errno})"
    )]
    PoolLimit {
        /// Page size of the pool.
        page: Bytes,
        /// Pages requested.
        wanted: u64,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The processor or kernel lacks a pool of this page size.
    #[error("no hugetlb pool of {page} pages on this processor or kernel ({errno})")]
    NoPool {
        /// Page size of the pool.
        page: Bytes,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// This setting disables THP for the system.
    #[error("transparent huge pages are set to never: {}", .0.path().to_string_lossy())]
    ThpNever(Setting),
    /// THP is disabled for this process.
    #[error("transparent huge pages are disabled for this process (PR_SET_THP_DISABLE)")]
    ThpDisabled,
    /// The kernel does not support the advice that a backing needs.
    #[error("this kernel does not support {backing} ({errno})")]
    Advice {
        /// Refused backing.
        backing: Backing,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The kernel refused the mapping: no address space, no mapping left, or a limit.
    #[error("cannot map {len} ({errno})")]
    Map {
        /// Bytes requested.
        len: Bytes,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// Some nodes do not exist or have no memory.
    #[error("memory nodes {requested} requested, {available} available")]
    Nodes {
        /// Nodes requested.
        requested: Nodes,
        /// Nodes with memory.
        available: Nodes,
    },
    /// The kernel refused to bind memory to nodes.
    #[error("cannot bind memory to nodes {nodes} ({errno})")]
    Bind {
        /// Nodes requested.
        nodes: Nodes,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The memory is mapped, but the kernel could not allocate its pages.
    #[error("cannot allocate the pages of {len} on {backing} ({errno})")]
    Prefault {
        /// Bytes to prefault.
        len: Bytes,
        /// Backing of the memory.
        backing: Backing,
        /// Error number of the kernel.
        errno: Errno,
    },
    /// The pagemap cannot be read.
    #[error("cannot read the pagemap ({0})")]
    Pagemap(Errno),
}

/// Largest alignment: the size of the largest page.
pub(crate) const MAX_ALIGN: Bytes = Bytes::gib(1);

/// Counters of a hugetlb pool at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// All pages.
    pub total: u64,
    /// Pages not in use.
    pub free: u64,
    /// Pages not in use, but reserved for a mapping.
    pub reserved: u64,
}

impl Pool {
    /// Returns the pages that a new mapping can use.
    pub const fn spare(self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Reads the counters of the pool of this page size. Reads three small files; an unreadable one
    /// counts as 0.
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
    /// Returns a name that stays the same between versions, for programs: that of C's
    /// `hugepilot_error` in lower case.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "argument",
            Self::Overflow { .. } => "overflow",
            Self::Alignment(_) => "alignment",
            Self::Label => "name",
            Self::Limit { .. } => "limit",
            Self::PoolEmpty { .. } => "pool_empty",
            Self::PoolLimit { .. } => "pool_limit",
            Self::NoPool { .. } => "no_pool",
            Self::ThpNever(_) => "thp_never",
            Self::ThpDisabled => "thp_disabled",
            Self::Advice { .. } => "advice",
            Self::Map { .. } => "no_memory",
            Self::Nodes { .. } => "nodes",
            Self::Bind { .. } => "bind",
            Self::Prefault { .. } => "prefault",
            Self::Pagemap(_) => "pagemap",
        }
    }

    /// Returns the suggested fix, if there is one.
    pub const fn help(&self) -> Option<Help> {
        Help::of(self)
    }

    /// Returns the error number of the kernel, if there is one.
    pub const fn errno(&self) -> Option<Errno> {
        match *self {
            Self::PoolEmpty { errno, .. }
            | Self::PoolLimit { errno, .. }
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
    fn errors_state_what_failed_and_its_cause() {
        let pool = Pool { total: 10, free: 5, reserved: 3 };
        let empty =
            AllocError::PoolEmpty { page: Bytes::mib(2), wanted: 8, pool, errno: Errno::ENOMEM };
        let text = "hugetlb pool of 2MiB pages: 8 requested, 2 of 10 free (ENOMEM)";
        assert_eq!(empty.to_string(), text);
        assert_eq!((empty.code(), empty.errno()), ("pool_empty", Some(Errno::ENOMEM)));
    }
}
