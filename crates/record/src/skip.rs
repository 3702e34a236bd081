//! Reasons to skip a region.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sentence;
use crate::kernel_reason::{
    DISABLED, ENABLE, FORBIDDEN, LARGER_BLOCKS, NO_WHOLE_PAGE, NOT_FORBIDDEN, SPECIAL, UNREGISTER,
    from_first_touch, set,
};

/// Reason to skip a region. The text form is the key in JSON.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    Sentence,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Already on a huge page.
    #[text("the region became huge during the report, so nothing needs to change")]
    AlreadyHuge,
    /// A stack: huge pages there multiply idle threads' memory.
    #[text(
        "huge pages under stacks multiply the memory of idle threads, so tune promotes none, and \
         no setting changes that"
    )]
    Stack,
    /// The program advised `MADV_NOHUGEPAGE`.
    #[text("{FORBIDDEN}")]
    #[help("{NOT_FORBIDDEN}")]
    Nohugepage,
    /// The process disabled huge pages for itself (`PR_SET_THP_DISABLE`).
    #[text("{DISABLED}")]
    #[help("{ENABLE}")]
    ThpDisabled,
    /// Locked into memory.
    #[text("the memory is locked")]
    #[help("{}", from_first_touch("it is locked"))]
    Mlocked,
    /// Shared with another process after fork; a huge page would copy it.
    #[text("another process maps it since a fork, and a huge page would copy it")]
    #[help("if the other process ends soon, as for a snapshot, tune afterwards")]
    #[help("{}", from_first_touch("the fork"))]
    SharedAfterFork,
    /// Merged with equal pages by KSM; a huge page would copy it.
    #[text("KSM merged the memory with equal pages, and a huge page would copy it")]
    #[help(
        "end the merging, which ends its saving of memory: MemoryKSM=no for a service, \
         mem-merge=off for QEMU, or for all programs echo 2 | sudo tee /sys/kernel/mm/ksm/run"
    )]
    Merged,
    /// Pages of it are guards (`MADV_GUARD_INSTALL`), which no huge page may replace.
    #[text("guard pages (MADV_GUARD_INSTALL) lie in each region")]
    #[help(
        "place the guards of the program 4MiB or more apart, so that whole huge pages fit between \
         them"
    )]
    GuardPages,
    /// A file, which policies exclude.
    #[serde(alias = "file_or_shared")]
    #[text("tune promotes no files, and no setting changes that")]
    File,
    /// Code in a file, which policies exclude.
    #[text("tune promotes no program code in files")]
    #[help("bring hot code onto fewer pages: profile-guided optimisation, or llvm-bolt")]
    Code,
    /// Shared memory, which policies exclude.
    #[text("tune promotes no shared memory")]
    #[help("{}", set("let shared memory have huge pages", "always", "shmem_enabled"))]
    #[help(
        "then start the program again; for a tmpfs instead: sudo mount -o remount,huge=always \
         MOUNT"
    )]
    SharedMemory,
    /// Watched by userfaultfd.
    #[text("userfaultfd watches the memory")]
    #[help("{UNREGISTER}")]
    Userfaultfd,
    /// Mostly swapped out.
    #[text("more than an eighth of each region is in swap")]
    #[help("free memory, so that the program reads its pages back")]
    MostlySwapped,
    /// Too few resident pages: a huge page would be mostly bloat.
    #[text("less than half of each region is resident, and a huge page would add the rest")]
    #[help("tune when the program uses more of its memory")]
    TooFewResident,
    /// The program freed pages of it lazily (`MADV_FREE`): with a huge page, the kernel could not
    /// have them.
    #[text(
        "the program freed pages of each region lazily (MADV_FREE), and with a huge page the \
         kernel could not have them"
    )]
    #[help(
        "let the program free memory at once: GODEBUG=madvdontneed=1 for Go, \
         MALLOC_CONF=muzzy_decay_ms:0 for jemalloc"
    )]
    LazilyFreed,
    /// Not an aligned region inside one mapping (too small, at an edge, or unmapped meanwhile).
    #[text("{NO_WHOLE_PAGE}")]
    #[help("for mappings below 2MiB, {LARGER_BLOCKS}")]
    Unaligned,
    /// Device or kernel memory, hugetlb, or unknown pages.
    #[text("{SPECIAL}")]
    Special,
    /// Few hot pages, which the TLB holds.
    #[text("{self}")]
    TlbFriendly,
    /// Sequential accesses: one translation serves many of them.
    #[text("{self}")]
    Streamed,
    /// Too few samples.
    #[text("{self}")]
    TooCold,
    /// Too little memory left in the cgroup for a safe promotion.
    #[text("the cgroup of the process has too little headroom for a safe promotion")]
    #[help("raise the limit of the cgroup (memory.max, memory.high), or free memory in it")]
    CgroupHeadroom,
    /// Too little memory left on the system.
    #[text("the system has too little headroom for a safe promotion")]
    #[help("free memory: end programs, or reclaim bloat with hugepilot debloat")]
    SystemHeadroom,
    /// Tasks stall on memory, in the cgroup or on the system (PSI).
    #[text("{self}")]
    #[help("free memory: end programs, or reclaim bloat with hugepilot debloat")]
    MemoryPressure,
    /// The budget was spent on hotter regions.
    #[text("{self}")]
    OverBudget,
    /// The user protects this process.
    #[text("{self}")]
    Protected,
    /// Too few zero-filled pages to split its huge page.
    #[text("{self}")]
    LittleBloat,
    /// Split already before its turn.
    #[text("{self}")]
    AlreadySplit,
    /// In use by now: the zero-filled page that the split would name has contents.
    #[text("{self}")]
    Changed,
    /// Split recently.
    #[text("{self}")]
    CoolingDown,
    /// Promoted recently and on base pages again: the program freed it, or the kernel split it.
    #[text("{self}")]
    LostHugePage,
    /// Split several times, and re-collapsed each time.
    #[text("{self}")]
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
