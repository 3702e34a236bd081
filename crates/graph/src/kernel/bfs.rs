//! Breadth-first search: top-down, or direction-optimizing (Beamer et al., SC'12).
//!
//! Top-down, each vertex of the frontier offers itself as parent along its edges. Bottom-up, each
//! vertex without a parent searches one in the frontier. The property array holds the parent of a
//! vertex, and before that its degree, so that the edges of a level are counted without reading the
//! offsets.

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::bitmap::{Bitmap, WORD, is_set};
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::queue::Queue;
use super::verify::{Verdict, VerifyError};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::csr::{AHEAD, Row};
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Graph, GraphError, Property, Result, ThreadPool, Width, Worker};

/// Direction of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Top-down or bottom-up, whichever has less work.
    #[default]
    Optimizing,
    /// Always top-down, as in the papers.
    TopDown,
}

/// Result of a breadth-first search.
#[derive(Debug)]
pub struct Bfs<V: Width> {
    /// Previous vertex on a shortest path from the source. The source is its own parent;
    /// unreachable vertices have [`Width::NONE`].
    pub parents: Property<V>,
    /// Vertices at each distance from the source, which is at distance 0.
    pub levels: Vec<usize>,
    /// Cost of the search.
    pub cost: KernelCost,
}

impl<V: Width> Bfs<V> {
    /// Returns the number of reached vertices, including the source.
    pub fn reached(&self) -> usize {
        self.levels.iter().sum()
    }
}

/// Switches to bottom-up if the frontier has more than a fifteenth of the edges of unvisited
/// vertices.
const ALPHA: usize = 15;
/// Stays top-down if the frontier has fewer edges than a sixteenth of all vertices, because a scan
/// of all vertices takes longer. The ends of searches on road networks are of this kind: few
/// vertices are unvisited.
const GAMMA: usize = 16;
/// Switches to top-down if the frontier shrinks and has fewer than an eighteenth of all vertices.
const BETA: usize = 18;
/// Vertices in a chunk of a scan over all.
const SCAN: usize = 1024;

/// State of a running search.
struct Search<'a, V: Width> {
    graph: &'a Graph<V>,
    parents: &'a [<V as Plain>::Cell],
    queue: Queue<V>,
    /// Bitmaps of the frontier and of the next one.
    bits: [Bitmap; 2],
    rounds: Rounds,
    direction: Direction,
    timer: PhaseTimer,
}

/// Searches from `source`. The work is proportional to the edges of reached vertices. Takes two
/// words and two bits per vertex.
///
/// # Errors
/// [`GraphError::Vertex`] for a missing source, [`GraphError::Width`] for half as many vertices as
/// `V` counts or more, [`GraphError::Memory`].
pub fn bfs<V: Width, T: Tracer>(
    graph: &Graph<V>,
    source: V,
    direction: Direction,
    setup: &Setup<T>,
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
        direction,
        timer,
    };
    setup.announce(graph, &|| search.arrays());
    search.timer.allocated();
    let mut levels = setup.run(|worker| search.work(worker, source));
    let mut cost = search.timer.stop();
    cost.arrays.push(search.queue.usage()?);
    for bits in &search.bits {
        cost.arrays.push(bits.usage()?);
    }
    cost.arrays.push(ArrayUsage::read(Array::Property, &parents)?);
    Ok(Bfs { parents, levels: levels.swap_remove(0), cost })
}

/// Representation of a frontier.
#[derive(Clone, Copy)]
enum Level {
    /// The queue from `start` on.
    Queue { start: usize },
    /// Bitmap by index.
    Bits(usize),
}

