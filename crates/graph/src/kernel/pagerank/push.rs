//! PageRank by pushing, as in the papers: each vertex passes on the increase of its rank once it is
//! large enough (Whang et al., Euro-Par'15).
//!
//! Beside its rank, a vertex has a residual: what it received and has not added to its rank.
//! Processing a vertex moves its residual into its rank, and adds the damped residual to the
//! residuals of its neighbours. Residuals are therefore read and written at random. One array of
//! them suffices: a vertex is queued from the moment its residual exceeds a bound until it is
//! processed. Residuals have 64 bits at either width: a vertex with a million predecessors receives
//! shares of a millionth of its residual, which 32 bits would round.
//!
//! Dangling ranks are dropped during the pushes. Redistributed, they would reach all vertices
//! equally, as the initial residual does. This gives the same ranks up to a factor, by which they
//! are then scaled to a sum of 1.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::cells;

use super::{CellOf, Dangling, PageRank, PageRankConfig};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::kernel::Setup;
use crate::kernel::cost::{ArrayUsage, PhaseTimer};
use crate::kernel::queue::Queue;
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Result, Width, Worker};

struct Push<'a, V: Width> {
    graph: &'a Graph<V>,
    ranks: &'a [CellOf<V>],
    residuals: &'a [AtomicU64],
    /// Queues of this round and of the next.
    queues: [Queue<V>; 2],
    /// Partial sum of each thread, as bits.
    parts: Vec<AtomicU64>,
    rounds: Rounds,
    config: PageRankConfig,
    timer: PhaseTimer,
}

/// Computes ranks. Takes a word and 8 bytes per vertex, and two words in queues. A round reads the
/// edges of the queued vertices.
pub(super) fn push<V: Width, T: Tracer>(
    graph: &Graph<V>,
    config: PageRankConfig,
    setup: &Setup<T>,
) -> Result<PageRank<V>> {
    let (vertices, timer) = (graph.vertices(), PhaseTimer::start());
    let mut ranks = setup.property::<V>(vertices)?;
    let mut residuals = setup.property::<u64>(vertices)?;
    let work = Push {
        graph,
        ranks: cells(&mut ranks),
        residuals: cells(&mut residuals),
        queues: [Queue::new(vertices, &setup.pages)?, Queue::new(vertices, &setup.pages)?],
        parts: (0..setup.pool.threads()).map(|_| AtomicU64::default()).collect(),
        rounds: Rounds::default(),
        config,
        timer,
    };
    setup.announce(graph, &|| {
        vec![
            ArrayRange::new(Array::Property, "ranks", work.ranks),
            ArrayRange::new(Array::Property, "residuals", work.residuals),
            ArrayRange::new(Array::Worklist, "queue-0", work.queues[0].items()),
            ArrayRange::new(Array::Worklist, "queue-1", work.queues[1].items()),
        ]
    });
    work.timer.allocated();
    let mut done = setup.run(|worker| work.work(worker));
    let (iterations, residual) = done.swap_remove(0);
    let mut cost = work.timer.stop();
    for queue in &work.queues {
        cost.arrays.push(queue.usage()?);
    }
    cost.arrays.push(ArrayUsage::read(Array::Property, &ranks)?);
    cost.arrays.push(ArrayUsage::read(Array::Property, &residuals)?);
    Ok(PageRank { ranks, iterations, residual, cost })
}

