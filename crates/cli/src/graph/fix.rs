//! What to do about what went wrong.

use std::io::ErrorKind;

use clap::error::ErrorKind::InvalidValue;
use hugepilot_graph::GraphError;

use crate::exit::Exit;

/// Ends the program: it was called wrongly.
pub(super) fn usage(message: &str) -> ! {
    clap::Error::raw(InvalidValue, format!("{message}\n")).exit()
}

/// Prints an error and what to do about it, and says which exit status it means.
pub(super) fn fail(error: &GraphError) -> Exit {
    eprintln!("hugepilot: {error}");
    if let GraphError::Memory(error) = error {
        error.fix().iter().for_each(|fix| eprintln!("fix: {fix}"));
        return Exit::Unsupported;
    }
    if let Some(fix) = fix(error) {
        eprintln!("fix: {fix}");
    }
    Exit::Error
}

/// For errors that do not say it themselves.
fn fix(error: &GraphError) -> Option<&'static str> {
    Some(match error {
        GraphError::InsufficientMemory { .. } => {
            "free memory, or need less: a smaller graph, one without --width 64, --directed, --weighted and --reorder, or, of a file, \
             --ignore-weights"
        }
        GraphError::Unweighted => {
            "take a graph with weights, such as a .wel or .wsg file, a list whose third column is read with --format wel, or a generated \
             one with --weighted; formats that need none are el, sg, galois, hpg and others"
        }
        GraphError::Vertex { .. } | GraphError::NoVertex { .. } => {
            "choose another one, or max-degree, or random"
        }
        GraphError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => {
                "look for the file; graphs that need none are kronecker:22, uniform:24:8 and grid:4096x4096"
            }
            ErrorKind::AlreadyExists => "choose another name, or have it replaced: --force",
            ErrorKind::PermissionDenied => {
                "be a user who may, or change the permissions of the file or of its directory"
            }
            ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull => {
                "make room there, or write to another disk"
            }
            _ => return None,
        },
        _ => return None,
    })
}
