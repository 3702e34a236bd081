//! Lower bound on the diameter: the length of a long shortest path.

use std::cmp::Reverse;
use std::time::Instant;

use hugepilot_alloc::{Plain, cells};

use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::verify::{Verdict, VerifyError};
use super::{Direction, Setup, bfs, serial_bfs};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::csr::Rows;
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, Result, Width, Worker};

/// Algorithm for the lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiameterAlgorithm {
    /// Searches from a vertex to a farthest one, of these the one of least degree, and continues
    /// from there while the distance grows.
    #[default]
    DoubleSweep,
    /// Searches from 64 vertices at once, one bit of a word for each. Reads eight scattered bytes
    /// per edge.
    MultiSource,
}

/// Result of the diameter kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Diameter {
    /// Length of the longest shortest path found.
    pub lower_bound: usize,
    /// Searches, or rounds of the multi-source search.
    pub rounds: usize,
    /// First and last vertex of a shortest path of that length.
    pub ends: [usize; 2],
    /// Cost of all searches together, with the arrays of the last.
    pub cost: KernelCost,
}

/// Searches from `source`, or from 64 evenly spaced vertices that include it.
///
/// # Errors
/// See [`bfs`].
pub fn diameter<V: Width, T: Tracer>(
    graph: &Graph<V>,
    source: V,
    algorithm: DiameterAlgorithm,
    setup: &Setup<T>,
) -> Result<Diameter> {
    graph.check(source)?;
    match algorithm {
        DiameterAlgorithm::DoubleSweep => double_sweep(graph, source, setup),
        DiameterAlgorithm::MultiSource => multi_source(graph, source, setup),
    }
}

fn double_sweep<V: Width, T: Tracer>(
    graph: &Graph<V>,
    mut source: V,
    setup: &Setup<T>,
) -> Result<Diameter> {
    let mut found =
        Diameter { lower_bound: 0, rounds: 0, ends: [source.at(); 2], cost: KernelCost::default() };
    loop {
        let mut search = bfs(graph, source, Direction::Optimizing, setup)?;
        found.rounds += 1;
        found.cost = found.cost.then(std::mem::take(&mut search.cost));
        let far = search.levels.len() - 1;
        if far <= found.lower_bound && found.rounds > 1 {
            return Ok(found);
        }
        found.lower_bound = far;
        let began = Instant::now();
        let end = farthest(graph, &search, source);
        found.ends = [source.at(), end.at()];
        source = end;
        found.cost.kernel += began.elapsed();
    }
}

/// Returns the vertex of least degree in the last level.
fn farthest<V: Width>(graph: &Graph<V>, search: &super::Bfs<V>, source: V) -> V {
    let distances = search.distances(source).unwrap_or_default();
    let last = search.levels.len() - 1;
    let far = (0..distances.len()).filter(|&v| distances[v] as usize == last);
    far.min_by_key(|&v| graph.out.degree(v)).map_or(source, V::new)
}

fn multi_source<V: Width, T: Tracer>(
    graph: &Graph<V>,
    source: V,
    setup: &Setup<T>,
) -> Result<Diameter> {
    const CHUNK: usize = 1024;
    let (vertices, sources) = (graph.vertices(), graph.vertices().min(64));
    let timer = PhaseTimer::start();
    let (mut one, mut other) = (setup.property::<u64>(vertices)?, setup.property::<u64>(vertices)?);
    let seen: [&[<u64 as Plain>::Cell]; 2] = [cells(&mut one), cells(&mut other)];
    setup.announce(graph, &|| {
        ["reached-0", "reached-1"]
            .into_iter()
            .zip(seen)
            .map(|(role, seen)| ArrayRange::new(Array::Property, role, seen))
            .collect()
    });
    timer.allocated();
    let (rounds, incoming) = (Rounds::default(), graph.incoming_rows());
    let start = |i: usize| (source.at() + i * vertices / sources) % vertices;
    let found = setup.run(|worker| {
        begin(worker, seen, (0..sources).map(start), &timer);
        // Last vertex that a new source reached: the round, the least such vertex, and the source.
        let mut last = (0, source.at(), 0);
        for round in 0.. {
            worker.phase(format_args!("diameter {}", round + 1));
            let (now, next) = (seen[round % 2], seen[(round + 1) % 2]);
            let state = rounds.state(worker, round);
            let mut changes = 0;
            worker.each(&state.work, vertices, CHUNK, |range| {
                for v in range {
                    let before = now[v].get();
                    let bits = gather(now, incoming, v, worker.sink);
                    if bits != before {
                        changes += 1;
                        if round >= last.0 || v < last.1 {
                            last = (round + 1, v, (bits & !before).trailing_zeros() as usize);
                        }
                    }
                    worker.sink.write(Array::Property, &next[v]);
                    next[v].set(bits);
                }
            });
            state.add(changes, 0);
            worker.barrier();
            if rounds.sums(round).0 == 0 {
                break;
            }
        }
        last
    });
    let mut cost = timer.stop();
    cost.arrays =
        vec![ArrayUsage::read(Array::Property, &one)?, ArrayUsage::read(Array::Property, &other)?];
    let last = found.into_iter().max_by_key(|&(round, v, _)| (round, Reverse(v)));
    let (rounds, end, from) = last.unwrap_or((0, source.at(), 0));
    Ok(Diameter { lower_bound: rounds, rounds: rounds + 1, ends: [start(from), end], cost })
}

/// Clears both arrays, and sets a bit for each source.
fn begin(
    worker: &Worker<impl AccessSink>,
    seen: [&[<u64 as Plain>::Cell]; 2],
    sources: impl Iterator<Item = usize>,
    timer: &PhaseTimer,
) {
    worker.phase(format_args!("diameter begin"));
    for v in worker.part(seen[0].len()) {
        for seen in seen {
            worker.sink.write(Array::Property, &seen[v]);
            seen[v].set(0);
        }
    }
    worker.barrier();
    timer.touched();
    if worker.id == 0 {
        for (i, source) in sources.enumerate() {
            let bits = &seen[0][source];
            worker.sink.read(Array::Property, bits);
            worker.sink.write(Array::Property, bits);
            bits.set(bits.get() | 1 << i);
        }
    }
    worker.barrier();
}

/// Joins the bits of a vertex and of its predecessors.
#[inline]
fn gather<V: Width>(
    bits: &[<u64 as Plain>::Cell],
    incoming: Rows<'_, V>,
    v: usize,
    sink: &impl AccessSink,
) -> u64 {
    sink.read(Array::Property, &bits[v]);
    incoming.record_access(v, sink);
    incoming.neighbours(v).iter().fold(bits[v].get(), |joined, from| {
        sink.read(incoming.names[1], from);
        sink.read(Array::Property, &bits[from.at()]);
        joined | bits[from.at()].get()
    })
}

impl Diameter {
    /// Checks the length of the path by a search on one thread.
    ///
    /// # Errors
    /// The actual length.
    pub fn verify<V: Width>(&self, graph: &Graph<V>) -> Verdict {
        let [from, to] = self.ends;
        let (levels, _) = serial_bfs(graph, from);
        match levels[to] {
            usize::MAX => Err(VerifyError::NoPath { from, to }),
            length if length != self.lower_bound => {
                Err(VerifyError::PathLength { from, to, expected: length, found: self.lower_bound })
            }
            _ => Ok(()),
        }
    }
}
