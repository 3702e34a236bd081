//! PageRank by pushing, as in the papers: each vertex passes on the increase of its rank once it is
//! large enough (Whang et al., Euro-Par'15).
//!
//! Beside its rank, a vertex has a residual: what it received and has not added to its rank.
//! Processing a vertex moves its residual into its rank, and adds the damped residual to the
//! residuals of its neighbours. Residuals are therefore read and written at random. One array of
//! them suffices: a vertex is queued from the moment its residual exceeds a bound until it is
//! processed.
//!
//! Dangling ranks are dropped during the pushes. Redistributed, they would reach all vertices
//! equally, as the initial residual does. This gives the same ranks up to a factor, by which they
//! are then scaled to a sum of 1.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::cells;

use super::{CellOf, Dangling, PageRank, PageRankConfig};
use crate::access_sink::AccessSink;
use crate::kernel::Setup;
use crate::kernel::cost::{ArrayUsage, PhaseTimer};
use crate::kernel::queue::Queue;
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Result, Width, Worker};

struct Push<'a, V: Width, H: AccessSink> {
    graph: &'a Graph<V>,
    ranks: &'a [CellOf<V>],
    residuals: &'a [CellOf<V>],
    /// Queues of this round and of the next.
    queues: [Queue<V>; 2],
    /// Partial sum of each thread, as bits.
    parts: Vec<AtomicU64>,
    rounds: Rounds,
    sink: H,
    config: PageRankConfig,
    timer: PhaseTimer,
}

/// Computes ranks. Takes two words per vertex, and two in queues. A round reads the edges of the
/// queued vertices.
pub(super) fn push<V: Width, H: AccessSink>(
    graph: &Graph<V>,
    config: PageRankConfig,
    setup: &Setup<H>,
) -> Result<PageRank<V>> {
    let (vertices, timer) = (graph.vertices(), PhaseTimer::start());
    let mut ranks = setup.property::<V>(vertices)?;
    let mut residuals = setup.property::<V>(vertices)?;
    let work = Push {
        graph,
        ranks: cells(&mut ranks),
        residuals: cells(&mut residuals),
        queues: [Queue::new(vertices, &setup.pages)?, Queue::new(vertices, &setup.pages)?],
        parts: (0..setup.pool.threads()).map(|_| AtomicU64::default()).collect(),
        rounds: Rounds::default(),
        sink: setup.sink,
        config,
        timer,
    };
    work.timer.allocated();
    let mut done = setup.pool.run(|worker| work.work(&worker));
    let (iterations, residual) = done.swap_remove(0);
    let mut cost = work.timer.stop();
    for queue in &work.queues {
        cost.arrays.push(queue.usage()?);
    }
    for values in [&ranks, &residuals] {
        cost.arrays.push(ArrayUsage::read(Array::Property, values)?);
    }
    Ok(PageRank { ranks, iterations, residual, cost })
}

