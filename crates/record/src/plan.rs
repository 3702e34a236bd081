//! Input of a policy, its budget, and its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hugepilot_units::{Bytes, PageSizes, Region};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mapping, RegionHeat, RegionPages};

/// State of a process at one moment. Mappings are in address order; `heat` is in any order.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The system's page sizes.
    pub sizes: PageSizes,
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Heat of the sampled regions.
    pub heat: Vec<RegionHeat>,
    /// Regions that contain a sampled stack pointer.
    pub stacks: BTreeSet<Region>,
    /// Pages of the hot regions.
    pub pages: BTreeMap<Region, RegionPages>,
    /// Whether the process forbade huge pages for itself (`PR_SET_THP_DISABLE`).
    pub thp_disabled: bool,
    /// Memory available to the process.
    pub headroom: Headroom,
}

impl Snapshot {
    /// Returns the mapping that contains all of `region`.
    pub fn mapping_of(&self, region: Region) -> Option<&Mapping> {
        let range = region.range(self.sizes);
        let after = self.mappings.partition_point(|m| m.range.start <= range.start);
        self.mappings[..after].last().filter(|m| m.range.covers(range))
    }
    /// Returns the resident bytes of all mappings.
    pub fn resident(&self) -> Bytes {
        self.mappings.iter().map(|m| m.resident).sum()
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
}

impl Headroom {
    /// No limit by a cgroup or by the system.
    pub const UNLIMITED: Self = Self {
        cgroup: Bytes::MAX,
        cgroup_limit: Bytes::MAX,
        system: Bytes::MAX,
        system_total: Bytes::ZERO,
    };
}

/// Memory and regions that a plan may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Huge pages that it may allocate, in bytes.
    pub huge: Bytes,
    /// Limit of regions; further ones are for the next round.
    pub regions: usize,
}

/// Reason to skip a region. The text form is the key in JSON.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Already on a huge page.
    AlreadyHuge,
    /// A stack: huge pages there multiply idle threads' memory.
    Stack,
    /// The program advised `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// The process disabled huge pages for itself (`PR_SET_THP_DISABLE`).
    ThpDisabled,
    /// Locked into memory.
    Mlocked,
    /// Shared with another process after fork; a huge page would copy it.
    SharedAfterFork,
    /// A file or shared memory, which policies exclude.
    FileOrShared,
    /// Watched by userfaultfd.
    Userfaultfd,
    /// Mostly swapped out.
    MostlySwapped,
    /// Too few resident pages: a huge page would be mostly bloat.
    TooFewResident,
    /// Not an aligned region inside one mapping (too small, at an edge, or unmapped meanwhile).
    Unaligned,
    /// Device or kernel memory, hugetlb, or unknown pages.
    Special,
    /// Few hot pages, which the TLB holds.
    TlbFriendly,
    /// Sequential accesses: one translation serves many of them.
    Streamed,
    /// Too few samples.
    TooCold,
    /// Too little memory left in the cgroup for a safe promotion.
    CgroupHeadroom,
    /// Too little memory left on the system.
    SystemHeadroom,
    /// The budget was spent on hotter regions.
    OverBudget,
    /// The user protects this process.
    Protected,
    /// Too few zero-filled pages to split its huge page.
    LittleBloat,
    /// Split already before its turn.
    AlreadySplit,
    /// In use by now: the zero-filled page that the split would name has contents.
    Changed,
    /// Split recently.
    CoolingDown,
    /// Split several times, and re-collapsed each time.
    RecollapsesRepeatedly,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlreadyHuge => "already_huge",
            Self::Stack => "stack",
            Self::Nohugepage => "nohugepage",
            Self::ThpDisabled => "thp_disabled",
            Self::Mlocked => "mlocked",
            Self::SharedAfterFork => "shared_after_fork",
            Self::FileOrShared => "file_or_shared",
            Self::Userfaultfd => "userfaultfd",
            Self::MostlySwapped => "mostly_swapped",
            Self::TooFewResident => "too_few_resident",
            Self::Unaligned => "unaligned",
            Self::Special => "special",
            Self::TlbFriendly => "tlb_friendly",
            Self::Streamed => "streamed",
            Self::TooCold => "too_cold",
            Self::CgroupHeadroom => "cgroup_headroom",
            Self::SystemHeadroom => "system_headroom",
            Self::OverBudget => "over_budget",
            Self::Protected => "protected",
            Self::LittleBloat => "little_bloat",
            Self::AlreadySplit => "already_split",
            Self::Changed => "changed",
            Self::CoolingDown => "cooling_down",
            Self::RecollapsesRepeatedly => "recollapses_repeatedly",
        })
    }
}

/// Number of skipped regions by reason.
pub type Skips = BTreeMap<SkipReason, u64>;

/// Region to promote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pick {
    /// The region.
    pub region: Region,
    /// Share of all stall samples.
    pub heat_ratio: f64,
    /// Distinct base pages with samples.
    pub sampled_pages: u32,
    /// Memory that the huge page adds: its base pages that are not resident.
    pub added: Bytes,
    /// Label of its mapping.
    pub mapping: String,
}

/// Decision of a policy: the selected regions and the skipped ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Selected regions, in the order of promotion.
    pub picks: Vec<Pick>,
    /// Skipped regions.
    pub skipped: Skips,
    /// Number of regions that an unlimited budget would allow.
    pub eligible: u64,
}

impl Plan {
    /// Returns the share of all stall samples in the selected regions.
    pub fn heat_ratio(&self) -> f64 {
        self.picks.iter().fold(0.0, |sum, pick| sum + pick.heat_ratio)
    }
}
