//! Reasons why the kernel has not used huge pages.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Khugepaged, Pid, Sentence, ThpWord};

/// Reason why the kernel has not put memory on huge pages, with its facts. JSON carries the variant
/// as `code`.
///
/// Settings are named by their path below `/sys/kernel/mm/transparent_hugepage`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Sentence,
)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum KernelReason {
    /// The kernel allows huge pages, but used base pages at the first touch. khugepaged collapses
    /// regions in use, one after the other, and has not collapsed these. After a setting changed,
    /// khugepaged visits a process when that next maps memory.
    #[text("{}{}", pending(khugepaged.as_ref()), only_free_blocks(*defrag))]
    // More frequent scans would fill memory that the program does not use.
    #[help(all = compact_at_faults(*defrag))]
    KhugepagedPending {
        /// khugepaged; `None` if its settings cannot be read.
        khugepaged: Option<Khugepaged>,
        /// `defrag`, if it forbids page faults to compact memory there, so that they use only
        /// free blocks; otherwise `None`.
        defrag: Option<ThpWord>,
    },
    /// The kernel allows huge pages, but no free block was large enough at the moment of the
    /// report.
    #[text(
        "at this moment no free block is large enough for a huge page, and khugepaged {}{}",
        if *khugepaged_defrag { "must compact memory first" } else { "compacts none" },
        only_free_blocks(*defrag)
    )]
    #[help("{COMPACT}")]
    #[help(
        if !khugepaged_defrag, "{}",
        set("let khugepaged compact memory", "1", "khugepaged/defrag")
    )]
    #[help(all = compact_at_faults(*defrag))]
    NoFreeBlock {
        /// Whether khugepaged compacts memory to make one.
        khugepaged_defrag: bool,
        /// `defrag`, if it forbids page faults to compact memory there, so that they use only
        /// free blocks; otherwise `None`.
        defrag: Option<ThpWord>,
    },
    /// More base pages are not resident than khugepaged tolerates.
    #[text("more pages are not resident than khugepaged allows (max_ptes_none is {max_ptes_none})")]
    #[help("{}", set("allow more, which adds memory", "511", "khugepaged/max_ptes_none"))]
    MaxPtesNone {
        /// `khugepaged/max_ptes_none`.
        max_ptes_none: u64,
    },
    /// More base pages are in swap than khugepaged tolerates.
    #[text("more pages are in swap than khugepaged allows (max_ptes_swap is {max_ptes_swap})")]
    // The kernel allows 511 of 512 pages at most, also if all are in swap or shared.
    #[help("{}", swapped_help(*max_ptes_swap))]
    MaxPtesSwap {
        /// `khugepaged/max_ptes_swap`.
        max_ptes_swap: u64,
    },
    /// Other processes map more base pages than khugepaged tolerates.
    #[text(
        "more pages are shared with other processes than khugepaged allows (max_ptes_shared is \
         {max_ptes_shared})"
    )]
    #[help("{}", shared_help(*max_ptes_shared))]
    MaxPtesShared {
        /// `khugepaged/max_ptes_shared`.
        max_ptes_shared: u64,
    },
    /// userfaultfd watches it: khugepaged fills no holes there.
    #[text("userfaultfd watches the memory, and khugepaged fills no holes there")]
    #[help("{UNREGISTER}")]
    Userfaultfd,
    /// The setting is `never`.
    #[text("{} is never", subject(setting))]
    #[help("{}", set("let programs ask", "madvise", setting))]
    ThpNever {
        /// The setting that decides.
        setting: String,
    },
    /// The setting is `madvise`, and the program did not advise `MADV_HUGEPAGE`.
    #[text("{} is madvise and the program did not ask", subject(setting))]
    #[help("{FROM_START}")]
    #[help("{}", set("or allow all programs huge pages", "always", setting))]
    NotAdvised {
        /// The setting that decides.
        setting: String,
    },
    /// Shared memory, whose setting forbids huge pages.
    #[text("shared memory gets no huge pages: {}", shmem_cause(setting, *value))]
    #[help(all = shmem_help(setting, *value))]
    ShmemNever {
        /// The setting that decides.
        setting: String,
        /// Its value; `force` if that of `shmem_enabled` overrides it.
        value: ThpWord,
    },
    /// Shared memory, whose setting is `advise`, and the program did not advise `MADV_HUGEPAGE`.
    #[text("{setting} is advise and the program did not ask")]
    #[help("{}", set("do not require advice", "always", setting))]
    ShmemNotAdvised {
        /// The setting that decides.
        setting: String,
    },
    /// A file of a tmpfs that is mounted without huge pages.
    #[text("the tmpfs {mount} is mounted with huge=never")]
    #[help("{}", remount(mount, *namespace))]
    TmpfsNever {
        /// Mount point.
        mount: String,
        /// Process in whose mount namespace it is; `None` for that of hugepilot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Pid>,
    },
    /// A file of a tmpfs that is mounted with `huge=advise`, and the program did not advise
    /// `MADV_HUGEPAGE`.
    #[text("the tmpfs {mount} is mounted with huge=advise and the program did not ask")]
    #[help("{}", remount(mount, *namespace))]
    TmpfsNotAdvised {
        /// Mount point.
        mount: String,
        /// Process in whose mount namespace it is; `None` for that of hugepilot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Pid>,
    },
    /// Shared memory or a file of a tmpfs that is too short: the setting is `within_size`, and a
    /// huge page would exceed it.
    #[text("the setting of shared memory is within_size, and a huge page would exceed the file")]
    #[help("make the file a multiple of the size of a huge page")]
    BeyondFileSize,
    /// The program forbids huge pages there: `MADV_NOHUGEPAGE`, or since Linux 6.7 `MAP_STACK`.
    #[text("{FORBIDDEN}")]
    #[help("{NOT_FORBIDDEN}")]
    Nohugepage,
    /// The process disabled huge pages for itself (`PR_SET_THP_DISABLE`).
    #[text("{DISABLED}")]
    #[help("{ENABLE}")]
    ThpDisabled,
    /// The kernel marks the mapping as not eligible (`THPeligible: 0`), although its settings allow
    /// huge pages.
    #[text(
        "the settings allow huge pages, but the kernel marks the memory as not eligible \
         (THPeligible: 0)"
    )]
    #[help(
        "a possible cause is PR_SET_THP_DISABLE with PR_THP_DISABLE_EXCEPT_ADVISED; see prctl(2)"
    )]
    NotEligible,
    /// The mapping is smaller than a huge page.
    #[text("the mappings are smaller than a huge page")]
    #[help("{LARGER_BLOCKS}")]
    TooSmall,
    /// No aligned region of the mapping covers it.
    // The edges of a mapping are not worth a change.
    #[text("{NO_WHOLE_PAGE}")]
    Unaligned,
    /// A file of which the kernel makes no huge pages.
    #[text("the kernel makes no huge pages of these files")]
    #[help(
        "requires CONFIG_READ_ONLY_THP_FOR_FS in the kernel, or a file system with large folios"
    )]
    File,
    /// Device or kernel memory.
    #[text("{SPECIAL}")]
    Special,
    /// The kernel has no THP, or its settings cannot be read.
    #[text("the kernel has no THP, or its settings cannot be read")]
    #[help("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, which has the folder {THP}")]
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

