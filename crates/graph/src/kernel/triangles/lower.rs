//! Of each vertex, the neighbours that come before it in an order: a row of their own, or the beginning of its row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, cells};

use crate::access_sink::AccessSink;
use crate::csr::Rows;
use crate::kernel::Setup;
use crate::kernel::cost::{ArrayUsage, PhaseTimer};
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, ThreadPool, Width};

/// Rows that begin with the neighbours before the vertex, or have only these.
pub(super) struct Lower<'a, V: Width> {
    graph: &'a Graph<V>,
    /// By degree: the new number of each vertex.
    ranks: Property<V>,
    /// By degree.
    anew: Option<OrderedRows<V>>,
}

/// Rows of their own, by new numbers: those with many edges first.
struct OrderedRows<V: Width> {
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
}

/// Vertices in a piece of work.
const PIECE: usize = 1024;
/// So many times the work of a graph whose vertices are alike: then it pays to number them anew.
const SKEWED: u64 = 4;

impl<'a, V: Width> Lower<'a, V> {
    /// By degree if that pays. `ranks` has room for each vertex.
    pub(super) fn of<H: AccessSink>(
        graph: &'a Graph<V>,
        mut ranks: Property<V>,
        setup: &Setup<H>,
        timer: &PhaseTimer,
    ) -> Result<Self> {
        let anew = if is_skewed(graph, setup.pool) {
            rank(graph, &mut ranks);
            timer.touched();
            Some(OrderedRows::by_degree(graph, &ranks, setup)?)
        } else {
            None
        };
        Ok(Self { graph, ranks, anew })
    }

    /// By degree what comes before alone, in no order; else the graph's own rows, ascending and whole, of which the caller takes the
    /// beginnings.
    pub(super) fn rows(&self) -> Rows<'_, V> {
        let rows = self.graph.out.rows();
        match &self.anew {
            None => rows,
            Some(OrderedRows { offsets, edges }) => Rows { offsets, edges, weights: &[], ..rows },
        }
    }

    /// Whether rows are the graph's own.
    pub(super) fn are_whole(&self) -> bool {
        self.anew.is_none()
    }

    /// On which pages all this is.
    pub(super) fn usage(&self) -> Result<Vec<ArrayUsage>> {
        let mut usage = vec![ArrayUsage::read(Array::Property, &self.ranks)?];
        if let Some(OrderedRows { offsets, edges }) = &self.anew {
            usage.push(ArrayUsage::read(Array::Offsets, offsets)?);
            usage.push(ArrayUsage::read(Array::Edges, edges)?);
        }
        Ok(usage)
    }
}

/// Whether hubs make most of the work.
fn is_skewed<V: Width>(graph: &Graph<V>, pool: ThreadPool) -> bool {
    let (vertices, edges, work) = (graph.vertices(), graph.edges() as u64, AtomicU64::new(0));
    // A vertex with l neighbours below and h above is looked through h times: half of its edges are below, for all we know.
    pool.each(vertices, PIECE, |range| {
        let of = |degree: usize| (degree as u64 / 2) * (degree as u64).div_ceil(2);
        work.fetch_add(graph.out.rows().degrees(range, ()).map(of).sum(), Relaxed);
    });
    // If all were alike that made edges²/vertices.
    let alike = u128::from(edges).pow(2) / (vertices as u128).max(1);
    u128::from(work.into_inner()) > alike * u128::from(SKEWED)
}

/// New numbers, by counting: how many vertices have more edges, then one after the other.
fn rank<V: Width>(graph: &Graph<V>, ranks: &mut [V]) {
    let degrees = || graph.out.rows().degrees(0..graph.vertices(), ());
    let most = degrees().max().unwrap_or(0);
    let mut next = vec![0; most + 2];
    degrees().for_each(|degree| next[most - degree + 1] += 1);
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    for (rank, degree) in ranks.iter_mut().zip(degrees()) {
        let place = &mut next[most - degree];
        *rank = V::new(*place);
        *place += 1;
    }
}

impl<V: Width> OrderedRows<V> {
    /// By their new numbers, `ranks`.
    fn by_degree<H: AccessSink>(graph: &Graph<V>, ranks: &[V], setup: &Setup<H>) -> Result<Self> {
        let vertices = graph.vertices();
        let mut offsets = setup.pages.zeroed::<V>(Array::Offsets, vertices + 1)?;
        let counts = cells(&mut offsets);
        let below = |v: usize| {
            graph.out.neighbours(v).iter().map(|to| ranks[to.at()]).filter(move |&to| to < ranks[v])
        };
        setup.pool.each(vertices, PIECE, |range| {
            for v in range {
                counts[ranks[v].at() + 1].set(V::new(below(v).count()));
            }
        });
        for v in 0..vertices {
            offsets[v + 1] = offsets[v] + offsets[v + 1];
        }
        let mut edges = setup.pages.zeroed::<V>(Array::Edges, offsets[vertices].at())?;
        let filled = cells(&mut edges);
        setup.pool.each(vertices, PIECE, |range| {
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
