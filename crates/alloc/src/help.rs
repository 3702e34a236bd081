//! Suggested fixes for errors.

use std::fmt;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use crate::{AllocError, Backing, Setting};

/// Suggested fix for an [`AllocError`]; [`Display`](fmt::Display) prints it in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Help {
    /// Resize a hugetlb pool.
    ResizePool {
        /// Page size of the pool.
        page: Bytes,
        /// Pages that the pool needs in all.
        count: u64,
    },
    /// Resize the hugetlb pool of the requested nodes, or raise a cgroup limit.
    ResizePoolOfNodes {
        /// Page size of the pool.
        page: Bytes,
    },
    /// Raise the limit of the cgroup on pages of this size.
    RaisePoolLimit {
        /// Page size of the pool.
        page: Bytes,
    },
    /// Set this THP setting to `madvise`.
    SetThp(Setting),
    /// Start the program from a parent without `PR_SET_THP_DISABLE`.
    RestartWithThp,
    /// Use a kernel built with `CONFIG_TRANSPARENT_HUGEPAGE`.
    KernelWithThp,
    /// Use a kernel with `MADV_COLLAPSE`.
    KernelWithCollapse,
    /// Use a kernel with `MADV_POPULATE_WRITE`.
    KernelWithPopulate,
    /// Use a kernel with `PAGEMAP_SCAN`.
    KernelWithPagemapScan,
    /// Use a kernel with NUMA, or request no nodes.
    KernelWithNuma,
    /// Raise the limits on address space, mappings or committed memory.
    RaiseMappingLimits,
    /// Allow the nodes in the cgroup, or request others.
    AllowNodes,
    /// Free memory, or raise the memory limit of the cgroup.
    FreeMemory,
}

impl Help {
    /// Returns the fix for `error`, if there is one.
    pub(crate) const fn of(error: &AllocError) -> Option<Self> {
        Some(match *error {
            AllocError::PoolEmpty { page, wanted, pool, .. } => {
                let count = pool.total + wanted.saturating_sub(pool.spare());
                Self::ResizePool { page, count }
            }
            AllocError::PoolLimit { page, .. } => Self::RaisePoolLimit { page },
            AllocError::ThpNever(setting) => Self::SetThp(setting),
            AllocError::ThpDisabled => Self::RestartWithThp,
            AllocError::Advice { backing: Backing::Collapse(_), .. } => Self::KernelWithCollapse,
            AllocError::Advice { .. } => Self::KernelWithThp,
            AllocError::Map { errno: Errno::ENOMEM, .. } => Self::RaiseMappingLimits,
            AllocError::Bind { errno: Errno::EINVAL, .. } => Self::AllowNodes,
            AllocError::Bind { errno: Errno::ENOSYS, .. } => Self::KernelWithNuma,
            AllocError::Prefault { errno: Errno::EINVAL, .. } => Self::KernelWithPopulate,
            AllocError::Prefault { backing: Backing::Hugetlb2M, .. } => {
                Self::ResizePoolOfNodes { page: Bytes::mib(2) }
            }
            AllocError::Prefault { backing: Backing::Hugetlb1G, .. } => {
                Self::ResizePoolOfNodes { page: Bytes::gib(1) }
            }
            AllocError::Prefault { errno: Errno::ENOMEM, .. } => Self::FreeMemory,
            AllocError::Pagemap(Errno::ENOTTY) => Self::KernelWithPagemapScan,
            _ => return None,
        })
    }
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::ResizePool { page, count } => {
                write!(f, "sudo hugepilot pool set --size {page} --count {count}")?;
                if page <= Bytes::mib(512) {
                    return Ok(());
                }
                "; if memory is too fragmented, at boot: hugepagesz=1G hugepages=N"
            }
            Self::ResizePoolOfNodes { page } => {
                write!(f, "sudo hugepilot pool set --size {page} --count N --node K")?;
                ", or raise the hugetlb limit of the cgroup"
            }
            Self::RaisePoolLimit { page } => {
                let size = if page == Bytes::gib(1) { "1GB" } else { "2MB" };
                return write!(
                    f,
                    "raise hugetlb.{size}.max and hugetlb.{size}.rsvd.max of the cgroup, or of one \
                     above it (version 1: limit_in_bytes), or allow the nodes of the pool \
                     (cpuset.mems, numactl)"
                );
            }
            Self::SetThp(setting) => {
                return write!(f, "echo madvise | sudo tee {}", setting.path().to_string_lossy());
            }
            Self::RestartWithThp => "start the program from a shell without PR_SET_THP_DISABLE",
            Self::KernelWithThp => "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
            Self::KernelWithCollapse => "use Linux 6.1 or newer, with CONFIG_TRANSPARENT_HUGEPAGE",
            Self::KernelWithPopulate => "use Linux 5.14 or newer",
            Self::KernelWithPagemapScan => "use Linux 6.7 or newer",
            Self::KernelWithNuma => "use a kernel with CONFIG_NUMA, or name no nodes",
            Self::RaiseMappingLimits => {
                "raise ulimit -v, vm.max_map_count, or, if vm.overcommit_memory is 2, \
                 vm.overcommit_ratio"
            }
            Self::AllowNodes => "raise cpuset.mems of the cgroup, or name other nodes",
            Self::FreeMemory => "free memory, or raise memory.max of the cgroup",
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn an_empty_pool_names_the_command_that_resizes_it() {
        let empty =
            |page, wanted, pool| AllocError::PoolEmpty { page, wanted, pool, errno: Errno::ENOMEM };
        let help = |error: AllocError| error.help().unwrap().to_string();
        let pool = Pool { total: 10, free: 5, reserved: 3 };
        let command = "sudo hugepilot pool set --size 2MiB --count 16";
        assert_eq!(help(empty(Bytes::mib(2), 8, pool)), command);
        let gigantic = help(empty(Bytes::gib(1), 1, Pool::default()));
        let command = "sudo hugepilot pool set --size 1GiB --count 1; ";
        assert!(gigantic.starts_with(command), "{gigantic}");
    }
}