impl<V: Width> Search<'_, V> {
    fn arrays(&self) -> Vec<ArrayRange> {
        let worklist = |role, bits: &Bitmap| ArrayRange::new(Array::Worklist, role, bits.cells());
        vec![
            ArrayRange::new(Array::Property, "parents", self.parents),
            ArrayRange::new(Array::Worklist, "queue", self.queue.items()),
            worklist("bitmap-0", &self.bits[0]),
            worklist("bitmap-1", &self.bits[1]),
        ]
    }

    /// Runs all rounds on one thread. All threads take the same branches, because they use the same
    /// sums.
    fn work(&self, worker: &Worker<impl AccessSink>, source: V) -> Vec<usize> {
        worker.phase(format_args!("bfs begin"));
        self.begin(worker, source);
        let (mut levels, mut round) = (vec![1], 1);
        let (mut level, mut queued) = (Level::Queue { start: 0 }, 1);
        // Edges of the frontier, and of all unvisited vertices.
        let (mut scout, mut unvisited) =
            (self.graph.out.degree(source.at()), self.graph.out.edges());
        loop {
            let before = levels[levels.len() - 1];
            let count;
            match level {
                Level::Queue { start } if self.switches_to_bottom_up(scout, unvisited) => {
                    worker.phase(format_args!("bfs to-bitmap"));
                    self.to_bits(worker, start..queued, &mut round);
                    level = Level::Bits(0);
                    continue;
                }
                Level::Queue { start } => {
                    unvisited = unvisited.saturating_sub(scout);
                    worker.phase(format_args!("bfs {}", levels.len()));
                    self.top_down(worker, start..queued, round);
                    worker.barrier();
                    (count, scout) = self.rounds.sums(round);
                    level = Level::Queue { start: queued };
                    queued += count;
                }
                Level::Bits(which) => {
                    worker.phase(format_args!("bfs {}", levels.len()));
                    self.bottom_up(worker, which, round);
                    worker.barrier();
                    (count, _) = self.rounds.sums(round);
                    level = Level::Bits(1 - which);
                    if count > 0 && count < before && count <= self.graph.vertices() / BETA {
                        round += 1;
                        worker.phase(format_args!("bfs to-queue"));
                        self.to_queue(worker, 1 - which, round);
                        level = Level::Queue { start: queued };
                        queued += count;
                        scout = 1;
                    }
                }
            }
            round += 1;
            if count == 0 {
                worker.phase(format_args!("bfs end"));
                self.end(worker, round);
                return levels;
            }
            levels.push(count);
        }
    }

    /// Marks the vertices that were not reached.
    fn end(&self, worker: &Worker<impl AccessSink>, round: usize) {
        let work = &self.rounds.state(worker, round).work;
        worker.each(work, self.parents.len(), SCAN, |range| {
            for parent in &self.parents[range] {
                // Vertices without edges, most of these, are marked from the start.
                worker.sink.read(Array::Property, parent);
                let seen = parent.get();
                if seen >= V::TOP && seen != V::NONE {
                    worker.sink.write(Array::Property, parent);
                    parent.set(V::NONE);
                }
            }
        });
    }

    fn switches_to_bottom_up(&self, scout: usize, unvisited: usize) -> bool {
        self.direction == Direction::Optimizing
            && scout > unvisited / ALPHA
            && scout > self.parents.len() / GAMMA
    }

    /// Clears all parents, except that of the source.
    fn begin(&self, worker: &Worker<impl AccessSink>, source: V) {
        let work = &self.rounds.state(worker, 0).work;
        let out = self.graph.out.rows();
        worker.each(work, self.parents.len(), SCAN, |range| {
            for (degree, parent) in
                out.degrees(range.clone(), worker.sink).zip(&self.parents[range])
            {
                worker.sink.write(Array::Property, parent);
                parent.set(if degree == 0 { V::NONE } else { V::TOP.or(V::new(degree)) });
            }
        });
        worker.barrier();
        self.timer.touched();
        if worker.id == 0 {
            worker.sink.write(Array::Property, &self.parents[source.at()]);
            self.parents[source.at()].set(source);
            let mut buffer = self.queue.buffer(worker.sink);
            buffer.push(source);
            buffer.flush();
        }
        worker.barrier();
    }

    /// Makes frontier vertices the parents of unvisited neighbours. Sums these and their edges.
    fn top_down(
        &self,
        worker: &Worker<impl AccessSink>,
        level: std::ops::Range<usize>,
        round: usize,
    ) {
        let state = self.rounds.state(worker, round);
        let (mut buffer, mut count, mut edges) = (self.queue.buffer(worker.sink), 0, 0);
        let (items, parents, out) =
            (&self.queue.items()[level], self.parents, self.graph.out.rows());
        let mut ahead = [Row::default(); AHEAD];
        worker.frontier(&state.work, items.len(), |range| {
            for items in items[range].chunks(AHEAD) {
                let vertices = items.iter().map(|item| {
                    worker.sink.read(Array::Worklist, item);
                    item.get()
                });
                for row in out.ahead(vertices, &mut ahead, worker.sink) {
                    for to in row.to {
                        worker.sink.read(Array::Edges, to);
                        let (to, parent) = (*to, &parents[to.at()]);
                        worker.sink.read(Array::Property, parent);
                        let seen = parent.get();
                        if seen >= V::TOP && parent.replace(seen, row.vertex) {
                            worker.sink.write(Array::Property, parent);
                            buffer.push(to);
                            count += 1;
                            edges += if seen == V::NONE { 0 } else { seen.and_not(V::TOP).at() };
                        }
                    }
                }
            }
        });
        buffer.flush();
        state.add(count, edges);
    }

    /// Gives each unvisited vertex the first parent in the frontier. Sums these vertices.
    fn bottom_up(&self, worker: &Worker<impl AccessSink>, which: usize, round: usize) {
        let state = self.rounds.state(worker, round);
        let (level, next) = (self.bits[which].cells(), &self.bits[1 - which]);
        let (parents, incoming) = (self.parents, self.graph.incoming_rows());
        // In an undirected graph, a vertex without outgoing edges has no incoming ones either.
        let isolated = if self.graph.is_directed() { V::TOP } else { V::NONE };
        let (mut count, len) = (0, parents.len());
        worker.each(&state.work, len, SCAN, |range| {
            for start in range.clone().step_by(WORD) {
                let mut bits = 0;
                let word = start..(start + WORD).min(range.end);
                for (v, parent) in word.clone().zip(&parents[word]) {
                    worker.sink.read(Array::Property, parent);
                    let seen = parent.get();
                    if (seen < V::TOP) | (seen == isolated) {
                        continue;
                    }
                    let in_level = |from: &&V| {
                        worker.sink.read(incoming.names[1], *from);
                        worker.sink.read(Array::Worklist, &level[from.at() / WORD]);
                        is_set(level, from.at())
                    };
                    incoming.record_access(v, worker.sink);
                    if let Some(&from) = incoming.neighbours(v).iter().find(in_level) {
                        worker.sink.write(Array::Property, parent);
                        parent.set(from);
                        bits |= 1 << (v - start);
                    }
                }
                next.set_word(start / WORD, bits, worker.sink);
                count += bits.count_ones() as usize;
            }
        });
        state.add(count, 0);
    }

    /// Copies a level of the queue to the first bitmap.
    fn to_bits(
        &self,
        worker: &Worker<impl AccessSink>,
        level: std::ops::Range<usize>,
        round: &mut usize,
    ) {
        let state = self.rounds.state(worker, *round);
        worker.each(&state.work, self.bits[0].words(), SCAN, |words| {
            self.bits[0].clear(words, worker.sink);
        });
        worker.barrier();
        *round += 1;
        let state = self.rounds.state(worker, *round);
        let items = &self.queue.items()[level];
        worker.each(&state.work, items.len(), SCAN, |range| {
            for item in &items[range] {
                worker.sink.read(Array::Worklist, item);
                self.bits[0].set(item.get().at(), worker.sink);
            }
        });
        worker.barrier();
        *round += 1;
    }

    /// Appends a bitmap to the queue.
    fn to_queue(&self, worker: &Worker<impl AccessSink>, which: usize, round: usize) {
        let state = self.rounds.state(worker, round);
        let mut buffer = self.queue.buffer(worker.sink);
        worker.each(&state.work, self.bits[which].words(), SCAN / WORD, |words| {
            for word in words {
                let mut bits = self.bits[which].word(word, worker.sink);
                while bits != 0 {
                    buffer.push(V::new(word * WORD + bits.trailing_zeros() as usize));
                    bits &= bits - 1;
                }
            }
        });
        buffer.flush();
        worker.barrier();
    }
}

