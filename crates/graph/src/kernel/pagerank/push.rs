//! PageRank by pushing: each vertex hands on what its rank rose by, as soon as that is worth it (Whang and others, Euro-Par'15),
//! as in the papers.
//!
//! Beside its rank, a vertex has a residual: what was handed to it and is not in its rank yet. Work on a vertex moves its residual
//! into its rank, and hands that on, damped, to the residuals of its neighbours. So the residuals are what is read and written all
//! over, and one array of them is enough: a vertex waits from when its residual passes a bound until it is worked on.
//!
//! What dangles is dropped while ranks are pushed. Shared by all, it comes back to every vertex alike, as what each begins with
//! does: that makes the same ranks but for a factor, by which they then add up to 1.

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
    /// The vertices of this round, and those of the next.
    queues: [Queue<V>; 2],
    /// What each thread adds to a sum, as bits.
    parts: Vec<AtomicU64>,
    rounds: Rounds,
    sink: H,
    config: PageRankConfig,
    timer: PhaseTimer,
}

/// Two words per vertex, and two in queues; a round reads the edges of those vertices that have something to hand on.
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
    /// All rounds of one thread. How many, and by how much one iteration of the power method would change the ranks.
    fn work(&self, worker: &Worker) -> (usize, f64) {
        let PageRankConfig { max_iterations, tolerance, damping, .. } = self.config;
        // No number is as none.
        let tolerance = tolerance.max(0.0);
        let all = self.ranks.len() as f64;
        let base = (1.0 - damping) / all;
        // Residuals of no more than this add up to the tolerance. All vertices are above it when they begin.
        let mut bound = (tolerance / all).min(base / 2.0);
        self.begin(worker, base);
        let (mut turn, mut done) = (0, 0);
        loop {
            let mut waiting = self.collect(worker, &mut turn, V::Real::of(bound));
            while waiting > 0 && done < max_iterations {
                waiting = self.round(worker, &mut turn, waiting, V::Real::of(bound));
                done += 1;
            }
            let (factor, residual) = self.left(worker);
            // Where nothing is handed out anew, as with a damping of 1, there is nothing to push, ever.
            if residual <= tolerance || done == max_iterations || !residual.is_finite() {
                worker.part(self.ranks.len()).for_each(|v| {
                    let rank = V::Real::of_bits(self.ranks[v].get()).wide() * factor;
                    self.ranks[v].set(V::Real::of(rank).bits());
                });
                return (done, residual);
            }
            // The factor has made more of them.
            bound *= tolerance / residual / 2.0;
        }
    }

    /// Nobody has a rank, and all have the same to hand on.
    fn begin(&self, worker: &Worker, base: f64) {
        for v in worker.part(self.ranks.len()) {
            self.ranks[v].set(V::default());
            self.residuals[v].set(V::Real::of(base).bits());
        }
        worker.barrier();
        self.timer.touched();
    }

    /// Puts all whose residual is above `bound` into the queue, which is empty. How many.
    fn collect(&self, worker: &Worker, turn: &mut usize, bound: V::Real) -> usize {
        let mut found = self.queues[(*turn + 1) % 2].buffer();
        let mut count = 0;
        for v in worker.part(self.ranks.len()) {
            if V::Real::of_bits(self.residuals[v].get()) > bound {
                found.push(V::new(v));
                count += 1;
            }
        }
        found.flush();
        self.end(worker, turn, count)
    }

    /// Works on the `waiting` vertices of the queue. How many wait after that.
    fn round(&self, worker: &Worker, turn: &mut usize, waiting: usize, bound: V::Real) -> usize {
        let (now, next) = (&self.queues[*turn % 2], &self.queues[(*turn + 1) % 2]);
        let out = self.graph.out.rows();
        let (mut found, mut count) = (next.buffer(), 0);
        let pieces = &self.rounds.state(worker, *turn).work;
        worker.frontier(pieces, waiting, |range| {
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
                        found.push(to);
                        count += 1;
                    }
                }
            }
        });
        found.flush();
        self.end(worker, turn, count)
    }

    /// The end of a turn in which this thread found `count` vertices. How many all found.
    fn end(&self, worker: &Worker, turn: &mut usize, count: usize) -> usize {
        self.rounds.state(worker, *turn).add(count, 0);
        worker.barrier();
        let (count, _) = self.rounds.sums(*turn);
        if worker.id == 0 {
            self.queues[*turn % 2].empty();
        }
        worker.barrier();
        *turn += 1;
        count
    }

    /// The residual of a vertex, of which nothing is left there.
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

    /// Adds to the residual of a vertex. True if that made it pass the bound, which one thread sees until it is taken.
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

    /// By which factor ranks are what was asked for, and by how much an iteration would change them then.
    fn left(&self, worker: &Worker) -> (f64, f64) {
        let residual = |v: usize| V::Real::of_bits(self.residuals[v].get()).wide();
        let left = self.sum(worker, residual);
        if self.config.dangling == Dangling::Drop {
            return (1.0, left);
        }
        let ranks = self.sum(worker, |v| V::Real::of_bits(self.ranks[v].get()).wide());
        // Ranks that add up to 1 do so after an iteration, too: what one gains, others lose.
        let mean = left / self.ranks.len() as f64;
        let change = self.sum(worker, |v| (residual(v) - mean).abs());
        if ranks > 0.0 { (1.0 / ranks, change / ranks) } else { (1.0, f64::INFINITY) }
    }

    /// Sums over all vertices; all threads get the same.
    fn sum(&self, worker: &Worker, value: impl Fn(usize) -> f64) -> f64 {
        let own: f64 = worker.part(self.ranks.len()).map(value).sum();
        self.parts[worker.id].store(own.to_bits(), Relaxed);
        worker.barrier();
        let sum = self.parts.iter().map(|part| f64::from_bits(part.load(Relaxed))).sum();
        worker.barrier();
        sum
    }
}
