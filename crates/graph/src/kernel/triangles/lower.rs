//! Lower neighbours of each vertex in some order, as separate rows or as the start of its row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, cells};

use crate::access_sink::AccessSink;
use crate::csr::Rows;
use crate::kernel::Setup;
use crate::kernel::cost::{ArrayUsage, PhaseTimer};
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, ThreadPool, Width};

/// Rows that start with the lower neighbours, or contain only these.
pub(super) struct Lower<'a, V: Width> {
    graph: &'a Graph<V>,
    /// Rank of each vertex by degree.
    ranks: Property<V>,
    /// Separate rows, if vertices are ordered by degree.
    separate: Option<OrderedRows<V>>,
}

/// Separate rows of lower neighbours, by rank: highest degrees first.
struct OrderedRows<V: Width> {
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
}

/// Vertices in a chunk.
const CHUNK: usize = 1024;
/// Ratio of the work to that of a graph with equal degrees, above which ordering by degree pays.
const SKEWED: u64 = 4;

impl<'a, V: Width> Lower<'a, V> {
    /// Orders vertices by degree if that pays. `ranks` has room for each vertex.
    pub(super) fn of<H: AccessSink>(
        graph: &'a Graph<V>,
        mut ranks: Property<V>,
        setup: &Setup<H>,
        timer: &PhaseTimer,
    ) -> Result<Self> {
        let separate = if is_skewed(graph, setup.pool) {
            rank(graph, &mut ranks);
            timer.touched();
            Some(OrderedRows::by_degree(graph, &ranks, setup)?)
        } else {
            None
        };
        Ok(Self { graph, ranks, separate })
    }

    /// Returns the separate rows, unsorted, or the rows of the graph, ascending. The caller takes
    /// the start of the latter.
    pub(super) fn rows(&self) -> Rows<'_, V> {
        let rows = self.graph.out.rows();
        match &self.separate {
            None => rows,
            Some(OrderedRows { offsets, edges }) => Rows { offsets, edges, weights: &[], ..rows },
        }
    }

    /// Whether the rows are those of the graph.
    pub(super) fn are_whole(&self) -> bool {
        self.separate.is_none()
    }

    /// Reads the pagemap.
    pub(super) fn usage(&self) -> Result<Vec<ArrayUsage>> {
        let mut usage = vec![ArrayUsage::read(Array::Property, &self.ranks)?];
        if let Some(OrderedRows { offsets, edges }) = &self.separate {
            usage.push(ArrayUsage::read(Array::Offsets, offsets)?);
            usage.push(ArrayUsage::read(Array::Edges, edges)?);
        }
        Ok(usage)
    }
}

/// Whether hubs cause most of the work.
fn is_skewed<V: Width>(graph: &Graph<V>, pool: ThreadPool) -> bool {
    let (vertices, edges, work) = (graph.vertices(), graph.edges() as u64, AtomicU64::new(0));
    // A vertex with l lower and h higher neighbours is scanned h times. The estimate is that half
    // of the neighbours are lower.
    pool.each(vertices, CHUNK, |range| {
        let of = |degree: usize| (degree as u64 / 2) * (degree as u64).div_ceil(2);
        work.fetch_add(graph.out.rows().degrees(range, ()).map(of).sum(), Relaxed);
    });
    // Equal degrees would yield edges²/vertices.
    let alike = u128::from(edges).pow(2) / (vertices as u128).max(1);
    u128::from(work.into_inner()) > alike * u128::from(SKEWED)
}

/// Ranks vertices by a counting sort of the degrees.
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
    /// Builds rows by rank.
    fn by_degree<H: AccessSink>(graph: &Graph<V>, ranks: &[V], setup: &Setup<H>) -> Result<Self> {
        let vertices = graph.vertices();
        let mut offsets = setup.pages.zeroed::<V>(Array::Offsets, vertices + 1)?;
        let counts = cells(&mut offsets);
        let below = |v: usize| {
            graph.out.neighbours(v).iter().map(|to| ranks[to.at()]).filter(move |&to| to < ranks[v])
        };
        setup.pool.each(vertices, CHUNK, |range| {
            for v in range {
                counts[ranks[v].at() + 1].set(V::new(below(v).count()));
            }
        });
        for v in 0..vertices {
            offsets[v + 1] = offsets[v] + offsets[v + 1];
        }
        let mut edges = setup.pages.zeroed::<V>(Array::Edges, offsets[vertices].at())?;
        let filled = cells(&mut edges);
        setup.pool.each(vertices, CHUNK, |range| {
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
