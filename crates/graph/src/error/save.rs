//! Faults of output files.

use super::Help;
use crate::Format;

/// Fault of an output path or format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaveFault {
    /// The format is read only.
    #[error("{0} is read only")]
    ReadOnlyFormat(Format),
    /// The name of the file does not determine a format.
    #[error("the name does not determine a format")]
    UnknownFormat,
    /// The name is that of one of the four files, and not of their directory.
    #[error("four-files are written into a directory, and this is the name of a file in it")]
    FourFilesName,
    /// The name ends in the suffix of a compressed file.
    #[error("output is not compressed")]
    CompressedName {
        /// Name without the suffix.
        plain: String,
    },
    /// The file exists.
    #[error("the file exists")]
    Exists,
    /// The directory of the file does not exist.
    #[error("the directory does not exist")]
    NoDirectory,
    /// The path is a file, and the format requires a directory.
    #[error("not a directory: four-files are written into one")]
    NotDirectory,
    /// The path is a directory or a device.
    #[error("not a regular file")]
    NotFile,
    /// The format stores weights in 31 bits.
    #[error("weight {0} exceeds 31 bits")]
    WeightTooLarge(u64),
    /// The format cannot count the vertices.
    #[error("{vertices} vertices: the format counts at most {limit}")]
    TooManyVertices {
        /// Vertices of the graph.
        vertices: u64,
        /// Limit of the format.
        limit: u64,
    },
    /// The vertex IDs are not one for each vertex.
    #[error("{ids} vertex IDs for {vertices} vertices")]
    IdMismatch {
        /// Vertex IDs.
        ids: usize,
        /// Vertices of the graph.
        vertices: usize,
    },
    /// The format has no directed edges.
    #[error("{0} stores undirected graphs only")]
    Directed(Format),
}

impl SaveFault {
    /// Suggests fixes, most likely first.
    pub(crate) fn help(&self) -> Vec<Help> {
        match self {
            Self::ReadOnlyFormat(_) => vec![Help::WriteEdgeList],
            Self::UnknownFormat => vec![Help::NameOutputFormat],
            Self::FourFilesName => vec![Help::NameFourFilesDirectory],
            Self::CompressedName { plain } => vec![Help::CompressLater { plain: plain.clone() }],
            Self::Exists => vec![Help::Replace],
            Self::NoDirectory => vec![Help::CreateDirectory],
            Self::WeightTooLarge(_) | Self::TooManyVertices { .. } => vec![Help::WriteNative],
            Self::Directed(_) => vec![Help::Symmetrize],
            Self::NotDirectory | Self::NotFile | Self::IdMismatch { .. } => Vec::new(),
        }
    }
}
