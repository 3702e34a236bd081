//! Of each vertex, the neighbours that come before it in an order.

use hugepilot_alloc::{HugeVec, cells};

use crate::hook::Hook;
use crate::kernel::Setup;
use crate::kernel::spent::Held;
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width};

/// Rows of neighbours that come before.
pub(super) struct Lower<'a, V: Width> {
    graph: &'a Graph<V>,
    /// By degree.
    anew: Option<Anew<V>>,
}

/// Rows of their own, by new numbers: those with many edges first.
struct Anew<V: Width> {
    /// The new number of each vertex.
    ranks: Property<V>,
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
}

/// Vertices in a piece of work.
const PIECE: usize = 1024;
/// So many times the work of a graph whose vertices are alike: then it pays to number them anew.
const SKEWED: u64 = 4;
/// Vertices that are asked for their work, evenly chosen.
const ASKED: usize = 1 << 14;

impl<'a, V: Width> Lower<'a, V> {
    /// By degree if that pays.
    pub(super) fn of<H: Hook>(graph: &'a Graph<V>, setup: &Setup<H>) -> Result<Self> {
        let rows = Self { graph, anew: None };
        if !rows.is_skewed() {
            return Ok(rows);
        }
        Ok(Self { graph, anew: Some(Anew::by_degree(graph, setup)?) })
    }

    fn is_skewed(&self) -> bool {
        let (vertices, edges) = (self.graph.vertices(), self.graph.edges() as u64);
        let asked = (0..vertices).step_by(vertices.div_ceil(ASKED).max(1));
        let count = asked.len() as u64;
        // A vertex with l neighbours below and h above is looked through h times.
        let work = asked.map(|v| {
            let (row, below) = (self.graph.out.neighbours(v), self.row(v).len());
            (below * (row.len() - below)) as u64
        });
        // If all were alike that made (edges/vertices)² each.
        let alike = u128::from(edges) * u128::from(edges) * u128::from(count * SKEWED);
        u128::from(work.sum::<u64>()) * (vertices as u128).pow(2) > alike
    }

    #[inline]
    pub(super) fn row(&self, v: usize) -> &[V] {
        match &self.anew {
            None => {
                let row = self.graph.out.neighbours(v);
                &row[..row.partition_point(|to| to.at() < v)]
            }
            Some(anew) => anew.row(v),
        }
    }

    /// The graph whose rows these are the beginnings of, in order; none if they are by degree.
    #[inline]
    pub(super) fn by_numbers(&self) -> Option<&'a Graph<V>> {
        self.anew.is_none().then_some(self.graph)
    }

    /// On which pages all this is.
    pub(super) fn held(&self) -> Result<Vec<Held>> {
        let Some(Anew { ranks, offsets, edges }) = &self.anew else { return Ok(Vec::new()) };
        let ranks = Held::look(Array::Property, ranks)?;
        Ok(vec![ranks, Held::look(Array::Offsets, offsets)?, Held::look(Array::Edges, edges)?])
    }
}

impl<V: Width> Anew<V> {
    #[inline]
    fn row(&self, v: usize) -> &[V] {
        &self.edges[self.offsets[v].at()..self.offsets[v + 1].at()]
    }

    fn by_degree<H: Hook>(graph: &Graph<V>, setup: &Setup<H>) -> Result<Self> {
        let vertices = graph.vertices();
        let mut ranks = setup.property::<V>(vertices)?;
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
        let (numbers, counts) = (&ranks[..], cells(&mut offsets));
        let below = |v: usize| {
            graph.out.neighbours(v).iter().map(|to| numbers[to.at()]).filter(move |&to| to < numbers[v])
        };
        setup.team.each(vertices, PIECE, |range| {
            for v in range {
                counts[numbers[v].at() + 1].set(V::new(below(v).count()));
            }
        });
        for v in 0..vertices {
            offsets[v + 1] = offsets[v] + offsets[v + 1];
        }
        let mut edges = setup.pages.zeroed::<V>(Array::Edges, offsets[vertices].at())?;
        let filled = cells(&mut edges);
        setup.team.each(vertices, PIECE, |range| {
            for v in range {
                let start = offsets[numbers[v].at()].at();
                for (cell, to) in filled[start..].iter().zip(below(v)) {
                    cell.set(to);
                }
            }
        });
        Ok(Self { ranks, offsets, edges })
    }
}
