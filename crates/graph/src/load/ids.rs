//! Vertex IDs of a file, and their relabelling to consecutive IDs.

use hashbrown::HashMap;
use hugepilot_alloc::{Backing, HugeVec, Options};

use super::list::{List, Part};
use super::text::Budget;
use crate::{GraphError, Result, ThreadPool, Width};

/// Vertex IDs of a file.
#[derive(Debug)]
pub enum Ids {
    /// Consecutive IDs from this one on.
    From(u64),
    /// ID of each vertex. Ascending, unless the file was written after a reorder.
    Listed(Box<HugeVec<u64>>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::From(0)
    }
}

impl Ids {
    /// Returns the ID of a vertex.
    #[inline]
    pub fn of(&self, vertex: usize) -> u64 {
        match self {
            Self::From(first) => first + vertex as u64,
            Self::Listed(ids) => ids[vertex],
        }
    }
    /// Returns the vertex with an ID, if there is one among `vertices`. Scans listed IDs.
    #[allow(clippy::cast_possible_truncation)] // below the number of vertices
    pub fn vertex(&self, id: u64, vertices: usize) -> Option<usize> {
        match self {
            Self::From(first) => {
                id.checked_sub(*first).filter(|&at| at < vertices as u64).map(|at| at as usize)
            }
            Self::Listed(ids) => ids.iter().position(|&other| other == id),
        }
    }
    /// Returns the IDs, unless they are consecutive.
    pub fn listed(&self) -> Option<&[u64]> {
        match self {
            Self::From(_) => None,
            Self::Listed(ids) => Some(ids),
        }
    }
    /// Makes the IDs of `vertices` vertices.
    ///
    /// # Errors
    /// [`GraphError::Memory`].
    pub fn list(vertices: usize, id: impl Fn(usize) -> u64) -> Result<Self> {
        let mut ids = HugeVec::with_capacity(vertices, Options::only(Backing::Base).named("ids")?)?;
        ids.extend((0..vertices).map(id))?;
        Ok(Self::Listed(Box::new(ids)))
    }
}

/// Vertex by its ID in the file.
pub(super) type Index = HashMap<u64, usize>;

/// Bytes of the index per vertex at most: an entry of 17, in a table that may be half empty.
const INDEX_BYTES: u64 = 40;
/// Bytes per ID at most until IDs are sorted: in a growing list, and in the list of all.
const ID_BYTES: u64 = 24;

/// Sorts and deduplicates IDs.
///
/// # Errors
/// [`GraphError::Memory`].
pub(super) fn sorted(lists: Vec<Vec<u64>>) -> Result<HugeVec<u64>> {
    let mut all = lists.concat();
    drop(lists);
    all.sort_unstable();
    all.dedup();
    let mut ids = HugeVec::with_capacity(all.len(), Options::only(Backing::Base).named("ids")?)?;
    ids.extend(all)?;
    Ok(ids)
}

/// Builds the index of IDs.
///
/// # Errors
/// [`GraphError::InsufficientMemory`].
pub(super) fn index(ids: &[u64], budget: &Budget) -> Result<Index> {
    budget.take(INDEX_BYTES * ids.len() as u64)?;
    Ok(ids.iter().enumerate().map(|(vertex, &id)| (id, vertex)).collect())
}

/// Relabels the vertices of a list to consecutive IDs, in ascending order of their IDs. Beside the
/// list, takes 24 bytes for each vertex of each part, and then 40 for each vertex.
///
/// # Errors
/// [`GraphError::Width`] for more vertices than `V` counts, [`GraphError::InsufficientMemory`],
/// [`GraphError::Memory`].
pub(super) fn compact<V: Width>(
    list: List<u64>,
    pool: ThreadPool,
    budget: &Budget,
) -> Result<(List<V>, Ids)> {
    let (parts, cursor) = (list.parts.len(), crate::Cursor::default());
    let lists = pool.run(|_| -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        while let Some(part) = cursor.next(parts) {
            let mut of_part: Vec<u64> = list.edges_of(part).iter().flatten().copied().collect();
            of_part.sort_unstable();
            of_part.dedup();
            budget.take(ID_BYTES * of_part.len() as u64)?;
            ids.append(&mut of_part);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    });
    let ids = sorted(lists.into_iter().collect::<Result<_>>()?)?;
    if ids.len() >= V::NONE.at() {
        return Err(GraphError::Width { what: "vertices", count: ids.len() as u64, bits: V::BITS });
    }
    let index = index(&ids, budget)?;
    let mut narrow = Vec::with_capacity(parts);
    for (i, part) in list.parts.iter().enumerate() {
        let mut new = Part::<V>::with_capacity(part.edges.len(), list.weighted)?;
        let edges = list.edges_of(i);
        new.edges.extend(edges.iter().map(|edge| edge.map(|id| V::new(index[&id]))))?;
        let weights = part.weights.iter().skip(part.edges.len() - edges.len());
        new.weights.extend(weights.map(|&weight| V::new(weight.at())))?;
        narrow.push(new);
    }
    Ok((List::new(ids.len() as u64, list.weighted, narrow), Ids::Listed(Box::new(ids))))
}
