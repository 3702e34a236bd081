//! Relabelled graphs.

use std::sync::Mutex;

use hugepilot_alloc::{HugeVec, cells};
use hugepilot_units::Bytes;

use super::VertexMap;
use crate::pages::Array;
use crate::width::Cell;
use crate::{Csr, Graph, PagePlan, Result, ThreadPool, Width};

/// Vertices in a chunk.
const CHUNK: usize = 1024;

impl<V: Width> Graph<V> {
    /// Returns the memory that relabelling takes beside the graph: the new graph, and the new, old
    /// and sorted IDs.
    pub fn relabel_memory(&self) -> Bytes {
        let rows = |csr: &Csr<V>| csr.offsets.len() + csr.edges.len() + csr.weights.len();
        let values =
            rows(&self.out) + self.transpose.as_ref().map_or(0, rows) + 2 * self.vertices();
        let sorted = self.vertices() * size_of::<usize>();
        Bytes::new((values * size_of::<V>() + sorted) as u64)
    }

    /// Builds the graph with new vertex IDs, beside the old one. Reads and writes each edge once,
    /// and sorts each row.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory).
    ///
    /// # Panics
    /// If the map is of another graph.
    pub fn relabelled(
        &self,
        map: &VertexMap<V>,
        pages: &PagePlan,
        pool: ThreadPool,
    ) -> Result<Self> {
        assert_eq!(map.new.len(), self.vertices(), "a new number for each vertex");
        let old = map.old();
        let out = [Array::Offsets, Array::Edges, Array::Weights];
        let into = [Array::InOffsets, Array::InEdges, Array::InWeights];
        let transpose =
            self.transpose.as_ref().map(|transpose| rows(transpose, map, &old, into, pages, pool));
        Ok(Self {
            out: rows(&self.out, map, &old, out, pages, pool)?,
            transpose: transpose.transpose()?,
            dropped: self.dropped,
        })
    }
}

fn rows<V: Width>(
    csr: &Csr<V>,
    map: &VertexMap<V>,
    old: &[V],
    [offsets, edges, weights]: [Array; 3],
    pages: &PagePlan,
    pool: ThreadPool,
) -> Result<Csr<V>> {
    let vertices = csr.vertices();
    let mut offsets: HugeVec<V> = pages.zeroed(offsets, vertices + 1)?;
    for (new, old) in old.iter().enumerate() {
        offsets[new + 1] = offsets[new] + V::new(csr.degree(old.at()));
    }
    let mut edges: HugeVec<V> = pages.zeroed(edges, csr.edges())?;
    let mut weights: HugeVec<V> = pages.zeroed(weights, csr.weights.len())?;
    let (to_edges, to_weights) = (cells(&mut edges), cells(&mut weights));
    // Row buffers, reused from chunk to chunk.
    let buffers = Mutex::new(Vec::<Vec<(V, V)>>::new());
    pool.each(vertices, CHUNK, |range| {
        let mut row = buffers.lock().ok().and_then(|mut buffers| buffers.pop()).unwrap_or_default();
        for new in range {
            let from = old[new].at();
            let weights = csr.weights(from).iter().copied().chain(std::iter::repeat(V::default()));
            row.clear();
            row.extend(csr.neighbours(from).iter().map(|to| map.new[to.at()]).zip(weights));
            row.sort_unstable();
            for (&(to, weight), i) in row.iter().zip(offsets[new].at()..) {
                to_edges[i].set(to);
                if let Some(cell) = to_weights.get(i) {
                    cell.set(weight);
                }
            }
        }
        if let Ok(mut buffers) = buffers.lock() {
            buffers.push(row);
        }
    });
    Ok(Csr { offsets, edges, weights, heaviest: csr.heaviest })
}
