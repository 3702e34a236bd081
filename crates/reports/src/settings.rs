//! Temporarily changed kernel settings: the journal that restores them, and warnings about them.

pub(crate) mod text;

use hugepilot_record::Pid;
use hugepilot_record::sentence::Sentence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`SettingsJournal::schema`].
pub const SCHEMA: &str = "hugepilot.settings/2";

/// The schema before `ours` and `under_way` became `set_to` and `in_progress`. Recovery reads both.
pub const SCHEMA_1: &str = "hugepilot.settings/1";

/// Settings that one command changed. Written before its first change, removed after the last
/// setting is restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsJournal {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command that changed them.
    pub pid: Pid,
    /// The settings, in order of their changes.
    pub settings: Vec<ChangedSetting>,
}

/// A file of `/sys/kernel/mm/transparent_hugepage`, the page count of a hugetlb pool, or a
/// register of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// Name, such as `khugepaged/max_ptes_none` `hugepages-2048kB/nr_hugepages`
    /// or `cpu0/msr-0x1a4`.
    pub name: String,
    /// Former value.
    pub before: String,
    /// Value that the command set. Any other value is from another program.
    #[serde(alias = "ours")]
    pub set_to: String,
    /// Whether a page count was being raised: any value between the two is then the command's.
    #[serde(alias = "under_way", default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)] // only in the journal
    pub in_progress: bool,
}

/// Outcome of restoring one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restored {
    /// The setting has its former value, read back: restored, or never changed.
    Yes,
    /// Another program set it to this value since, so it was kept.
    ChangedSince(String),
    /// Not restored; the cause.
    Failed(String),
}

/// Warning about a setting that a command changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum SettingWarning {
    /// A killed command left it changed. It has its former value now.
    #[text(
        "hugepilot (pid {pid}) was killed while {name} was changed to {set_to}; it is restored to \
         {before}"
    )]
    SettingRecovered {
        /// The killed command.
        pid: Pid,
        /// Name of the setting.
        name: String,
        /// Value that the command had set.
        set_to: String,
        /// Former value.
        before: String,
    },
    /// Another program set it since, so it was kept.
    #[text(
        "{name} stays at {now}: another program changed it after hugepilot had set it to {set_to}; \
         before, it was {before}"
    )]
    SettingChangedSince {
        /// Name of the setting.
        name: String,
        /// Value that the command had set.
        set_to: String,
        /// Former value.
        before: String,
        /// Value now.
        now: String,
    },
    /// A setting that could not be restored.
    #[text("cannot restore {name} to {before}: {cause}")]
    #[help("restore it: {}", restoration(name, path, before))]
    SettingNotRestored {
        /// Name of the setting.
        name: String,
        /// Path of its file.
        path: String,
        /// Former value.
        before: String,
        /// Cause.
        cause: String,
    },
}

/// Returns the command that restores a setting.
fn restoration(name: &str, path: &str, before: &str) -> String {
    match register(name) {
        Some((cpu, register)) => format!("sudo wrmsr -p {cpu} {register} {before}"),
        None => format!("echo {before} | sudo tee {path}"),
    }
}

/// Returns processor and register of a setting that is a register, such as `cpu0/msr-0x1a4`.
fn register(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("cpu")?.split_once("/msr-")
}
