//! Reasons why the kernel has not used huge pages.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Khugepaged, Pid, ThpWord};

/// Reason why the kernel has not put memory on huge pages, with its facts. JSON carries the variant
/// as `code`.
///
/// Settings are named by their path below `/sys/kernel/mm/transparent_hugepage`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum KernelReason {
    /// The kernel allows huge pages, but used base pages at the first touch. khugepaged collapses
    /// regions in use, one after the other, and has not collapsed these. After a setting changed,
    /// khugepaged visits a process when that next maps memory.
    KhugepagedPending {
        /// khugepaged; `None` if its settings cannot be read.
        khugepaged: Option<Khugepaged>,
        /// `defrag`, if it forbids page faults to compact memory there, so that they use only
        /// free blocks; otherwise `None`.
        defrag: Option<ThpWord>,
    },
    /// The kernel allows huge pages, but no free block was large enough at the moment of the
    /// report.
    NoFreeBlock {
        /// Whether khugepaged compacts memory to make one.
        khugepaged_defrag: bool,
        /// `defrag`, if it forbids page faults to compact memory there, so that they use only
        /// free blocks; otherwise `None`.
        defrag: Option<ThpWord>,
    },
    /// More base pages are not resident than khugepaged tolerates.
    MaxPtesNone {
        /// `khugepaged/max_ptes_none`.
        max_ptes_none: u64,
    },
    /// More base pages are in swap than khugepaged tolerates.
    MaxPtesSwap {
        /// `khugepaged/max_ptes_swap`.
        max_ptes_swap: u64,
    },
    /// Other processes map more base pages than khugepaged tolerates.
    MaxPtesShared {
        /// `khugepaged/max_ptes_shared`.
        max_ptes_shared: u64,
    },
    /// userfaultfd watches it: khugepaged fills no holes there.
    Userfaultfd,
    /// The setting is `never`.
    ThpNever {
        /// The setting that decides.
        setting: String,
    },
    /// The setting is `madvise`, and the program did not advise `MADV_HUGEPAGE`.
    NotAdvised {
        /// The setting that decides.
        setting: String,
    },
    /// Shared memory, whose setting forbids huge pages.
    ShmemNever {
        /// The setting that decides.
        setting: String,
        /// Its value; `force` if that of `shmem_enabled` overrides it.
        value: ThpWord,
    },
    /// Shared memory, whose setting is `advise`, and the program did not advise `MADV_HUGEPAGE`.
    ShmemNotAdvised {
        /// The setting that decides.
        setting: String,
    },
    /// A file of a tmpfs that is mounted without huge pages.
    TmpfsNever {
        /// Mount point.
        mount: String,
        /// Process in whose mount namespace it is; `None` for that of hugepilot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Pid>,
    },
    /// A file of a tmpfs that is mounted with `huge=advise`, and the program did not advise
    /// `MADV_HUGEPAGE`.
    TmpfsNotAdvised {
        /// Mount point.
        mount: String,
        /// Process in whose mount namespace it is; `None` for that of hugepilot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Pid>,
    },
    /// Shared memory or a file of a tmpfs that is too short: the setting is `within_size`, and a
    /// huge page would exceed it.
    BeyondFileSize,
    /// The program forbids huge pages there: `MADV_NOHUGEPAGE`, or since Linux 6.7 `MAP_STACK`.
    Nohugepage,
    /// The process disabled huge pages for itself (`PR_SET_THP_DISABLE`).
    ThpDisabled,
    /// The kernel marks the mapping as not eligible (`THPeligible: 0`), although its settings allow
    /// huge pages.
    NotEligible,
    /// The mapping is smaller than a huge page.
    TooSmall,
    /// No aligned region of the mapping covers it.
    Unaligned,
    /// A file of which the kernel makes no huge pages.
    File,
    /// Device or kernel memory.
    Special,
    /// The kernel has no THP, or its settings cannot be read.
    NoThp,
}

