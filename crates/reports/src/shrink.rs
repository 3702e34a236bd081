//! The report of `hugepilot debloat --backend shrinker`.
//!
//! It has the schema of [`crate::debloat`], null for facts that require reading memory, and more in
//! `shrinker`.

pub(crate) mod text;

use std::collections::BTreeMap;

use hugepilot_record::sentence::Sentence;
use hugepilot_record::{ExcludedCount, Pid, RecollapseRisk, Stop};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::{ChangedSetting, Restored, SettingWarning};

/// Value of `backend`.
pub const BACKEND: &str = "shrinker";

/// A fact that this backend never knows: null in JSON.
type Unknown = ();

/// Request to the kernel, and its effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShrinkReport {
    /// [`crate::debloat::SCHEMA`].
    pub schema: String,
    /// [`BACKEND`].
    pub backend: String,
    /// Null: the kernel starts with the oldest huge page.
    pub order: Unknown,
    /// Null: the kernel does not distinguish processes.
    pub fairness: Unknown,
    /// Null, as `fairness`.
    pub quantum: Unknown,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Null: zero-filled pages were not counted.
    pub bloat_bytes: Unknown,
    /// Null: the kernel reads only huge pages that are mapped as a whole.
    #[serde(default)]
    pub stranded_bytes: Unknown,
    /// Null, as `bloat_bytes`.
    pub bloat_error_bytes: Unknown,
    /// Bytes requested from `memory.reclaim`; `None` if the request takes no amount.
    pub requested_bytes: Option<Bytes>,
    /// Decrease of the processes' anonymous memory, but at most the bytes that the counted splits
    /// can have freed; `None` with `dry_run`.
    pub freed_bytes: Option<Bytes>,
    /// The same decrease as measured; negative if the processes grew.
    pub rss_drop_bytes: Option<i64>,
    /// Underused huge pages that the kernel split meanwhile, on the whole system; `None` if it does
    /// not count them.
    pub huge_pages_split: Option<u64>,
    /// Huge pages of the cgroup before, from its `memory.stat`.
    pub huge_pages_before: Option<u64>,
    /// Huge pages of the cgroup after.
    pub huge_pages_after: Option<u64>,
    /// Null: single huge pages were not followed.
    pub recollapsed: Unknown,
    /// Null: no memory was read.
    pub unread_huge_pages: Unknown,
    /// Null, as `unread_huge_pages`.
    pub scanned_bytes: Unknown,
    /// Null, as `scanned_bytes`.
    pub scan_seconds: Unknown,
    /// Time of the reclaim.
    pub split_seconds: Option<f64>,
    /// Null: single splits are not timed.
    pub split_call_seconds: Unknown,
    /// Null: nothing was sampled.
    pub predicted_slowdown: Unknown,
    /// Always empty.
    pub skipped: BTreeMap<String, u64>,
    /// Error of the request, if it failed.
    pub failed: BTreeMap<String, u64>,
    /// The processes that were in the cgroup before.
    pub processes: Vec<ProcessShrink>,
    /// Cause of an early end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stop>,
    /// The request and the cgroup.
    pub shrinker: Shrinker,
    /// Side effects, risks and exclusions.
    pub warnings: Vec<ShrinkWarning>,
}

/// The request and the cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shrinker {
    /// Directory of the cgroup.
    pub cgroup: String,
    /// File that takes the request: `memory.reclaim` or `memory.force_empty`.
    pub asked_by: String,
    /// Huge pages with more zero-filled base pages than this are split.
    pub max_ptes_none: u64,
    /// Settings that were changed, or would be.
    pub settings: Vec<SettingReport>,
    /// Memory use of the cgroup before, including page cache.
    pub usage_bytes_before: Option<Bytes>,
    /// Memory use after.
    pub usage_bytes_after: Option<Bytes>,
    /// Page cache of the cgroup before.
    pub cache_bytes_before: Option<Bytes>,
    /// Page cache after.
    pub cache_bytes_after: Option<Bytes>,
}

/// Changed setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingReport {
    /// Name and both values.
    #[serde(flatten)]
    pub setting: ChangedSetting,
    /// Whether it was restored; `None` with `dry_run`.
    pub restored: Option<Restored>,
}

