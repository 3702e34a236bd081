//! The report of `hugepilot status`, schema `hugepilot.status/1`.

use std::collections::BTreeMap;

use hugepilot_units::{AddrRange, Bytes};
use serde::{Deserialize, Serialize};

use crate::MappingKind;
use crate::tune::TargetInfo;

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.status/1";

/// Sizes, of one mapping or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Address space.
    pub size_bytes: Bytes,
    /// Resident.
    pub resident_bytes: Bytes,
    /// On huge pages.
    pub huge_bytes: Bytes,
    /// Resident, not huge, in regions that could be put on huge pages now.
    pub eligible_bytes: Bytes,
    /// Zero-filled base pages inside huge pages (bloat); `None` where the memory may not be read.
    pub zero_filled_bytes: Option<Bytes>,
    /// Resident bytes that are not huge and cannot be made so now, by reason.
    pub not_huge_bytes: BTreeMap<String, Bytes>,
}

impl Sizes {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.size_bytes += other.size_bytes;
        self.resident_bytes += other.resident_bytes;
        self.huge_bytes += other.huge_bytes;
        self.eligible_bytes += other.eligible_bytes;
        self.zero_filled_bytes = match (self.zero_filled_bytes, other.zero_filled_bytes) {
            (Some(a), Some(b)) => Some(a + b),
            _ => None,
        };
        for (reason, &bytes) in &other.not_huge_bytes {
            *self.not_huge_bytes.entry(reason.clone()).or_default() += bytes;
        }
    }
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingStatus {
    /// Its addresses.
    pub range: AddrRange,
    /// What stands behind it.
    pub kind: MappingKind,
    /// Its label, control characters escaped.
    pub name: String,
    /// Its sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whom.
    pub target: TargetInfo,
    /// Of all mappings.
    pub totals: Sizes,
    /// In address order.
    pub mappings: Vec<MappingStatus>,
    /// Memory in free blocks large enough for a huge page, on the whole system.
    pub free_huge_bytes: Bytes,
    /// What could not be found out, and how to make it possible.
    pub warnings: Vec<String>,
}
