//! Betweenness centrality from some sources (Brandes, 2001): on how many shortest ways between others a vertex lies.
//!
//! Forward, level by level, shortest ways are counted, and one bit per edge says that it is part of one. Backward, each vertex
//! takes from those after it; what it reads there is one number, (1 + dependency) / ways, which takes the place of the ways.

use hugepilot_alloc::{Plain, cells};

use super::bitmap::WORD;
use super::queue::Queue;
use super::spent::{Held, Spent, Watch};
use super::ways::Ways;
use super::{Setup, searched};
use crate::hook::Hook;
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Property, Result, Width, Worker};

/// The scores.
#[derive(Debug)]
pub struct Betweenness<V: Width> {
    /// As bits of [`Width::Real`], for each vertex the sum over all sources: ways that begin or end at it do not count.
    pub scores: Property<V>,
    /// What it took, for all sources; the first touch is of those properties that each source begins anew.
    pub spent: Spent,
}

struct Work<'a, V: Width, H: Hook> {
    graph: &'a Graph<V>,
    /// The level of each vertex.
    levels: &'a [<V as Plain>::Cell],
    /// Shortest ways from the source, as bits of [`Ways`]; then (1 + dependency) / ways.
    ways: &'a [<u64 as Plain>::Cell],
    scores: &'a [<V as Plain>::Cell],
    /// One bit per edge: it is on a shortest way.
    nearer: &'a [<u64 as Plain>::Cell],
    queue: Queue<V>,
    rounds: Rounds,
    hook: H,
    watch: Watch,
}

/// From each of `sources` to all. Three words, one of them of the queue, and eight bytes per vertex, and a bit per edge; each
/// source reads each edge twice.
///
/// # Errors
/// [`GraphError::Vertex`](crate::GraphError::Vertex), [`GraphError::Memory`](crate::GraphError::Memory).
pub fn betweenness<V: Width, H: Hook>(
    graph: &Graph<V>,
    sources: &[V],
    setup: &Setup<H>,
) -> Result<Betweenness<V>> {
    let vertices = graph.vertices();
    sources.iter().try_for_each(|&source| graph.check(source))?;
    let watch = Watch::start();
    let property = || setup.property::<V>(vertices);
    let (mut levels, mut scores) = (property()?, property()?);
    let mut ways = setup.property::<u64>(vertices)?;
    let mut nearer =
        setup.pages.zeroed::<u64>(Array::Worklist, graph.out.edges().div_ceil(WORD))?;
    let work = Work {
        graph,
        levels: cells(&mut levels),
        ways: cells(&mut ways),
        scores: cells(&mut scores),
        nearer: cells(&mut nearer),
        queue: Queue::new(vertices, &setup.pages)?,
        rounds: Rounds::default(),
        hook: setup.hook,
        watch,
    };
    work.watch.allocated();
    setup.team.run(|worker| {
        let mut round = 0;
        for &source in sources {
            work.from(&worker, source, &mut round);
        }
    });
    let mut spent = work.watch.stop();
    spent.arrays = vec![
        work.queue.held()?,
        Held::look(Array::Worklist, &nearer)?,
        Held::look(Array::Property, &ways)?,
    ];
    for values in [&levels, &scores] {
        spent.arrays.push(Held::look(Array::Property, values)?);
    }
    Ok(Betweenness { scores, spent })
}

