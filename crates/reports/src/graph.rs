//! Report of `hugepilot graph`: the graph, the result of a kernel, phase times and array pages.

pub(crate) mod text;

use std::fmt;

use hugepilot_record::sentence::{Sentence, number};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.graph/2";

/// Report of one graph command. Kernel fields are empty or `null` if no kernel ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Input graph: `kronecker:22`, or a path.
    pub input: String,
    /// Input file; `null` for a generated graph.
    pub file: Option<InputFile>,
    /// Size and shape of the graph.
    pub graph: GraphFacts,
    /// Bits of vertex IDs, offsets and weights.
    pub width_bits: u32,
    /// Cause of a width of 64 bits if `--width` did not request it; else `null`.
    pub widened: Option<String>,
    /// Upper bound on the memory that making the graph takes, as stated before the build.
    pub peak_bytes: Bytes,
    /// Threads.
    pub threads: usize,
    /// Requested page plan, as in `--pages`.
    pub pages: String,
    /// Memory that is mapped and touched first, as in `--alloc-order`.
    pub alloc_order: AllocOrder,
    /// Vertex order, as in `--reorder`; `null` for the IDs of the input.
    pub reorder: Option<String>,
    /// Seconds of each phase; medians over trials for the phases of the kernel.
    pub phases: Phases,
    /// Kernel; `null` without one.
    pub kernel: Option<String>,
    /// Runs of the kernel.
    pub trials: Vec<Trial>,
    /// Pages by array name. An entry sums all arrays of that name.
    pub arrays: Vec<ArrayPages>,
    /// Whether the verifier accepted every result; `null` without `--verify`.
    pub verified: Option<bool>,
    /// First error that the verifier found.
    pub verify_error: Option<String>,
    /// Result of the last trial, under the vertex IDs of the input.
    pub result: Option<KernelResult>,
    /// Path of the result for each vertex; `null` without `--output`, and if the result is wrong.
    pub output: Option<String>,
    /// File of the graph; `null` except for `convert`, `generate` and `reorder`.
    pub written: Option<OutputFile>,
    /// Observations that call for an action.
    #[serde(default)]
    pub warnings: Vec<GraphWarning>,
}

/// Memory that is mapped and touched first, and so gets scarce huge pages first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AllocOrder {
    /// The arrays of the graph.
    #[default]
    Natural,
    /// The property arrays of the kernel.
    PropertyFirst,
}

impl fmt::Display for AllocOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Natural => "natural",
            Self::PropertyFirst => "property-first",
        })
    }
}

/// File that a graph was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// File size; the sum if the graph is in several files.
    pub bytes: Bytes,
    /// Format, as in `--format`.
    pub format: String,
    /// Compression: `gzip` or `zstd`; `null` without.
    pub compression: Option<String>,
    /// Load mode, as in `--load`: `drop` also if the file system does not support `direct`.
    pub load_mode: String,
    /// Whether vertices were relabelled to consecutive IDs. Results carry the IDs of the file.
    pub compacted: bool,
    /// Roles of the columns of an edge list: `source`, `target`, `weight`, `type`, or `-` for an
    /// ignored one. Empty for other formats.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Whether the first line of an edge list states its vertices and edges.
    #[serde(default)]
    pub count_line: bool,
    /// ID of the first vertex: 0 or 1; `null` if vertices have any IDs.
    #[serde(default)]
    pub first_id: Option<u64>,
    /// Sources of a bipartite graph; the IDs of its targets follow theirs. `null` for others.
    #[serde(default)]
    pub bipartite_sources: Option<u64>,
    /// Cause of `graph.directed`: `stated` by the file or its format; `symmetric` if each edge is
    /// there in both directions; `requested`; `kernel` if that requires an undirected graph;
    /// `unstated` if the file states no directions, so that edges have none.
    #[serde(default)]
    pub direction_cause: String,
}

/// File that a graph was written to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputFile {
    /// Path.
    pub path: String,
    /// Format, as in `--to`.
    pub format: String,
    /// File size; the sum if the graph is in several files.
    pub bytes: Bytes,
    /// Path of the map from old to new vertex IDs; `null` if the IDs are unchanged or in the file.
    pub map: Option<String>,
}

/// Size and shape of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphFacts {
    /// Vertices.
    pub vertices: u64,
    /// Edges; an undirected edge counts once.
    pub edges: u64,
    /// Whether edges have a direction.
    pub directed: bool,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Self-loops of the input.
    pub self_loops_removed: u64,
    /// Repeated edges of the input; in an undirected graph, repeated in either direction. With
    /// `edges` and the self-loops they sum to the edges of the input. An input that lists each
    /// undirected edge in both rows counts it once.
    pub duplicates_removed: u64,
    /// Vertices without edges.
    pub isolated: u64,
    /// Highest out-degree.
    pub max_degree: u64,
    /// Vertices in each group of degree-based grouping, highest degrees first.
    pub dbg_group_sizes: [u64; 8],
}

