//! Betweenness centrality from given source vertices (Brandes, 2001): the share of shortest paths
//! between other vertices that pass through a vertex.
//!
//! The forward pass counts shortest paths level by level, and marks the edges on one by a bit each.
//! It counts in `f64`. If a count leaves that range, this source and all after it are counted by a
//! wider number.
//! In the backward pass, each vertex reads from its successors one number, (1 + dependency) /
//! paths, which replaces their path counts.

use hugepilot_alloc::{Plain, cells};

use super::bitmap::WORD;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::path_count::{PathCount, WideCount};
use super::queue::Queue;
use super::verify::{Verdict, VerifyError};
use super::{Setup, serial_bfs};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Property, Result, Width, Worker};

/// Result of betweenness centrality.
#[derive(Debug)]
pub struct Betweenness<V: Width> {
    /// Score of each vertex as bits of [`Width::Real`], summed over all sources. Paths that start
    /// or end at the vertex do not count.
    pub scores: Property<V>,
    /// Cost of all sources. First touch covers the property arrays that each source resets.
    pub cost: KernelCost,
}

struct Work<'a, V: Width> {
    graph: &'a Graph<V>,
    /// Level of each vertex.
    levels: &'a [<V as Plain>::Cell],
    /// Number of shortest paths from the source, as bits of [`PathCount`]; then (1 + dependency) /
    /// paths.
    paths: &'a [<u64 as Plain>::Cell],
    scores: &'a [<V as Plain>::Cell],
    /// Bit per edge: whether it is on a shortest path.
    on_path: &'a [<u64 as Plain>::Cell],
    queue: Queue<V>,
    rounds: Rounds,
    timer: PhaseTimer,
}

/// Computes betweenness from each of `sources`. Takes three words per vertex, one of them for the
/// queue, eight bytes per vertex, and a bit per edge. Each source reads each edge twice.
///
/// # Errors
/// [`GraphError::Vertex`](crate::GraphError::Vertex),
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn betweenness<V: Width, T: Tracer>(
    graph: &Graph<V>,
    sources: &[V],
    setup: &Setup<T>,
) -> Result<Betweenness<V>> {
    let vertices = graph.vertices();
    sources.iter().try_for_each(|&source| graph.check(source))?;
    let timer = PhaseTimer::start();
    let property = || setup.property::<V>(vertices);
    let (mut levels, mut scores) = (property()?, property()?);
    let mut paths = setup.property::<u64>(vertices)?;
    let mut on_path =
        setup.pages.zeroed::<u64>(Array::Worklist, graph.out.edges().div_ceil(WORD))?;
    let work = Work {
        graph,
        levels: cells(&mut levels),
        paths: cells(&mut paths),
        scores: cells(&mut scores),
        on_path: cells(&mut on_path),
        queue: Queue::new(vertices, &setup.pages)?,
        rounds: Rounds::default(),
        timer,
    };
    setup.announce(graph, &|| work.arrays());
    work.timer.allocated();
    setup.run(|worker| {
        let (mut round, mut is_wide) = (0, false);
        for &source in sources {
            is_wide = is_wide || !work.from::<f64>(worker, source, &mut round);
            if is_wide {
                work.from::<WideCount>(worker, source, &mut round);
            }
        }
    });
    let mut cost = work.timer.stop();
    cost.arrays = vec![
        work.queue.usage()?,
        ArrayUsage::read(Array::Worklist, &on_path)?,
        ArrayUsage::read(Array::Property, &paths)?,
    ];
    for values in [&levels, &scores] {
        cost.arrays.push(ArrayUsage::read(Array::Property, values)?);
    }
    Ok(Betweenness { scores, cost })
}

