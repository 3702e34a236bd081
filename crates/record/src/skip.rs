//! Reasons to skip a region.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sentence;
use crate::kernel_reason::{
    DISABLED, ENABLE, FORBIDDEN, LARGER_BLOCKS, NO_WHOLE_PAGE, NOT_FORBIDDEN, PAGES_BACK, SPECIAL,
    UNREGISTER, from_first_touch, set,
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
    #[place("in regions that are on huge pages already")]
    AlreadyHuge,
    /// A stack: huge pages there multiply idle threads' memory.
    #[text(
        "huge pages under stacks multiply the memory of idle threads, so tune promotes none, and \
         no setting changes that"
    )]
    #[place("in stacks, where huge pages would multiply the memory of idle threads")]
    Stack,
    /// The program advised `MADV_NOHUGEPAGE`.
    #[text("{FORBIDDEN}")]
    #[help("{NOT_FORBIDDEN}")]
    #[place("in memory for which the program forbids huge pages (MADV_NOHUGEPAGE, or MAP_STACK)")]
    Nohugepage,
    /// The process disabled huge pages for itself (`PR_SET_THP_DISABLE`).
    #[text("{DISABLED}")]
    #[help("{ENABLE}")]
    #[place("in a process for which huge pages are disabled (PR_SET_THP_DISABLE)")]
    ThpDisabled,
    /// Locked into memory.
    #[text("the memory is locked")]
    #[help("{}", from_first_touch("it is locked"))]
    #[place("in locked memory, which tune does not promote")]
    Mlocked,
    /// Shared with another process after fork; a huge page would copy it.
    #[text("another process maps it since a fork, and a huge page would copy it")]
    #[help("if the other process ends soon, as for a snapshot, tune afterwards")]
    #[help("{}", from_first_touch("the fork"))]
    #[place("in regions that another process maps since a fork; a huge page would copy them")]
    SharedAfterFork,
    /// Merged with equal pages by KSM; a huge page would copy it.
    #[text("KSM merged the memory with equal pages, and a huge page would copy it")]
    #[help(
        "end the merging, which ends its saving of memory: MemoryKSM=no for a service, \
         mem-merge=off for QEMU, or for all programs echo 2 | sudo tee /sys/kernel/mm/ksm/run"
    )]
    #[place("in regions that KSM merged; a huge page would copy them")]
    Merged,
    /// Pages of it are guards (`MADV_GUARD_INSTALL`), which no huge page may replace.
    #[text("guard pages (MADV_GUARD_INSTALL) lie in each region")]
    #[help(
        "place the guards of the program 4MiB or more apart, so that whole huge pages fit between \
         them"
    )]
    #[place("in regions with guard pages (MADV_GUARD_INSTALL)")]
    GuardPages,
    /// A file, which policies exclude.
    #[serde(alias = "file_or_shared")]
    #[text("tune promotes no files, and no setting changes that")]
    #[place("in files, which tune does not promote")]
    File,
    /// Code in a file, which policies exclude.
    #[text("tune promotes no program code in files")]
    #[help("bring hot code onto fewer pages: profile-guided optimisation, or llvm-bolt")]
    #[place("fetches of program code from files, which tune does not promote")]
    Code,
    /// Shared memory, which policies exclude.
    #[text("tune promotes no shared memory")]
    #[help("{}", set("let shared memory have huge pages", "always", "shmem_enabled"))]
    #[help(
        "then start the program again; for a tmpfs instead: sudo mount -o remount,huge=always \
         MOUNT"
    )]
    #[place("in shared memory, which tune does not promote")]
    SharedMemory,
    /// Watched by userfaultfd.
    #[text("userfaultfd watches the memory")]
    #[help("{UNREGISTER}")]
    #[place("in memory that userfaultfd watches, which tune cannot promote")]
    Userfaultfd,
    /// Mostly swapped out.
    #[text("more than an eighth of each region is in swap")]
    #[help("{PAGES_BACK}")]
    #[place("in regions of which more than an eighth is in swap")]
    MostlySwapped,
    /// Too few resident pages: a huge page would be mostly bloat.
    #[text("less than half of each region is resident, and a huge page would add the rest")]
    #[help("tune when the program uses more of its memory")]
    #[place("in regions of which less than half is resident; a huge page would add the rest")]
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
    #[place("in regions with pages that the program freed lazily (MADV_FREE)")]
    LazilyFreed,
    /// Not an aligned region inside one mapping (too small, at an edge, or unmapped meanwhile).
    #[text("{NO_WHOLE_PAGE}")]
    #[help("for mappings below 2MiB, {LARGER_BLOCKS}")]
    #[place("where no whole, aligned huge page fits into a mapping, as at its edges")]
    Unaligned,
    /// Device or kernel memory, hugetlb, or unknown pages.
    #[text("{SPECIAL}")]
    #[place("in hugetlb, device or kernel memory, or in pages that could not be read")]
    Special,
    /// Few hot pages, which the TLB holds.
    #[text("{self}")]
    #[place("in regions with few hot pages, which the TLB holds")]
    TlbFriendly,
    /// Sequential accesses: one translation serves many of them.
    #[text("{self}")]
    #[place("in regions that the program accesses in order: one translation serves many accesses")]
    Streamed,
    /// Too few samples.
    #[text("{self}")]
    #[place("in regions whose huge pages would save less than they cost (--horizon, --min-gain)")]
    TooCold,
    /// Too little memory left in the cgroup for a safe promotion.
    #[text("the cgroup of the process has too little headroom for a safe promotion")]
    #[help("raise the limit of the cgroup (memory.max, memory.high), or free memory in it")]
    #[place("in regions whose huge pages would leave their cgroup less headroom than its reserve")]
    CgroupHeadroom,
    /// Too little memory left on the system.
    #[text("the system has too little headroom for a safe promotion")]
    #[help("free memory: end programs, or reclaim bloat with hugepilot debloat")]
    #[place("in regions whose huge pages would leave the system less headroom than its reserve")]
    SystemHeadroom,
    /// Tasks stall on memory, in the cgroup or on the system (PSI).
    #[text("{self}")]
    #[help("free memory: end programs, or reclaim bloat with hugepilot debloat")]
    #[place("in regions that wait because tasks stall on memory (PSI): memory is short")]
    MemoryPressure,
    /// The budget was spent on hotter regions.
    #[text("{self}")]
    #[place("in regions beyond --budget or --max-added")]
    OverBudget,
    /// The user protects this process.
    #[text("{self}")]
    #[place("in regions that a rule for splits excludes")]
    Protected,
    /// Too few zero-filled pages to split its huge page.
    #[text("{self}")]
    #[place("in regions that a rule for splits excludes")]
    LittleBloat,
    /// Split already before its turn.
    #[text("{self}")]
    #[place("in regions that a rule for splits excludes")]
    AlreadySplit,
    /// In use by now: the zero-filled page that the split would name has contents.
    #[text("{self}")]
    #[place("in regions that a rule for splits excludes")]
    Changed,
    /// Split recently.
    #[text("{self}")]
    #[place("in regions whose promotion failed or was undone; they are not promoted again soon")]
    CoolingDown,
    /// Promoted recently and on base pages again: the program freed it, or the kernel split it.
    #[text("{self}")]
    #[place(
        "in regions that lost the huge page that tune gave them: the program freed memory there, \
         or the program or the kernel split the page"
    )]
    LostHugePage,
    /// Split several times, and re-collapsed each time.
    #[text("{self}")]
    #[place("in regions that a rule for splits excludes")]
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
