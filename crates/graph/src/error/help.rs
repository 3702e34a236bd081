//! Suggested fixes of errors.

use std::fmt;
use std::io::ErrorKind;

use super::{GraphError, GraphStep, NameKind};

/// Suggested fix. `Display` prints it without the `help:` prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Help {
    /// Fix of an allocation error.
    Memory(hugepilot_alloc::Help),
    /// Free memory, or use a smaller graph.
    NeedLess {
        /// Step that needs the memory.
        step: GraphStep,
    },
    /// Use 64-bit integers.
    Width64,
    /// Relabel vertices to consecutive IDs.
    Compact,
    /// State the vertices: their number, if known.
    StateVertices(Option<u64>),
    /// Choose another source vertex.
    OtherVertex,
    /// Use an undirected graph.
    Symmetrize,
    /// Use a weighted graph or a format without weights.
    Weights,
    /// Name the format of the input.
    NameFormat,
    /// Save the text as UTF-8.
    SaveAsUtf8,
    /// Choose a member of an archive.
    Member(String),
    /// Choose a reading of the input, by the flags in this text.
    Reading(&'static str),
    /// Decompress the input first.
    Decompress,
    /// Copy the input to a tmpfs.
    CopyToTmpfs,
    /// Convert line ends.
    ConvertLineEnds,
    /// Ignore the weights.
    IgnoreWeights,
    /// Scale and round the weights.
    ScaleWeights,
    /// Scale by a larger factor.
    LargerScale,
    /// Scale by a smaller factor.
    SmallerScale,
    /// Do not scale.
    DropScale,
    /// Generate a graph instead.
    Generate,
    /// Write an edge list.
    WriteEdgeList,
    /// Write the native format.
    WriteNative,
    /// Name the format of the output.
    NameOutputFormat,
    /// Name the directory of four-files.
    NameFourFilesDirectory,
    /// Compress the output afterwards.
    CompressLater {
        /// Name without the suffix.
        plain: String,
    },
    /// Replace the output.
    Replace,
    /// Create the directory of the output.
    CreateDirectory,
    /// Change the permissions.
    Permissions,
    /// Free disk space, or write elsewhere.
    OtherDisk,
    /// List the arrays and their pages.
    ListPages,
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(help) => return help.fmt(f),
            Self::NeedLess { step: GraphStep::Build } => {
                "free memory, use a smaller graph, or drop --width 64, --directed, --weighted or \
                 --reorder (for files: add --ignore-weights)"
            }
            Self::NeedLess { step: GraphStep::Relabel } => "free memory, or drop --reorder",
            Self::Width64 => "use 64-bit integers: --width 64",
            Self::Compact => "relabel vertices to consecutive IDs: --compact",
            Self::StateVertices(Some(vertices)) => {
                return write!(f, "if the number is correct, state it: --vertices {vertices}");
            }
            Self::StateVertices(None) => "state the number of vertices: --vertices N",
            Self::OtherVertex => "choose another vertex, max-degree or random: --source",
            Self::Symmetrize => "make edges undirected: --symmetrize, without --directed",
            Self::Weights => {
                "use a .wel or .wsg file, --format wel for a list with three columns, --weighted \
                 for a generated graph, or an output format without weights (el, sg, galois, hpg)"
            }
            Self::NameFormat => "name the format: --format FORMAT (`hugepilot graph info --help`)",
            Self::SaveAsUtf8 => "save the file as UTF-8",
            Self::Member(name) => return write!(f, "choose a member: --member {name}"),
            Self::Reading(text) => text,
            Self::Decompress => "decompress the file first",
            Self::CopyToTmpfs => "copy the file to /dev/shm, or use --load cached",
            Self::ConvertLineEnds => "convert the line ends: tr '\\r' '\\n' < OLD > NEW",
            Self::IgnoreWeights => "ignore the weights: --ignore-weights",
            Self::ScaleWeights => "scale and round the weights: --scale-weights FACTOR",
            Self::LargerScale => "use a larger factor: --scale-weights",
            Self::SmallerScale => "use a smaller factor: --scale-weights",
            Self::DropScale => "drop --scale-weights",
            Self::Generate => {
                "check the path, or use a generated graph: kronecker:22, uniform:24:8 or \
                 grid:4096x4096"
            }
            Self::WriteEdgeList => "write an edge list: --to el or --to wel",
            Self::WriteNative => "write the native format: --to hpg",
            Self::NameOutputFormat => {
                "name the format: --to FORMAT (el, wel, mtx, dimacs, metis, sg, wsg, galois, \
                 galois64, four-files or hpg)"
            }
            Self::NameFourFilesDirectory => "name the directory, and use --to four-files",
            Self::CompressLater { plain } => {
                return write!(f, "write {plain}, then compress it");
            }
            Self::Replace => "choose another name, or replace the file: --force",
            Self::CreateDirectory => "create the directory: mkdir -p DIRECTORY",
            Self::Permissions => "change the permissions of the file or its directory",
            Self::ListPages => "list arrays and pages: hugepilot graph run --help",
            Self::OtherDisk => "free space, or write to another disk",
        })
    }
}

impl GraphError {
    /// Suggests fixes, most likely first.
    pub fn help(&self) -> Vec<Help> {
        match self {
            Self::Memory(error) => error.help().map(Help::Memory).into_iter().collect(),
            Self::Distance { bits: 64 } => vec![Help::SmallerScale],
            Self::Width { .. } | Self::Distance { .. } => vec![Help::Width64],
            Self::InsufficientMemory { step, .. } => vec![Help::NeedLess { step: *step }],
            Self::Directed => vec![Help::Symmetrize],
            Self::Unweighted => vec![Help::Weights],
            Self::Vertex { .. } | Self::NoVertex { .. } => vec![Help::OtherVertex],
            Self::Load { fault, .. } => fault.help(),
            Self::Save { fault, .. } => fault.help(),
            Self::Io { source, .. } => of_io(source.kind()).into_iter().collect(),
            Self::UnknownName { kind: NameKind::Array | NameKind::Pages, .. } => {
                vec![Help::ListPages]
            }
            Self::UnknownName { .. } | Self::InvalidMap { .. } => Vec::new(),
        }
    }
}

fn of_io(kind: ErrorKind) -> Option<Help> {
    match kind {
        ErrorKind::NotFound => Some(Help::Generate),
        ErrorKind::AlreadyExists => Some(Help::Replace),
        ErrorKind::PermissionDenied => Some(Help::Permissions),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull => Some(Help::OtherDisk),
        _ => None,
    }
}
