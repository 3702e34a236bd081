//! Breadth-first search: top-down, or by the direction that has less to do (Beamer and others, SC'12).
//!
//! Top-down, each vertex of a level offers itself as parent along its edges; bottom-up, each vertex that has no parent yet looks
//! for one in the level. What is kept per vertex is its parent, and while it has none how many edges it has, so that a level's
//! edges are counted without a look at the offsets.

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::bitmap::{Bitmap, WORD, is_set};
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::queue::Queue;
use crate::access_sink::AccessSink;
use crate::csr::{AHEAD, Row};
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, GraphError, Property, Result, Width, Worker};

/// Which way to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Whichever has less to do.
    #[default]
    Optimizing,
    /// From the level outwards always, as in the papers.
    TopDown,
}

/// Who was reached, and from where.
#[derive(Debug)]
pub struct Bfs<V: Width> {
    /// The vertex before, on a shortest way from the source; the source's own for itself, [`Width::NONE`] for who is not
    /// reached.
    pub parents: Property<V>,
    /// How many vertices are at each distance from the source, itself the first.
    pub levels: Vec<usize>,
    /// What it took.
    pub cost: KernelCost,
}

impl<V: Width> Bfs<V> {
    /// How many vertices were reached, the source among them.
    pub fn reached(&self) -> usize {
        self.levels.iter().sum()
    }
}

/// Bottom-up from where the level has more edges than a fifteenth of those not yet seen.
const ALPHA: usize = 15;
/// But not where the level has fewer edges than a sixteenth of all vertices: to look at each of these takes longer than that. The ends
/// of searches on road networks are so, where little is left unseen.
const GAMMA: usize = 16;
/// Top-down again where the level is below an eighteenth of all vertices, and shrinks.
const BETA: usize = 18;
/// Vertices in a piece of work that looks at all.
const SWEEP: usize = 1024;

/// A search under way.
struct Search<'a, V: Width, H: AccessSink> {
    graph: &'a Graph<V>,
    parents: &'a [<V as Plain>::Cell],
    queue: Queue<V>,
    /// The level as bits, and the next one.
    bits: [Bitmap; 2],
    rounds: Rounds,
    sink: H,
    direction: Direction,
    timer: PhaseTimer,
}

/// From `source` to all that can be reached from it. Work grows with their edges; two words per vertex, and two bits.
///
/// # Errors
/// [`GraphError::Vertex`] for a source that is not there, [`GraphError::Width`] for half as many vertices as `V` counts, or
/// more, [`GraphError::Memory`].
pub fn bfs<V: Width, H: AccessSink>(
    graph: &Graph<V>,
    source: V,
    direction: Direction,
    setup: &Setup<H>,
) -> Result<Bfs<V>> {
    let vertices = graph.vertices();
    graph.check(source)?;
    if vertices >= V::TOP.at() {
        return Err(GraphError::Width {
            what: "vertices",
            count: vertices as u64,
            bits: V::BITS - 1,
        });
    }
    let timer = PhaseTimer::start();
    let mut parents = setup.property::<V>(vertices)?;
    let bits = match direction {
        Direction::Optimizing => vertices,
        Direction::TopDown => 0,
    };
    let search = Search {
        graph,
        parents: cells(&mut parents),
        queue: Queue::new(vertices, &setup.pages)?,
        bits: [Bitmap::new(bits, &setup.pages)?, Bitmap::new(bits, &setup.pages)?],
        rounds: Rounds::default(),
        sink: setup.sink,
        direction,
        timer,
    };
    search.timer.allocated();
    let mut found = setup.pool.run(|worker| search.work(&worker, source));
    let mut cost = search.timer.stop();
    cost.arrays.push(search.queue.usage()?);
    for bits in &search.bits {
        cost.arrays.push(bits.usage()?);
    }
    cost.arrays.push(ArrayUsage::read(Array::Property, &parents)?);
    Ok(Bfs { parents, levels: found.swap_remove(0), cost })
}

/// What a level is kept in.
#[derive(Clone, Copy)]
enum Level {
    /// The queue, from there on.
    Queue { start: usize },
    /// One of the bitmaps.
    Bits(usize),
}

