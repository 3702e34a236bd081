//! Kernel settings that we changed for a while, and what they were before: the file from which they are put back after a
//! crash.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pid;

/// The value of [`SettingsJournal::schema`].
pub const SCHEMA: &str = "hugepilot.settings/2";

/// The schema before `ours` and `under_way` became `set_to` and `in_progress`; recovery reads it, too.
pub const SCHEMA_1: &str = "hugepilot.settings/1";

/// Who changed which settings. Written before the first change, removed after the last was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsJournal {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run that changed them.
    pub pid: Pid,
    /// In the order in which they are changed.
    pub settings: Vec<ChangedSetting>,
}

/// One file of `/sys/kernel/mm/transparent_hugepage`, or the count of a hugetlb pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// Such as `khugepaged/max_ptes_none` or `hugepages-2048kB/nr_hugepages`.
    pub name: String,
    /// What it was.
    pub before: String,
    /// What we set. Where it is something else now, somebody changed it since.
    #[serde(alias = "ours")]
    pub set_to: String,
    /// A count that was being raised: it may be anything between the two.
    #[serde(alias = "under_way", default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)] // only in the journal
    pub in_progress: bool,
}

/// What came of putting one back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restored {
    /// It has its old value, as a look showed: put back, or never changed.
    Yes,
    /// Somebody set it to this since, so it was left alone.
    ChangedSince(String),
    /// It could not be put back: why.
    Failed(String),
}