impl<V: Width> Work<'_, V> {
    fn arrays(&self) -> Vec<ArrayRange> {
        vec![
            ArrayRange::new(Array::Property, "levels", self.levels),
            ArrayRange::new(Array::Property, "paths", self.paths),
            ArrayRange::new(Array::Property, "scores", self.scores),
            ArrayRange::new(Array::Worklist, "on-path", self.on_path),
            ArrayRange::new(Array::Worklist, "queue", self.queue.items()),
        ]
    }

    /// Adds the scores from a source. Returns `false`, with the scores as before, if there are more
    /// paths than `C` can count.
    fn from<C: PathCount>(
        &self,
        worker: &Worker<impl AccessSink>,
        source: V,
        round: &mut usize,
    ) -> bool {
        worker.phase(format_args!("bc begin"));
        self.begin(worker, source, C::ONE, round);
        // Start of each level in the queue, and the end of the last.
        let mut starts = vec![0, 1];
        loop {
            let (start, end) = (starts[starts.len() - 2], starts[starts.len() - 1]);
            worker.phase(format_args!("bc forward {}", starts.len() - 1));
            let (count, beyond) = self.forward::<C>(worker, start..end, starts.len() - 1, round);
            if beyond > 0 {
                return false;
            }
            if count == 0 {
                break;
            }
            starts.push(end + count);
        }
        while starts.len() > 2 {
            let end = starts.pop().unwrap_or_default();
            worker.phase(format_args!("bc backward {}", starts.len() - 1));
            self.backward::<C>(worker, starts[starts.len() - 1]..end, round);
        }
        // The level of the source contributes nothing.
        true
    }

    fn begin(
        &self,
        worker: &Worker<impl AccessSink>,
        source: V,
        one: impl PathCount,
        round: &mut usize,
    ) {
        let state = self.rounds.state(worker, *round);
        worker.each(&state.work, self.levels.len(), 1 << 14, |range| {
            for v in range {
                worker.sink.write(Array::Property, &self.levels[v]);
                worker.sink.write(Array::Property, &self.paths[v]);
                self.levels[v].set(V::NONE);
                self.paths[v].set(0);
            }
        });
        for bits in &self.on_path[worker.part(self.on_path.len())] {
            worker.sink.write(Array::Worklist, bits);
            bits.set(0);
        }
        worker.barrier();
        self.timer.touched();
        if worker.id == 0 {
            worker.sink.write(Array::Property, &self.levels[source.at()]);
            worker.sink.write(Array::Property, &self.paths[source.at()]);
            self.levels[source.at()].set(V::default());
            self.paths[source.at()].set(one.bits());
            self.queue.empty();
            let mut buffer = self.queue.buffer(worker.sink);
            buffer.push(source);
            buffer.flush();
        }
        worker.barrier();
        *round += 1;
    }

    /// Counts the paths to the next level. Returns the number of its vertices, and of vertices of
    /// this level with more paths than `C` can count.
    fn forward<C: PathCount>(
        &self,
        worker: &Worker<impl AccessSink>,
        level: std::ops::Range<usize>,
        next: usize,
        round: &mut usize,
    ) -> (usize, usize) {
        let state = self.rounds.state(worker, *round);
        let (mut buffer, next) = (self.queue.buffer(worker.sink), V::new(next));
        let [mut count, mut beyond] = [0; 2];
        let (items, out) = (&self.queue.items()[level], self.graph.out.rows());
        worker.frontier(&state.work, items.len(), |range| {
            for item in &items[range] {
                let from = item.get();
                worker.sink.read(Array::Worklist, item);
                worker.sink.read(Array::Property, &self.paths[from.at()]);
                out.record_access(from.at(), worker.sink);
                let paths = C::of_bits(self.paths[from.at()].get());
                beyond += usize::from(paths.is_beyond());
                let mut bits =
                    BitWriter { words: self.on_path, word: 0, bits: 0, sink: worker.sink };
                let row = out.range(from.at());
                for (to, edge) in out.edges[row.clone()].iter().zip(row) {
                    worker.sink.read(Array::Edges, to);
                    let (to, level) = (*to, &self.levels[to.at()]);
                    worker.sink.read(Array::Property, level);
                    let mut seen = level.get();
                    if seen == V::NONE {
                        if level.replace(V::NONE, next) {
                            worker.sink.write(Array::Property, level);
                            buffer.push(to);
                            count += 1;
                        }
                        // Whichever thread was first, the vertex is in the next level.
                        seen = next;
                    }
                    if seen == next {
                        worker.sink.read(Array::Property, &self.paths[to.at()]);
                        worker.sink.write(Array::Property, &self.paths[to.at()]);
                        add(&self.paths[to.at()], paths);
                        bits.set(edge);
                    }
                }
                bits.flush();
            }
        });
        buffer.flush();
        state.add(count, beyond);
        worker.barrier();
        let sums = self.rounds.sums(*round);
        *round += 1;
        sums
    }

    /// Collects the dependencies of the next level.
    fn backward<C: PathCount>(
        &self,
        worker: &Worker<impl AccessSink>,
        level: std::ops::Range<usize>,
        round: &mut usize,
    ) {
        let state = self.rounds.state(worker, *round);
        let (items, out) = (&self.queue.items()[level], self.graph.out.rows());
        worker.frontier(&state.work, items.len(), |range| {
            for item in &items[range] {
                let v = item.get();
                let own = &self.paths[v.at()];
                worker.sink.read(Array::Worklist, item);
                worker.sink.read(Array::Property, own);
                out.record_access(v.at(), worker.sink);
                let paths = C::of_bits(own.get());
                let mut dependency = 0.0;
                let row = out.range(v.at());
                each_bit(self.on_path, row, worker.sink, |edge| {
                    let to = &out.edges[edge];
                    worker.sink.read(Array::Edges, to);
                    let value = &self.paths[to.at()];
                    worker.sink.read(Array::Property, value);
                    dependency += paths.times(C::of_bits(value.get()));
                });
                own.set(paths.under(1.0 + dependency).bits());
                let score = &self.scores[v.at()];
                score.set(V::Real::of(V::Real::of_bits(score.get()).wide() + dependency).bits());
                worker.sink.write(Array::Property, own);
                worker.sink.read(Array::Property, score);
                worker.sink.write(Array::Property, score);
            }
        });
        worker.barrier();
        *round += 1;
    }
}