/// Seconds of each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Reading the file; `null` for a generated graph, whose edges are made during the build.
    pub load_seconds: Option<f64>,
    /// Building the arrays: two passes over the input, sorting, deduplication, the transpose.
    pub build_seconds: f64,
    /// Computing the new vertex order, and building the relabelled graph.
    pub reorder_seconds: Option<f64>,
    /// Writing the graph to a file, including `fsync`.
    pub save_seconds: Option<f64>,
    /// Mapping the arrays of the kernel, before or after the build.
    pub allocate_seconds: Option<f64>,
    /// First writes to the property arrays, including the page faults of those mapped early.
    pub first_touch_seconds: Option<f64>,
    /// Remaining time of the kernel.
    pub kernel_seconds: Option<f64>,
}

/// Run of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Source vertex, by its ID in the input; `null` for kernels without one.
    pub source: Option<u64>,
    /// Mapping, first touch and the kernel together, as in the GAP benchmark suite.
    pub seconds: f64,
}

/// Pages of all arrays of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayPages {
    /// Name, as in `--pages`.
    pub name: String,
    /// Size.
    pub bytes: Bytes,
    /// Memory on huge pages of any kind at the end.
    pub huge_bytes: Bytes,
}

/// Vertex with a high rank or score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedVertex {
    /// Vertex ID in the input.
    pub vertex: u64,
    /// Rank or score.
    pub value: f64,
}

/// Result of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KernelResult {
    /// Breadth-first search.
    Bfs {
        /// Reached vertices, including the source.
        reached: u64,
        /// Vertices at each distance.
        level_sizes: Vec<u64>,
    },
    /// Single-source shortest paths.
    Sssp {
        /// Reached vertices, including the source.
        reached: u64,
        /// Sum of all distances.
        distance_sum: u128,
        /// Largest distance.
        distance_max: u64,
    },
    /// `PageRank`.
    Pr {
        /// Sum of all ranks: 1 unless dangling ranks are dropped.
        sum: f64,
        /// Highest ranks.
        top: Vec<RankedVertex>,
        /// Iterations.
        iterations: u64,
        /// Sum of the rank changes in the last iteration.
        residual: f64,
        /// Whether the residual is within the tolerance; `null` in reports without this field.
        #[serde(default)]
        converged: Option<bool>,
    },
    /// Connected components.
    Cc {
        /// Components.
        components: u64,
        /// Vertices of the largest component.
        largest: u64,
        /// Whether the graph is directed: components ignore directions.
        #[serde(default)]
        ignores_directions: bool,
    },
    /// Betweenness centrality.
    Bc {
        /// Highest scores.
        top: Vec<RankedVertex>,
    },
    /// Diameter.
    Diameter {
        /// Edges of a shortest path; the diameter is at least this long.
        lower_bound: u64,
    },
    /// Triangle counting.
    Tc {
        /// Triangles.
        triangles: u64,
    },
}

/// Warning of a graph command. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum GraphWarning {
    /// Many vertices have no edge because their IDs do not occur in the edge list.
    #[text(
        "{} of {} vertices have no edge, because their IDs do not occur in the file; each array \
         per vertex has room for them",
        number(*unused_ids), number(*vertices)
    )]
    #[help("relabel vertices to consecutive IDs: --compact")]
    VertexIdGaps {
        /// Vertices of the graph: the largest ID plus 1.
        vertices: u64,
        /// Vertices whose IDs do not occur.
        unused_ids: u64,
    },
    /// A comment of an edge list states another count than the file has.
    #[text("a comment states {} {what}, the file has {}", number(*stated), number(*found))]
    #[help("check that the file is complete: compare its size with its origin")]
    StatedCountDiffers {
        /// `vertices` or `edges`.
        what: String,
        /// Count in the comment.
        stated: u64,
        /// Count in the file.
        found: u64,
    },
    /// The output format counts vertex IDs from another number than the input.
    #[text("{format} counts vertex IDs from {output_first_id}, the input from {input_first_id}")]
    #[help("keep the IDs of the input: --to hpg")]
    IdsShifted {
        /// Output format.
        format: String,
        /// First ID of the input.
        input_first_id: u64,
        /// First ID of the output.
        output_first_id: u64,
    },
    /// The output format does not store whether edges have a direction, and these have.
    #[text("{format} does not store that the edges have a direction")]
    #[help("state it when reading the file: --directed")]
    DirectionsDropped {
        /// Output format.
        format: String,
    },
    /// The output format does not store weights.
    #[text("{format} does not store weights; the file has none")]
    #[help("store them: --to {weighted_format}")]
    WeightsDropped {
        /// Output format.
        format: String,
        /// Similar format that stores weights.
        weighted_format: String,
    },
    /// The output format does not store isolated vertices.
    #[text(
        "{format} does not store vertices without edges; {dropped} of {vertices} are not in the \
         file"
    )]
    #[help(if *original_ids, "store them: --to hpg")]
    #[help(if !original_ids, "restore them when reading the file: --vertices {vertices}")]
    IsolatedVerticesDropped {
        /// Output format.
        format: String,
        /// Vertices that are not in the file.
        dropped: u64,
        /// Vertices of the graph.
        vertices: u64,
        /// Whether the file carries the vertex IDs of the input, so that `--vertices` cannot
        /// restore the dropped ones.
        original_ids: bool,
    },
    /// A map from an earlier command stands beside the output, and does not belong to it.
    #[text("{path} is from an earlier command; it does not belong to the new file")]
    #[help("remove it: rm {path}")]
    StaleMap {
        /// Path of the map.
        path: String,
    },
}
