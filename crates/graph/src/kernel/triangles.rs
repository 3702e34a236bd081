//! Triangles, each counted once: by its highest vertex, and the two of its neighbours that are neighbours.
//!
//! The neighbours of a vertex below it are marked in a bitmap, and those of each of them looked up there: one bit per look, in a
//! bitmap that mostly stays in the cache. Vertices are numbered by degree first, where a few have most edges, so that each looks
//! at few.

mod lower;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use self::lower::Lower;
use super::Setup;
use super::bitmap::WORD;
use crate::hook::Hook;
use crate::{Array, Graph, GraphError, Pieces, Result, Width};

/// Vertices in a piece of work.
const PIECE: usize = 64;

/// How many triangles an undirected graph has. One bit per vertex and thread, a copy of the lower half of the edges if vertices
/// are numbered anew.
///
/// # Errors
/// [`GraphError::Directed`], [`GraphError::Memory`].
pub fn triangles<V: Width, H: Hook>(graph: &Graph<V>, setup: &Setup<H>) -> Result<u64> {
    if graph.is_directed() {
        return Err(GraphError::Directed);
    }
    let rows = Lower::of(graph, setup)?;
    let (pieces, total) = (Pieces::default(), AtomicU64::new(0));
    let vertices = graph.vertices();
    let failed = setup.team.run(|worker| {
        let mut marks = setup.pages.zeroed::<u64>(Array::Worklist, vertices.div_ceil(WORD))?;
        let mut count = 0;
        worker.each(&pieces, vertices, PIECE, |range| {
            for v in range {
                let row = rows.row(v);
                if row.len() < 2 {
                    continue;
                }
                for &to in row {
                    marks[to.at() / WORD] |= 1 << (to.at() % WORD);
                }
                for &to in row {
                    for &third in rows.row(to.at()) {
                        setup.hook.read(Array::Worklist, third.at() / WORD);
                        count += marks[third.at() / WORD] >> (third.at() % WORD) & 1;
                    }
                }
                for &to in row {
                    marks[to.at() / WORD] = 0;
                }
            }
        });
        total.fetch_add(count, Relaxed);
        Ok(())
    });
    failed.into_iter().collect::<Result<()>>()?;
    Ok(total.into_inner())
}
