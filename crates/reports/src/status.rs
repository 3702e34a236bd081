//! Report of `hugepilot status`, schema `hugepilot.status/2`.

pub(crate) mod text;

mod group;
mod summary;

use std::collections::BTreeMap;

use hugepilot_units::{AddrRange, Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use group::{GroupProcess, Segment, StatusGroup};
pub use summary::status_summary;

use hugepilot_record::sentence::{HIDDEN_LIMIT_HELP, Sentence, counted, hidden_limit};
use hugepilot_record::{
    Answer, COMPACT, KernelCode, KernelReason, MappingKind, Obstacle, Outlook, SkipReason,
    ThpConfig,
};

use crate::tune::TargetInfo;

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.status/2";

/// Sizes of one mapping, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sizes {
    /// Address space.
    pub size_bytes: Bytes,
    /// Resident memory.
    pub resident_bytes: Bytes,
    /// Memory on huge pages.
    pub huge_bytes: Bytes,
    /// Resident memory on base pages, in regions that can be promoted now: the headroom suffices
    /// for all of them.
    pub eligible_bytes: Bytes,
    /// Zero-filled base pages inside huge pages (bloat); `None` if the memory cannot be read.
    pub zero_filled_bytes: Option<Bytes>,
    /// Resident memory on base pages that cannot be promoted now, by reason.
    pub not_huge_bytes: BTreeMap<SkipReason, Bytes>,
    /// Resident memory on base pages, by the reason why the kernel has not promoted it.
    pub kernel_reason_bytes: BTreeMap<KernelCode, Bytes>,
}

impl Sizes {
    /// This part of the memory, of the same address space.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    pub fn scaled(&self, ratio: f64) -> Self {
        let part = |bytes: Bytes| Bytes::new((bytes.as_f64() * ratio) as u64);
        Self {
            size_bytes: self.size_bytes,
            resident_bytes: part(self.resident_bytes),
            huge_bytes: part(self.huge_bytes),
            eligible_bytes: part(self.eligible_bytes),
            zero_filled_bytes: self.zero_filled_bytes.map(part),
            not_huge_bytes: self.not_huge_bytes.iter().map(|(&why, &of)| (why, part(of))).collect(),
            kernel_reason_bytes: self
                .kernel_reason_bytes
                .iter()
                .map(|(&why, &of)| (why, part(of)))
                .collect(),
        }
    }

    /// Adds the sizes of another mapping.
    pub fn add(&mut self, other: &Self) {
        self.size_bytes += other.size_bytes;
        self.resident_bytes += other.resident_bytes;
        self.huge_bytes += other.huge_bytes;
        self.eligible_bytes += other.eligible_bytes;
        self.zero_filled_bytes = match (self.zero_filled_bytes, other.zero_filled_bytes) {
            (Some(a), Some(b)) => Some(a + b),
            _ => None,
        };
        for (&reason, &bytes) in &other.not_huge_bytes {
            *self.not_huge_bytes.entry(reason).or_default() += bytes;
        }
        for (&code, &bytes) in &other.kernel_reason_bytes {
            *self.kernel_reason_bytes.entry(code).or_default() += bytes;
        }
    }
}

/// State of one mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappingStatus {
    /// Addresses.
    pub range: AddrRange,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Label, control characters escaped.
    pub name: String,
    /// Inode of the file or segment; 0 for none.
    #[serde(default)]
    pub inode: u64,
    /// Resident memory, each page divided by the number of processes that map it (Pss).
    #[serde(default)]
    pub proportional_bytes: Bytes,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

impl MappingStatus {
    /// Memory on hugetlb pages, a part of the resident and of the huge memory. The kernel counts it
    /// neither as RSS nor as THP.
    pub fn hugetlb_bytes(&self) -> Bytes {
        if self.kind == MappingKind::Hugetlb { self.sizes.huge_bytes } else { Bytes::ZERO }
    }
}

/// Gap in a report of `status`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum StatusWarning {
    /// Memory could be promoted, but no free block is large enough for a huge page.
    #[text("no free block is large enough for a huge page; the kernel must compact memory first")]
    #[help("{COMPACT}")]
    NoFreeBlock,
    /// A memory limit of the process is invisible from here.
    #[text("{}", hidden_limit(cgroup))]
    #[help("{HIDDEN_LIMIT_HELP}")]
    HiddenMemoryLimit {
        /// Path of its cgroup.
        cgroup: String,
    },
    /// The headroom cannot be read: it limits no eligible memory of this report.
    #[text("the headroom cannot be read: {error}; eligible memory may exceed it")]
    #[help("check MemTotal and MemAvailable: cat /proc/meminfo")]
    HeadroomUnreadable {
        /// Error of the kernel.
        error: String,
    },
    /// The pagemap cannot be read: only sizes are known.
    #[text("the pagemap cannot be read: {error}; only sizes are known")]
    #[help("test the permissions: hugepilot doctor")]
    PagemapUnreadable {
        /// Error of the kernel.
        error: String,
    },
    /// Some huge pages of a mapping cannot be read: their zero-filled pages are not counted.
    #[text(
        "{} of a mapping cannot be read, because the program forbids it (PROT_NONE) or the memory \
         is broken; zero-filled pages are not all counted",
        counted(*huge_pages, "huge page", "huge pages")
    )]
    HugePagesUnreadable {
        /// These huge pages.
        huge_pages: u64,
    },
    /// The contents of huge pages cannot be read: zero-filled pages are not all counted.
    #[text(
        "the contents of huge pages cannot be read: {error}; zero-filled pages are not all counted"
    )]
    #[help(if *denied, "run as root or as the user of the process, or grant CAP_SYS_PTRACE")]
    ContentsUnreadable {
        /// Error of the kernel.
        error: String,
        /// Whether a permission is missing.
        denied: bool,
    },
}

