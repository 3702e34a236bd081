//! Vertex IDs of a file, and their relabelling to consecutive IDs.

use hashbrown::HashMap;
use hugepilot_alloc::{Backing, HugeVec, Options};

use super::list::{List, Part};
use super::text::Budget;
use crate::{GraphError, Result, ThreadPool, Width};

/// Vertex IDs of a file: vertex `i` has the ID `ids[i]` there. Ascending, unless the file was
/// written after a reorder.
pub type Ids = HugeVec<u64>;

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
pub(super) fn sorted(lists: Vec<Vec<u64>>) -> Result<Ids> {
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
pub(super) fn index(ids: &Ids, budget: &Budget) -> Result<Index> {
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
    let (parts, cursor) = (&list.parts, crate::Cursor::default());
    let lists = pool.run(|_| -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        while let Some(part) = cursor.next(parts.len()) {
            let mut of_part: Vec<u64> = parts[part].edges.iter().flatten().copied().collect();
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
    let mut narrow = Vec::with_capacity(list.parts.len());
    for part in list.parts {
        let mut new = Part::<V>::with_capacity(part.edges.len(), list.weighted)?;
        new.edges.extend(part.edges.iter().map(|edge| edge.map(|id| V::new(index[&id]))))?;
        new.weights.extend(part.weights.iter().map(|&weight| V::new(weight.at())))?;
        narrow.push(new);
    }
    Ok((List { vertices: ids.len() as u64, weighted: list.weighted, parts: narrow }, ids))
}