/// Folder of the THP settings.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Help against mappings that are too small.
pub(crate) const LARGER_BLOCKS: &str =
    "if the program allocates by malloc, larger blocks: hugepilot run --pages hugepilot -- CMD";
/// Help against a lack of free blocks.
pub const COMPACT: &str = "compact free memory: echo 1 | sudo tee /proc/sys/vm/compact_memory";
/// Help against memory in swap.
pub(crate) const PAGES_BACK: &str = "free memory, so that the program reads its pages back";
/// Help against missing advice.
const FROM_START: &str = "huge pages from the start: sudo hugepilot run --pages thp -- CMD";
/// Help against memory that tune does not promote later.
pub(crate) fn from_first_touch(before: &str) -> String {
    let purpose = format!(
        "put the memory on huge pages before {before}: MADV_HUGEPAGE in the program, or this \
         setting and a new start"
    );
    set(&purpose, "always", "enabled")
}
/// A command that sets a THP setting.
pub(crate) fn set(purpose: &str, word: &str, setting: &str) -> String {
    format!("{purpose}: echo {word} | sudo tee {THP}/{setting}")
}

/// A THP setting, for a sentence: `THP`, or the setting of one size.
fn subject(setting: &str) -> String {
    if setting == "enabled" { "THP".to_owned() } else { format!("THP ({setting})") }
}