/// Memory on base pages for which the kernel has the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelShare {
    /// The reason.
    pub reason: KernelReason,
    /// Whether the kernel may still promote it.
    pub outlook: Outlook,
    /// Resident memory on base pages.
    pub bytes: Bytes,
    /// Part of it that `tune` can promote now.
    pub eligible_bytes: Bytes,
    /// The other part, by the reason why `tune` skips it.
    pub not_huge_bytes: BTreeMap<SkipReason, Bytes>,
}

/// Memory on base pages that `tune` skips for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("sentence" = true))]
pub struct SkipShare {
    /// The reason.
    pub code: SkipReason,
    /// Resident memory on base pages.
    pub bytes: Bytes,
}

impl Sentence for SkipShare {
    fn text(&self) -> String {
        self.code.text()
    }
    fn help(&self) -> Vec<String> {
        self.code.help()
    }
}

/// The reason that concerns the most memory, and whether `tune` can promote this memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MainReason {
    /// The reason of the kernel.
    pub reason: KernelReason,
    /// Memory on base pages for this reason.
    pub bytes: Bytes,
    /// Part of it that `tune` can promote now; `None` if the pagemap cannot be read.
    pub eligible_bytes: Option<Bytes>,
    /// The most frequent reason why `tune` skips the other part.
    pub skip: Option<SkipReason>,
}

/// Huge-page use of the process in one sentence. JSON carries the variant as `code`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum StatusSummary {
    /// No memory is resident.
    NothingResident,
    /// All memory is on huge pages, except files and memory too small for a huge page.
    AllHuge {
        /// Memory on huge pages.
        huge_bytes: Bytes,
        /// Resident memory.
        resident_bytes: Bytes,
    },
    /// Only files and memory too small for a huge page are resident.
    NothingSuitable {
        /// Resident memory.
        resident_bytes: Bytes,
    },
    /// khugepaged may still promote most of the rest.
    KernelMayPromote {
        /// Memory on huge pages.
        huge_bytes: Bytes,
        /// Resident memory.
        resident_bytes: Bytes,
        /// The main reason.
        main: MainReason,
    },
    /// The kernel will not promote most of the rest by itself.
    KernelWillNotPromote {
        /// Memory on huge pages.
        huge_bytes: Bytes,
        /// Resident memory.
        resident_bytes: Bytes,
        /// The main reason.
        main: MainReason,
    },
}

impl StatusSummary {
    /// Whether huge pages would help, as far as the memory shows without samples of the stalls.
    pub fn answer(&self) -> Answer {
        match self {
            Self::AllHuge { huge_bytes, resident_bytes }
                if huge_bytes.ratio_of(*resident_bytes) >= 0.5 =>
            {
                Answer::NoGain
            }
            Self::NothingResident | Self::AllHuge { .. } | Self::NothingSuitable { .. } => {
                Answer::CannotTell
            }
            Self::KernelMayPromote { main, resident_bytes, .. }
            | Self::KernelWillNotPromote { main, resident_bytes, .. } => {
                let is_none = main.eligible_bytes == Some(Bytes::ZERO) && main.skip.is_some();
                let is_most = main.bytes.ratio_of(*resident_bytes) >= 0.5;
                if is_none && is_most { Answer::Blocked } else { Answer::CannotTell }
            }
        }
    }
}

/// Report on one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process.
    pub target: TargetInfo,
    /// Huge-page use in one sentence.
    pub summary: StatusSummary,
    /// Whether huge pages would help, as far as the memory shows without samples.
    #[serde(default)]
    pub answer: Answer,
    /// Sizes of all mappings together.
    pub totals: Sizes,
    /// Mappings in address order.
    pub mappings: Vec<MappingStatus>,
    /// Reasons why the kernel has not promoted memory, by falling bytes.
    pub kernel_reasons: Vec<KernelShare>,
    /// Reasons why `tune` skips memory, by falling bytes.
    pub skips: Vec<SkipShare>,
    /// THP settings of the kernel.
    pub thp: ThpConfig,
    /// Memory that large pages hold and the process does not map; `None` without CAP_SYS_ADMIN.
    #[serde(default)]
    pub stranded_bytes: Option<Bytes>,
    /// Memory of the process alone on large pages that are smaller than a huge page; `None` without
    /// CAP_SYS_ADMIN.
    #[serde(default)]
    pub large_page_bytes: Option<Bytes>,
    /// Memory of the system in free blocks that are large enough for a huge page, at the moment of
    /// the report.
    pub free_huge_bytes: Bytes,
    /// Obstacles to huge pages that concern the whole process.
    #[serde(default)]
    pub obstacles: Vec<Obstacle>,
    /// Gaps in this report.
    pub warnings: Vec<StatusWarning>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of a process with these mappings.
    pub(super) fn report(mappings: Vec<MappingStatus>) -> StatusReport {
        let mut totals = Sizes::default();
        mappings.iter().for_each(|mapping| totals.add(&mapping.sizes));
        let reason = KernelReason::NotAdvised { setting: "enabled".to_owned() };
        let share = KernelShare {
            reason,
            outlook: Outlook::WillNot,
            bytes: totals.resident_bytes,
            eligible_bytes: Bytes::ZERO,
            not_huge_bytes: BTreeMap::new(),
        };
        StatusReport {
            schema: SCHEMA.to_owned(),
            target: TargetInfo::default(),
            summary: StatusSummary::NothingResident,
            answer: Answer::CannotTell,
            totals,
            mappings,
            kernel_reasons: vec![share],
            skips: Vec::new(),
            thp: ThpConfig::default(),
            stranded_bytes: None,
            large_page_bytes: None,
            free_huge_bytes: Bytes::ZERO,
            obstacles: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
