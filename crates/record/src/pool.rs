//! The reports of `hugepilot pool`: what the hugetlb pools hold, and what came of changing one.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// The value of `schema` in both reports.
pub const SCHEMA: &str = "hugepilot.pool/1";

/// What is there, and who uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// `show`.
    pub action: String,
    /// One for each page size, the smallest first. Empty where the kernel has none.
    pub pools: Vec<Pool>,
    /// The memory that pools are made of.
    pub memory: PoolMemory,
    /// Processes with pages of any pool, most first.
    pub processes: Vec<PoolUser>,
    /// Where hugetlbfs is mounted.
    pub mounts: Vec<HugetlbMount>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// All pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// The size of a page.
    pub page_bytes: Bytes,
    /// Whether `mmap` and mounts that name no size get this one.
    pub is_default: bool,
    /// How many there are of it.
    #[serde(flatten)]
    pub pages: PoolPages,
    /// How many more the kernel may make while programs ask for them (`nr_overcommit_hugepages`).
    pub overcommit: u64,
    /// The part of each NUMA node.
    pub nodes: Vec<NodePool>,
}

/// The part of a pool that is on one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePool {
    /// Which node.
    pub node: u32,
    /// How many there are on it.
    #[serde(flatten)]
    pub pages: PoolPages,
}

/// Counts of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolPages {
    /// All pages, surplus ones included (`nr_hugepages`).
    pub total: u64,
    /// Those that no program has touched (`free_hugepages`).
    pub free: u64,
    /// Those of the free that are promised to a mapping (`resv_hugepages`); `None` for a node, of which nobody counts them.
    pub reserved: Option<u64>,
    /// Those that go back to the system once their program frees them (`surplus_hugepages`).
    pub surplus: u64,
}

impl PoolPages {
    /// Those that stay in the pool: what was asked for last, and was got.
    pub const fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
    /// Those that programs have touched.
    pub const fn in_use(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
    /// Those that cannot be given back now: in use, or promised.
    pub fn held(&self) -> u64 {
        self.in_use().saturating_add(self.reserved.unwrap_or(0)).min(self.total)
    }
}

/// The memory that pools are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolMemory {
    /// All of it.
    pub total_bytes: Bytes,
    /// What could be had without swapping; of one node: an estimate.
    pub available_bytes: Bytes,
    /// What nothing is in.
    pub free_bytes: Bytes,
    /// The size of a block of order 0.
    pub base_page_bytes: Bytes,
    /// Free blocks of each zone.
    pub zones: Vec<ZoneBlocks>,
}

impl PoolMemory {
    /// The size of a block of `order`.
    pub fn block(&self, order: usize) -> Bytes {
        let factor = u32::try_from(order)
            .ok()
            .and_then(|order| 1_u64.checked_shl(order))
            .unwrap_or(u64::MAX);
        self.base_page_bytes.times(factor)
    }
    /// The largest block that the kernel keeps count of: 4 MiB on x86-64.
    pub fn largest_block(&self) -> Bytes {
        let orders = self.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
        if orders == 0 { Bytes::ZERO } else { self.block(orders - 1) }
    }
    /// Free memory in blocks of at least `size`.
    pub fn free_in_blocks_of(&self, size: Bytes) -> Bytes {
        self.zones.iter().map(|zone| self.free_in(zone, size)).sum()
    }
    /// The same in one zone.
    pub fn free_in(&self, zone: &ZoneBlocks, size: Bytes) -> Bytes {
        let blocks = zone.free_blocks.iter().enumerate();
        let large = blocks.filter(|&(order, _)| self.block(order) >= size);
        large.map(|(order, &count)| self.block(order).times(count)).sum()
    }
}

/// Free blocks of one zone, as `/proc/buddyinfo` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneBlocks {
    /// On which node.
    pub node: u32,
    /// Such as `Normal`.
    pub zone: String,
    /// How many of order 0, 1, …
    pub free_blocks: Vec<u64>,
}

/// A process with huge pages from a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUser {
    /// Its number.
    pub pid: Pid,
    /// Its name, control characters escaped.
    pub command: String,
    /// What it has touched, of all sizes together.
    pub hugetlb_bytes: Bytes,
    /// What of it nobody else has mapped; `None` where its smaps may not be read.
    pub private_bytes: Option<Bytes>,
    /// What of it others have mapped, too.
    pub shared_bytes: Option<Bytes>,
}

/// A mounted hugetlbfs. Its files hold pages also while no process has them mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugetlbMount {
    /// Where, control characters escaped.
    pub path: String,
    /// The size of its pages, where the mount says it.
    pub page_bytes: Option<Bytes>,
    /// Its options.
    pub options: String,
}

/// What came of `pool set`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolChange {
    /// [`SCHEMA`].
    pub schema: String,
    /// `set`.
    pub action: String,
    /// Whether nothing was to be changed.
    pub dry_run: bool,
    /// The size of a page.
    pub page_bytes: Bytes,
    /// The node whose part was set; `None` for the whole pool.
    pub node: Option<u32>,
    /// How many pages were asked for.
    pub requested: u64,
    /// The pool before.
    pub before: PoolPages,
    /// And after, as read back; `None` when nothing was changed.
    pub after: Option<PoolPages>,
    /// How long the kernel took; `None` when nothing was changed.
    pub seconds: Option<f64>,
    /// Whether memory was compacted first.
    pub compacted: bool,
    /// Memory that was to stay available.
    pub floor_bytes: Bytes,
    /// The memory afterwards; of the node, if one was given.
    pub memory: PoolMemory,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Why it came short, or was not tried.
    pub why: Vec<String>,
    /// What would help, as a command where there is one.
    pub fixes: Vec<String>,
    /// How to have as many after a reboot; `None` for an empty pool.
    pub permanent: Option<Permanent>,
    /// The command that restores the former count; `None` when it is as it was.
    pub undo: Option<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl PoolChange {
    /// Whether the pool is as it was asked for, or, of a dry run, nothing is known to be in the way.
    pub fn is_complete(&self) -> bool {
        self.why.is_empty()
    }
}

/// How to have a pool after each boot: one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permanent {
    /// The file that the line goes into.
    pub file: String,
    /// The line.
    pub line: String,
    /// Words for the kernel command line: surest, because memory is not in pieces yet.
    pub kernel_command_line: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_apart_by_who_has_them() {
        let pages = PoolPages { total: 10, free: 6, reserved: Some(3), surplus: 2 };
        assert_eq!((pages.persistent(), pages.in_use(), pages.held()), (8, 4, 7));
        let odd = PoolPages { total: 1, free: 5, reserved: Some(9), surplus: 7 };
        assert_eq!((odd.persistent(), odd.in_use(), odd.held()), (0, 0, 1));
    }

    #[test]
    fn free_memory_is_counted_by_the_size_of_its_blocks() {
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
    fn counts_of_a_pool_stand_beside_its_size() {
        let json =
            serde_json::to_value(Pool { page_bytes: Bytes::mib(2), ..Pool::default() }).unwrap();
        assert_eq!((json["page_bytes"].as_u64(), json["total"].as_u64()), (Some(2 << 20), Some(0)));
        assert_eq!(serde_json::from_value::<Pool>(json).unwrap().page_bytes, Bytes::mib(2));
    }
}
