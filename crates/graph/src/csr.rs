//! Compressed sparse rows (CSR), each array in its own mapping.

use std::ops::Range;

use hugepilot_alloc::HugeVec;

use crate::access_sink::{AccessSink, ArrayRange};
use crate::{Array, Edge, GraphError, Result, Width};

/// Edges of a block. Blocks ignore row boundaries, so a block with hubs is no larger than others.
pub(crate) const BLOCK: usize = 1 << 18;

/// Outgoing or incoming edges of all vertices. A row is ascending, without duplicates.
#[derive(Debug)]
pub struct Csr<V: Width> {
    /// Row of vertex `v`: `offsets[v]..offsets[v + 1]`. One more than vertices.
    pub(crate) offsets: HugeVec<V>,
    pub(crate) edges: HugeVec<V>,
    /// Weight of each edge, or empty.
    pub(crate) weights: HugeVec<V>,
    /// Largest weight; 0 without weights.
    pub(crate) heaviest: V,
}

/// Arrays of a [`Csr`] for a loop: slices whose addresses the compiler keeps in registers across
/// writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a, V> {
    /// Names of offsets, edges and weights.
    pub(crate) names: [Array; 3],
    pub(crate) offsets: &'a [V],
    pub(crate) edges: &'a [V],
    pub(crate) weights: &'a [V],
}

/// Row of a vertex.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row<'a, V> {
    pub(crate) vertex: V,
    pub(crate) to: &'a [V],
}

/// Rows whose offsets are read before the first row.
pub(crate) const AHEAD: usize = 16;

impl<'a, V: Width> Rows<'a, V> {
    /// Records the reads of the offsets of `v`.
    #[inline]
    pub(crate) fn record_access(self, v: usize, sink: &impl AccessSink) {
        // Without an index that could panic, nothing remains of this for the unit sink.
        self.offsets
            .get(v..=v + 1)
            .into_iter()
            .flatten()
            .for_each(|offset| sink.read(self.names[0], offset));
    }
    /// Returns the rows of consecutive vertices.
    #[inline]
    pub(crate) fn each(
        self,
        vertices: Range<usize>,
        sink: &impl AccessSink,
    ) -> impl Iterator<Item = &'a [V]> {
        self.ends(vertices, sink).map(move |(start, end)| &self.edges[start..end])
    }
    /// Returns the degrees of consecutive vertices.
    #[inline]
    pub(crate) fn degrees(
        self,
        vertices: Range<usize>,
        sink: &impl AccessSink,
    ) -> impl Iterator<Item = usize> {
        self.ends(vertices, sink).map(|(start, end)| end - start)
    }
    /// Returns start and end of the rows of consecutive vertices.
    #[inline]
    pub(crate) fn ends(
        self,
        vertices: Range<usize>,
        sink: &impl AccessSink,
    ) -> impl Iterator<Item = (usize, usize)> {
        let ends = &self.offsets[vertices.start..=vertices.end];
        ends.iter().zip(&ends[1..]).map(move |(start, end)| {
            sink.read(self.names[0], start);
            sink.read(self.names[0], end);
            (start.at(), end.at())
        })
    }
    /// Looks up the rows of at most [`AHEAD`] vertices before the first row is read, so that the
    /// cache misses on their offsets overlap.
    #[inline]
    pub(crate) fn ahead<'b>(
        self,
        mut vertices: impl Iterator<Item = V>,
        rows: &'b mut [Row<'a, V>; AHEAD],
        sink: &impl AccessSink,
    ) -> &'b mut [Row<'a, V>] {
        let mut len = 0;
        for (row, vertex) in rows.iter_mut().zip(vertices.by_ref()) {
            self.record_access(vertex.at(), sink);
            *row = Row { vertex, to: self.neighbours(vertex.at()) };
            len += 1;
        }
        debug_assert!(vertices.next().is_none(), "more than AHEAD vertices");
        &mut rows[..len]
    }
    /// See [`Csr::range`].
    #[inline]
    pub(crate) fn range(self, v: usize) -> Range<usize> {
        self.offsets[v].at()..self.offsets[v + 1].at()
    }
    /// See [`Csr::neighbours`].
    #[inline]
    pub(crate) fn neighbours(self, v: usize) -> &'a [V] {
        &self.edges[self.range(v)]
    }
}