impl<V: Width, H: AccessSink> Search<'_, V, H> {
    /// All rounds of one thread; all threads take the same turns, because they decide by the same sums.
    fn work(&self, worker: &Worker, source: V) -> Vec<usize> {
        self.begin(worker, source);
        let (mut levels, mut round) = (vec![1], 1);
        let (mut level, mut queued) = (Level::Queue { start: 0 }, 1);
        // Edges of the level, and of all that are not reached yet.
        let (mut scout, mut unseen) = (self.graph.out.degree(source.at()), self.graph.out.edges());
        loop {
            let before = levels[levels.len() - 1];
            let count;
            match level {
                Level::Queue { start } if self.goes_bottom_up(scout, unseen) => {
                    self.to_bits(worker, start..queued, &mut round);
                    level = Level::Bits(0);
                    continue;
                }
                Level::Queue { start } => {
                    unseen = unseen.saturating_sub(scout);
                    self.top_down(worker, start..queued, round);
                    worker.barrier();
                    (count, scout) = self.rounds.sums(round);
                    level = Level::Queue { start: queued };
                    queued += count;
                }
                Level::Bits(which) => {
                    self.bottom_up(worker, which, round);
                    worker.barrier();
                    (count, _) = self.rounds.sums(round);
                    level = Level::Bits(1 - which);
                    if count > 0 && count < before && count <= self.graph.vertices() / BETA {
                        round += 1;
                        self.to_queue(worker, 1 - which, round);
                        level = Level::Queue { start: queued };
                        queued += count;
                        scout = 1;
                    }
                }
            }
            round += 1;
            if count == 0 {
                self.end(worker, round);
                return levels;
            }
            levels.push(count);
        }
    }

    /// Who has no parent by now has none.
    fn end(&self, worker: &Worker, round: usize) {
        let pieces = &self.rounds.state(worker, round).work;
        worker.each(pieces, self.parents.len(), SWEEP, |range| {
            for parent in &self.parents[range] {
                // Those without edges are none from the beginning, and most of these.
                let seen = parent.get();
                if seen >= V::TOP && seen != V::NONE {
                    parent.set(V::NONE);
                }
            }
        });
    }

    fn goes_bottom_up(&self, scout: usize, unseen: usize) -> bool {
        self.direction == Direction::Optimizing
            && scout > unseen / ALPHA
            && scout > self.parents.len() / GAMMA
    }

    /// Nobody has a parent, but the source.
    fn begin(&self, worker: &Worker, source: V) {
        let pieces = &self.rounds.state(worker, 0).work;
        let out = self.graph.out.rows();
        worker.each(pieces, self.parents.len(), SWEEP, |range| {
            for (degree, parent) in out.degrees(range.clone(), ()).zip(&self.parents[range]) {
                parent.set(if degree == 0 { V::NONE } else { V::TOP.or(V::new(degree)) });
            }
        });
        worker.barrier();
        self.timer.touched();
        if worker.id == 0 {
            self.parents[source.at()].set(source);
            let mut found = self.queue.buffer();
            found.push(source);
            found.flush();
        }
        worker.barrier();
    }

    /// Vertices of the level become parents of who has none. The sum is of the edges of these.
    fn top_down(&self, worker: &Worker, level: std::ops::Range<usize>, round: usize) {
        let state = self.rounds.state(worker, round);
        let (mut found, mut count, mut edges) = (self.queue.buffer(), 0, 0);
        let (items, parents, out) =
            (&self.queue.items()[level], self.parents, self.graph.out.rows());
        let mut ahead = [Row::default(); AHEAD];
        worker.frontier(&state.work, items.len(), |range| {
            for items in items[range].chunks(AHEAD) {
                let vertices = items.iter().map(|item| {
                    self.sink.read(Array::Worklist, item);
                    item.get()
                });
                for row in out.ahead(vertices, &mut ahead, self.sink) {
                    for to in row.to {
                        self.sink.read(Array::Edges, to);
                        let (to, parent) = (*to, &parents[to.at()]);
                        self.sink.read(Array::Property, parent);
                        let seen = parent.get();
                        if seen >= V::TOP && parent.replace(seen, row.of) {
                            self.sink.write(Array::Property, parent);
                            found.push(to);
                            count += 1;
                            edges += if seen == V::NONE { 0 } else { seen.and_not(V::TOP).at() };
                        }
                    }
                }
            }
        });
        found.flush();
        state.add(count, edges);
    }

    /// Vertices without a parent take the first that they find in the level. The sum is of these vertices.
    fn bottom_up(&self, worker: &Worker, which: usize, round: usize) {
        let state = self.rounds.state(worker, round);
        let (level, next) = (self.bits[which].cells(), &self.bits[1 - which]);
        let (parents, incoming) = (self.parents, self.graph.incoming_rows());
        // Without edges out of it, a vertex of an undirected graph has none that lead to it.
        let alone = if self.graph.is_directed() { V::TOP } else { V::NONE };
        let (mut count, len) = (0, parents.len());
        worker.each(&state.work, len, SWEEP, |range| {
            for start in range.clone().step_by(WORD) {
                let mut bits = 0;
                let word = start..(start + WORD).min(range.end);
                for (v, parent) in word.clone().zip(&parents[word]) {
                    self.sink.read(Array::Property, parent);
                    let seen = parent.get();
                    if (seen < V::TOP) | (seen == alone) {
                        continue;
                    }
                    let in_level = |from: &&V| {
                        self.sink.read(incoming.names[1], *from);
                        self.sink.read(Array::Worklist, &level[from.at() / WORD]);
                        is_set(level, from.at())
                    };
                    incoming.record_access(v, self.sink);
                    if let Some(&from) = incoming.neighbours(v).iter().find(in_level) {
                        self.sink.write(Array::Property, parent);
                        parent.set(from);
                        bits |= 1 << (v - start);
                    }
                }
                next.set_word(start / WORD, bits);
                count += bits.count_ones() as usize;
            }
        });
        state.add(count, 0);
    }

    /// Part of the queue as the first bitmap.
    fn to_bits(&self, worker: &Worker, level: std::ops::Range<usize>, round: &mut usize) {
        let state = self.rounds.state(worker, *round);
        worker.each(&state.work, self.bits[0].words(), SWEEP, |words| self.bits[0].clear(words));
        worker.barrier();
        *round += 1;
        let state = self.rounds.state(worker, *round);
        let items = &self.queue.items()[level];
        worker.each(&state.work, items.len(), SWEEP, |range| {
            items[range].iter().for_each(|item| self.bits[0].set(item.get().at()));
        });
        worker.barrier();
        *round += 1;
    }

    /// A bitmap as the next part of the queue.
    fn to_queue(&self, worker: &Worker, which: usize, round: usize) {
        let state = self.rounds.state(worker, round);
        let mut found = self.queue.buffer();
        worker.each(&state.work, self.bits[which].words(), SWEEP / WORD, |words| {
            for word in words {
                let mut bits = self.bits[which].word(word);
                while bits != 0 {
                    found.push(V::new(word * WORD + bits.trailing_zeros() as usize));
                    bits &= bits - 1;
                }
            }
        });
        found.flush();
        worker.barrier();
    }
}

