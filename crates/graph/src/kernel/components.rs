//! Connected components: vertices joined into trees by their edges, whose roots name the components.

use std::ops::Range;

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use crate::access_sink::AccessSink;
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width, Worker};

/// How edges are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CcAlgorithm {
    /// A few edges of each vertex first; then those only of vertices outside the largest component (Afforest; Sutton and
    /// others, IPDPS'18).
    #[default]
    Afforest,
    /// All edges in every round, until nothing changes (Shiloach and Vishkin, 1982): reads each vertex's value most.
    ShiloachVishkin,
}

/// Which component each vertex is in; the direction of edges does not matter.
#[derive(Debug)]
pub struct Components<V: Width> {
    /// The least vertex of the component.
    pub labels: Property<V>,
    /// What it took.
    pub cost: KernelCost,
}

/// Vertices in a piece of work.
const PIECE: usize = 1 << 14;
/// Edges of each vertex that are joined before the largest component is looked for.
const FIRST: usize = 2;
/// Vertices that are asked which component is the largest.
const SAMPLED: usize = 1024;

struct Work<'a, V: Width, H: AccessSink> {
    graph: &'a Graph<V>,
    labels: Labels<'a, V, H>,
    rounds: Rounds,
    timer: PhaseTimer,
}

/// The trees: the label of each vertex is the one above it, of a root its own. Handed on by value, so that a loop has it in registers.
#[derive(Clone, Copy)]
struct Labels<'a, V: Width, H: AccessSink> {
    cells: &'a [<V as Plain>::Cell],
    sink: H,
}

/// One word per vertex; Afforest reads most edges of the largest component never.
///
/// # Errors
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn components<V: Width, H: AccessSink>(
    graph: &Graph<V>,
    algorithm: CcAlgorithm,
    setup: &Setup<H>,
) -> Result<Components<V>> {
    let timer = PhaseTimer::start();
    let mut labels = setup.property::<V>(graph.vertices())?;
    let trees = Labels { cells: cells(&mut labels), sink: setup.sink };
    let work = Work { graph, labels: trees, rounds: Rounds::default(), timer };
    work.timer.allocated();
    setup.pool.run(|worker| match algorithm {
        CcAlgorithm::Afforest => work.afforest(&worker),
        CcAlgorithm::ShiloachVishkin => work.shiloach_vishkin(&worker),
    });
    let mut cost = work.timer.stop();
    cost.arrays.push(ArrayUsage::read(Array::Property, &labels)?);
    Ok(Components { labels, cost })
}

impl<V: Width, H: AccessSink> Work<'_, V, H> {
    /// Calls `work` for some vertices at a time, until it was for all, as a round of its own.
    fn each(&self, worker: &Worker, round: &mut usize, mut work: impl FnMut(Range<usize>)) {
        self.any(worker, round, |range| {
            work(range);
            false
        });
    }

    /// The same, and true if `work` was, by any thread.
    fn any(
        &self,
        worker: &Worker,
        round: &mut usize,
        mut work: impl FnMut(Range<usize>) -> bool,
    ) -> bool {
        let (state, mut changed) = (self.rounds.state(worker, *round), false);
        worker.each(&state.work, self.labels.cells.len(), PIECE, |range| changed |= work(range));
        state.add(changed.into(), 0);
        worker.barrier();
        *round += 1;
        self.rounds.sums(*round - 1).0 > 0
    }

    /// Each vertex is a tree of its own.
    fn begin(&self, worker: &Worker, round: &mut usize) {
        self.each(worker, round, |range| {
            range.clone().zip(&self.labels.cells[range]).for_each(|(v, cell)| cell.set(V::new(v)));
        });
        self.timer.touched();
    }

    fn shorten(&self, worker: &Worker, round: &mut usize) {
        self.each(worker, round, |range| {
            self.labels.cells[range].iter().for_each(|cell| self.labels.shorten(cell));
        });
    }

    fn afforest(&self, worker: &Worker) {
        let (mut round, labels, sink) = (0, self.labels, self.labels.sink);
        let (out, incoming) = (self.graph.out.rows(), self.graph.incoming_rows());
        self.begin(worker, &mut round);
        for nth in 0..FIRST {
            self.each(worker, &mut round, |range| {
                for (v, row) in range.clone().zip(out.each(range, sink)) {
                    row.get(nth)
                        .into_iter()
                        .for_each(|to| labels.join(V::new(v), to, Array::Edges));
                }
            });
            self.shorten(worker, &mut round);
        }
        // Only reads from here to the next barrier, so all find the same.
        let largest = labels.largest();
        worker.barrier();
        self.each(worker, &mut round, |range| {
            for v in range.map(V::new).filter(|&v| labels.get(v) != largest) {
                out.record_access(v.at(), sink);
                let rest = out.neighbours(v.at()).get(FIRST..).unwrap_or_default();
                rest.iter().for_each(|to| labels.join(v, to, Array::Edges));
                if self.graph.is_directed() {
                    incoming.record_access(v.at(), sink);
                    incoming
                        .neighbours(v.at())
                        .iter()
                        .for_each(|from| labels.join(v, from, Array::InEdges));
                }
            }
        });
        self.shorten(worker, &mut round);
    }

    fn shiloach_vishkin(&self, worker: &Worker) {
        let (mut round, labels) = (0, self.labels);
        self.begin(worker, &mut round);
        loop {
            let changed = self.any(worker, &mut round, |range| {
                let rows = self.graph.out.rows().each(range.clone(), labels.sink);
                labels.cells[range]
                    .iter()
                    .zip(rows)
                    .fold(false, |any, (cell, row)| any | labels.hook_row(cell, row))
            });
            // Where nothing was hooked, all are under their roots since the round before.
            if !changed {
                return;
            }
            self.shorten(worker, &mut round);
        }
    }
}

