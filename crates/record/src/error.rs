//! Error that ends a command, as `--json` prints it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.error/1";

/// Error that ended a command before its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Failure in one sentence, without a period.
    pub error: String,
    /// Cause; `null` if unknown, or if `error` states it.
    pub cause: Option<String>,
    /// Suggested actions, as commands if possible; the likeliest first.
    pub help: Vec<String>,
    /// Exit status of the command.
    pub exit: u8,
}