impl<V: Width> Bfs<V> {
    /// Holds the result to the rules of Graph500: a tree from the source along edges, levels that differ by one along it and by
    /// at most one along any edge, and all that can be reached. One pass over all edges.
    ///
    /// # Errors
    /// What does not hold, and where.
    pub fn verify(&self, graph: &Graph<V>, source: V) -> std::result::Result<(), String> {
        let levels = self.distances(source)?;
        let mut sizes = vec![0; self.levels.len()];
        for (v, &level) in levels.iter().enumerate() {
            let parent = self.parents[v];
            if parent == V::NONE {
                continue;
            }
            let size = sizes
                .get_mut(level as usize)
                .ok_or(format!("vertex {v} is {level} from the source"))?;
            *size += 1;
            if parent.at() != v
                && graph.out.neighbours(parent.at()).binary_search(&V::new(v)).is_err()
            {
                return Err(format!("no edge from {parent}, the parent of {v}"));
            }
            for &to in graph.out.neighbours(v) {
                if self.parents[to.at()] == V::NONE {
                    return Err(format!("{to} has no parent, and {v} leads to it"));
                }
                if levels[to.at()] > level + 1 {
                    return Err(format!("{to} is nearer by {v}"));
                }
            }
        }
        if sizes == self.levels {
            Ok(())
        } else {
            Err(format!("levels of {sizes:?}, not {:?}", self.levels))
        }
    }

    /// How far each vertex is by its parents; `u32::MAX` for who has none.
    pub(super) fn distances(&self, source: V) -> std::result::Result<Vec<u32>, String> {
        let mut distances = vec![u32::MAX; self.parents.len()];
        if self.parents[source.at()] != source {
            return Err(format!("the source has the parent {}", self.parents[source.at()]));
        }
        distances[source.at()] = 0;
        let mut way = Vec::new();
        for v in 0..self.parents.len() {
            let mut at = v;
            while distances[at] == u32::MAX && self.parents[at] != V::NONE {
                way.push(at);
                at = self.parents[at].at();
                if at >= self.parents.len() || way.len() > self.parents.len() {
                    return Err(format!("the parents of {v} lead nowhere"));
                }
            }
            let known = distances[at];
            if known == u32::MAX && !way.is_empty() {
                return Err(format!("the parents of {v} do not lead to the source"));
            }
            for (steps, on) in way.drain(..).rev().enumerate() {
                distances[on] = known + 1 + u32::try_from(steps).unwrap_or(u32::MAX);
            }
        }
        Ok(distances)
    }
}
