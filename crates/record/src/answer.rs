//! Answer to the question whether huge pages would help a process.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether huge pages would help a process, in a word that all commands share. The text is that of
/// JSON, with blanks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Huge pages gain, or would.
    Gain,
    /// Huge pages gain nothing, or nothing more.
    NoGain,
    /// The stalls are on memory that cannot get huge pages, or must not.
    Blocked,
    /// Too little is known.
    #[default]
    CannotTell,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self {
            Self::Gain => "gain",
            Self::NoGain => "no_gain",
            Self::Blocked => "blocked",
            Self::CannotTell => "cannot_tell",
        };
        f.write_str(&code.replace('_', " "))
    }
}