impl<V: Width> Push<'_, V> {
    /// Runs all rounds on one thread. Returns their number, and the change that one iteration of
    /// the power method would make.
    fn work(&self, worker: &Worker<impl AccessSink>) -> (usize, f64) {
        let PageRankConfig { max_iterations, tolerance, damping, .. } = self.config;
        // NaN means 0.
        let tolerance = tolerance.max(0.0);
        let all = self.ranks.len() as f64;
        let base = (1.0 - damping) / all;
        // Residuals up to this sum to the tolerance at most. The initial residuals exceed it.
        let mut bound = (tolerance / all).min(base / 2.0);
        worker.phase(format_args!("pr begin"));
        self.begin(worker, base);
        let (mut round, mut done) = (0, 0);
        loop {
            worker.phase(format_args!("pr collect"));
            let mut waiting = self.collect(worker, &mut round, bound);
            while waiting > 0 && done < max_iterations {
                worker.phase(format_args!("pr {}", done + 1));
                waiting = self.push_all(worker, &mut round, waiting, bound);
                done += 1;
            }
            worker.phase(format_args!("pr residual"));
            let (factor, residual) = self.residual(worker);
            // With a damping of 1, there is no initial residual, so pushes never start.
            if residual <= tolerance || done == max_iterations || !residual.is_finite() {
                worker.phase(format_args!("pr end"));
                worker.part(self.ranks.len()).for_each(|v| {
                    worker.sink.read(Array::Property, &self.ranks[v]);
                    worker.sink.write(Array::Property, &self.ranks[v]);
                    let rank = V::Real::of_bits(self.ranks[v].get()).wide() * factor;
                    self.ranks[v].set(V::Real::of(rank).bits());
                });
                return (done, residual);
            }
            // Scaling enlarges the residuals.
            bound *= tolerance / residual / 2.0;
        }
    }

    /// Sets all ranks to 0, and equal residuals.
    fn begin(&self, worker: &Worker<impl AccessSink>, base: f64) {
        for v in worker.part(self.ranks.len()) {
            worker.sink.write(Array::Property, &self.ranks[v]);
            worker.sink.write(Array::Property, &self.residuals[v]);
            self.ranks[v].set(V::default());
            self.residuals[v].set(base.to_bits());
        }
        worker.barrier();
        self.timer.touched();
    }

    /// Queues all vertices whose residual exceeds `bound`. Returns their number.
    fn collect(&self, worker: &Worker<impl AccessSink>, round: &mut usize, bound: f64) -> usize {
        let mut buffer = self.queues[(*round + 1) % 2].buffer(worker.sink);
        let mut count = 0;
        for v in worker.part(self.ranks.len()) {
            worker.sink.read(Array::Property, &self.residuals[v]);
            if f64::from_bits(self.residuals[v].get()) > bound {
                buffer.push(V::new(v));
                count += 1;
            }
        }
        buffer.flush();
        self.end(worker, round, count)
    }

    /// Processes the `waiting` vertices of the queue. Returns the vertices queued for the next
    /// round.
    fn push_all(
        &self,
        worker: &Worker<impl AccessSink>,
        round: &mut usize,
        waiting: usize,
        bound: f64,
    ) -> usize {
        let (now, next) = (&self.queues[*round % 2], &self.queues[(*round + 1) % 2]);
        let out = self.graph.out.rows();
        let (mut buffer, mut count) = (next.buffer(worker.sink), 0);
        let work = &self.rounds.state(worker, *round).work;
        worker.frontier(work, waiting, |range| {
            for item in &now.items()[range] {
                let from = item.get().at();
                worker.sink.read(Array::Worklist, item);
                out.record_access(from, worker.sink);
                worker.sink.read(Array::Property, &self.ranks[from]);
                worker.sink.write(Array::Property, &self.ranks[from]);
                let more = self.take(from, worker.sink);
                let rank = V::Real::of_bits(self.ranks[from].get()).wide() + more;
                self.ranks[from].set(V::Real::of(rank).bits());
                let row = out.neighbours(from);
                let share = self.config.damping * more / row.len() as f64;
                for to in row {
                    worker.sink.read(Array::Edges, to);
                    let to = *to;
                    if self.raise(to.at(), share, bound, worker.sink) {
                        buffer.push(to);
                        count += 1;
                    }
                }
            }
        });
        buffer.flush();
        self.end(worker, round, count)
    }

    /// Ends a round in which this thread queued `count` vertices. Returns the sum over all threads.
    fn end(&self, worker: &Worker<impl AccessSink>, round: &mut usize, count: usize) -> usize {
        self.rounds.state(worker, *round).add(count, 0);
        worker.barrier();
        let (count, _) = self.rounds.sums(*round);
        if worker.id == 0 {
            self.queues[*round % 2].empty();
        }
        worker.barrier();
        *round += 1;
        count
    }

    /// Takes the residual of a vertex, and leaves 0.
    fn take(&self, v: usize, sink: &impl AccessSink) -> f64 {
        sink.read(Array::Property, &self.residuals[v]);
        sink.write(Array::Property, &self.residuals[v]);
        loop {
            let bits = self.residuals[v].get();
            if self.residuals[v].replace(bits, 0) {
                return f64::from_bits(bits);
            }
        }
    }

    /// Adds to the residual of a vertex. True if it crossed the bound, which only one thread sees
    /// until the residual is taken.
    #[inline]
    fn raise(&self, v: usize, by: f64, bound: f64, sink: &impl AccessSink) -> bool {
        sink.read(Array::Property, &self.residuals[v]);
        sink.write(Array::Property, &self.residuals[v]);
        loop {
            let bits = self.residuals[v].get();
            let before = f64::from_bits(bits);
            let after = before + by;
            if self.residuals[v].replace(bits, after.to_bits()) {
                return before <= bound && after > bound;
            }
        }
    }

    /// Returns the factor that scales the ranks, and the change of the next iteration after that.
    fn residual(&self, worker: &Worker<impl AccessSink>) -> (f64, f64) {
        let residual = |v: usize| {
            worker.sink.read(Array::Property, &self.residuals[v]);
            f64::from_bits(self.residuals[v].get())
        };
        let rank = |v: usize| {
            worker.sink.read(Array::Property, &self.ranks[v]);
            V::Real::of_bits(self.ranks[v].get()).wide()
        };
        let left = self.sum(worker, residual);
        if self.config.dangling == Dangling::Drop {
            return (1.0, left);
        }
        let ranks = self.sum(worker, rank);
        // Scaled ranks keep their sum in an iteration: the gains of some are the losses of others.
        let mean = left / self.ranks.len() as f64;
        let change = self.sum(worker, |v| (residual(v) - mean).abs());
        if ranks > 0.0 { (1.0 / ranks, change / ranks) } else { (1.0, f64::INFINITY) }
    }

    /// Sums over all vertices. All threads get the same result.
    fn sum(&self, worker: &Worker<impl AccessSink>, value: impl Fn(usize) -> f64) -> f64 {
        let own: f64 = worker.part(self.ranks.len()).map(value).sum();
        self.parts[worker.id].store(own.to_bits(), Relaxed);
        worker.barrier();
        let sum = self.parts.iter().map(|part| f64::from_bits(part.load(Relaxed))).sum();
        worker.barrier();
        sum
    }
}