impl<V: Width, H: AccessSink> Labels<'_, V, H> {
    #[inline]
    fn get(self, v: V) -> V {
        self.seen(&self.cells[v.at()])
    }

    #[inline]
    fn seen(self, cell: &<V as Plain>::Cell) -> V {
        self.sink.read(Array::Property, cell);
        cell.get()
    }

    /// The component that most of some vertices, chosen evenly, are in.
    fn largest(self) -> V {
        let step = self.cells.len().div_ceil(SAMPLED).max(1);
        let mut labels: Vec<V> = self.cells.iter().step_by(step).map(Cell::get).collect();
        labels.sort_unstable();
        let groups = labels.chunk_by(|a, b| a == b).max_by_key(|group| group.len());
        groups.map_or(V::NONE, |group| group[0])
    }

    /// Puts the trees of a vertex and of a neighbour under one root: the higher root under the lower.
    #[inline]
    fn join(self, v: V, neighbour: &V, edges: Array) {
        self.sink.read(edges, neighbour);
        let (mut a, mut b) = (self.get(v), self.get(*neighbour));
        while a != b {
            let (high, low) = (a.max(b), a.min(b));
            let above = self.get(high);
            if above == low {
                return;
            }
            if above == high && self.cells[high.at()].replace(high, low) {
                self.sink.write(Array::Property, &self.cells[high.at()]);
                return;
            }
            a = self.get(self.get(high));
            b = self.get(low);
        }
    }

    /// Puts a vertex, whose label is `cell`, directly under its root.
    #[inline]
    fn shorten(self, cell: &<V as Plain>::Cell) {
        let first = self.seen(cell);
        let mut label = first;
        loop {
            let above = self.get(label);
            if above == label {
                break;
            }
            label = above;
        }
        if label != first {
            self.sink.write(Array::Property, cell);
            cell.set(label);
        }
    }

    /// Hooks the root of a vertex, whose label is `cell`, and those of its neighbours under each other. True if any was.
    #[inline]
    fn hook_row(self, cell: &<V as Plain>::Cell, row: &[V]) -> bool {
        let (mut own, mut changed) = (self.seen(cell), false);
        for to in row {
            self.sink.read(Array::Edges, to);
            let other = self.get(*to);
            if own == other {
                continue;
            }
            // Only roots are hooked, and only under lower ones.
            let (high, low) = (own.max(other), own.min(other));
            if self.get(high) == high {
                self.sink.write(Array::Property, &self.cells[high.at()]);
                // If another thread hooks it at the same time, one of the two is lost, and done in the next round.
                self.cells[high.at()].set(low);
                changed = true;
                own = self.seen(cell);
            }
        }
        changed
    }
}

impl<V: Width> Components<V> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.labels.iter().enumerate().filter(|&(v, label)| label.at() == v).count()
    }

    /// How many vertices the largest has.
    pub fn largest(&self) -> usize {
        let mut sizes = vec![0; self.labels.len()];
        self.labels.iter().for_each(|label| sizes[label.at()] += 1);
        sizes.into_iter().max().unwrap_or(0)
    }

    /// Both ends of each edge are in one component; each component is named by its least vertex, which a search from there
    /// finds to be all of it. One pass over all edges.
    ///
    /// # Errors
    /// What does not hold, and where.
    pub fn verify(&self, graph: &Graph<V>) -> std::result::Result<(), String> {
        let mut seen = vec![false; self.labels.len()];
        let mut way = Vec::new();
        for (v, &label) in self.labels.iter().enumerate() {
            if label.at() > v || self.labels[label.at()] != label {
                return Err(format!("{v} is in {label}, which does not name a component"));
            }
            if label.at() == v {
                way.push(v);
                seen[v] = true;
            }
            while let Some(at) = way.pop() {
                let rows = [&graph.out, graph.incoming()];
                for &to in rows[..=usize::from(graph.is_directed())]
                    .iter()
                    .flat_map(|csr| csr.neighbours(at))
                {
                    if self.labels[to.at()] != label {
                        return Err(format!(
                            "an edge from {at} in {label} to {to} in {}",
                            self.labels[to.at()]
                        ));
                    }
                    if !std::mem::replace(&mut seen[to.at()], true) {
                        way.push(to.at());
                    }
                }
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(v) => Err(format!("{v} cannot be reached from {}", self.labels[v])),
            None => Ok(()),
        }
    }
}
