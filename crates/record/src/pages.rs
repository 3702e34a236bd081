//! State of pages, from `PAGEMAP_SCAN` and `/proc/PID/pagemap`.

use hugepilot_units::{AddrRange, Bytes, Region, VirtAddr};
use serde::{Deserialize, Serialize};

/// Adjacent pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// Address range.
    pub range: AddrRange,
    /// Whether they are in memory, including the shared zero page.
    pub present: bool,
    /// Whether they are swapped out.
    pub swapped: bool,
    /// Whether they map to the shared zero page: present, but without memory.
    pub zero: bool,
    /// Whether a huge page-table entry maps them.
    pub huge: bool,
    /// Whether a file or shared memory backs them.
    pub file: bool,
}

/// Large page that holds more memory than is mapped of it: the program freed a part. The kernel
/// frees the part once memory is short, or when the page is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranded {
    /// A base page that is still mapped.
    pub page: VirtAddr,
    /// Memory that is held and not mapped.
    pub bytes: Bytes,
}

/// Large pages of anonymous memory that a process maps by base pages and shares with no other
/// process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargePages {
    /// Those that hold more memory than is mapped of them, by address.
    pub stranded: Vec<Stranded>,
    /// Memory that is mapped of those smaller than a huge page.
    pub smaller: Bytes,
}

impl LargePages {
    /// Returns the memory that is held and not mapped.
    pub fn stranded_bytes(&self) -> Bytes {
        self.stranded.iter().map(|one| one.bytes).sum()
    }
}

/// Page counts of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionPages {
    /// The region.
    pub region: Region,
    /// Base pages with memory, without the shared zero page.
    pub resident: u64,
    /// Base pages in swap.
    pub swapped: u64,
    /// Whether the whole region is on a huge page.
    pub huge: bool,
    /// Resident base pages that another process also maps (after fork, or shared memory).
    pub shared: u64,
    /// Resident base pages that the program freed lazily (`MADV_FREE`): the kernel may take them at
    /// any time, and a collapse takes that right away. At most.
    #[serde(default, skip_serializing_if = "crate::sample::is_zero")]
    pub lazily_freed: u64,
    /// Shared base pages that KSM merged with equal ones. At most.
    #[serde(default, skip_serializing_if = "crate::sample::is_zero")]
    pub merged: u64,
    /// Base pages that are guards (`MADV_GUARD_INSTALL`, Linux 6.15 shows them): an access is a
    /// SIGSEGV.
    #[serde(default, skip_serializing_if = "crate::sample::is_zero")]
    pub guards: u64,
}

impl RegionPages {
    /// Returns a region with `resident` base pages and nothing else.
    pub const fn on_base_pages(region: Region, resident: u64) -> Self {
        Self {
            region,
            resident,
            swapped: 0,
            huge: false,
            shared: 0,
            lazily_freed: 0,
            merged: 0,
            guards: 0,
        }
    }

    /// Returns the resident base pages that the kernel cannot take: those not lazily freed.
    pub const fn kept(&self) -> u64 {
        self.resident.saturating_sub(self.lazily_freed)
    }
}
