//! Warnings of `run` and `compare`.

use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mode;
use crate::Stop;
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
    KilledBySigbus {
        /// File of a limit of the cgroup on pool pages; `None` without a limit.
        #[serde(default)]
        limit: Option<String>,
    },
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
    /// Promotion from outside reached less than half of the memory.
    ReachedLittle(PartialReach),
    /// A kernel setting that this command, or a killed one, changed.
    #[serde(untagged)]
    Setting(SettingWarning),
}

/// Memory that promotion from outside reached, the least of the runs with this warning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartialReach {
    /// Peak of anonymous memory on transparent huge pages.
    pub reached_bytes: Bytes,
    /// Peak of the resident set.
    pub memory_bytes: Bytes,
    /// Regions that hugepilot promoted.
    pub promoted_regions: u64,
    /// Time that hugepilot spent on promotion.
    pub promotion_seconds: f64,
    /// Time of the run.
    pub wall_seconds: f64,
    /// Cause of the last early end of a promotion; `null` if all ended by themselves.
    pub stopped: Option<Stop>,
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
            (RunWarning::KilledBySigbus { limit: None }, "killed_by_sigbus"),
        ];
        for (warning, code) in warnings {
            let warning = CompareWarning { mode: Some(Mode::Thp), warning };
            let json = serde_json::to_value(&warning).unwrap();
            assert_eq!((&json["code"], &json["mode"]), (&code.into(), &"thp".into()));
            assert_eq!(serde_json::from_value::<CompareWarning>(json).unwrap(), warning);
        }
    }
}
