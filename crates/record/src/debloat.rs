//! The report of `hugepilot debloat`, schema `hugepilot.debloat/2`.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use std::collections::BTreeMap;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;
use crate::tune::Prediction;

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.debloat/2";

/// The value of `backend`: we split each huge page ourselves.
pub const BACKEND: &str = "split";

fn backend() -> String {
    BACKEND.to_owned()
}

/// What was found, done and seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DebloatReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// What split: [`BACKEND`] in this report, [`crate::shrink::BACKEND`] in the other.
    #[serde(default = "backend")]
    pub backend: String,
    /// The order that decided, as on the command line.
    pub order: String,
    /// How shares of several processes were found.
    pub fairness: String,
    /// Huge pages of one process in a row.
    pub quantum: u64,
    /// Whether nothing was done; then `freed_bytes` and `huge_pages_split` of the processes say what would be. Where
    /// `bloat_error_bytes` is above 0, these and the predicted slow-down are estimates for all huge pages, too.
    pub dry_run: bool,
    /// Zero-filled bytes in all huge pages; of a sampled census, its estimate. At least, where `unread_huge_pages` is above 0.
    pub bloat_bytes: Bytes,
    /// Twice the standard error of `bloat_bytes`; 0 for a full census.
    pub bloat_error_bytes: Bytes,
    /// What was to be freed.
    pub requested_bytes: Bytes,
    /// What the page map showed freed; with `dry_run`, what would be.
    pub freed_bytes: Bytes,
    /// By how much less memory the processes used at the end, as smaps says. They may have grown or shrunk by themselves.
    pub rss_drop_bytes: i64,
    /// Huge pages seen to be split; with `dry_run`, those that would be.
    pub huge_pages_split: u64,
    /// Huge pages of all processes before, also those that may not be split.
    pub huge_pages_before: u64,
    /// And after; of a process that ended, as we left it.
    pub huge_pages_after: u64,
    /// Of those split, how many were huge again at the end.
    pub recollapsed: u64,
    /// Huge pages that could not be read, so that their bloat is unknown.
    #[serde(default)]
    pub unread_huge_pages: u64,
    /// Memory looked through, in bytes of huge pages.
    pub scanned_bytes: Bytes,
    /// How long that took.
    pub scan_seconds: f64,
    /// How long splitting took, with the looks before and after each.
    pub split_seconds: f64,
    /// Of this, what the kernel took for the splits themselves.
    pub split_call_seconds: f64,
    /// By what factor the processes should become slower, together; `None` when nobody looked, or nothing is to be done.
    pub predicted_slowdown: Option<Prediction>,
    /// Huge pages passed over, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Splits that failed, by errno; `still_huge` where the kernel said yes and did nothing.
    pub failed: BTreeMap<String, u64>,
    /// Each process.
    pub processes: Vec<ProcessDebloat>,
    /// Why it ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// One process in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessDebloat {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// Zero-filled bytes in its huge pages before; of a sampled census, its estimate.
    pub bloat_bytes_before: Bytes,
    /// The same, less that of the huge pages that were split.
    pub bloat_bytes_after: Bytes,
    /// What was freed of it, as the page map showed.
    pub freed_bytes: Bytes,
    /// Its huge pages that were split.
    pub huge_pages_split: u64,
    /// Its huge pages before.
    pub huge_pages_before: u64,
    /// And after.
    pub huge_pages_after: u64,
    /// The part of its stall samples to be expected on what was split; `None` when nobody looked, or it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_heat_ratio: Option<f64>,
}
