//! What can go wrong, with the cause.

use hugepilot_alloc::AllocError;
use hugepilot_kernel::KernelError;
use hugepilot_units::Bytes;

/// This crate's result.
pub type Result<T> = std::result::Result<T, GraphError>;

/// Why there is no graph, or no result.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Memory is not to be had as it was asked for.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// No such pages.
    #[error(
        "{found:?} names no pages; there are base, thp, thp:20%, collapse, collapse:20%, hugetlb and hugetlb-1g"
    )]
    Pages {
        /// What was there.
        found: String,
    },
    /// No such array.
    #[error(
        "no array is called {found:?}; there are offsets, edges, weights, in-offsets, in-edges, in-weights, property and worklist"
    )]
    Array {
        /// What was there.
        found: String,
    },
    /// No such order.
    #[error(
        "no order is called {found:?}; there are dbg, hub-sort, hub-cluster, sort, random, random:SEED and rcm"
    )]
    Order {
        /// What was there.
        found: String,
    },
    /// New numbers that are not one to one.
    #[error(
        "vertex {old} has the new number {new}, which another has, too, or which is beyond the last"
    )]
    InvalidMap {
        /// Its old number.
        old: u64,
        /// The new one.
        new: u64,
    },
    /// A vertex number beyond the last.
    #[error("vertex {id} in a graph of {vertices}")]
    Vertex {
        /// The number.
        id: u64,
        /// How many there are.
        vertices: u64,
    },
    /// A vertex that a file with numbers of its own does not have.
    #[error("no vertex has the number {id}")]
    NoVertex {
        /// The number.
        id: u64,
    },
    /// More vertices or edges than numbers of that width count.
    #[error("{count} {what} are more than {bits} bits count; use --width 64")]
    Width {
        /// Vertices or edges.
        what: &'static str,
        /// How many.
        count: u64,
        /// The width.
        bits: u32,
    },
    /// It would not fit.
    #[error("building needs {needed}, {available} are available")]
    InsufficientMemory {
        /// At its peak.
        needed: Bytes,
        /// Now.
        available: Bytes,
    },
    /// A kernel that needs edges without a direction.
    #[error("triangles are those of an undirected graph; use --symmetrize instead of --directed")]
    Directed,
    /// A kernel that needs weights.
    #[error("the graph has no weights")]
    Unweighted,
    /// No such format.
    #[error(
        "{found:?} names no format; there are el, wel, mtx, dimacs, metis, ldbc, sg, wsg, galois, galois64, four-files and hpg"
    )]
    NoFormat {
        /// What was there.
        found: String,
    },
    /// No such way to read a file.
    #[error("{found:?} is no way to load; there are direct, drop, cached and tmpfs")]
    NoLoadMode {
        /// What was there.
        found: String,
    },
    /// A file that is not what it should be.
    #[error("{place}: {what}")]
    Format {
        /// File and line or byte.
        place: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<KernelError> for GraphError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Read { path, source } | KernelError::Write { path, source } => {
                Self::Io { path: path.display().to_string(), source }
            }
            other => Self::Io { path: String::new(), source: std::io::Error::other(other) },
        }
    }
}

/// The advice in every error that wider numbers would not have.
pub(crate) const WIDER: &str = "use --width 64";

impl GraphError {
    /// Whether numbers of 32 bits were too narrow, and those of 64 may do.
    pub fn is_too_narrow(&self) -> bool {
        match self {
            Self::Width { bits, .. } => *bits <= u32::BITS,
            Self::Format { what, .. } => what.contains(WIDER),
            _ => false,
        }
    }
}
