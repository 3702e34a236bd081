//! The report of `hugepilot graph`: what the graph is, what a kernel found, how long each phase took, and
//! on which pages each array was.
//!
//! If you change a field here, say so in CHANGELOG.md; if you remove or redefine one, raise the number in [`SCHEMA`].

use hugepilot_units::Bytes;
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.graph/1";

/// All of it. Where there was no kernel, the graph and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// `kronecker:22`, or the file.
    pub source: String,
    /// What was read; `null` for a generated graph.
    pub file: Option<FileFacts>,
    /// What the graph is.
    pub graph: GraphFacts,
    /// Bits of vertex numbers, offsets and weights.
    pub width_bits: u32,
    /// Why these are 64 where nobody asked for it; else `null`.
    pub widened: Option<String>,
    /// Memory that making the graph could take at its peak, as it was stated before.
    pub peak_bytes: Bytes,
    /// How many worked.
    pub threads: usize,
    /// The pages of each array, as asked for.
    pub pages: String,
    /// Whether the kernel's properties were mapped and touched before the graph was built.
    #[serde(default)]
    pub property_first: bool,
    /// What vertices were numbered by; `null` for the numbers of the source.
    pub order: Option<String>,
    /// Seconds of each phase; those of the kernel are medians over trials.
    pub phases: Phases,
    /// The kernel; `null` without one.
    pub kernel: Option<String>,
    /// Each run of it.
    pub trials: Vec<Trial>,
    /// Each array, once however often it is there.
    pub arrays: Vec<ArrayPages>,
    /// Whether the result held; `null` where nobody asked.
    pub verified: Option<bool>,
    /// What does not hold of a result that did not.
    pub wrong: Option<String>,
    /// What was found, without a vertex number that depends on the order.
    pub result: Option<KernelResult>,
    /// Where the result for each vertex was written; `null` where nobody asked, and where it did not hold.
    pub output: Option<String>,
    /// What the graph was written to; `null` but for `convert`, `generate` and `reorder`.
    pub written: Option<Written>,
}

/// A file that a graph was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// How long it is, or all of them where they are several.
    pub bytes: Bytes,
    /// As in `--format`.
    pub format: String,
    /// `gzip` or `zstd`; `null` if it is not packed.
    pub packed: Option<String>,
    /// How it was read, as in `--load`: `drop` also where `direct` was asked for and not to be had.
    pub loading: String,
    /// Whether vertices are counted anew, and results told under the numbers that the file has.
    pub compacted: bool,
}

/// A file that a graph was written to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its name.
    pub path: String,
    /// As in `--to`.
    pub format: String,
    /// How long it is, or all of them where they are several.
    pub bytes: Bytes,
    /// Which number of the source became which; `null` where numbers are the same or in the file itself.
    pub map: Option<String>,
}

/// What a graph is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphFacts {
    /// How many.
    pub vertices: u64,
    /// How many; those of an undirected graph once.
    pub edges: u64,
    /// Whether edges have a direction.
    pub directed: bool,
    /// Whether they have weights.
    pub weighted: bool,
    /// Edges of the source from a vertex to itself.
    pub self_loops_removed: u64,
    /// Edges of the source that were there already; in an undirected graph, in either direction. With `edges` and the self-loops they
    /// are as many as the source gave, rows with each edge at both ends giving it once.
    pub duplicates_removed: u64,
    /// Vertices without any edge.
    pub isolated: u64,
    /// Edges of the vertex that most leave.
    pub max_degree: u64,
    /// How many vertices are in each group of degree-based grouping, the hottest first.
    pub dbg_group_sizes: [u64; 8],
}

/// Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Reading a file; `null` for a generated graph, whose numbers are made while it is built.
    pub load_seconds: Option<f64>,
    /// Building the arrays: both passes over the source, sorting, dropping duplicates, the inverse.
    pub build_seconds: f64,
    /// New numbers and the graph under them.
    pub reorder_seconds: Option<f64>,
    /// Writing it to a file, until that is on the disk.
    pub save_seconds: Option<f64>,
    /// Mapping the kernel's arrays, whenever that was.
    pub allocate_seconds: Option<f64>,
    /// Writing its properties the first time, and the page faults of those that came before the graph.
    pub first_touch_seconds: Option<f64>,
    /// The rest of it.
    pub kernel_seconds: Option<f64>,
}

/// One run of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The vertex it began at, by its number in the source; `null` for kernels that begin everywhere.
    pub source: Option<u64>,
    /// Mapping, first touch and the kernel together, as the GAP benchmark suite counts.
    pub seconds: f64,
}

/// The pages of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPages {
    /// Its name, as in `--pages`.
    pub name: String,
    /// All of it.
    pub bytes: Bytes,
    /// On huge pages of any kind, at the end.
    pub huge_bytes: Bytes,
}

/// A vertex by its number in the source, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Its number.
    pub vertex: u64,
    /// What it has.
    pub value: f64,
}

/// What a kernel found, of the last trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelResult {
    /// Breadth-first search.
    Bfs {
        /// Vertices, the source among them.
        reached: u64,
        /// How many at each distance.
        level_sizes: Vec<u64>,
    },
    /// Shortest ways.
    Sssp {
        /// Vertices, the source among them.
        reached: u64,
        /// Of all distances.
        distance_sum: u128,
        /// The largest.
        distance_max: u64,
    },
    /// `PageRank`.
    Pr {
        /// Of all ranks: 1 unless what dangles is dropped.
        sum: f64,
        /// The highest ranks.
        top: Vec<Ranked>,
        /// How many were done.
        iterations: u64,
        /// By how much ranks changed in the last, in sum.
        residual: f64,
        /// Whether that is the tolerance that was asked for, or less; `null` in reports that do not say.
        #[serde(default)]
        converged: Option<bool>,
    },
    /// Connected components.
    Cc {
        /// How many.
        components: u64,
        /// Vertices of the largest.
        largest: u64,
    },
    /// Betweenness.
    Bc {
        /// The highest scores.
        top: Vec<Ranked>,
    },
    /// The longest shortest way.
    Diameter {
        /// One is that long.
        lower_bound: u64,
    },
    /// Triangles.
    Tc {
        /// How many.
        triangles: u64,
    },
}
