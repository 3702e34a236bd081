//! Warnings of `run` and `compare`.

use hugepilot_units::Bytes;
use serde::{Deserialize, Serialize};

use super::Mode;
use crate::Pid;
use crate::pool::PoolShortfall;
use crate::settings::Restored;

/// Warning of `run` and `compare`. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// A killed run had changed a kernel setting; it has its former value again.
    SettingRecovered {
        /// Process of that run.
        pid: Pid,
        /// Name of the setting.
        name: String,
        /// Its value, before that run and now.
        before: String,
        /// Value that the run set.
        set_to: String,
    },
    /// A kernel setting does not have its former value.
    SettingNotRestored {
        /// Name of the setting.
        name: String,
        /// Former value.
        before: String,
        /// Value that hugepilot set.
        set_to: String,
        /// Outcome.
        restored: Restored,
    },
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
}

/// Hugetlb pool with fewer free pages than requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolShortage {
    /// Page size of the pool.
    pub page_bytes: Bytes,
    /// Requested free pages.
    pub requested: u64,
    /// Causes.
    pub causes: Vec<PoolShortfall>,
}

/// Warning of `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareWarning {
    /// Mode; `null` if the warning is not about one.
    pub mode: Option<Mode>,
    /// Warning.
    #[serde(flatten)]
    pub warning: RunWarning,
}
