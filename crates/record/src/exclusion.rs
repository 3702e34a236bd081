//! Processes that a command excludes, with causes and help.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sentence::{Sentence, counted};

/// Failure to read a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessError {
    /// The error, with the object and the errno.
    pub error: String,
    /// Suggested actions; empty if none is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
}

impl Sentence for AccessError {
    fn text(&self) -> String {
        self.error.clone()
    }
    fn help(&self) -> Vec<String> {
        self.help.clone()
    }
}

/// Processes of a cgroup that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExcludedCount {
    /// Excluded processes.
    pub excluded: u64,
    /// All processes, including the excluded ones.
    pub processes: u64,
    /// Failure of the first.
    #[serde(flatten)]
    pub first: AccessError,
}

impl Sentence for ExcludedCount {
    fn text(&self) -> String {
        let Self { excluded, processes, first } = self;
        format!("{excluded} of {} excluded: {}", processes_were(*processes), first.text())
    }
    fn help(&self) -> Vec<String> {
        self.first.help()
    }
}

/// Number of processes, as the subject of a sentence.
pub fn processes_were(number: u64) -> String {
    counted(number, "process was", "processes were")
}
