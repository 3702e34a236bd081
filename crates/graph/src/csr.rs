//! A graph in memory: compressed sparse rows, each array in a mapping of its own.

use std::ops::Range;

use hugepilot_alloc::HugeVec;

use crate::access_sink::AccessSink;
use crate::{Array, Edge, GraphError, Result, Width};

/// Edges in a block, wherever rows end: a block with hubs is no larger than others.
pub(crate) const BLOCK: usize = 1 << 18;

/// The edges that leave each vertex, or that lead to it. The edges of a vertex are in ascending order, each once.
#[derive(Debug)]
pub struct Csr<V: Width> {
    /// `offsets[v]..offsets[v + 1]` are the edges of vertex `v`; one more than there are vertices.
    pub(crate) offsets: HugeVec<V>,
    pub(crate) edges: HugeVec<V>,
    /// As many as edges, or none.
    pub(crate) weights: HugeVec<V>,
    /// The largest weight; 0 without.
    pub(crate) heaviest: V,
}

/// The arrays of a [`Csr`] as a loop holds them: where they are is looked up once, not again after each value that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a, V> {
    /// What they are called: offsets, edges, weights.
    pub(crate) names: [Array; 3],
    pub(crate) offsets: &'a [V],
    pub(crate) edges: &'a [V],
    pub(crate) weights: &'a [V],
}

/// The edges of a vertex.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row<'a, V> {
    pub(crate) of: V,
    pub(crate) to: &'a [V],
}

/// Rows that are looked up before the first is read.
pub(crate) const AHEAD: usize = 16;

impl<'a, V: Width> Rows<'a, V> {
    /// Where the edges of `v` are is read.
    #[inline]
    pub(crate) fn record_access(self, v: usize, sink: impl AccessSink) {
        // With no index that could panic: where nobody hears, no check is left.
        self.offsets
            .get(v..=v + 1)
            .into_iter()
            .flatten()
            .for_each(|offset| sink.read(self.names[0], offset));
    }
    /// The edges of each of these vertices, in their order: cheaper than to ask for each.
    #[inline]
    pub(crate) fn each(
        self,
        vertices: Range<usize>,
        sink: impl AccessSink,
    ) -> impl Iterator<Item = &'a [V]> {
        self.ends(vertices, sink).map(move |(start, end)| &self.edges[start..end])
    }
    /// How many edges each of these vertices has.
    #[inline]
    pub(crate) fn degrees(
        self,
        vertices: Range<usize>,
        sink: impl AccessSink,
    ) -> impl Iterator<Item = usize> {
        self.ends(vertices, sink).map(|(start, end)| end - start)
    }
    /// Where the edges of each of these vertices start and end.
    #[inline]
    fn ends(
        self,
        vertices: Range<usize>,
        sink: impl AccessSink,
    ) -> impl Iterator<Item = (usize, usize)> {
        let ends = &self.offsets[vertices.start..=vertices.end];
        ends.iter().zip(&ends[1..]).map(move |(start, end)| {
            sink.read(self.names[0], start);
            sink.read(self.names[0], end);
            (start.at(), end.at())
        })
    }
    /// The rows of some vertices, at most [`AHEAD`], all looked up before the first of them is read: so the misses of their offsets
    /// overlap.
    #[inline]
    pub(crate) fn ahead<'b>(
        self,
        mut vertices: impl Iterator<Item = V>,
        rows: &'b mut [Row<'a, V>; AHEAD],
        sink: impl AccessSink,
    ) -> &'b mut [Row<'a, V>] {
        let mut len = 0;
        for (row, of) in rows.iter_mut().zip(vertices.by_ref()) {
            self.record_access(of.at(), sink);
            *row = Row { of, to: self.neighbours(of.at()) };
            len += 1;
        }
        debug_assert!(vertices.next().is_none(), "more rows than fit");
        &mut rows[..len]
    }
    /// As [`Csr::range`].
    #[inline]
    pub(crate) fn range(self, v: usize) -> Range<usize> {
        self.offsets[v].at()..self.offsets[v + 1].at()
    }
    /// As [`Csr::neighbours`].
    #[inline]
    pub(crate) fn neighbours(self, v: usize) -> &'a [V] {
        &self.edges[self.range(v)]
    }
}

