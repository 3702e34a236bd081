//! What a policy sees, what it may spend, and what it decides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hugepilot_units::{Bytes, PageSizes, Region};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Mapping, RegionHeat, RegionPages};

/// All that a policy knows about a process at one moment. Mappings are in address order; `heat` in any order.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The system's page sizes.
    pub sizes: PageSizes,
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Hot regions, as sampled.
    pub heat: Vec<RegionHeat>,
    /// Regions that a sampled stack pointer fell into.
    pub stacks: BTreeSet<Region>,
    /// The pages of the hot regions, by region.
    pub pages: BTreeMap<Region, RegionPages>,
    /// Whether the process forbade huge pages for itself (`PR_SET_THP_DISABLE`).
    pub thp_disabled: bool,
    /// What memory is left around the process.
    pub headroom: Headroom,
}

impl Snapshot {
    /// The mapping that holds all of `region`.
    pub fn mapping_of(&self, region: Region) -> Option<&Mapping> {
        let range = region.range(self.sizes);
        let after = self.mappings.partition_point(|m| m.range.start <= range.start);
        self.mappings[..after].last().filter(|m| m.range.covers(range))
    }
    /// Resident bytes of all mappings.
    pub fn resident(&self) -> Bytes {
        self.mappings.iter().map(|m| m.resident).sum()
    }
}

/// Memory that may still be taken before somebody is harmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// Under the tightest memory limit of the process's cgroups; `Bytes::MAX` without a limit.
    pub cgroup: Bytes,
    /// That limit itself; `Bytes::MAX` without one.
    pub cgroup_limit: Bytes,
    /// Available on the whole system (`MemAvailable`).
    pub system: Bytes,
    /// All memory of the system.
    pub system_total: Bytes,
}

/// What a policy may spend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Huge pages it may make, in bytes.
    pub huge: Bytes,
    /// Regions it may pick at most; the rest waits for the next round.
    pub regions: usize,
}

/// Why a region was passed over. The text form is the key in JSON.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It is on a huge page already.
    AlreadyHuge,
    /// A stack: huge pages there multiply idle threads' memory.
    Stack,
    /// The program said `MADV_NOHUGEPAGE`.
    Nohugepage,
    /// The process forbade huge pages for itself.
    ThpDisabled,
    /// Locked into memory.
    Mlocked,
    /// Shared with another process after fork; a huge page would copy it.
    SharedAfterFork,
    /// A file or shared memory, which this policy leaves alone.
    FileOrShared,
    /// Watched by userfaultfd.
    Userfaultfd,
    /// Mostly swapped out.
    MostlySwapped,
    /// Too few of its pages are resident: a huge page would be mostly waste.
    TooFewResident,
    /// No whole aligned region of one mapping (too small, at an edge, or unmapped meanwhile).
    Unaligned,
    /// Device or kernel memory, hugetlb, or pages nobody counted.
    Special,
    /// Few hot pages: the TLB holds them already.
    TlbFriendly,
    /// Walked through in order: one translation serves many accesses.
    Streamed,
    /// Too few samples to tell.
    TooCold,
    /// The cgroup has not enough memory left for a huge page to be made safely.
    CgroupHeadroom,
    /// The system has not enough memory left.
    SystemHeadroom,
    /// The budget was spent on hotter regions.
    OverBudget,
    /// The user said to leave this process alone.
    Protected,
    /// So little of it is zero-filled that its huge page is worth more.
    LittleBloat,
    /// It was split already when its turn came.
    AlreadySplit,
    /// It is being used by now: the page that was to be named holds no zeros any more.
    Changed,
    /// It was split before, and not long ago.
    CoolingDown,
    /// It was split several times, and made huge again by somebody each time.
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

/// How many regions were passed over for which reason.
pub type Skips = BTreeMap<SkipReason, u64>;

/// One region to be put on a huge page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pick {
    /// Which.
    pub region: Region,
    /// Its share of all stall samples.
    pub heat_ratio: f64,
    /// Distinct base pages seen hot in it.
    pub sampled_pages: u32,
    /// Memory the huge page adds: its pages that were not resident.
    pub added: Bytes,
    /// Label of the mapping it lies in.
    pub mapping: String,
}

/// What a policy decided: picks, hottest first, and why the rest was passed over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// To be done, in this order.
    pub picks: Vec<Pick>,
    /// Passed over.
    pub skipped: Skips,
    /// Regions that could have been picked, had the budget been endless.
    pub eligible: u64,
}

impl Plan {
    /// The picks' share of all stall samples.
    pub fn heat_ratio(&self) -> f64 {
        self.picks.iter().fold(0.0, |sum, pick| sum + pick.heat_ratio)
    }
}
