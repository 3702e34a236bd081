//! Of each vertex, the neighbours that come before it in an order.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, cells};

use crate::hook::Hook;
use crate::kernel::Setup;
use crate::kernel::spent::{Held, Watch};
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width};

/// Rows of neighbours that come before.
pub(super) struct Lower<'a, V: Width> {
    graph: &'a Graph<V>,
    /// By numbers: how much of each row comes before. By degree: the new number of each vertex.
    ends: Property<V>,
    /// By degree.
    anew: Option<Anew<V>>,
}

/// Rows of their own, by new numbers: those with many edges first.
struct Anew<V: Width> {
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
}

/// Vertices in a piece of work.
const PIECE: usize = 1024;
/// So many times the work of a graph whose vertices are alike: then it pays to number them anew.
const SKEWED: u64 = 4;

impl<'a, V: Width> Lower<'a, V> {
    /// `ends` has room for each vertex.
    pub(super) fn of<H: Hook>(
        graph: &'a Graph<V>,
        mut ends: Property<V>,
        setup: &Setup<H>,
        watch: &Watch,
    ) -> Result<Self> {
        let (vertices, work) = (graph.vertices(), AtomicU64::new(0));
        let shared = cells(&mut ends);
        setup.team.each(vertices, PIECE, |range| {
            let mut sum = 0;
            for v in range {
                let row = graph.out.neighbours(v);
                let below = row.partition_point(|to| to.at() < v);
                shared[v].set(V::new(below));
                sum += (below * (row.len() - below)) as u64;
            }
            work.fetch_add(sum, Relaxed);
        });
        watch.touched();
        let edges = graph.edges() as u64;
        // A vertex with l neighbours below and h above is looked through h times; if all were alike that made edges²/vertices.
        let alike = edges.saturating_mul(edges) / (vertices as u64).max(1);
        if work.into_inner() <= alike.saturating_mul(SKEWED) {
            return Ok(Self { graph, ends, anew: None });
        }
        let anew = Some(Anew::by_degree(graph, &mut ends, setup)?);
        Ok(Self { graph, ends, anew })
    }

    #[inline]
    pub(super) fn row(&self, v: usize) -> &[V] {
        match &self.anew {
            None => &self.graph.out.neighbours(v)[..self.ends[v].at()],
            Some(Anew { offsets, edges }) => &edges[offsets[v].at()..offsets[v + 1].at()],
        }
    }

    /// On which pages all this is.
    pub(super) fn held(&self) -> Result<Vec<Held>> {
        let mut held = vec![Held::look(Array::Property, &self.ends)?];
        if let Some(Anew { offsets, edges }) = &self.anew {
            held.push(Held::look(Array::Offsets, offsets)?);
            held.push(Held::look(Array::Edges, edges)?);
        }
        Ok(held)
    }
}

impl<V: Width> Anew<V> {
    /// `ranks` becomes the new numbers.
    fn by_degree<H: Hook>(graph: &Graph<V>, ranks: &mut [V], setup: &Setup<H>) -> Result<Self> {
        let vertices = graph.vertices();
        // By counting: how many vertices have more edges, then one after the other.
        let most = (0..vertices).map(|v| graph.out.degree(v)).max().unwrap_or(0);
        let mut next = vec![0; most + 2];
        (0..vertices).for_each(|v| next[most - graph.out.degree(v) + 1] += 1);
        for i in 1..next.len() {
            next[i] += next[i - 1];
        }
        for (v, rank) in ranks.iter_mut().enumerate() {
            let place = &mut next[most - graph.out.degree(v)];
            *rank = V::new(*place);
            *place += 1;
        }
        let mut offsets = setup.pages.zeroed::<V>(Array::Offsets, vertices + 1)?;
        let (ranks, counts) = (&*ranks, cells(&mut offsets));
        let below = |v: usize| {
            graph.out.neighbours(v).iter().map(|to| ranks[to.at()]).filter(move |&to| to < ranks[v])
        };
        setup.team.each(vertices, PIECE, |range| {
            for v in range {
                counts[ranks[v].at() + 1].set(V::new(below(v).count()));
            }
        });
        for v in 0..vertices {
            offsets[v + 1] = offsets[v] + offsets[v + 1];
        }
        let mut edges = setup.pages.zeroed::<V>(Array::Edges, offsets[vertices].at())?;
        let filled = cells(&mut edges);
        setup.team.each(vertices, PIECE, |range| {
            for v in range {
                let start = offsets[ranks[v].at()].at();
                for (cell, to) in filled[start..].iter().zip(below(v)) {
                    cell.set(to);
                }
            }
        });
        Ok(Self { offsets, edges })
    }
}
