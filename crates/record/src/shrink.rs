//! The report of `hugepilot debloat --backend shrinker`: the schema of [`crate::debloat`], with null for what cannot be
//! known without reading memory, and more in `shrinker`.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in
//! [`crate::debloat::SCHEMA`].

use std::collections::BTreeMap;

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;
use crate::settings::{ChangedSetting, Restored};

/// The value of `backend`.
pub const BACKEND: &str = "shrinker";

/// What never is known here: null in JSON.
type Unknown = ();

/// What was asked of the kernel, and what was seen to come of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShrinkReport {
    /// [`crate::debloat::SCHEMA`].
    pub schema: String,
    /// [`BACKEND`].
    pub backend: String,
    /// The kernel goes by the age of huge pages.
    pub order: Unknown,
    /// Nothing is shared out.
    pub fairness: Unknown,
    /// As `fairness`.
    pub quantum: Unknown,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Zero-filled pages were not counted.
    pub bloat_bytes: Unknown,
    /// As `bloat_bytes`.
    pub bloat_error_bytes: Unknown,
    /// What `memory.reclaim` was asked for; `None` where no amount can be asked for.
    pub requested_bytes: Option<Bytes>,
    /// By how much less anonymous memory the processes had afterwards, but no more than the splits that the kernel counted
    /// can have freed; `None` with `dry_run`.
    pub freed_bytes: Option<Bytes>,
    /// The same as measured: negative when they grew.
    pub rss_drop_bytes: Option<i64>,
    /// Underused huge pages that the kernel counted as split meanwhile, on the whole system; `None` where it keeps no count.
    pub huge_pages_split: Option<u64>,
    /// Huge pages of the cgroup before, as its `memory.stat` says.
    pub huge_pages_before: Option<u64>,
    /// And after.
    pub huge_pages_after: Option<u64>,
    /// Single huge pages were not followed.
    pub recollapsed: Unknown,
    /// No memory was read.
    pub unread_huge_pages: Unknown,
    /// As `unread_huge_pages`.
    pub scanned_bytes: Unknown,
    /// As `scanned_bytes`.
    pub scan_seconds: Unknown,
    /// How long the reclaim took.
    pub split_seconds: Option<f64>,
    /// Nothing is known of single splits.
    pub split_call_seconds: Unknown,
    /// Nobody looked what is hot.
    pub predicted_slowdown: Unknown,
    /// Always empty.
    pub skipped: BTreeMap<String, u64>,
    /// What the kernel answered to the request, where that was no yes.
    pub failed: BTreeMap<String, u64>,
    /// Each process of the cgroup that was there before.
    pub processes: Vec<ProcessShrink>,
    /// Why it ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// What was asked of the kernel.
    pub shrinker: Shrinker,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The request, and the cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shrinker {
    /// The directory of the cgroup.
    pub cgroup: String,
    /// The file that reclaim is asked for by: `memory.reclaim` or `memory.force_empty`.
    pub asked_by: String,
    /// A huge page with more zero-filled base pages than this is split.
    pub max_ptes_none: u64,
    /// The settings that were changed for it, or would be.
    pub settings: Vec<SettingReport>,
    /// Memory use of the cgroup before, page cache included.
    pub usage_bytes_before: Option<Bytes>,
    /// And after.
    pub usage_bytes_after: Option<Bytes>,
    /// Page cache of the cgroup before.
    pub cache_bytes_before: Option<Bytes>,
    /// And after.
    pub cache_bytes_after: Option<Bytes>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingReport {
    /// Which, and both its values.
    #[serde(flatten)]
    pub setting: ChangedSetting,
    /// Whether it was put back; `None` with `dry_run`.
    pub restored: Option<Restored>,
}

/// One process in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessShrink {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub command: String,
    /// Its zero-filled pages were not counted.
    pub bloat_bytes_before: Unknown,
    /// As before.
    pub bloat_bytes_after: Unknown,
    /// By how much less anonymous memory it had afterwards, at least 0; `None` with `dry_run`, and when it ended.
    pub freed_bytes: Option<Bytes>,
    /// Not known of single processes.
    pub huge_pages_split: Unknown,
    /// Its huge pages before; `None` where its smaps may not be read.
    pub huge_pages_before: Option<u64>,
    /// And after.
    pub huge_pages_after: Option<u64>,
    /// Its anonymous memory before.
    pub anon_bytes_before: Bytes,
    /// And after.
    pub anon_bytes_after: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_and_not_nothing() {
        let json = serde_json::to_value(ShrinkReport::default()).unwrap();
        for field in ["order", "bloat_bytes", "scanned_bytes", "freed_bytes", "predicted_slowdown"]
        {
            assert_eq!(json.get(field), Some(&serde_json::Value::Null), "{field}");
        }
        assert_eq!(serde_json::from_value::<ShrinkReport>(json).unwrap(), ShrinkReport::default());
    }

    #[test]
    fn it_has_every_field_of_the_schema() {
        let all = serde_json::to_value(crate::debloat::DebloatReport::default()).unwrap();
        let ours = serde_json::to_value(ShrinkReport::default()).unwrap();
        for field in all.as_object().unwrap().keys() {
            assert!(ours.get(field).is_some(), "{field}");
        }
    }
}
