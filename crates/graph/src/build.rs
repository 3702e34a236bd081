//! From edges in any order to compressed sparse rows.
//!
//! Two passes over the source, one that counts and one that fills, so that no list of edges is kept: at the peak there are the
//! rows before duplicates go and the offsets. The rows of an undirected graph hold each edge twice.

mod rows;

use hugepilot_alloc::cells;
use hugepilot_units::Bytes;

use self::rows::Rows;
use crate::csr::Dropped;
use crate::pages::Array;
use crate::source::{Edge, Source};
use crate::width::Cell;
use crate::{Csr, Graph, GraphError, PagePlan, Pieces, Result, Team, Width};

/// How a graph is built.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Edges have a direction: else each is put in both ways.
    pub directed: bool,
    /// The pages of the arrays.
    pub pages: PagePlan,
    /// Who works.
    pub team: Team,
}

/// Which arrays rows are to be on.
#[derive(Clone, Copy, Debug)]
struct Names {
    offsets: Array,
    edges: Array,
    weights: Array,
}

const OUT: Names = Names { offsets: Array::Offsets, edges: Array::Edges, weights: Array::Weights };
const IN: Names = Names { offsets: Array::InOffsets, edges: Array::InEdges, weights: Array::InWeights };

impl Build {
    /// How much memory building takes at its peak, before duplicates are known: what is asked of the machine before it begins.
    pub fn peak<V: Width>(&self, source: &impl Source) -> Bytes {
        let width = size_of::<V>() as u64;
        let per_edge = width * if source.is_weighted() { 2 } else { 1 };
        // Rows of both directions either way; offsets once per direction, and the cursors while they are filled.
        let offsets = Bytes::new(width).times(source.vertices().saturating_add(1)).times(if self.directed {
            3
        } else {
            2
        });
        Bytes::new(2 * per_edge).times(source.edges()) + offsets
    }

    /// Builds a graph.
    ///
    /// # Errors
    /// [`GraphError::Width`] for more vertices or edges than `V` counts, [`GraphError::Vertex`] for an edge to none,
    /// [`GraphError::Memory`].
    pub fn graph<V: Width>(&self, source: &impl Source) -> Result<Graph<V>> {
        check_width::<V>("vertices", source.vertices())?;
        check_width::<V>("edges", source.edges().saturating_mul(2))?;
        let mut dropped = Dropped::default();
        let out = self.rows::<V>(source, OUT, &mut dropped)?;
        let inverse = if self.directed { Some(self.inverse(&out)?) } else { None };
        Ok(Graph { out, inverse, dropped })
    }

    fn rows<V: Width>(&self, source: &impl Source, names: Names, dropped: &mut Dropped) -> Result<Csr<V>> {
        let vertices = usize::try_from(source.vertices()).unwrap_or(usize::MAX);
        let mut offsets = self.pages.zeroed::<V>(names.offsets, vertices + 1)?;
        let count = cells(&mut offsets);
        let wrong = self.each_edge(source, |edge| {
            count[V::new(edge.from as usize).at() + 1].add(V::new(1));
            if !self.directed {
                count[edge.to as usize + 1].add(V::new(1));
            }
        });
        if let Some(id) = wrong.id {
            return Err(GraphError::Vertex { id, vertices: source.vertices() });
        }
        dropped.self_loops = wrong.self_loops;
        let mut rows = Rows::begin(self, names, offsets, source.is_weighted())?;
        let filler = rows.filler();
        self.each_edge(source, |edge| {
            let (from, to, weight) =
                (V::new(edge.from as usize), V::new(edge.to as usize), V::new(edge.weight as usize));
            filler.put(from, to, weight);
            if !self.directed {
                filler.put(to, from, weight);
            }
        });
        dropped.duplicates = rows.sort(self.team);
        rows.finish()
    }

    /// The same edges seen from their other end.
    pub(crate) fn inverse<V: Width>(&self, out: &Csr<V>) -> Result<Csr<V>> {
        let vertices = out.vertices();
        let mut offsets = self.pages.zeroed::<V>(Array::InOffsets, vertices + 1)?;
        let count = cells(&mut offsets);
        self.team.each(out.edges(), 1 << 16, |range| {
            for &to in &out.edges[range] {
                count[to.at() + 1].add(V::new(1));
            }
        });
        let mut rows = Rows::begin(self, IN, offsets, out.is_weighted())?;
        let filler = rows.filler();
        self.team.each(vertices, 1 << 10, |range| {
            for from in range {
                for i in out.range(from) {
                    let weight = out.weights.get(i).copied().unwrap_or_default();
                    filler.put(out.edges[i], V::new(from), weight);
                }
            }
        });
        rows.sort(self.team);
        rows.finish()
    }

    /// Calls `each` for all edges but self-loops and those that lead nowhere.
    fn each_edge(&self, source: &impl Source, each: impl Fn(Edge) + Sync) -> Wrong {
        let (pieces, vertices) = (Pieces::default(), source.vertices());
        let found = self.team.run(|worker| {
            let mut wrong = Wrong::default();
            worker.each(&pieces, source.blocks(), 1, |blocks| {
                for block in blocks {
                    source.block(block, |edge| {
                        if edge.from >= vertices || edge.to >= vertices {
                            wrong.id = wrong.id.max(Some(edge.from.max(edge.to)));
                        } else if edge.from == edge.to {
                            wrong.self_loops += 1;
                        } else {
                            each(edge);
                        }
                    });
                }
            });
            wrong
        });
        found.into_iter().fold(Wrong::default(), |all, one| Wrong {
            id: all.id.max(one.id),
            self_loops: all.self_loops + one.self_loops,
        })
    }
}

/// Edges that do not belong into a graph.
#[derive(Clone, Copy, Debug, Default)]
struct Wrong {
    /// The largest number of a vertex that is not there.
    id: Option<u64>,
    self_loops: u64,
}

fn check_width<V: Width>(what: &'static str, count: u64) -> Result<()> {
    let bits = 8 * u32::try_from(size_of::<V>()).unwrap_or(u32::MAX);
    // The largest number means "none".
    if count >= V::NONE.at() as u64 {
        return Err(GraphError::Width { what, count, bits });
    }
    Ok(())
}
