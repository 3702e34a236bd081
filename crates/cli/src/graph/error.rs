//! Errors of graph commands, with fixes and exit status.

use clap::error::ErrorKind::InvalidValue;
use hugepilot_graph::GraphError;

use crate::exit::Exit;

/// Exits with a usage error.
pub(super) fn usage(message: &str) -> ! {
    clap::Error::raw(InvalidValue, format!("{message}\n")).exit()
}

/// Prints an error and its fixes. Returns the exit status.
pub(super) fn fail(error: &GraphError) -> Exit {
    eprintln!("hugepilot: {error}");
    for help in error.help() {
        eprintln!("help: {help}");
    }
    match error {
        GraphError::Memory(_) => Exit::Unsupported,
        _ => Exit::Error,
    }
}