impl KernelReason {
    /// Returns the variant without its facts.
    pub const fn code(&self) -> KernelCode {
        match self {
            Self::KhugepagedPending { .. } => KernelCode::KhugepagedPending,
            Self::NoFreeBlock { .. } => KernelCode::NoFreeBlock,
            Self::MaxPtesNone { .. } => KernelCode::MaxPtesNone,
            Self::MaxPtesSwap { .. } => KernelCode::MaxPtesSwap,
            Self::MaxPtesShared { .. } => KernelCode::MaxPtesShared,
            Self::Userfaultfd => KernelCode::Userfaultfd,
            Self::ThpNever { .. } => KernelCode::ThpNever,
            Self::NotAdvised { .. } => KernelCode::NotAdvised,
            Self::ShmemNever { .. } => KernelCode::ShmemNever,
            Self::ShmemNotAdvised { .. } => KernelCode::ShmemNotAdvised,
            Self::TmpfsNever { .. } => KernelCode::TmpfsNever,
            Self::TmpfsNotAdvised { .. } => KernelCode::TmpfsNotAdvised,
            Self::BeyondFileSize => KernelCode::BeyondFileSize,
            Self::Nohugepage => KernelCode::Nohugepage,
            Self::ThpDisabled => KernelCode::ThpDisabled,
            Self::NotEligible => KernelCode::NotEligible,
            Self::TooSmall => KernelCode::TooSmall,
            Self::Unaligned => KernelCode::Unaligned,
            Self::File => KernelCode::File,
            Self::Special => KernelCode::Special,
            Self::NoThp => KernelCode::NoThp,
        }
    }

    /// Returns whether the kernel may still promote this memory.
    pub const fn outlook(&self) -> Outlook {
        match self {
            Self::KhugepagedPending { .. } | Self::NoFreeBlock { .. } => Outlook::MayPromote,
            _ => Outlook::WillNot,
        }
    }

    /// Whether the size or the kind of the mapping is the reason, not a setting or an advice.
    pub const fn is_structural(&self) -> bool {
        matches!(self, Self::TooSmall | Self::Unaligned | Self::File | Self::Special)
    }
}

/// Whether the kernel may still promote memory by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// khugepaged may still do so.
    MayPromote,
    /// Not before a setting, the program or its memory changes.
    WillNot,
}

/// [`KernelReason`] without facts. The text form is the key in JSON.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KernelCode {
    /// [`KernelReason::KhugepagedPending`].
    KhugepagedPending,
    /// [`KernelReason::NoFreeBlock`].
    NoFreeBlock,
    /// [`KernelReason::MaxPtesNone`].
    MaxPtesNone,
    /// [`KernelReason::MaxPtesSwap`].
    MaxPtesSwap,
    /// [`KernelReason::MaxPtesShared`].
    MaxPtesShared,
    /// [`KernelReason::Userfaultfd`].
    Userfaultfd,
    /// [`KernelReason::ThpNever`].
    ThpNever,
    /// [`KernelReason::NotAdvised`].
    NotAdvised,
    /// [`KernelReason::ShmemNever`].
    ShmemNever,
    /// [`KernelReason::ShmemNotAdvised`].
    ShmemNotAdvised,
    /// [`KernelReason::TmpfsNever`].
    TmpfsNever,
    /// [`KernelReason::TmpfsNotAdvised`].
    TmpfsNotAdvised,
    /// [`KernelReason::BeyondFileSize`].
    BeyondFileSize,
    /// [`KernelReason::Nohugepage`].
    Nohugepage,
    /// [`KernelReason::ThpDisabled`].
    ThpDisabled,
    /// [`KernelReason::NotEligible`].
    NotEligible,
    /// [`KernelReason::TooSmall`].
    TooSmall,
    /// [`KernelReason::Unaligned`].
    Unaligned,
    /// [`KernelReason::File`].
    File,
    /// [`KernelReason::Special`].
    Special,
    /// [`KernelReason::NoThp`].
    NoThp,
}

impl fmt::Display for KernelCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KhugepagedPending => "khugepaged_pending",
            Self::NoFreeBlock => "no_free_block",
            Self::MaxPtesNone => "max_ptes_none",
            Self::MaxPtesSwap => "max_ptes_swap",
            Self::MaxPtesShared => "max_ptes_shared",
            Self::Userfaultfd => "userfaultfd",
            Self::ThpNever => "thp_never",
            Self::NotAdvised => "not_advised",
            Self::ShmemNever => "shmem_never",
            Self::ShmemNotAdvised => "shmem_not_advised",
            Self::TmpfsNever => "tmpfs_never",
            Self::TmpfsNotAdvised => "tmpfs_not_advised",
            Self::BeyondFileSize => "beyond_file_size",
            Self::Nohugepage => "nohugepage",
            Self::ThpDisabled => "thp_disabled",
            Self::NotEligible => "not_eligible",
            Self::TooSmall => "too_small",
            Self::Unaligned => "unaligned",
            Self::File => "file",
            Self::Special => "special",
            Self::NoThp => "no_thp",
        })
    }
}