/// Adds to a path count that threads share as bits.
#[inline]
fn add<C: PathCount>(cell: &<u64 as Plain>::Cell, more: C) {
    let mut seen = cell.get();
    while !cell.replace(seen, C::of_bits(seen).plus(more).bits()) {
        seen = cell.get();
    }
}

/// Bits that are set in ascending order, one atomic write per word, because other threads own other
/// bits of the word.
struct BitWriter<'a, S: AccessSink> {
    words: &'a [<u64 as Plain>::Cell],
    word: usize,
    bits: u64,
    sink: &'a S,
}

impl<S: AccessSink> BitWriter<'_, S> {
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
            self.sink.write(Array::Worklist, &self.words[self.word]);
            self.words[self.word]
                .fetch_or(std::mem::take(&mut self.bits), std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Calls `each` for the set bits of `range`.
#[inline]
fn each_bit(
    words: &[<u64 as Plain>::Cell],
    range: std::ops::Range<usize>,
    sink: &impl AccessSink,
    mut each: impl FnMut(usize),
) {
    if range.is_empty() {
        return;
    }
    let (first, last) = (range.start / WORD, (range.end - 1) / WORD);
    for (i, word) in words[first..=last].iter().enumerate() {
        sink.read(Array::Worklist, word);
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
    /// Returns the score of a vertex.
    pub fn score(&self, v: usize) -> f64 {
        V::Real::of_bits(self.scores[v]).wide()
    }

    /// Compares with Brandes' algorithm on one thread, within 1 in 10,000.
    ///
    /// # Errors
    /// The first vertex that differs.
    pub fn verify(&self, graph: &Graph<V>, sources: &[V]) -> Verdict {
        for (v, expected) in brandes(graph, sources).into_iter().enumerate() {
            let near = (self.score(v) - expected).abs() <= 1e-4 * expected.max(1.0);
            if !near {
                let (vertex, found) = (v, self.score(v));
                return Err(VerifyError::Score { vertex, found, expected });
            }
        }
        Ok(())
    }
}

/// Path count of the verifier: `count` times 2 to the power of 512 times `scale`. More exact than
/// [`WideCount`], of which it shares nothing, and twice as large.
#[derive(Clone, Copy, Debug, Default)]
struct Paths {
    /// 0, or from 1 to below 2^512.
    count: f64,
    scale: i64,
}

impl Paths {
    const STEP: f64 = f64::from_bits((1023 + 512) << 52);

    fn plus(self, other: Self) -> Self {
        let (high, low) = if (self.scale, self.count) < (other.scale, other.count) {
            (other, self)
        } else {
            (self, other)
        };
        let count = high.count
            + match high.scale - low.scale {
                0 => low.count,
                1 => low.count / Self::STEP,
                _ => 0.0,
            };
        if count < Self::STEP {
            return Self { count, scale: high.scale };
        }
        Self { count: count / Self::STEP, scale: high.scale + 1 }
    }

    /// Returns the share of these paths in `all`, of which they are a part.
    fn per(self, all: Self) -> f64 {
        match all.scale - self.scale {
            0 => self.count / all.count,
            1 => self.count / all.count / Self::STEP,
            _ => 0.0,
        }
    }
}

/// Computes the scores on one thread.
fn brandes<V: Width>(graph: &Graph<V>, sources: &[V]) -> Vec<f64> {
    let vertices = graph.vertices();
    let mut scores = vec![0.0; vertices];
    for source in sources {
        let (levels, order) = serial_bfs(graph, source.at());
        let mut paths = vec![Paths::default(); vertices];
        paths[source.at()].count = 1.0;
        for &v in &order {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if levels[to] == levels[v] + 1 {
                    paths[to] = paths[to].plus(paths[v]);
                }
            }
        }
        let mut dependency = vec![0.0; vertices];
        for &v in order.iter().rev() {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if levels[to] == levels[v] + 1 {
                    dependency[v] += paths[v].per(paths[to]) * (1.0 + dependency[to]);
                }
            }
            if v != source.at() {
                scores[v] += dependency[v];
            }
        }
    }
    scores
}
