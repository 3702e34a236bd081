//! Exit status.

use std::process::ExitCode;

/// What the caller learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, and the answer is yes.
    Yes = 0,
    /// Done, and the answer is no: nothing to gain, a check failed.
    No = 1,
    /// Bad usage, bad input, or an I/O error.
    Error = 2,
    /// This kernel or this user may not do that; `doctor` says why.
    Unsupported = 3,
    /// Ctrl-C or SIGTERM, before there was anything to report.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
