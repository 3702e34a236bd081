//! Connected components, as trees of vertices whose roots identify the components.

use std::ops::Range;

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::verify::{Verdict, VerifyError};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width, Worker};

/// Algorithm for connected components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CcAlgorithm {
    /// Afforest: processes a few edges of each vertex, then the other edges of vertices outside the
    /// largest component only (Sutton et al., IPDPS'18).
    #[default]
    Afforest,
    /// Shiloach–Vishkin: processes all edges in each round until nothing changes (1982). Reads the
    /// property array most.
    ShiloachVishkin,
}

/// Result of connected components. The direction of edges does not matter.
#[derive(Debug)]
pub struct Components<V: Width> {
    /// Least vertex of the component of each vertex.
    pub labels: Property<V>,
    /// Cost of the kernel.
    pub cost: KernelCost,
}

/// Vertices in a chunk.
const CHUNK: usize = 1 << 14;
/// Edges of each vertex that are processed before the search for the largest component.
const FIRST: usize = 2;
/// Vertices sampled to find the largest component.
const SAMPLED: usize = 1024;

struct Work<'a, V: Width> {
    graph: &'a Graph<V>,
    cells: &'a [<V as Plain>::Cell],
    rounds: Rounds,
    timer: PhaseTimer,
}

/// Trees: the label of a vertex is its parent, that of a root the root. Passed by value, so that
/// loops hold it in registers.
struct Labels<'a, V: Width, S: AccessSink> {
    cells: &'a [<V as Plain>::Cell],
    sink: &'a S,
}

impl<V: Width, S: AccessSink> Clone for Labels<'_, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Width, S: AccessSink> Copy for Labels<'_, V, S> {}

/// Computes connected components. Takes one word per vertex. Afforest skips most edges of the
/// largest component.
///
/// # Errors
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn components<V: Width, T: Tracer>(
    graph: &Graph<V>,
    algorithm: CcAlgorithm,
    setup: &Setup<T>,
) -> Result<Components<V>> {
    let timer = PhaseTimer::start();
    let mut labels = setup.property::<V>(graph.vertices())?;
    let work = Work { graph, cells: cells(&mut labels), rounds: Rounds::default(), timer };
    setup.announce(graph, &|| vec![ArrayRange::new(Array::Property, "labels", work.cells)]);
    work.timer.allocated();
    setup.run(|worker| match algorithm {
        CcAlgorithm::Afforest => work.afforest(worker),
        CcAlgorithm::ShiloachVishkin => work.shiloach_vishkin(worker),
    });
    let mut cost = work.timer.stop();
    cost.arrays.push(ArrayUsage::read(Array::Property, &labels)?);
    Ok(Components { labels, cost })
}

impl<V: Width> Work<'_, V> {
    /// Returns the trees for one thread.
    fn labels<'a, S: AccessSink>(&'a self, worker: &Worker<'a, S>) -> Labels<'a, V, S> {
        Labels { cells: self.cells, sink: worker.sink }
    }

    /// Runs `work` on all vertices, in chunks, as one round.
    fn each(
        &self,
        worker: &Worker<impl AccessSink>,
        round: &mut usize,
        mut work: impl FnMut(Range<usize>),
    ) {
        self.any(worker, round, |range| {
            work(range);
            false
        });
    }

    /// Runs one round. True if `work` returned true on any thread.
    fn any(
        &self,
        worker: &Worker<impl AccessSink>,
        round: &mut usize,
        mut work: impl FnMut(Range<usize>) -> bool,
    ) -> bool {
        let (state, mut changed) = (self.rounds.state(worker, *round), false);
        worker.each(&state.work, self.cells.len(), CHUNK, |range| changed |= work(range));
        state.add(changed.into(), 0);
        worker.barrier();
        *round += 1;
        self.rounds.sums(*round - 1).0 > 0
    }

    /// Makes each vertex a tree.
    fn begin(&self, worker: &Worker<impl AccessSink>, round: &mut usize) {
        self.each(worker, round, |range| {
            for (v, cell) in range.clone().zip(&self.cells[range]) {
                worker.sink.write(Array::Property, cell);
                cell.set(V::new(v));
            }
        });
        self.timer.touched();
    }

    fn shorten(&self, worker: &Worker<impl AccessSink>, round: &mut usize) {
        let labels = self.labels(worker);
        self.each(worker, round, |range| {
            self.cells[range].iter().for_each(|cell| labels.shorten(cell));
        });
    }

    fn afforest(&self, worker: &Worker<impl AccessSink>) {
        let (mut round, labels, sink) = (0, self.labels(worker), worker.sink);
        let (out, incoming) = (self.graph.out.rows(), self.graph.incoming_rows());
        worker.phase(format_args!("cc begin"));
        self.begin(worker, &mut round);
        for nth in 0..FIRST {
            worker.phase(format_args!("cc {}", nth + 1));
            self.each(worker, &mut round, |range| {
                for (v, row) in range.clone().zip(out.each(range, sink)) {
                    row.get(nth)
                        .into_iter()
                        .for_each(|to| labels.join(V::new(v), to, Array::Edges));
                }
            });
            self.shorten(worker, &mut round);
        }
        worker.phase(format_args!("cc {}", FIRST + 1));
        // No writes up to the next barrier, so all threads find the same label.
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

    fn shiloach_vishkin(&self, worker: &Worker<impl AccessSink>) {
        let (mut round, labels) = (0, self.labels(worker));
        worker.phase(format_args!("cc begin"));
        self.begin(worker, &mut round);
        for iteration in 1.. {
            worker.phase(format_args!("cc {iteration}"));
            let changed = self.any(worker, &mut round, |range| {
                let rows = self.graph.out.rows().each(range.clone(), labels.sink);
                labels.cells[range]
                    .iter()
                    .zip(rows)
                    .fold(false, |any, (cell, row)| any | labels.hook_row(cell, row))
            });
            // If no root was hooked, all vertices are directly under their roots since the last
            // round.
            if !changed {
                return;
            }
            self.shorten(worker, &mut round);
        }
    }
}