impl<V: Width> Csr<V> {
    /// Its arrays, for a loop.
    pub(crate) fn rows(&self) -> Rows<'_, V> {
        let names = [Array::Offsets, Array::Edges, Array::Weights];
        Rows { names, offsets: &self.offsets, edges: &self.edges, weights: &self.weights }
    }
    /// How many vertices.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }
    /// How many edges, each direction counted.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
    /// How many edges vertex `v` has.
    #[inline]
    pub fn degree(&self, v: usize) -> usize {
        self.offsets[v + 1].at() - self.offsets[v].at()
    }
    /// Where the edges of `v` are.
    #[inline]
    pub fn range(&self, v: usize) -> Range<usize> {
        self.offsets[v].at()..self.offsets[v + 1].at()
    }
    /// Those vertices, ascending.
    #[inline]
    pub fn neighbours(&self, v: usize) -> &[V] {
        &self.edges[self.range(v)]
    }
    /// The weights of these edges, in their order; empty in a graph without.
    #[inline]
    pub fn weights(&self, v: usize) -> &[V] {
        if self.weights.is_empty() { &[] } else { &self.weights[self.range(v)] }
    }
    /// How many blocks its edges are in.
    pub(crate) fn blocks(&self) -> usize {
        self.edges().div_ceil(BLOCK)
    }
    /// Calls `each` with the edges of a block.
    pub(crate) fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let rows = self.rows();
        let (mut at, end) = (block * BLOCK, ((block + 1) * BLOCK).min(self.edges()));
        // The last row that begins there or before.
        let mut from = rows.offsets.partition_point(|offset| offset.at() <= at) - 1;
        while at < end {
            let row = at..rows.offsets[from + 1].at().min(end);
            at = row.end;
            for i in row {
                let weight = self.weights.get(i).map_or(0, |weight| weight.at() as u64);
                each(Edge { from: from as u64, to: rows.edges[i].at() as u64, weight });
            }
            from += 1;
        }
    }
    /// The largest weight; 0 without.
    pub fn heaviest(&self) -> V {
        self.heaviest
    }
    /// Whether edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.weights.len() == self.edges.len() && !self.edges.is_empty()
    }
}

/// A graph, with what was seen while it was built.
#[derive(Debug)]
pub struct Graph<V: Width> {
    /// The edges that leave each vertex.
    pub out: Csr<V>,
    /// Those that lead to it; `None` where the graph is undirected, and `out` is both.
    pub transpose: Option<Csr<V>>,
    /// What was left out.
    pub dropped: DroppedEdges,
}

/// Edges that were in the input and are not in the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedEdges {
    /// From a vertex to itself.
    pub self_loops: u64,
    /// Given before; in an undirected graph, in either direction.
    pub duplicates: u64,
}

impl<V: Width> Graph<V> {
    /// How many vertices.
    pub fn vertices(&self) -> usize {
        self.out.vertices()
    }
    /// Refuses a vertex that is not there.
    ///
    /// # Errors
    /// [`GraphError::Vertex`].
    pub fn check(&self, vertex: V) -> Result<()> {
        let (id, vertices) = (vertex.at() as u64, self.vertices() as u64);
        if id < vertices { Ok(()) } else { Err(GraphError::Vertex { id, vertices }) }
    }
    /// How many edges; those of an undirected graph once.
    pub fn edges(&self) -> usize {
        if self.is_directed() { self.out.edges() } else { self.out.edges() / 2 }
    }
    /// Whether edges have a direction.
    pub fn is_directed(&self) -> bool {
        self.transpose.is_some()
    }
    /// The edges that lead to each vertex.
    pub fn incoming(&self) -> &Csr<V> {
        self.transpose.as_ref().unwrap_or(&self.out)
    }
    /// Those, for a loop.
    pub(crate) fn incoming_rows(&self) -> Rows<'_, V> {
        let names = [Array::InOffsets, Array::InEdges, Array::InWeights];
        self.transpose
            .as_ref()
            .map_or(self.out.rows(), |transpose| Rows { names, ..transpose.rows() })
    }
}
