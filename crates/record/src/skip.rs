//! Reasons to skip a region.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Merged with equal pages by KSM; a huge page would copy it.
    Merged,
    /// Pages of it are guards (`MADV_GUARD_INSTALL`), which no huge page may replace.
    GuardPages,
    /// A file, which policies exclude.
    #[serde(alias = "file_or_shared")]
    File,
    /// Code in a file, which policies exclude.
    Code,
    /// Shared memory, which policies exclude.
    SharedMemory,
    /// Watched by userfaultfd.
    Userfaultfd,
    /// Mostly swapped out.
    MostlySwapped,
    /// Too few resident pages: a huge page would be mostly bloat.
    TooFewResident,
    /// The program freed pages of it lazily (`MADV_FREE`): with a huge page, the kernel could not
    /// have them.
    LazilyFreed,
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
    /// Tasks stall on memory, in the cgroup or on the system (PSI).
    MemoryPressure,
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
    /// Promoted recently and on base pages again: the program freed it, or the kernel split it.
    LostHugePage,
    /// Split several times, and re-collapsed each time.
    RecollapsesRepeatedly,
}

impl SkipReason {
    /// Whether huge pages might gain there, but a rule, the program or the kernel forbids them: not
    /// a sign that they would gain nothing.
    pub const fn is_block(self) -> bool {
        match self {
            Self::Stack
            | Self::Nohugepage
            | Self::ThpDisabled
            | Self::Mlocked
            | Self::SharedAfterFork
            | Self::Merged
            | Self::GuardPages
            | Self::File
            | Self::Code
            | Self::SharedMemory
            | Self::Userfaultfd
            | Self::MostlySwapped
            | Self::TooFewResident
            | Self::LazilyFreed
            | Self::Unaligned
            | Self::Special
            | Self::LostHugePage
            | Self::CoolingDown => true,
            Self::AlreadyHuge
            | Self::TlbFriendly
            | Self::Streamed
            | Self::TooCold
            | Self::CgroupHeadroom
            | Self::SystemHeadroom
            | Self::MemoryPressure
            | Self::OverBudget
            | Self::Protected
            | Self::LittleBloat
            | Self::AlreadySplit
            | Self::Changed
            | Self::RecollapsesRepeatedly => false,
        }
    }
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
            Self::Merged => "merged",
            Self::GuardPages => "guard_pages",
            Self::File => "file",
            Self::Code => "code",
            Self::SharedMemory => "shared_memory",
            Self::Userfaultfd => "userfaultfd",
            Self::MostlySwapped => "mostly_swapped",
            Self::TooFewResident => "too_few_resident",
            Self::LazilyFreed => "lazily_freed",
            Self::Unaligned => "unaligned",
            Self::Special => "special",
            Self::TlbFriendly => "tlb_friendly",
            Self::Streamed => "streamed",
            Self::TooCold => "too_cold",
            Self::CgroupHeadroom => "cgroup_headroom",
            Self::SystemHeadroom => "system_headroom",
            Self::MemoryPressure => "memory_pressure",
            Self::OverBudget => "over_budget",
            Self::Protected => "protected",
            Self::LittleBloat => "little_bloat",
            Self::AlreadySplit => "already_split",
            Self::Changed => "changed",
            Self::CoolingDown => "cooling_down",
            Self::LostHugePage => "lost_huge_page",
            Self::RecollapsesRepeatedly => "recollapses_repeatedly",
        })
    }
}

/// Number of skipped regions by reason.
pub type Skips = BTreeMap<SkipReason, u64>;