pub(crate) const FORBIDDEN: &str =
    "the program forbids huge pages there (MADV_NOHUGEPAGE, or MAP_STACK)";
pub(crate) const NOT_FORBIDDEN: &str =
    "remove MADV_NOHUGEPAGE from the program, unless the memory is a stack";
pub(crate) const DISABLED: &str = "huge pages are disabled for the process (PR_SET_THP_DISABLE)";
pub(crate) const ENABLE: &str = "start the program with it cleared: sudo hugepilot run --pages thp \
                                 -- CMD; systemd sets it with MemoryTHP=disable, redis with \
                                 disable-thp";
pub(crate) const NO_WHOLE_PAGE: &str =
    "no whole, aligned huge page fits into a mapping there, as at its edges";
pub(crate) const SPECIAL: &str = "device or kernel memory, for which nothing can be changed";
pub(crate) const UNREGISTER: &str =
    "unregister the memory in the program (UFFDIO_UNREGISTER), if its handler is done";

fn pending(khugepaged: Option<&Khugepaged>) -> String {
    let Some(khugepaged) = khugepaged else {
        return "huge pages are allowed, and khugepaged has not collapsed the memory yet"
            .to_owned();
    };
    let Khugepaged { pages_to_scan, scan_sleep_ns, max_ptes_none, .. } = khugepaged;
    format!(
        "khugepaged has not collapsed the memory yet; it scans {pages_to_scan} pages every \
         {scan_sleep_ns}, and collapses regions in use with at most {max_ptes_none} pages not \
         resident (max_ptes_none)"
    )
}

/// Whether page faults compact memory with this `defrag` if the program advised it.
const fn needs_advice(defrag: ThpWord) -> bool {
    matches!(defrag, ThpWord::Madvise | ThpWord::DeferMadvise)
}

/// The end of a sentence about page faults that `defrag` forbids to compact memory.
fn only_free_blocks(defrag: Option<ThpWord>) -> String {
    let Some(word) = defrag else { return String::new() };
    let advice = if needs_advice(word) { " and the program did not ask" } else { "" };
    format!("; page faults use only free blocks, because defrag is {word}{advice}")
}

/// Help against page faults that `defrag` forbids to compact memory.
fn compact_at_faults(defrag: Option<ThpWord>) -> Vec<String> {
    let always = |purpose: &str| set(purpose, "always", "defrag");
    match defrag {
        None => Vec::new(),
        Some(word) if needs_advice(word) => vec![
            FROM_START.to_owned(),
            always("or let all later page faults compact memory, which can delay them"),
        ],
        Some(_) => vec![always("let later page faults compact memory, which can delay them")],
    }
}

/// Help against pages in swap, of which khugepaged allows this number.
fn swapped_help(allowed: u64) -> String {
    match allowed {
        511.. => PAGES_BACK.to_owned(),
        _ => set("allow up to 511 of 512, which reads swap", "511", "khugepaged/max_ptes_swap"),
    }
}

/// Help against shared pages, of which khugepaged allows this number.
fn shared_help(allowed: u64) -> String {
    let purpose = "allow up to 511 of 512, which copies pages";
    match allowed {
        511.. => from_first_touch("the fork"),
        _ => set(purpose, "511", "khugepaged/max_ptes_shared"),
    }
}

/// Why shared memory gets no huge pages by a setting with this value.
fn shmem_cause(setting: &str, value: ThpWord) -> String {
    match value {
        ThpWord::Never | ThpWord::Deny => format!("{setting} is {value}"),
        _ => format!("shmem_enabled is force, and {setting} is not inherit"),
    }
}

/// Help against a setting of shared memory with this value.
fn shmem_help(setting: &str, value: ThpWord) -> Vec<String> {
    match value {
        ThpWord::Never | ThpWord::Deny => vec![
            set("allow huge pages there", "always", setting),
            // Linux aligns shared memory when it is mapped, and only where it allows them.
            "then start the program again, so that its memory is aligned".to_owned(),
        ],
        _ => vec![set("let force decide", "inherit", setting)],
    }
}

/// Help against a tmpfs without huge pages, in the mount namespace of a process.
fn remount(mount: &str, namespace: Option<Pid>) -> String {
    let there = namespace.map(|pid| format!("nsenter -t {pid} -m ")).unwrap_or_default();
    format!("allow huge pages there: sudo {there}mount -o remount,huge=always {mount}")
}
