//! The state of pages, as `PAGEMAP_SCAN` and `/proc/PID/pagemap` show it.

use hugepilot_units::{AddrRange, Region};
use serde::{Deserialize, Serialize};

/// Neighbouring pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRun {
    /// Their addresses.
    pub range: AddrRange,
    /// In memory (the shared zero page counts too).
    pub present: bool,
    /// Swapped out.
    pub swapped: bool,
    /// Mapped to the shared zero page: present, but using no memory.
    pub zero: bool,
    /// Mapped by a huge page-table entry.
    pub huge: bool,
    /// Backed by a file or shared memory.
    pub file: bool,
}

/// The pages of one region, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionPages {
    /// Which region.
    pub region: Region,
    /// Base pages with memory of their own (not the zero page).
    pub resident: u64,
    /// Base pages in swap.
    pub swapped: u64,
    /// Whether one huge page maps all of it.
    pub huge: bool,
    /// Resident base pages that another process maps too (after fork, or shared memory).
    pub shared: u64,
}
