//! Connected components: vertices joined into trees by their edges, whose roots name the components.

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::spent::{Held, Spent, Watch};
use crate::hook::Hook;
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, Property, Result, Width, Worker};

/// How edges are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Joining {
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
    pub spent: Spent,
}

/// Vertices in a piece of work.
const PIECE: usize = 1 << 14;
/// Edges of each vertex that are joined before the largest component is looked for.
const FIRST: usize = 2;
/// Vertices that are asked which component is the largest.
const ASKED: usize = 1024;

struct Work<'a, V: Width, H: Hook> {
    graph: &'a Graph<V>,
    labels: &'a [<V as Plain>::Cell],
    rounds: Rounds,
    hook: H,
    watch: Watch,
}

/// One word per vertex; Afforest reads most edges of the largest component never.
///
/// # Errors
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn components<V: Width, H: Hook>(
    graph: &Graph<V>,
    joining: Joining,
    setup: &Setup<H>,
) -> Result<Components<V>> {
    let watch = Watch::start();
    let mut labels = setup.property::<V>(graph.vertices())?;
    let work = Work { graph, labels: cells(&mut labels), rounds: Rounds::default(), hook: setup.hook, watch };
    work.watch.allocated();
    setup.team.run(|worker| match joining {
        Joining::Afforest => work.afforest(&worker),
        Joining::ShiloachVishkin => work.shiloach_vishkin(&worker),
    });
    let mut spent = work.watch.stop();
    spent.arrays.push(Held::look(Array::Property, &labels)?);
    Ok(Components { labels, spent })
}

impl<V: Width, H: Hook> Work<'_, V, H> {
    fn get(&self, v: V) -> V {
        self.hook.read(Array::Property, &self.labels[v.at()]);
        self.labels[v.at()].get()
    }

    /// Calls `work` for each vertex, as a round of its own.
    fn each(&self, worker: &Worker, round: &mut usize, mut work: impl FnMut(V)) {
        let pieces = &self.rounds.turn(worker, *round).pieces;
        worker.each(pieces, self.labels.len(), PIECE, |range| range.for_each(|v| work(V::new(v))));
        worker.meet();
        *round += 1;
    }

    fn afforest(&self, worker: &Worker) {
        let mut round = 0;
        let (out, incoming) = (self.graph.out.rows(), self.graph.incoming_rows());
        self.each(worker, &mut round, |v| self.labels[v.at()].set(v));
        self.watch.touched();
        for nth in 0..FIRST {
            self.each(worker, &mut round, |v| {
                out.tell(v.at(), self.hook);
                if let Some(to) = out.neighbours(v.at()).get(nth) {
                    self.hook.read(Array::Edges, to);
                    self.join(v, *to);
                }
            });
            self.each(worker, &mut round, |v| self.shorten(v));
        }
        // Only reads from here to the next barrier, so all find the same.
        let largest = self.largest();
        worker.meet();
        self.each(worker, &mut round, |v| {
            if self.get(v) == largest {
                return;
            }
            out.tell(v.at(), self.hook);
            for to in out.neighbours(v.at()).get(FIRST..).unwrap_or_default() {
                self.hook.read(Array::Edges, to);
                self.join(v, *to);
            }
            if self.graph.is_directed() {
                incoming.tell(v.at(), self.hook);
                for from in incoming.neighbours(v.at()) {
                    self.hook.read(Array::InEdges, from);
                    self.join(v, *from);
                }
            }
        });
        self.each(worker, &mut round, |v| self.shorten(v));
    }

    /// The component that most of some vertices, chosen evenly, are in.
    fn largest(&self) -> V {
        let step = self.labels.len().div_ceil(ASKED).max(1);
        let mut labels: Vec<V> = self.labels.iter().step_by(step).map(Cell::get).collect();
        labels.sort_unstable();
        let groups = labels.chunk_by(|a, b| a == b).max_by_key(|group| group.len());
        groups.map_or(V::NONE, |group| group[0])
    }

    /// Puts the trees of both under one root: the higher root under the lower.
    #[inline]
    fn join(&self, a: V, b: V) {
        let (mut a, mut b) = (self.get(a), self.get(b));
        while a != b {
            let (high, low) = (a.max(b), a.min(b));
            let above = self.get(high);
            if above == low || (above == high && self.labels[high.at()].replace(high, low)) {
                return;
            }
            a = self.get(self.get(high));
            b = self.get(low);
        }
    }

    /// Puts a vertex directly under its root.
    #[inline]
    fn shorten(&self, v: V) {
        let mut label = self.get(v);
        let first = label;
        loop {
            let above = self.get(label);
            if above == label {
                break;
            }
            label = above;
        }
        if label != first {
            self.hook.write(Array::Property, &self.labels[v.at()]);
            self.labels[v.at()].set(label);
        }
    }

    /// Hooks the root of a vertex and those of its neighbours under each other: how many.
    #[inline]
    fn hook_row(&self, v: usize) -> usize {
        let (mut own, mut changes, out) = (self.get(V::new(v)), 0, self.graph.out.rows());
        out.tell(v, self.hook);
        for to in out.neighbours(v) {
            self.hook.read(Array::Edges, to);
            let other = self.get(*to);
            if own == other {
                continue;
            }
            // Only roots are hooked, and only under lower ones.
            let (high, low) = (own.max(other), own.min(other));
            if self.get(high) == high {
                self.hook.write(Array::Property, &self.labels[high.at()]);
                // If another thread hooks it at the same time, one of the two is lost, and done in the next round.
                self.labels[high.at()].set(low);
                changes += 1;
                own = self.get(V::new(v));
            }
        }
        changes
    }

    fn shiloach_vishkin(&self, worker: &Worker) {
        let mut round = 0;
        self.each(worker, &mut round, |v| self.labels[v.at()].set(v));
        self.watch.touched();
        loop {
            let turn = self.rounds.turn(worker, round);
            let mut changes = 0;
            worker.each(&turn.pieces, self.labels.len(), PIECE, |range| {
                changes += range.map(|v| self.hook_row(v)).sum::<usize>();
            });
            turn.add(changes, 0);
            worker.meet();
            let (changes, _) = self.rounds.sums(round);
            round += 1;
            self.each(worker, &mut round, |v| self.shorten(v));
            if changes == 0 {
                return;
            }
        }
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
                for &to in rows[..=usize::from(graph.is_directed())].iter().flat_map(|csr| csr.neighbours(at))
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
