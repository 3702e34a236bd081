//! Edge sources: repeatable streams of edges in blocks.

/// Edge between two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Source vertex.
    pub from: u64,
    /// Target vertex.
    pub to: u64,
    /// Weight; 0 in a source without weights.
    pub weight: u64,
}

/// Edges of a graph in a fixed order, in blocks that threads claim in any order. A build reads each
/// block twice, to count and to fill, so that it needs no edge list beside the graph.
pub trait EdgeSource: Sync {
    /// Returns the number of vertices. Vertex IDs are below it.
    fn vertices(&self) -> u64;
    /// Returns the number of edges in all blocks.
    fn edges(&self) -> u64;
    /// Whether edges have weights.
    fn is_weighted(&self) -> bool;
    /// Returns the number of blocks.
    fn blocks(&self) -> usize;
    /// Calls `each` for every edge of a block, the same each time.
    fn block(&self, block: usize, each: impl FnMut(Edge));
}

/// Edges in memory.
#[derive(Clone, Debug)]
pub struct EdgeList {
    /// Number of vertices.
    pub vertices: u64,
    /// Edges in any order.
    pub edges: Vec<Edge>,
    /// Whether edges have weights.
    pub weighted: bool,
}

/// Edges of a block.
const BLOCK: usize = 1 << 16;

impl EdgeList {
    /// Makes a list of unweighted edges.
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