impl<V: Width, H: Hook> Work<'_, V, H> {
    fn from(&self, worker: &Worker, source: V, round: &mut usize) {
        self.begin(worker, source, round);
        // Where each level begins in the queue, and where the last ends.
        let mut starts = vec![0, 1];
        loop {
            let (start, end) = (starts[starts.len() - 2], starts[starts.len() - 1]);
            let count = self.forward(worker, start..end, starts.len() - 1, round);
            if count == 0 {
                break;
            }
            starts.push(end + count);
        }
        while starts.len() > 2 {
            let end = starts.pop().unwrap_or_default();
            self.backward(worker, starts[starts.len() - 1]..end, round);
        }
        // The source's own level: nothing of it counts.
    }

    fn begin(&self, worker: &Worker, source: V, round: &mut usize) {
        let turn = self.rounds.turn(worker, *round);
        worker.each(&turn.pieces, self.levels.len(), 1 << 14, |range| {
            for v in range {
                self.levels[v].set(V::NONE);
                self.ways[v].set(Ways::default().bits());
            }
        });
        self.nearer[worker.part(self.nearer.len())].iter().for_each(|bits| bits.set(0));
        worker.meet();
        self.watch.touched();
        if worker.id == 0 {
            self.levels[source.at()].set(V::default());
            self.ways[source.at()].set(Ways::ONE.bits());
            self.queue.empty();
            let mut found = self.queue.found();
            found.push(source);
            found.flush();
        }
        worker.meet();
        *round += 1;
    }

    /// Counts the ways to the next level, and how many vertices it has.
    fn forward(
        &self,
        worker: &Worker,
        level: std::ops::Range<usize>,
        next: usize,
        round: &mut usize,
    ) -> usize {
        let turn = self.rounds.turn(worker, *round);
        let (mut found, mut count, next) = (self.queue.found(), 0, V::new(next));
        let (items, out) = (&self.queue.items()[level], self.graph.out.rows());
        worker.frontier(&turn.pieces, items.len(), |range| {
            for item in &items[range] {
                let from = item.get();
                self.hook.read(Array::Worklist, item);
                self.hook.read(Array::Property, &self.ways[from.at()]);
                out.tell(from.at(), self.hook);
                let ways = Ways::of_bits(self.ways[from.at()].get());
                let mut bits = Bits { words: self.nearer, word: 0, bits: 0 };
                let row = out.range(from.at());
                for (to, edge) in out.edges[row.clone()].iter().zip(row) {
                    self.hook.read(Array::Edges, to);
                    let (to, level) = (*to, &self.levels[to.at()]);
                    self.hook.read(Array::Property, level);
                    let mut seen = level.get();
                    if seen == V::NONE {
                        if level.replace(V::NONE, next) {
                            self.hook.write(Array::Property, level);
                            found.push(to);
                            count += 1;
                        }
                        // Whoever was first, it is of the next level.
                        seen = next;
                    }
                    if seen == next {
                        self.hook.write(Array::Property, &self.ways[to.at()]);
                        add(&self.ways[to.at()], ways);
                        bits.set(edge);
                    }
                }
                bits.flush();
            }
        });
        found.flush();
        turn.add(count, 0);
        worker.meet();
        let (count, _) = self.rounds.sums(*round);
        *round += 1;
        count
    }

    /// Takes what the level after this one hands back.
    fn backward(&self, worker: &Worker, level: std::ops::Range<usize>, round: &mut usize) {
        let turn = self.rounds.turn(worker, *round);
        let (items, out) = (&self.queue.items()[level], self.graph.out.rows());
        worker.frontier(&turn.pieces, items.len(), |range| {
            for item in &items[range] {
                let v = item.get();
                let own = &self.ways[v.at()];
                self.hook.read(Array::Worklist, item);
                self.hook.read(Array::Property, own);
                out.tell(v.at(), self.hook);
                let ways = Ways::of_bits(own.get());
                let mut dependency = 0.0;
                let row = out.range(v.at());
                each_bit(self.nearer, row, |edge| {
                    let to = &out.edges[edge];
                    self.hook.read(Array::Edges, to);
                    let handed = &self.ways[to.at()];
                    self.hook.read(Array::Property, handed);
                    dependency += ways.times(Ways::of_bits(handed.get()));
                });
                own.set(ways.under(1.0 + dependency).bits());
                let score = &self.scores[v.at()];
                score.set(V::Real::of(V::Real::of_bits(score.get()).wide() + dependency).bits());
                self.hook.write(Array::Property, own);
                self.hook.read(Array::Property, score);
                self.hook.write(Array::Property, score);
            }
        });
        worker.meet();
        *round += 1;
    }
}

/// Adds to a number that threads share as bits.
#[inline]
fn add(cell: &<u64 as Plain>::Cell, more: Ways) {
    let mut seen = cell.get();
    while !cell.replace(seen, Ways::of_bits(seen).plus(more).bits()) {
        seen = cell.get();
    }
}

/// Bits that are set in ascending order, a word at a time: its neighbours in the word are other threads'.
struct Bits<'a> {
    words: &'a [<u64 as Plain>::Cell],
    word: usize,
    bits: u64,
}

impl Bits<'_> {
    #[inline]
    fn set(&mut self, bit: usize) {
        if bit / WORD != self.word {
            self.flush();
            self.word = bit / WORD;
        }
        self.bits |= 1 << (bit % WORD);
    }

    fn flush(&mut self) {
        if self.bits != 0 {
            self.words[self.word]
                .fetch_or(std::mem::take(&mut self.bits), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Calls `each` for the bits of `range` that are set.
#[inline]
fn each_bit(
    words: &[<u64 as Plain>::Cell],
    range: std::ops::Range<usize>,
    mut each: impl FnMut(usize),
) {
    if range.is_empty() {
        return;
    }
    let (first, last) = (range.start / WORD, (range.end - 1) / WORD);
    for (i, word) in words[first..=last].iter().enumerate() {
        let mut bits = word.get();
        if i == 0 {
            bits &= u64::MAX << (range.start % WORD);
        }
        if first + i == last {
            bits &= u64::MAX >> (WORD - 1 - (range.end - 1) % WORD);
        }
        while bits != 0 {
            each((first + i) * WORD + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

impl<V: Width> Betweenness<V> {
    /// The score of a vertex.
    pub fn score(&self, v: usize) -> f64 {
        V::Real::of_bits(self.scores[v]).wide()
    }

    /// Against the same by one thread, as Brandes wrote it down: within 1 in 10,000.
    ///
    /// # Errors
    /// The first vertex that differs.
    pub fn verify(&self, graph: &Graph<V>, sources: &[V]) -> std::result::Result<(), String> {
        for (v, expected) in plainly(graph, sources).into_iter().enumerate() {
            let near = (self.score(v) - expected).abs() <= 1e-4 * expected.max(1.0);
            if !near {
                return Err(format!("vertex {v} has {}, not {expected}", self.score(v)));
            }
        }
        Ok(())
    }
}

fn plainly<V: Width>(graph: &Graph<V>, sources: &[V]) -> Vec<f64> {
    let vertices = graph.vertices();
    let mut scores = vec![0.0; vertices];
    for source in sources {
        let (levels, order) = searched(graph, source.at());
        let mut ways = vec![Ways::default(); vertices];
        ways[source.at()] = Ways::ONE;
        for &v in &order {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if levels[to] == levels[v] + 1 {
                    ways[to] = ways[to].plus(ways[v]);
                }
            }
        }
        let mut dependency = vec![0.0; vertices];
        for &v in order.iter().rev() {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if levels[to] == levels[v] + 1 {
                    dependency[v] += ways[v].times(ways[to].under(1.0)) * (1.0 + dependency[to]);
                }
            }
            if v != source.at() {
                scores[v] += dependency[v];
            }
        }
    }
    scores
}