/// Process in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessShrink {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub command: String,
    /// Null: zero-filled pages were not counted.
    pub bloat_bytes_before: Unknown,
    /// Null, as before.
    pub bloat_bytes_after: Unknown,
    /// Null.
    #[serde(default)]
    pub stranded_bytes: Unknown,
    /// Decrease of its anonymous memory, at least 0; `None` with `dry_run`, or if it ended.
    pub freed_bytes: Option<Bytes>,
    /// Null: the kernel does not count splits by process.
    pub huge_pages_split: Unknown,
    /// Huge pages before; `None` if its smaps may not be read.
    pub huge_pages_before: Option<u64>,
    /// Huge pages after.
    pub huge_pages_after: Option<u64>,
    /// Anonymous memory before.
    pub anon_bytes_before: Bytes,
    /// Anonymous memory after.
    pub anon_bytes_after: Option<Bytes>,
}

/// Warning of the shrinker. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ShrinkWarning {
    /// Dry run: the freed bytes cannot be predicted without reading memory.
    #[text("the freed bytes cannot be predicted without reading memory")]
    #[help("predict them where memory may be read: --backend split --dry-run")]
    FreedUnknown,
    /// `max_ptes_none` is global, so other cgroups are affected.
    #[text("max_ptes_none is global; {}", effect_elsewhere(*seconds))]
    GlobalThreshold {
        /// How long it was changed; `None` in a dry run.
        seconds: Option<f64>,
    },
    /// Dry run: page cache of the cgroup may be reclaimed.
    #[text(
        "the page cache of the cgroup ({cache_bytes}) may be reclaimed as well; its pages are read \
         from disk when needed"
    )]
    CacheAtRisk {
        /// Page cache of the cgroup.
        cache_bytes: Bytes,
    },
    /// Page cache of the cgroup was reclaimed.
    #[text(
        "{reclaimed_bytes} of the cgroup's page cache were reclaimed as well; its pages are read \
         from disk when needed"
    )]
    CacheReclaimed {
        /// Decrease of the page cache.
        reclaimed_bytes: Bytes,
    },
    /// The kernel found no underused huge page.
    #[text(
        "the kernel found no huge page with more than {max_ptes_none} zero-filled pages; it \
         examines each page once, at the first reclaim after it was made, so it never finds pages \
         kept by an earlier reclaim{}",
        if *was_off { " or made while shrink_underused was 0" } else { "" }
    )]
    #[help("find all of them where memory may be read: --backend split")]
    NothingFound {
        /// Huge pages with more zero-filled base pages would have been split.
        max_ptes_none: u64,
        /// Whether `shrink_underused` was 0 before, so that older huge pages were never queued.
        was_off: bool,
    },
    /// khugepaged, as it is set now, collapses the split huge pages again.
    #[text(of = a)]
    RecollapseRisk(RecollapseRisk),
    /// Processes of the cgroup could not be read.
    #[text(of = a)]
    Excluded(ExcludedCount),
    /// A setting does not have its former value.
    #[serde(untagged)]
    #[text(of = a)]
    Setting(SettingWarning),
}

/// Effects of a changed `max_ptes_none` outside the cgroup.
fn effect_elsewhere(seconds: Option<f64>) -> String {
    match seconds {
        None => "while it is changed, khugepaged follows it everywhere, and reclaim in other \
                 cgroups also splits underused huge pages"
            .to_owned(),
        Some(seconds) => format!(
            "for {seconds:.2} s khugepaged followed it everywhere, and reclaim in other cgroups \
             may have split underused huge pages"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_facts_are_null_and_not_absent() {
        let json = serde_json::to_value(ShrinkReport::default()).unwrap();
        for field in ["order", "bloat_bytes", "scanned_bytes", "freed_bytes", "predicted_slowdown"]
        {
            assert_eq!(json.get(field), Some(&serde_json::Value::Null), "{field}");
        }
        assert_eq!(serde_json::from_value::<ShrinkReport>(json).unwrap(), ShrinkReport::default());
    }

    #[test]
    fn the_report_has_every_field_of_the_schema() {
        let all = serde_json::to_value(crate::debloat::DebloatReport::default()).unwrap();
        let shrink = serde_json::to_value(ShrinkReport::default()).unwrap();
        for field in all.as_object().unwrap().keys() {
            assert!(shrink.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn warnings_about_settings_have_codes_beside_the_others() {
        let setting = SettingWarning::SettingChangedSince {
            name: "khugepaged/max_ptes_none".to_owned(),
            set_to: "409".to_owned(),
            before: "511".to_owned(),
            now: "64".to_owned(),
        };
        for (warning, code) in [
            (ShrinkWarning::Setting(setting), "setting_changed_since"),
            (ShrinkWarning::FreedUnknown, "freed_unknown"),
        ] {
            let json = serde_json::to_value(&warning).unwrap();
            assert_eq!(json["code"], code);
            assert_eq!(serde_json::from_value::<ShrinkWarning>(json).unwrap(), warning);
        }
    }
}
