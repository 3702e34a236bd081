//! Errors of experiments.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::runs::LabMachine;

/// Error of an experiment.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// A definition cannot be used.
    #[error("experiment {file}: {}", cause.trim_end())]
    Experiment {
        /// Its file or name.
        file: String,
        /// Place and cause.
        cause: String,
    },
    /// An experiment lacks a scale.
    #[error("experiment {experiment} has no scale {scale:?}")]
    NoScale {
        /// Experiment.
        experiment: String,
        /// Scale.
        scale: String,
    },
    /// A command line names an unknown variable.
    #[error("a command line names {{{name}}}, which the scale does not set")]
    NoVariable {
        /// Name.
        name: String,
    },
    /// A program that the user provides is absent.
    #[error("{environment} names no folder that holds {file}, and PATH has none")]
    NoTool {
        /// Environment variable.
        environment: String,
        /// File.
        file: String,
        /// Suggestion.
        help: String,
    },
    /// A line of a file of runs cannot be read.
    #[error("cannot read the runs of {}: line {line}: {cause}", path.display())]
    Runs {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Cause.
        cause: String,
    },
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// Operation, such as `read`.
        operation: &'static str,
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Runs of several machines.
    #[error("the runs are of {} machines: {}", machines.len(), listed(machines))]
    Mixed {
        /// The machines.
        machines: Vec<LabMachine>,
    },
    /// A command that prepares the experiment failed.
    #[error("hugepilot {command}: {cause}")]
    Command {
        /// Command line.
        command: String,
        /// Cause.
        cause: String,
    },
    /// Ended on request.
    #[error("interrupted; the runs until then are kept")]
    Interrupted,
}

fn listed(machines: &[LabMachine]) -> String {
    machines.iter().map(LabMachine::text).collect::<Vec<_>>().join("; ")
}

impl ExperimentError {
    pub(super) fn file(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { operation, path: path.to_owned(), source }
    }

    pub(super) fn runs(path: &Path, line: usize, cause: String) -> Self {
        Self::Runs { path: path.to_owned(), line, cause }
    }

    /// Suggestion for the user.
    pub fn help(&self) -> Option<&str> {
        Some(match self {
            Self::NoTool { help, .. } => help,
            Self::NoScale { .. } => "hugepilot lab list names the scales of each experiment",
            Self::Runs { .. } => "name another file: --output",
            Self::Mixed { .. } => "compare the machines apart, or permit several: --mixed",
            _ => return None,
        })
    }
}
