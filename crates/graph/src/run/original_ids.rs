//! The numbers that vertices have where the graph came from.

use super::PreparedGraph;
use crate::{GraphError, Result, Width};

/// The numbers of the source, by those in the graph.
#[derive(Debug)]
pub struct OriginalIds<'a, V> {
    /// What each vertex was before it was numbered anew.
    old: Option<Vec<V>>,
    /// What the file called that.
    ids: Option<&'a [u64]>,
}

impl<V: Width> OriginalIds<'_, V> {
    /// That of a vertex of the graph.
    pub fn of(&self, vertex: usize) -> u64 {
        let old = self.old.as_ref().map_or(vertex, |old| old[vertex].at());
        self.ids.map_or(old as u64, |ids| ids[old])
    }
}

impl<V: Width> PreparedGraph<V> {
    /// The numbers that results are told under.
    pub fn original_ids(&self) -> OriginalIds<'_, V> {
        OriginalIds {
            old: self.numbers.as_ref().map(crate::VertexMap::old),
            ids: self.ids.as_deref(),
        }
    }

    /// What the source calls the vertex that it has at this place.
    pub(super) fn name(&self, place: usize) -> u64 {
        self.ids.as_ref().map_or(place as u64, |ids| ids[place])
    }

    /// At which place the source has the vertex that it calls so. Looks at all of them where they are in no order.
    ///
    /// # Errors
    /// [`GraphError::Vertex`], [`GraphError::NoVertex`].
    #[allow(clippy::cast_possible_truncation)] // below the number of vertices
    pub(super) fn place(&self, id: u64) -> Result<usize> {
        let vertices = self.graph.vertices() as u64;
        match &self.ids {
            Some(ids) => {
                ids.iter().position(|&other| other == id).ok_or(GraphError::NoVertex { id })
            }
            None if id < vertices => Ok(id as usize),
            None => Err(GraphError::Vertex { id, vertices }),
        }
    }

    /// All places of the source, its lowest number first.
    pub(super) fn ascending(&self) -> impl Iterator<Item = usize> {
        let sorted = self.ids.as_ref().filter(|ids| !ids.is_sorted()).map(|ids| {
            let mut places: Vec<V> = (0..ids.len()).map(V::new).collect();
            places.sort_unstable_by_key(|place| ids[place.at()]);
            places
        });
        (0..self.graph.vertices()).map(move |i| sorted.as_ref().map_or(i, |sorted| sorted[i].at()))
    }
}
