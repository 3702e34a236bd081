//! Reports of `hugepilot pool`, schema `hugepilot.pool/2`: the hugetlb pools, and a change of one.

pub(crate) mod text;

mod change;

use hugepilot_record::Pid;
use hugepilot_record::sentence::Sentence;
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use change::{Permanent, PoolChange, PoolNote, PoolShortfall, on_node};

/// The value of `schema` in both reports.
pub const SCHEMA: &str = "hugepilot.pool/2";

/// Hugetlb pools and their users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// `show`.
    pub action: String,
    /// Pools by ascending page size; empty if the kernel has none.
    pub pools: Vec<Pool>,
    /// Memory that pools allocate from.
    pub memory: PoolMemory,
    /// Processes with hugetlb pages, most pages first.
    pub processes: Vec<PoolUser>,
    /// Mounts of hugetlbfs.
    pub mounts: Vec<HugetlbMount>,
    /// Further facts.
    pub warnings: Vec<PoolWarning>,
}

/// Fact about the use of the pools. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PoolWarning {
    /// Pages in use by no visible process.
    #[text(
        "no visible process uses {bytes} of the pages in use; files on a hugetlbfs, shared memory \
         segments (ipcs -m) or processes of other containers hold them"
    )]
    UnknownUser {
        /// Memory of these pages.
        bytes: Bytes,
    },
    /// Free pages that no mapping has reserved.
    #[text("{bytes} in pages of {page_bytes} are unused, and serve nothing else")]
    Unused {
        /// Page size.
        page_bytes: Bytes,
        /// Memory of these pages.
        bytes: Bytes,
    },
}

/// Hugetlb pool of one page size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Page size.
    pub page_bytes: Bytes,
    /// Whether `mmap` and mounts without a size use this one.
    pub is_default: bool,
    /// Page counts.
    #[serde(flatten)]
    pub pages: PoolPages,
    /// Surplus pages that the kernel may allocate on demand (`nr_overcommit_hugepages`).
    pub overcommit: u64,
    /// Part of each NUMA node.
    pub nodes: Vec<NodePool>,
}

/// Part of a pool on one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePool {
    /// Node.
    pub node: u32,
    /// Page counts.
    #[serde(flatten)]
    pub pages: PoolPages,
}

/// Page counts of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolPages {
    /// All pages, including surplus (`nr_hugepages`).
    pub total: u64,
    /// Pages that no program has touched (`free_hugepages`).
    pub free: u64,
    /// Free pages promised to a mapping (`resv_hugepages`); `None` for a node, for which the kernel
    /// does not count them.
    pub reserved: Option<u64>,
    /// Pages that return to the system when their program frees them (`surplus_hugepages`).
    pub surplus: u64,
}

impl PoolPages {
    /// Persistent pages: all without surplus.
    pub const fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
    /// Pages that programs have touched.
    pub const fn in_use(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
    /// Pages that cannot be freed now: in use, or reserved.
    pub fn held(&self) -> u64 {
        self.in_use().saturating_add(self.reserved.unwrap_or(0)).min(self.total)
    }
}

/// Memory that pools allocate from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolMemory {
    /// Total memory.
    pub total_bytes: Bytes,
    /// Memory available without swapping; for one node, an estimate.
    pub available_bytes: Bytes,
    /// Unused memory.
    pub free_bytes: Bytes,
    /// Size of a block of order 0.
    pub base_page_bytes: Bytes,
    /// Free blocks of each zone.
    pub zones: Vec<ZoneBlocks>,
}

impl PoolMemory {
    /// Size of a block of `order`.
    pub fn block(&self, order: usize) -> Bytes {
        let factor = u32::try_from(order)
            .ok()
            .and_then(|order| 1_u64.checked_shl(order))
            .unwrap_or(u64::MAX);
        self.base_page_bytes.times(factor)
    }
    /// Size of the largest blocks that the kernel counts: 4 MiB on x86-64.
    pub fn largest_block(&self) -> Bytes {
        let orders = self.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
        if orders == 0 { Bytes::ZERO } else { self.block(orders - 1) }
    }
    /// Free memory in blocks of at least `size`.
    pub fn free_in_blocks_of(&self, size: Bytes) -> Bytes {
        self.zones.iter().map(|zone| self.free_in(zone, size)).sum()
    }
    /// Free memory of one zone in blocks of at least `size`.
    pub fn free_in(&self, zone: &ZoneBlocks, size: Bytes) -> Bytes {
        let blocks = zone.free_blocks.iter().enumerate();
        let large = blocks.filter(|&(order, _)| self.block(order) >= size);
        large.map(|(order, &count)| self.block(order).times(count)).sum()
    }
}

/// Free blocks of one zone, from `/proc/buddyinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneBlocks {
    /// NUMA node.
    pub node: u32,
    /// Zone, such as `Normal`.
    pub zone: String,
    /// Number of blocks of order 0, 1, …
    pub free_blocks: Vec<u64>,
}

/// Process with hugetlb pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUser {
    /// Process.
    pub pid: Pid,
    /// Name, control characters escaped.
    pub command: String,
    /// Touched pages of all sizes.
    pub hugetlb_bytes: Bytes,
    /// Part that no other process maps; `None` if its smaps is unreadable.
    pub private_bytes: Option<Bytes>,
    /// Part that other processes also map; `None` if its smaps is unreadable.
    pub shared_bytes: Option<Bytes>,
}

/// Mounted hugetlbfs. Its files hold pages even if no process maps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbMount {
    /// Mount point, control characters escaped.
    pub path: String,
    /// Page size; `None` if the options do not name it.
    pub page_bytes: Option<Bytes>,
    /// Options.
    pub options: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_their_users() {
        let pages = PoolPages { total: 10, free: 6, reserved: Some(3), surplus: 2 };
        assert_eq!((pages.persistent(), pages.in_use(), pages.held()), (8, 4, 7));
        let odd = PoolPages { total: 1, free: 5, reserved: Some(9), surplus: 7 };
        assert_eq!((odd.persistent(), odd.in_use(), odd.held()), (0, 0, 1));
    }

    #[test]
    fn free_memory_is_counted_by_block_size() {
        let zone = ZoneBlocks { node: 0, zone: "Normal".into(), free_blocks: vec![8, 0, 1, 3] };
        let memory = PoolMemory {
            base_page_bytes: Bytes::kib(4),
            zones: vec![zone],
            ..PoolMemory::default()
        };
        let free = |size| memory.free_in_blocks_of(size);
        assert_eq!(
            (free(Bytes::ZERO), free(Bytes::kib(16))),
            (Bytes::kib(32 + 16 + 96), Bytes::kib(112))
        );
        assert_eq!((free(Bytes::mib(1)), memory.largest_block()), (Bytes::ZERO, Bytes::kib(32)));
        assert_eq!(PoolMemory::default().largest_block(), Bytes::ZERO);
    }

    #[test]
    fn page_counts_are_fields_of_the_pool() {
        let json =
            serde_json::to_value(Pool { page_bytes: Bytes::mib(2), ..Pool::default() }).unwrap();
        assert_eq!((json["page_bytes"].as_u64(), json["total"].as_u64()), (Some(2 << 20), Some(0)));
        assert_eq!(serde_json::from_value::<Pool>(json).unwrap().page_bytes, Bytes::mib(2));
    }
}
