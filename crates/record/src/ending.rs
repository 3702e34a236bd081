//! End of a program.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Exit with this status.
    Exited(i32),
    /// Death by this signal.
    Killed(i32),
}

impl Ending {
    /// Exit status as in shells: 128 plus the number of a signal.
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        }
    }
    /// Whether the program exited with status 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_have_the_status_of_shells() {
        assert_eq!([Ending::Exited(3), Ending::Killed(15)].map(Ending::code), [3, 143]);
        assert!(Ending::Exited(0).is_success() && !Ending::Killed(0).is_success());
    }
}
