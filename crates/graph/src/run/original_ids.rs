//! Vertex IDs of the input.

use super::PreparedGraph;
use crate::{GraphError, Result, VertexMap, Width};

/// Vertex IDs of the input, by the vertices of the graph.
#[derive(Debug)]
pub struct OriginalIds<'a, V> {
    /// Vertex before relabelling.
    old: Option<Vec<V>>,
    /// ID in the file, by that vertex.
    ids: Option<&'a [u64]>,
}

impl<V: Width> OriginalIds<'_, V> {
    /// Returns the ID of a vertex.
    pub fn of(&self, vertex: usize) -> u64 {
        let old = self.old.as_ref().map_or(vertex, |old| old[vertex].at());
        self.ids.map_or(old as u64, |ids| ids[old])
    }
}

impl<V: Width> PreparedGraph<V> {
    /// Returns the vertex IDs that results carry.
    pub fn original_ids(&self) -> OriginalIds<'_, V> {
        OriginalIds { old: self.map.as_ref().map(VertexMap::old), ids: self.ids.as_deref() }
    }

    /// Returns the ID of a vertex before relabelling.
    pub(super) fn id(&self, vertex: usize) -> u64 {
        self.ids.as_ref().map_or(vertex as u64, |ids| ids[vertex])
    }

    /// Returns the vertex before relabelling with an ID. Scans all IDs if the file has its own.
    ///
    /// # Errors
    /// [`GraphError::Vertex`], [`GraphError::NoVertex`].
    #[allow(clippy::cast_possible_truncation)] // below the number of vertices
    pub(super) fn vertex(&self, id: u64) -> Result<usize> {
        let vertices = self.graph.vertices() as u64;
        match &self.ids {
            Some(ids) => {
                ids.iter().position(|&other| other == id).ok_or(GraphError::NoVertex { id })
            }
            None if id < vertices => Ok(id as usize),
            None => Err(GraphError::Vertex { id, vertices }),
        }
    }

    /// Returns the vertices before relabelling by ascending ID.
    pub(super) fn ascending(&self) -> impl Iterator<Item = usize> {
        let sorted = self.ids.as_ref().filter(|ids| !ids.is_sorted()).map(|ids| {
            let mut vertices: Vec<V> = (0..ids.len()).map(V::new).collect();
            vertices.sort_unstable_by_key(|vertex| ids[vertex.at()]);
            vertices
        });
        (0..self.graph.vertices()).map(move |i| sorted.as_ref().map_or(i, |sorted| sorted[i].at()))
    }
}