impl<V: Width, H: AccessSink> Push<'_, V, H> {
    /// Runs all rounds on one thread. Returns their number, and the change that one iteration of
    /// the power method would make.
    fn work(&self, worker: &Worker) -> (usize, f64) {
        let PageRankConfig { max_iterations, tolerance, damping, .. } = self.config;
        // NaN means 0.
        let tolerance = tolerance.max(0.0);
        let all = self.ranks.len() as f64;
        let base = (1.0 - damping) / all;
        // Residuals up to this sum to the tolerance at most. The initial residuals exceed it.
        let mut bound = (tolerance / all).min(base / 2.0);
        self.begin(worker, base);
        let (mut round, mut done) = (0, 0);
        loop {
            let mut waiting = self.collect(worker, &mut round, V::Real::of(bound));
            while waiting > 0 && done < max_iterations {
                waiting = self.push_all(worker, &mut round, waiting, V::Real::of(bound));
                done += 1;
            }
            let (factor, residual) = self.residual(worker);
            // With a damping of 1, there is no initial residual, so pushes never start.
            if residual <= tolerance || done == max_iterations || !residual.is_finite() {
                worker.part(self.ranks.len()).for_each(|v| {
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
    fn begin(&self, worker: &Worker, base: f64) {
        for v in worker.part(self.ranks.len()) {
            self.ranks[v].set(V::default());
            self.residuals[v].set(V::Real::of(base).bits());
        }
        worker.barrier();
        self.timer.touched();
    }

    /// Queues all vertices whose residual exceeds `bound`. Returns their number.
    fn collect(&self, worker: &Worker, round: &mut usize, bound: V::Real) -> usize {
        let mut buffer = self.queues[(*round + 1) % 2].buffer();
        let mut count = 0;
        for v in worker.part(self.ranks.len()) {
            if V::Real::of_bits(self.residuals[v].get()) > bound {
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
        worker: &Worker,
        round: &mut usize,
        waiting: usize,
        bound: V::Real,
    ) -> usize {
        let (now, next) = (&self.queues[*round % 2], &self.queues[(*round + 1) % 2]);
        let out = self.graph.out.rows();
        let (mut buffer, mut count) = (next.buffer(), 0);
        let work = &self.rounds.state(worker, *round).work;
        worker.frontier(work, waiting, |range| {
            for item in &now.items()[range] {
                let from = item.get().at();
                self.sink.read(Array::Worklist, item);
                out.record_access(from, self.sink);
                self.sink.read(Array::Property, &self.ranks[from]);
                self.sink.write(Array::Property, &self.ranks[from]);
                let more = self.take(from);
                self.ranks[from].set((V::Real::of_bits(self.ranks[from].get()) + more).bits());
                let row = out.neighbours(from);
                let share = V::Real::of(self.config.damping * more.wide() / row.len() as f64);
                for to in row {
                    self.sink.read(Array::Edges, to);
                    let to = *to;
                    if self.raise(to.at(), share, bound) {
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
    fn end(&self, worker: &Worker, round: &mut usize, count: usize) -> usize {
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
    fn take(&self, v: usize) -> V::Real {
        self.sink.read(Array::Property, &self.residuals[v]);
        self.sink.write(Array::Property, &self.residuals[v]);
        loop {
            let bits = self.residuals[v].get();
            if self.residuals[v].replace(bits, V::default()) {
                return V::Real::of_bits(bits);
            }
        }
    }

    /// Adds to the residual of a vertex. True if it crossed the bound, which only one thread sees
    /// until the residual is taken.
    #[inline]
    fn raise(&self, v: usize, by: V::Real, bound: V::Real) -> bool {
        self.sink.read(Array::Property, &self.residuals[v]);
        self.sink.write(Array::Property, &self.residuals[v]);
        loop {
            let bits = self.residuals[v].get();
            let before = V::Real::of_bits(bits);
            let after = before + by;
            if self.residuals[v].replace(bits, after.bits()) {
                return before <= bound && after > bound;
            }
        }
    }

    /// Returns the factor that scales the ranks, and the change of the next iteration after that.
    fn residual(&self, worker: &Worker) -> (f64, f64) {
        let residual = |v: usize| V::Real::of_bits(self.residuals[v].get()).wide();
        let left = self.sum(worker, residual);
        if self.config.dangling == Dangling::Drop {
            return (1.0, left);
        }
        let ranks = self.sum(worker, |v| V::Real::of_bits(self.ranks[v].get()).wide());
        // Scaled ranks keep their sum in an iteration: the gains of some are the losses of others.
        let mean = left / self.ranks.len() as f64;
        let change = self.sum(worker, |v| (residual(v) - mean).abs());
        if ranks > 0.0 { (1.0 / ranks, change / ranks) } else { (1.0, f64::INFINITY) }
    }

    /// Sums over all vertices. All threads get the same result.
    fn sum(&self, worker: &Worker, value: impl Fn(usize) -> f64) -> f64 {
        let own: f64 = worker.part(self.ranks.len()).map(value).sum();
        self.parts[worker.id].store(own.to_bits(), Relaxed);
        worker.barrier();
        let sum = self.parts.iter().map(|part| f64::from_bits(part.load(Relaxed))).sum();
        worker.barrier();
        sum
    }
}
