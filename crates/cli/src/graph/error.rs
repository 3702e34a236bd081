//! Errors of graph commands, with fixes and exit status.

use clap::error::ErrorKind::InvalidValue;
use hugepilot_graph::GraphError;
use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{OwnMemory, Root};

use crate::exit::Exit;
use crate::failure::Failure;

/// Exits with a usage error.
pub(super) fn usage(message: &str) -> ! {
    let message = printable(message.as_bytes());
    crate::refuse_usage(&clap::Error::raw(InvalidValue, format!("{message}\n")))
}

/// Error with its fixes and exit status.
pub(super) fn failure(error: &GraphError) -> Failure {
    let exit = match error {
        GraphError::Memory(_) => Exit::Unsupported,
        _ => Exit::Error,
    };
    let failure = Failure::new(error.to_string(), exit);
    let failure = match error {
        GraphError::InsufficientMemory { .. } => {
            failure.because(OwnMemory::read(&Root::live()).to_string())
        }
        _ => failure,
    };
    failure.with_help(error.help().iter().map(ToString::to_string))
}
