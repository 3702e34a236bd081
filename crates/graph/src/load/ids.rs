//! Numbers of vertices as files give them, and the ones from 0 on that they become.

use hashbrown::HashMap;
use hugepilot_alloc::{Backing, HugeVec, Options};

use super::list::{List, Part};
use super::text::Budget;
use crate::{GraphError, Result, ThreadPool, Width};

/// The numbers that a file gives its vertices: vertex `i` was `ids[i]`. Ascending, unless it was written after vertices were
/// numbered anew.
pub type Ids = HugeVec<u64>;

/// Where to find them.
pub(super) type Index = HashMap<u64, usize>;

/// Bytes that an index takes for each vertex, at most: an entry of 17, in a table that may be half empty.
const INDEXED: u64 = 40;
/// Bytes that a number takes at most from when it is found until it is sorted: in a list with room to grow, and in one of all.
const FOUND: u64 = 24;

/// Sorted, each once.
///
/// # Errors
/// [`GraphError::Memory`].
pub(super) fn ids(found: Vec<Vec<u64>>) -> Result<Ids> {
    let mut all = found.concat();
    drop(found);
    all.sort_unstable();
    all.dedup();
    let mut ids = HugeVec::with_capacity(all.len(), Options::only(Backing::Base).named("ids")?)?;
    ids.extend(all)?;
    Ok(ids)
}

/// # Errors
/// [`GraphError::InsufficientMemory`].
pub(super) fn index(ids: &Ids, budget: &Budget) -> Result<Index> {
    budget.take(INDEXED * ids.len() as u64)?;
    Ok(ids.iter().enumerate().map(|(vertex, &id)| (id, vertex)).collect())
}

/// The same edges between vertices that are counted from 0 on, in the order of their numbers. Beside the list, it takes 24 bytes
/// for each vertex of each of its parts while it works, and then 40 for each vertex.
///
/// # Errors
/// [`GraphError::Width`] for more of them than `V` counts, [`GraphError::InsufficientMemory`], [`GraphError::Memory`].
pub(super) fn compact<V: Width>(
    list: List<u64>,
    pool: ThreadPool,
    budget: &Budget,
) -> Result<(List<V>, Ids)> {
    let (parts, pieces) = (&list.parts, crate::Cursor::default());
    let found = pool.run(|_| -> Result<Vec<u64>> {
        let mut own = Vec::new();
        while let Some(part) = pieces.next(parts.len()) {
            let mut of_part: Vec<u64> = parts[part].edges.iter().flatten().copied().collect();
            of_part.sort_unstable();
            of_part.dedup();
            budget.take(FOUND * of_part.len() as u64)?;
            own.append(&mut of_part);
        }
        own.sort_unstable();
        own.dedup();
        Ok(own)
    });
    let ids = ids(found.into_iter().collect::<Result<_>>()?)?;
    if ids.len() >= V::NONE.at() {
        return Err(GraphError::Width { what: "vertices", count: ids.len() as u64, bits: V::BITS });
    }
    let index = index(&ids, budget)?;
    let mut narrow = Vec::with_capacity(list.parts.len());
    for part in list.parts {
        let mut new = Part::<V>::with_room(part.edges.len(), list.weighted)?;
        new.edges.extend(part.edges.iter().map(|edge| edge.map(|id| V::new(index[&id]))))?;
        new.weights.extend(part.weights.iter().map(|&weight| V::new(weight.at())))?;
        narrow.push(new);
    }
    Ok((List { vertices: ids.len() as u64, weighted: list.weighted, parts: narrow }, ids))
}
