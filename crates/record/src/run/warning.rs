//! Warnings of `run` and `compare`.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;
use crate::pool::PoolShortfall;
use crate::settings::SettingWarning;

/// Warning of `run` and `compare`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RunWarning {
    /// The user's value of a variable was kept.
    VariableKept {
        /// Name.
        name: String,
        /// Value, control characters escaped.
        value: String,
    },
    /// The user's value of a glibc tunable was kept.
    TunableKept {
        /// Tunable as `name=value`, control characters escaped.
        tunable: String,
    },
    /// The loader may have removed variables of the user from hugepilot.
    LoaderVariablesRemoved,
    /// A process of the program was killed by SIGBUS on pages of a hugetlb pool.
    KilledBySigbus,
    /// A process with pages of a hugetlb pool started others.
    ForkOnPool {
        /// Name of the process, control characters escaped.
        process: String,
    },
    /// The hugetlb pool has fewer free pages than requested.
    PoolTooSmall(PoolShortage),
    /// A run was stopped for a while; it was discarded and repeated.
    RunRepeated,
    /// The repeated run was stopped, too.
    RunStopped,
    /// The program left processes running; hugepilot ended them.
    ProcessesEnded,
    /// Runs failed; their rounds do not count.
    RunsFailed {
        /// Failed runs.
        failed_runs: u32,
        /// All runs.
        runs: u32,
    },
    /// A kernel setting that this command, or a killed one, changed.
    #[serde(untagged)]
    Setting(SettingWarning),
}

/// Hugetlb pool with fewer free pages than requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolShortage {
    /// Page size of the pool.
    pub page_bytes: Bytes,
    /// Requested free pages.
    pub requested: u64,
    /// Causes.
    pub causes: Vec<PoolShortfall>,
}

/// Warning of `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareWarning {
    /// Mode; `null` if the warning is not about one.
    pub mode: Option<Mode>,
    /// Warning.
    #[serde(flatten)]
    pub warning: RunWarning,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_read_back_what_they_write() {
        let setting = SettingWarning::SettingChangedSince {
            name: "a".to_owned(),
            set_to: "1".to_owned(),
            before: "2".to_owned(),
            now: "3".to_owned(),
        };
        let warnings = [
            (RunWarning::Setting(setting), "setting_changed_since"),
            (RunWarning::RunsFailed { failed_runs: 1, runs: 2 }, "runs_failed"),
            (RunWarning::KilledBySigbus, "killed_by_sigbus"),
        ];
        for (warning, code) in warnings {
            let warning = CompareWarning { mode: Some(Mode::Thp), warning };
            let json = serde_json::to_value(&warning).unwrap();
            assert_eq!((&json["code"], &json["mode"]), (&code.into(), &"thp".into()));
            assert_eq!(serde_json::from_value::<CompareWarning>(json).unwrap(), warning);
        }
    }
}
