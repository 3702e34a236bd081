//! Snapshot: everything that a decision depends on, except its own past.

mod page_runs;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_units::{Bytes, Nanos, PageSizes, Region};
use serde::{Deserialize, Serialize};

pub use window::Window;

use crate::{Mapping, ProcessId, RegionHeat, RegionPages};

/// Processes in view at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time, on the monotonic clock.
    pub time: Nanos,
    /// The processes for which a decision is due.
    pub processes: Vec<ProcessSnapshot>,
    /// Whether the user interrupted, so that no later decision follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// Process of a snapshot. Mappings are in address order; `heat` is in any order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSnapshot {
    /// The process.
    pub id: ProcessId,
    /// Samples since its window began.
    pub window: Window,
    /// Its memory, as last read.
    pub memory: ProcessMemory,
}

/// Memory of a process at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Time of reading, on the monotonic clock.
    pub time: Nanos,
    /// The system's page sizes.
    pub sizes: PageSizes,
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Heat of the sampled regions, which shows streams and pages that the TLB holds.
    pub heat: Vec<RegionHeat>,
    /// Regions that contain a sampled stack pointer.
    pub stacks: BTreeSet<Region>,
    /// Pages of the regions in mappings with samples.
    #[serde(with = "page_runs")]
    pub pages: BTreeMap<Region, RegionPages>,
    /// Whether the process forbade huge pages for itself (`PR_SET_THP_DISABLE`).
    pub thp_disabled: bool,
    /// Private memory that the process mapped and has not touched, by which it may still grow.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub untouched: Bytes,
    /// Memory available to the process.
    pub headroom: Headroom,
    /// Memory pressure of its cgroup, or else of the system; zero if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Pressure::is_none")]
    pub pressure: Pressure,
}

impl ProcessMemory {
    /// Returns the mapping that contains all of `region`.
    pub fn mapping_of(&self, region: Region) -> Option<&Mapping> {
        let range = region.range(self.sizes);
        let after = self.mappings.partition_point(|m| m.range.start <= range.start);
        self.mappings[..after].last().filter(|m| m.range.covers(range))
    }
    /// Whether `region` is on a huge page; assumed if its pages were not read.
    pub fn is_huge(&self, region: Region) -> bool {
        self.pages.get(&region).map_or_else(|| self.mapping_of(region).is_some(), |one| one.huge)
    }
    /// Returns the resident bytes of all mappings.
    pub fn resident(&self) -> Bytes {
        self.mappings.iter().map(|mapping| mapping.resident).sum()
    }
    /// Returns the bytes on huge pages of all mappings.
    pub fn huge(&self) -> Bytes {
        self.mappings.iter().map(|mapping| mapping.huge).sum()
    }
}

/// Memory left under the cgroup limit and on the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// Memory left under the tightest limit of the process's cgroups; `Bytes::MAX` without a limit.
    pub cgroup: Bytes,
    /// The limit itself; `Bytes::MAX` without one.
    pub cgroup_limit: Bytes,
    /// Available memory of the system (`MemAvailable`).
    pub system: Bytes,
    /// Total memory of the system.
    pub system_total: Bytes,
    /// Free memory in blocks of at least a huge page. Compaction can add more.
    #[serde(default = "endless", skip_serializing_if = "is_endless")]
    pub free_huge: Bytes,
}

const fn endless() -> Bytes {
    Bytes::MAX
}

fn is_endless(bytes: &Bytes) -> bool {
    *bytes == Bytes::MAX
}

impl Headroom {
    /// No limit by a cgroup or by the system.
    pub const UNLIMITED: Self = Self {
        cgroup: Bytes::MAX,
        cgroup_limit: Bytes::MAX,
        system: Bytes::MAX,
        system_total: Bytes::ZERO,
        free_huge: Bytes::MAX,
    };
}

/// Share of the last ten seconds in which tasks stalled on memory, in percent (PSI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one task stalled.
    pub some_avg10: f64,
    /// All tasks stalled.
    pub full_avg10: f64,
}

impl Pressure {
    /// Whether no task stalled.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
