//! Report of `hugepilot status`, schema `hugepilot.status/2`.

use std::collections::BTreeMap;

use hugepilot_units::{AddrRange, Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tune::TargetInfo;
use crate::{MappingKind, SkipReason};

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
    /// Resident memory on base pages, in regions that can be promoted now.
    pub eligible_bytes: Bytes,
    /// Zero-filled base pages inside huge pages (bloat); `None` if the memory cannot be read.
    pub zero_filled_bytes: Option<Bytes>,
    /// Resident memory on base pages that cannot be promoted now, by reason.
    pub not_huge_bytes: BTreeMap<SkipReason, Bytes>,
}

impl Sizes {
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
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// Gap in a report of `status`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum StatusWarning {
    /// Memory could be promoted, but no free block is large enough for a huge page.
    NoFreeBlock,
    /// A memory limit of the process is invisible from here.
    HiddenMemoryLimit {
        /// Path of its cgroup.
        cgroup: String,
    },
    /// The pagemap cannot be read: only sizes are known.
    PagemapUnreadable {
        /// Error of the kernel.
        error: String,
    },
    /// Some huge pages of a mapping cannot be read: their zero-filled pages are not counted.
    HugePagesUnreadable {
        /// These huge pages.
        huge_pages: u64,
    },
    /// The contents of huge pages cannot be read: zero-filled pages are not all counted.
    ContentsUnreadable {
        /// Error of the kernel.
        error: String,
        /// Whether a permission is missing.
        denied: bool,
    },
}

/// Report on one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process.
    pub target: TargetInfo,
    /// Sizes of all mappings together.
    pub totals: Sizes,
    /// Mappings in address order.
    pub mappings: Vec<MappingStatus>,
    /// Memory of the system in free blocks that are large enough for a huge page.
    pub free_huge_bytes: Bytes,
    /// Gaps in this report.
    pub warnings: Vec<StatusWarning>,
}
