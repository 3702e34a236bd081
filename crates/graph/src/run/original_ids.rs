//! Vertex IDs of the input.

use super::PreparedGraph;
use crate::{GraphError, Ids, Result, VertexMap, Width};

/// Vertex IDs of the input, by the vertices of the graph.
#[derive(Debug)]
pub struct OriginalIds<'a, V> {
    /// Vertex before relabelling.
    old: Option<Vec<V>>,
    /// ID in the input, by that vertex.
    ids: &'a Ids,
}

impl<V: Width> OriginalIds<'_, V> {
    /// Returns the ID of a vertex.
    pub fn of(&self, vertex: usize) -> u64 {
        let old = self.old.as_ref().map_or(vertex, |old| old[vertex].at());
        self.ids.of(old)
    }
}

impl<V: Width> PreparedGraph<V> {
    /// Returns the vertex IDs that results carry.
    pub fn original_ids(&self) -> OriginalIds<'_, V> {
        OriginalIds { old: self.map.as_ref().map(VertexMap::old), ids: &self.ids }
    }

    /// Returns the ID of a vertex before relabelling.
    pub(super) fn id(&self, vertex: usize) -> u64 {
        self.ids.of(vertex)
    }

    /// Returns the vertex before relabelling with an ID. Scans all IDs if the file has its own.
    ///
    /// # Errors
    /// [`GraphError::Vertex`], [`GraphError::NoVertex`].
    pub(super) fn vertex(&self, id: u64) -> Result<usize> {
        let vertices = self.graph.vertices();
        self.ids.vertex(id, vertices).ok_or(match self.ids {
            Ids::From(0) => GraphError::Vertex { id, vertices: vertices as u64 },
            _ => GraphError::NoVertex { id },
        })
    }

    /// Returns the vertices before relabelling by ascending ID.
    pub(super) fn ascending(&self) -> impl Iterator<Item = usize> {
        let sorted = self.ids.listed().filter(|ids| !ids.is_sorted()).map(|ids| {
            let mut vertices: Vec<V> = (0..ids.len()).map(V::new).collect();
            vertices.sort_unstable_by_key(|vertex| ids[vertex.at()]);
            vertices
        });
        (0..self.graph.vertices()).map(move |i| sorted.as_ref().map_or(i, |sorted| sorted[i].at()))
    }
}
