//! Lower neighbours of each vertex in some order, as separate rows or as the start of its row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, cells};

use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::csr::Rows;
use crate::kernel::Setup;
use crate::kernel::cost::{ArrayUsage, PhaseTimer};
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width, WorkQueue};

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

/// Role of the separate rows.
const ROLE: &str = "by-degree";
/// Vertices in a chunk.
const CHUNK: usize = 1024;
/// Ratio of the work to that of a graph with equal degrees, above which ordering by degree pays.
const SKEWED: u64 = 4;

impl<'a, V: Width> Lower<'a, V> {
    /// Orders vertices by degree if that pays. `ranks` has room for each vertex. `worklists` are
    /// the other arrays of the kernel.
    pub(super) fn of<T: Tracer>(
        graph: &'a Graph<V>,
        mut ranks: Property<V>,
        setup: &Setup<T>,
        worklists: &[ArrayRange],
        timer: &PhaseTimer,
    ) -> Result<Self> {
        let announce = |ranks: &[V], rows: &[ArrayRange]| {
            let ranks = ArrayRange::new(Array::Property, "ranks", ranks);
            setup.announce(graph, &|| {
                let own = worklists.iter().chain([&ranks]).chain(rows);
                own.cloned().collect()
            });
        };
        announce(&ranks, &[]);
        let separate = if is_skewed(graph, setup) {
            rank(graph, &mut ranks, setup);
            timer.touched();
            let announce = |rows: &[ArrayRange]| announce(&ranks, rows);
            Some(OrderedRows::by_degree(graph, &ranks, setup, announce)?)
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
fn is_skewed<V: Width, T: Tracer>(graph: &Graph<V>, setup: &Setup<T>) -> bool {
    let (vertices, edges, work) = (graph.vertices(), graph.edges() as u64, AtomicU64::new(0));
    let all = WorkQueue::default();
    // A vertex with l lower and h higher neighbours is scanned h times. The estimate is that half
    // of the neighbours are lower.
    setup.run(|worker| {
        worker.phase(format_args!("tc begin"));
        worker.each(&all, vertices, CHUNK, |range| {
            let of = |degree: usize| (degree as u64 / 2) * (degree as u64).div_ceil(2);
            let sum = graph.out.rows().degrees(range, worker.sink).map(of).sum();
            work.fetch_add(sum, Relaxed);
        });
    });
    // Equal degrees would yield edges²/vertices.
    let alike = u128::from(edges).pow(2) / (vertices as u128).max(1);
    u128::from(work.into_inner()) > alike * u128::from(SKEWED)
}

/// Ranks vertices by a counting sort of the degrees.
fn rank<V: Width, T: Tracer>(graph: &Graph<V>, ranks: &mut [V], setup: &Setup<T>) {
    let sink = &setup.tracer.sink(0);
    let degrees = || graph.out.rows().degrees(0..graph.vertices(), sink);
    let most = degrees().max().unwrap_or(0);
    let mut next = vec![0; most + 2];
    degrees().for_each(|degree| next[most - degree + 1] += 1);
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    for (rank, degree) in ranks.iter_mut().zip(degrees()) {
        let place = &mut next[most - degree];
        sink.write(Array::Property, rank);
        *rank = V::new(*place);
        *place += 1;
    }
}

impl<V: Width> OrderedRows<V> {
    /// Builds rows by rank.
    fn by_degree<T: Tracer>(
        graph: &Graph<V>,
        ranks: &[V],
        setup: &Setup<T>,
        announce: impl Fn(&[ArrayRange]),
    ) -> Result<Self> {
        let vertices = graph.vertices();
        let mut offsets = setup.pages.zeroed::<V>(Array::Offsets, vertices + 1)?;
        let of_offsets = ArrayRange::new(Array::Offsets, ROLE, &offsets);
        announce(std::slice::from_ref(&of_offsets));
        let (counts, work) = (cells(&mut offsets), WorkQueue::default());
        setup.run(|worker| {
            worker.each(&work, vertices, CHUNK, |range| {
                for v in range {
                    let (rank, below) = below(graph, ranks, v, worker.sink);
                    worker.sink.write(Array::Offsets, &counts[rank.at() + 1]);
                    counts[rank.at() + 1].set(V::new(below.count()));
                }
            });
        });
        let sink = setup.tracer.sink(0);
        for v in 0..vertices {
            sink.read(Array::Offsets, &offsets[v]);
            sink.read(Array::Offsets, &offsets[v + 1]);
            sink.write(Array::Offsets, &offsets[v + 1]);
            offsets[v + 1] = offsets[v] + offsets[v + 1];
        }
        drop(sink);
        let mut edges = setup.pages.zeroed::<V>(Array::Edges, offsets[vertices].at())?;
        announce(&[of_offsets, ArrayRange::new(Array::Edges, ROLE, &edges)]);
        let (filled, work) = (cells(&mut edges), WorkQueue::default());
        setup.run(|worker| {
            worker.each(&work, vertices, CHUNK, |range| {
                for v in range {
                    let (rank, below) = below(graph, ranks, v, worker.sink);
                    worker.sink.read(Array::Offsets, &offsets[rank.at()]);
                    let start = offsets[rank.at()].at();
                    for (cell, to) in filled[start..].iter().zip(below) {
                        worker.sink.write(Array::Edges, cell);
                        cell.set(to);
                    }
                }
            });
        });
        Ok(Self { offsets, edges })
    }
}

/// Returns the rank of a vertex, and the lower ranks of its neighbours.
fn below<'a, V: Width>(
    graph: &'a Graph<V>,
    ranks: &'a [V],
    v: usize,
    sink: &'a impl AccessSink,
) -> (V, impl Iterator<Item = V> + 'a) {
    let out = graph.out.rows();
    sink.read(Array::Property, &ranks[v]);
    out.record_access(v, sink);
    let rank = ranks[v];
    let of_neighbours = out.neighbours(v).iter().map(move |to| {
        sink.read(Array::Edges, to);
        sink.read(Array::Property, &ranks[to.at()]);
        ranks[to.at()]
    });
    (rank, of_neighbours.filter(move |&to| to < rank))
}