impl<V: Width, S: AccessSink> Labels<'_, V, S> {
    #[inline]
    fn get(self, v: V) -> V {
        self.seen(&self.cells[v.at()])
    }

    #[inline]
    fn seen(self, cell: &<V as Plain>::Cell) -> V {
        self.sink.read(Array::Property, cell);
        cell.get()
    }

    /// Returns the most frequent label of evenly spaced vertices.
    fn largest(self) -> V {
        let step = self.cells.len().div_ceil(SAMPLED).max(1);
        let mut labels: Vec<V> =
            self.cells.iter().step_by(step).map(|cell| self.seen(cell)).collect();
        labels.sort_unstable();
        let groups = labels.chunk_by(|a, b| a == b).max_by_key(|group| group.len());
        groups.map_or(V::NONE, |group| group[0])
    }

    /// Joins the trees of two neighbours: the higher root goes under the lower.
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

    /// Puts the vertex with label `cell` directly under its root.
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

    /// Hooks the roots of a vertex with label `cell` and of its neighbours. True if any was hooked.
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
                // If another thread hooks the same root, one of the two writes is lost, and the
                // next round repeats it.
                self.cells[high.at()].set(low);
                changed = true;
                own = self.seen(cell);
            }
        }
        changed
    }
}

impl<V: Width> Components<V> {
    /// Returns the number of components.
    pub fn count(&self) -> usize {
        self.labels.iter().enumerate().filter(|&(v, label)| label.at() == v).count()
    }

    /// Returns the vertices of the largest component.
    pub fn largest(&self) -> usize {
        let mut sizes = vec![0; self.labels.len()];
        self.labels.iter().for_each(|label| sizes[label.at()] += 1);
        sizes.into_iter().max().unwrap_or(0)
    }

    /// Checks that each edge is within a component, and that a search from the least vertex of each
    /// component reaches all of it. One pass over all edges.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self, graph: &Graph<V>) -> Verdict {
        let mut seen = vec![false; self.labels.len()];
        let mut stack = Vec::new();
        for (v, &label) in self.labels.iter().enumerate() {
            if label.at() > v || self.labels[label.at()] != label {
                return Err(VerifyError::Label { vertex: v, label: label.at() });
            }
            if label.at() == v {
                stack.push(v);
                seen[v] = true;
            }
            while let Some(at) = stack.pop() {
                let rows = [&graph.out, graph.incoming()];
                for &to in rows[..=usize::from(graph.is_directed())]
                    .iter()
                    .flat_map(|csr| csr.neighbours(at))
                {
                    if self.labels[to.at()] != label {
                        let other = self.labels[to.at()].at();
                        let (from, label, to) = (at, label.at(), to.at());
                        return Err(VerifyError::Joined { from, label, to, other });
                    }
                    if !std::mem::replace(&mut seen[to.at()], true) {
                        stack.push(to.at());
                    }
                }
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(v) => Err(VerifyError::Disconnected { vertex: v, label: self.labels[v].at() }),
            None => Ok(()),
        }
    }
}
