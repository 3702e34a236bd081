//! Programs that an exec replaced during a tune.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Programs that the process replaced by another one during the tune (exec), if their regions were
/// promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecReport {
    /// Number of these programs.
    pub programs: u64,
    /// Their regions that were verified on huge pages and not returned. The exec freed this memory.
    pub freed_regions: u64,
    /// Trials that the exec ended without a result.
    pub trials: u64,
}
