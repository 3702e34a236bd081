//! Build of compressed sparse rows from unordered edges.
//!
//! Two passes over the source, one to count and one to fill, avoid an edge list. At the peak,
//! memory holds the rows before deduplication, the offsets, and a part of the edges (`bins.rs`).
//! The rows of an undirected graph hold each edge twice.

mod bins;
mod rows;

use hugepilot_alloc::cells;
use hugepilot_units::Bytes;

use self::bins::Bins;
use self::rows::Rows;
use crate::csr::DroppedEdges;
use crate::pages::Array;
use crate::source::{Edge, EdgeSource};
use crate::width::Cell;
use crate::{Csr, Graph, GraphError, PagePlan, Result, ThreadPool, Width};

/// Build options.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Whether edges are directed. Otherwise each edge enters the rows of both vertices.
    pub directed: bool,
    /// Pages of the arrays.
    pub pages: PagePlan,
    /// Threads.
    pub pool: ThreadPool,
}

/// Array names of one direction.
#[derive(Clone, Copy, Debug)]
struct ArrayNames {
    offsets: Array,
    edges: Array,
    weights: Array,
}

const OUT: ArrayNames =
    ArrayNames { offsets: Array::Offsets, edges: Array::Edges, weights: Array::Weights };
const IN: ArrayNames =
    ArrayNames { offsets: Array::InOffsets, edges: Array::InEdges, weights: Array::InWeights };

impl Build {
    /// Returns an estimate of the memory at the peak, and an upper bound if blocks are alike: the
    /// rows before deduplication, and at most a quarter of them beside large graphs. This is less
    /// than twice the finished graph, unless more than a third of the edges are duplicates. Sorting
    /// takes the longest weighted row once more.
    pub fn peak<V: Width>(&self, source: &impl EdgeSource) -> Bytes {
        self.arrays::<V>(source) + bins::memory::<V>(source, !self.directed, self.pool)
    }

    /// Returns the memory of the graph before deduplication.
    pub fn arrays<V: Width>(&self, source: &impl EdgeSource) -> Bytes {
        let width = size_of::<V>() as u64;
        let per_edge = width * if source.is_weighted() { 2 } else { 1 };
        // Directed or not, each edge is in two rows. Offsets exist once per direction.
        let offsets = Bytes::new(if self.directed { 2 * width } else { width });
        Bytes::new(2 * per_edge).times(source.edges())
            + offsets.times(source.vertices().saturating_add(1))
    }

    /// Builds a graph.
    ///
    /// # Errors
    /// [`GraphError::Width`] for more vertices or edges than `V` counts, [`GraphError::Vertex`] for
    /// an edge to a missing vertex, [`GraphError::Memory`].
    pub fn graph<V: Width>(&self, source: &impl EdgeSource) -> Result<Graph<V>> {
        check_width::<V>("vertices", source.vertices())?;
        check_width::<V>("edges", source.edges().saturating_mul(2))?;
        let mut dropped = DroppedEdges::default();
        let out = self.rows::<V>(source, OUT, &mut dropped)?;
        let transpose = if self.directed { Some(self.transpose(&out)?) } else { None };
        Ok(Graph { out, transpose, dropped })
    }

    fn rows<V: Width>(
        &self,
        source: &impl EdgeSource,
        names: ArrayNames,
        dropped: &mut DroppedEdges,
    ) -> Result<Csr<V>> {
        let vertices = usize::try_from(source.vertices()).unwrap_or(usize::MAX);
        let mut offsets = self.pages.zeroed::<V>(names.offsets, vertices + 1)?;
        let bins = Bins::<V>::new(source, !self.directed, self.pool);
        let count = cells(&mut offsets);
        let invalid = bins.distribute(source, |from, _, _| {
            let count = &count[from.at() + 1];
            count.set(count.get() + V::new(1));
        });
        if let Some(id) = invalid.id {
            return Err(GraphError::Vertex { id, vertices: source.vertices() });
        }
        dropped.self_loops = invalid.self_loops;
        let mut rows = Rows::begin(self, names, offsets, source.is_weighted())?;
        let filler = rows.filler();
        bins.distribute(source, |from, to, weight| filler.put(from, to, weight));
        drop(bins);
        // An undirected edge is in the rows of both vertices.
        dropped.duplicates = rows.sort(self.pool) / if self.directed { 1 } else { 2 };
        rows.finish()
    }

    /// Builds the transpose.
    pub(crate) fn transpose<V: Width>(&self, out: &Csr<V>) -> Result<Csr<V>> {
        Self { directed: true, ..*self }.rows(&Transpose(out), IN, &mut DroppedEdges::default())
    }
}

/// Reversed edges of a graph.
struct Transpose<'a, V: Width>(&'a Csr<V>);

impl<V: Width> EdgeSource for Transpose<'_, V> {
    fn vertices(&self) -> u64 {
        self.0.vertices() as u64
    }
    fn edges(&self) -> u64 {
        self.0.edges() as u64
    }
    fn is_weighted(&self) -> bool {
        self.0.is_weighted()
    }
    fn blocks(&self) -> usize {
        self.0.blocks()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        self.0.block(block, |edge| each(Edge { from: edge.to, to: edge.from, ..edge }));
    }
}

/// Edges of a source that cannot be in a graph.
#[derive(Clone, Copy, Debug, Default)]
struct InvalidEdges {
    /// Largest vertex ID out of range.
    id: Option<u64>,
    self_loops: u64,
}

impl InvalidEdges {
    fn and(self, other: Self) -> Self {
        Self { id: self.id.max(other.id), self_loops: self.self_loops + other.self_loops }
    }
}

fn check_width<V: Width>(what: &'static str, count: u64) -> Result<()> {
    // The largest number means "none".
    if count >= V::NONE.at() as u64 {
        return Err(GraphError::Width { what, count, bits: V::BITS });
    }
    Ok(())
}
