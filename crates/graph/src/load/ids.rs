//! Numbers of vertices as files give them, and the ones from 0 on that they become.

use hashbrown::HashMap;
use hugepilot_alloc::{Backing, HugeVec, Options};

use super::list::{List, Part};
use crate::{GraphError, Result, Team, Width};

/// The numbers that a file gives its vertices: vertex `i` was `ids[i]`. Ascending, unless it was written after vertices were
/// numbered anew.
pub type Ids = HugeVec<u64>;

/// Where to find them.
pub(super) type Index = HashMap<u64, usize>;

/// Sorted, each once.
///
/// # Errors
/// [`GraphError::Memory`].
pub(super) fn ids(mut found: Vec<u64>) -> Result<Ids> {
    found.sort_unstable();
    found.dedup();
    let mut ids = HugeVec::with_capacity(found.len(), Options::only(Backing::Base).named("ids")?)?;
    ids.extend(found)?;
    Ok(ids)
}

pub(super) fn index(ids: &Ids) -> Index {
    ids.iter().enumerate().map(|(vertex, &id)| (id, vertex)).collect()
}

/// The same edges between vertices that are counted from 0 on, in the order of their numbers. Takes 16 bytes for each edge and
/// some 40 for each vertex while it works.
///
/// # Errors
/// [`GraphError::Width`] for more of them than `V` counts, [`GraphError::Memory`].
pub(super) fn compact<V: Width>(list: List<u64>, team: Team) -> Result<(List<V>, Ids)> {
    let parts = &list.parts;
    let pieces = crate::Pieces::default();
    let found = team.run(|worker| {
        let mut own = Vec::new();
        worker.each(&pieces, parts.len(), 1, |range| {
            for part in &parts[range] {
                let mut of_part: Vec<u64> = part.edges.iter().flatten().copied().collect();
                of_part.sort_unstable();
                of_part.dedup();
                own.append(&mut of_part);
            }
        });
        own.sort_unstable();
        own.dedup();
        own
    });
    let ids = ids(found.concat())?;
    if ids.len() >= V::NONE.at() {
        return Err(GraphError::Width { what: "vertices", count: ids.len() as u64, bits: V::BITS });
    }
    let index = index(&ids);
    let mut narrow = Vec::with_capacity(list.parts.len());
    for part in list.parts {
        let mut new = Part::<V>::with_room(part.edges.len(), list.weighted)?;
        new.edges.extend(part.edges.iter().map(|edge| edge.map(|id| V::new(index[&id]))))?;
        new.weights.extend(part.weights.iter().map(|&weight| V::new(weight.at())))?;
        narrow.push(new);
    }
    Ok((List { vertices: ids.len() as u64, weighted: list.weighted, parts: narrow }, ids))
}
