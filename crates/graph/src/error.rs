//! Errors of graph building, loading, saving and kernels.

mod help;
mod load;
mod save;

use std::fmt;
use std::path::{Path, PathBuf};

use hugepilot_alloc::AllocError;
use hugepilot_kernel::KernelError;
use hugepilot_units::Bytes;

pub use self::help::Help;
pub use self::load::{Excerpt, LoadFault};
pub use self::save::SaveFault;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, GraphError>;

/// Failure of a graph operation. [`GraphError::help`] suggests fixes.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The requested pages are unavailable.
    #[error("cannot allocate an array: {0}")]
    Memory(#[from] AllocError),
    /// A name is not among the known ones.
    #[error("unknown {kind} {found:?}: expected {}", kind.choices())]
    UnknownName {
        /// Category of the name.
        kind: NameKind,
        /// Name as given.
        found: String,
    },
    /// A vertex map is not one-to-one.
    #[error("cannot relabel vertex {old}: new ID {new} is out of range or assigned twice")]
    InvalidMap {
        /// Old vertex ID.
        old: u64,
        /// New vertex ID.
        new: u64,
    },
    /// A vertex ID is out of range.
    #[error("cannot find vertex {id}: the graph has {vertices} vertices")]
    Vertex {
        /// Vertex ID.
        id: u64,
        /// Vertices of the graph.
        vertices: u64,
    },
    /// A vertex ID does not occur in the input file.
    #[error("cannot find vertex {id}: the input does not contain this ID")]
    NoVertex {
        /// Vertex ID.
        id: u64,
    },
    /// The integer width is too small for the vertices or edges.
    #[error("cannot count {count} {what}: {bits} bits are too few")]
    Width {
        /// `vertices` or `edges`.
        what: &'static str,
        /// Vertices or edges.
        count: u64,
        /// Integer width.
        bits: u32,
    },
    /// A distance exceeds the integer width.
    #[error("cannot compute shortest paths: a distance exceeds {bits} bits")]
    Distance {
        /// Integer width.
        bits: u32,
    },
    /// The memory required exceeds the memory available.
    #[error("cannot {step} the graph: {needed} required, {available} available")]
    InsufficientMemory {
        /// Step that needs the memory.
        step: GraphStep,
        /// Required at the peak.
        needed: Bytes,
        /// Available now.
        available: Bytes,
    },
    /// Triangle counting requires an undirected graph.
    #[error("cannot count triangles: the graph is directed")]
    Directed,
    /// The kernel or the output format requires weights.
    #[error("weights required: the graph has no weights")]
    Unweighted,
    /// An input file is invalid, or does not match the load options.
    #[error("cannot load {place}: {fault}")]
    Load {
        /// Location of the fault.
        place: Place,
        /// Cause.
        fault: LoadFault,
    },
    /// The output path or format cannot hold the graph.
    #[error("cannot write {}: {fault}", path.display())]
    Save {
        /// Output path.
        path: PathBuf,
        /// Cause.
        fault: SaveFault,
    },
    /// A system call on a file failed.
    #[error("cannot {access} {path}: {source}")]
    Io {
        /// Kind of access.
        access: Access,
        /// Path.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
}

/// Category of a name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Page backing.
    Pages,
    /// Array of a graph or kernel.
    Array,
    /// Vertex order.
    VertexOrder,
    /// File format.
    Format,
    /// Load mode.
    LoadMode,
}

impl NameKind {
    /// Lists the known names.
    const fn choices(self) -> &'static str {
        match self {
            Self::Pages => {
                "base, system, thp, thp:20%, collapse, collapse:20%, hugetlb or hugetlb-1g"
            }
            Self::Array => {
                "offsets, edges, weights, in-offsets, in-edges, in-weights, property, worklist \
                 or all"
            }
            Self::VertexOrder => "dbg, hub-sort, hub-cluster, sort, random, random:SEED or rcm",
            Self::Format => {
                "el, wel, mtx, dimacs, metis, ldbc, sg, wsg, galois, galois64, four-files or hpg"
            }
            Self::LoadMode => "direct, drop, cached or tmpfs",
        }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pages => "pages",
            Self::Array => "array",
            Self::VertexOrder => "vertex order",
            Self::Format => "format",
            Self::LoadMode => "load mode",
        })
    }
}

/// Step of making a graph that needs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphStep {
    /// Building the arrays, with the edges of the file beside them.
    Build,
    /// Building the relabelled graph beside the old one.
    Relabel,
}

/// Imperative form, as in "cannot build the graph".
impl fmt::Display for GraphStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Build => "build",
            Self::Relabel => "relabel",
        })
    }
}

/// Kind of file access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Opening or reading.
    Read,
    /// Creating or writing.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// Location in an input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file.
    pub path: PathBuf,
    /// Position in the file.
    pub position: Position,
}

/// Position in an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The file as a whole.
    Whole,
    /// Line, from 1.
    Line(u64),
    /// Byte, from 0.
    Byte(u64),
    /// Byte of the decompressed text, from 0.
    DecompressedByte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.position {
            Position::Whole => write!(f, "{path}"),
            Position::Line(line) => write!(f, "{path}:{line}"),
            Position::Byte(byte) => write!(f, "{path}, byte {byte}"),
            Position::DecompressedByte(byte) => {
                write!(f, "{path}, byte {byte} of the decompressed text")
            }
        }
    }
}

impl From<KernelError> for GraphError {
    fn from(error: KernelError) -> Self {
        let (access, path, source) = match error {
            KernelError::Read { path, source } => (Access::Read, path, source),
            KernelError::Write { path, source } => (Access::Write, path, source),
            other => (Access::Read, PathBuf::new(), std::io::Error::other(other)),
        };
        Self::Io { access, path: path.display().to_string(), source }
    }
}

impl GraphError {
    /// Reports a fault at a position of an input file.
    pub(crate) fn load(path: &Path, position: Position, fault: LoadFault) -> Self {
        Self::Load { place: Place { path: path.to_owned(), position }, fault }
    }

    /// Reports a fault of an output file.
    pub fn save(path: &Path, fault: SaveFault) -> Self {
        Self::Save { path: path.to_owned(), fault }
    }

    /// Reports a failed system call on a file.
    pub fn io(access: Access, path: &Path, source: std::io::Error) -> Self {
        Self::Io { access, path: path.display().to_string(), source }
    }

    /// Whether 32-bit integers were too narrow and 64 bits may suffice.
    pub fn is_too_narrow(&self) -> bool {
        match self {
            Self::Width { bits, .. } | Self::Distance { bits } => *bits <= u32::BITS,
            Self::Load { fault, .. } => fault.is_too_narrow(),
            _ => false,
        }
    }
}