impl<V: Width> Bfs<V> {
    /// Checks the rules of Graph500: parents form a tree from the source along edges; levels differ
    /// by one along the tree, and by at most one along any edge; all reachable vertices are
    /// reached. One pass over all edges, on all CPUs.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self, graph: &Graph<V>, source: V) -> Verdict {
        let levels = self.distances(source)?;
        let parts = ThreadPool::all().run(|worker| {
            let mut sizes = vec![0; self.levels.len()];
            for v in worker.part(self.parents.len()).filter(|&v| self.parents[v] != V::NONE) {
                self.verify_edges(graph, v, &levels)?;
                let level = levels[v];
                let size = sizes.get_mut(level as usize);
                *size.ok_or(VerifyError::Level { vertex: v, level })? += 1;
            }
            Ok(sizes)
        });
        let parts = parts.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        let size = |level: usize| parts.iter().map(|sizes| sizes[level]).sum();
        let sizes: Vec<usize> = (0..self.levels.len()).map(size).collect();
        if sizes == self.levels {
            Ok(())
        } else {
            Err(VerifyError::LevelSizes { expected: sizes, found: self.levels.clone() })
        }
    }

    /// Checks the edges of a reached vertex. Its neighbours cost one random read each.
    fn verify_edges(&self, graph: &Graph<V>, v: usize, levels: &[u32]) -> Verdict {
        let parent = self.parents[v].at();
        if parent != v && graph.out.neighbours(parent).binary_search(&V::new(v)).is_err() {
            return Err(VerifyError::TreeEdge { parent, vertex: v });
        }
        let far = |to: &&V| levels[to.at()] > levels[v].saturating_add(1);
        match graph.out.neighbours(v).iter().find(far).map(|to| to.at()) {
            None => Ok(()),
            Some(vertex) if self.parents[vertex] == V::NONE => {
                Err(VerifyError::NotReached { vertex, by: v })
            }
            Some(vertex) => Err(VerifyError::Nearer { vertex, by: v }),
        }
    }

    /// Returns the distance of each vertex along its parents; `u32::MAX` for unreached ones.
    pub(super) fn distances(&self, source: V) -> std::result::Result<Vec<u32>, VerifyError> {
        let mut distances = vec![u32::MAX; self.parents.len()];
        if self.parents[source.at()] != source {
            let parent = self.parents[source.at()].at() as u64;
            return Err(VerifyError::SourceParent(parent));
        }
        distances[source.at()] = 0;
        let mut path = Vec::new();
        for v in 0..self.parents.len() {
            let mut at = v;
            while distances[at] == u32::MAX && self.parents[at] != V::NONE {
                path.push(at);
                at = self.parents[at].at();
                if at >= self.parents.len() || path.len() > self.parents.len() {
                    return Err(VerifyError::ParentCycle(v));
                }
            }
            let known = distances[at];
            if known == u32::MAX && !path.is_empty() {
                return Err(VerifyError::Detached(v));
            }
            for (steps, on) in path.drain(..).rev().enumerate() {
                distances[on] = known + 1 + u32::try_from(steps).unwrap_or(u32::MAX);
            }
        }
        Ok(distances)
    }
}
