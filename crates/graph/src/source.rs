//! Where edges come from, block by block, as often as they are asked for.

/// An edge from one vertex to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it begins.
    pub from: u64,
    /// Where it ends.
    pub to: u64,
    /// How long it is; 0 in a source without weights.
    pub weight: u64,
}

/// The edges of a graph in a fixed order, cut into blocks that threads take in any order. A builder asks for each block twice,
/// once to count and once to fill, so that no list of edges is kept beside the graph.
pub trait EdgeSource: Sync {
    /// How many vertices: each edge joins two below.
    fn vertices(&self) -> u64;
    /// How many edges in all blocks.
    fn edges(&self) -> u64;
    /// Whether edges have weights.
    fn is_weighted(&self) -> bool;
    /// How many blocks there are.
    fn blocks(&self) -> usize;
    /// Calls `each` with the edges of a block, always the same.
    fn block(&self, block: usize, each: impl FnMut(Edge));
}

/// Edges that are in memory already.
#[derive(Clone, Debug)]
pub struct EdgeList {
    /// More than the largest number of a vertex.
    pub vertices: u64,
    /// In any order.
    pub edges: Vec<Edge>,
    /// Whether the weights mean something.
    pub weighted: bool,
}

/// Edges in a block of a list.
const BLOCK: usize = 1 << 16;

impl EdgeList {
    /// Unweighted edges between `vertices` vertices.
    pub fn new(vertices: u64, edges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let edges = edges.into_iter().map(|(from, to)| Edge { from, to, weight: 0 }).collect();
        Self { vertices, edges, weighted: false }
    }
}

impl EdgeSource for EdgeList {
    fn vertices(&self) -> u64 {
        self.vertices
    }
    fn edges(&self) -> u64 {
        self.edges.len() as u64
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        self.edges.len().div_ceil(BLOCK)
    }
    fn block(&self, block: usize, each: impl FnMut(Edge)) {
        let start = block * BLOCK;
        self.edges[start..(start + BLOCK).min(self.edges.len())].iter().copied().for_each(each);
    }
}