impl<V: Width> Csr<V> {
    /// Returns the arrays for a loop.
    pub(crate) fn rows(&self) -> Rows<'_, V> {
        let names = [Array::Offsets, Array::Edges, Array::Weights];
        Rows { names, offsets: &self.offsets, edges: &self.edges, weights: &self.weights }
    }
    /// Returns the number of vertices.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }
    /// Returns the number of edges; an undirected edge counts twice.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
    /// Returns the degree of vertex `v`.
    #[inline]
    pub fn degree(&self, v: usize) -> usize {
        self.offsets[v + 1].at() - self.offsets[v].at()
    }
    /// Returns the range of the edges of `v`.
    #[inline]
    pub fn range(&self, v: usize) -> Range<usize> {
        self.offsets[v].at()..self.offsets[v + 1].at()
    }
    /// Returns the neighbours of `v`, ascending.
    #[inline]
    pub fn neighbours(&self, v: usize) -> &[V] {
        &self.edges[self.range(v)]
    }
    /// Returns the weights of the edges of `v`, in their order; empty without weights.
    #[inline]
    pub fn weights(&self, v: usize) -> &[V] {
        if self.weights.is_empty() { &[] } else { &self.weights[self.range(v)] }
    }
    /// Returns the number of blocks of edges.
    pub(crate) fn blocks(&self) -> usize {
        self.edges().div_ceil(BLOCK)
    }
    /// Calls `each` for every edge of a block.
    pub(crate) fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let rows = self.rows();
        let (mut at, end) = (block * BLOCK, ((block + 1) * BLOCK).min(self.edges()));
        // The last row that starts at or before the block.
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
    /// Returns the largest weight; 0 without weights.
    pub fn heaviest(&self) -> V {
        self.heaviest
    }
    /// Whether edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.weights.len() == self.edges.len() && !self.edges.is_empty()
    }
}

/// Graph in memory.
#[derive(Debug)]
pub struct Graph<V: Width> {
    /// Outgoing edges.
    pub out: Csr<V>,
    /// Incoming edges; `None` if the graph is undirected, whose `out` is symmetric.
    pub transpose: Option<Csr<V>>,
    /// Edges of the input that the build dropped.
    pub dropped: DroppedEdges,
}

/// Edges of the input that are not in the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedEdges {
    /// Self-loops.
    pub self_loops: u64,
    /// Repeated edges; in an undirected graph, in either direction.
    pub duplicates: u64,
}

impl<V: Width> Graph<V> {
    /// Returns the number of vertices.
    pub fn vertices(&self) -> usize {
        self.out.vertices()
    }
    /// Checks that a vertex exists.
    ///
    /// # Errors
    /// [`GraphError::Vertex`].
    pub fn check(&self, vertex: V) -> Result<()> {
        let (id, vertices) = (vertex.at() as u64, self.vertices() as u64);
        if id < vertices { Ok(()) } else { Err(GraphError::Vertex { id, vertices }) }
    }
    /// Returns the number of edges; an undirected edge counts once.
    pub fn edges(&self) -> usize {
        if self.is_directed() { self.out.edges() } else { self.out.edges() / 2 }
    }
    /// Counts the vertices without edges. One pass over the offsets.
    pub fn isolated(&self) -> usize {
        (0..self.vertices()).filter(|&v| self.is_isolated(v)).count()
    }
    /// Whether a vertex has neither outgoing nor incoming edges.
    pub fn is_isolated(&self, v: usize) -> bool {
        self.out.degree(v) == 0 && self.incoming().degree(v) == 0
    }
    /// Whether edges have a direction.
    pub fn is_directed(&self) -> bool {
        self.transpose.is_some()
    }
    /// Returns the incoming edges.
    pub fn incoming(&self) -> &Csr<V> {
        self.transpose.as_ref().unwrap_or(&self.out)
    }
    /// Returns the addresses of the arrays.
    pub fn arrays(&self) -> Vec<ArrayRange> {
        let transpose = self.transpose.as_ref().map(|_| self.incoming_rows());
        let mut arrays = Vec::new();
        for rows in [Some(self.out.rows()), transpose].into_iter().flatten() {
            let values = [rows.offsets, rows.edges, rows.weights];
            let named = rows.names.into_iter().zip(values);
            arrays.extend(named.map(|(array, values)| ArrayRange::new(array, "", values)));
        }
        arrays
    }
    /// Returns the arrays of the incoming edges for a loop.
    pub(crate) fn incoming_rows(&self) -> Rows<'_, V> {
        let names = [Array::InOffsets, Array::InEdges, Array::InWeights];
        self.transpose
            .as_ref()
            .map_or(self.out.rows(), |transpose| Rows { names, ..transpose.rows() })
    }
}
