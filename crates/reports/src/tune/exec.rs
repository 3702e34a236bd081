//! Programs that ended during a tune, or that an exec replaced.

use hugepilot_record::Stop;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Programs that the process replaced by another one during the tune (exec), if their regions were
/// promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecReport {
    /// Number of these programs.
    pub programs: u64,
    /// Their regions that were verified on huge pages and not returned. The exec freed this memory,
    /// or the program did before.
    pub freed_regions: u64,
    /// Trials that the exec ended without a result.
    pub trials: u64,
}

/// Cause that freed every promoted region of a target at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FreedBy {
    /// The process started another program (exec), which was not decided about.
    Exec,
    /// The process ended in its trial.
    End,
}

impl From<FreedBy> for Stop {
    fn from(cause: FreedBy) -> Self {
        match cause {
            FreedBy::Exec => Self::TargetExeced,
            FreedBy::End => Self::TargetGone,
        }
    }
}
