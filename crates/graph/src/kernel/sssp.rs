//! Shortest ways by the sum of weights.
//!
//! Delta-algorithm (Meyer and Sanders, 2003) works on the vertices of one bucket of distances at a time, each thread with buckets
//! of its own; what a thread adds to the bucket that is worked on, it works off at once while that is little (bucket fusion;
//! Zhang and others, CGO'20), which saves most barriers on road networks. Bellman–Ford works on all vertices whose distance
//! changed, as in the papers.

mod buckets;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{RwLock, RwLockReadGuard};

use hugepilot_alloc::{Plain, cells};

use self::buckets::Buckets;
use super::Setup;
use super::bitmap::Bitmap;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::queue::Queue;
use crate::access_sink::AccessSink;
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Cursor, Graph, GraphError, Property, Result, Width, Worker};

/// Which vertices are worked on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsspAlgorithm {
    /// Those whose distances are in the same bucket of this width, at least 1. Wider buckets have fewer rounds and more work
    /// done twice: 1 or 2 suit graphs with hubs and weights up to 255, some thousands road networks.
    Delta(u64),
    /// All whose distance changed.
    BellmanFord,
}

/// How far each vertex is.
#[derive(Debug)]
pub struct Distances<V: Width> {
    /// From the source; [`Width::NONE`] for who is not reached, and who is as far as that or farther.
    pub distances: Property<V>,
    /// What it took.
    pub cost: KernelCost,
}

/// A search under way.
struct Search<'a, V: Width, H: AccessSink> {
    graph: &'a Graph<V>,
    distances: &'a [<V as Plain>::Cell],
    rounds: Rounds,
    sink: H,
    timer: PhaseTimer,
}

/// A bucket of one thread with fewer vertices is worked off at once.
const FUSED: usize = 1000;

/// From `source` to all that can be reached from it. One word per vertex, and the vertices in buckets, by
/// delta-algorithm; three words and a bit by Bellman–Ford.
///
/// # Errors
/// [`GraphError::Unweighted`], [`GraphError::Vertex`], [`GraphError::Memory`].
pub fn sssp<V: Width, H: AccessSink>(
    graph: &Graph<V>,
    source: V,
    algorithm: SsspAlgorithm,
    setup: &Setup<H>,
) -> Result<Distances<V>> {
    let vertices = graph.vertices();
    graph.check(source)?;
    if graph.out.edges() > 0 && !graph.out.is_weighted() {
        return Err(GraphError::Unweighted);
    }
    let timer = PhaseTimer::start();
    let mut distances = setup.property::<V>(vertices)?;
    let search = Search {
        graph,
        distances: cells(&mut distances),
        rounds: Rounds::default(),
        sink: setup.sink,
        timer,
    };
    let mut cost;
    match algorithm {
        SsspAlgorithm::Delta(delta) => {
            search.timer.allocated();
            let shared = Shared::new(setup.pool.threads());
            setup.pool.run(|worker| search.delta(&worker, source, delta.max(1), &shared));
            cost = search.timer.stop();
        }
        SsspAlgorithm::BellmanFord => {
            let queues = [Queue::new(vertices, &setup.pages)?, Queue::new(vertices, &setup.pages)?];
            let waiting = Bitmap::new(vertices, &setup.pages)?;
            search.timer.allocated();
            setup.pool.run(|worker| search.bellman_ford(&worker, source, &queues, &waiting));
            cost = search.timer.stop();
            cost.arrays = vec![queues[0].usage()?, queues[1].usage()?, waiting.usage()?];
        }
    }
    cost.arrays.push(ArrayUsage::read(Array::Property, &distances)?);
    Ok(Distances { distances, cost })
}

/// What threads share in delta-algorithm: of each round, the vertices of the bucket, as each thread found them.
struct Shared<V> {
    frontiers: [Vec<Slot<V>>; 3],
    /// The least bucket that any thread has something in, of each round.
    next: [AtomicU64; 3],
}

#[derive(Default)]
struct Slot<V> {
    vertices: RwLock<Vec<V>>,
    next: Cursor,
}

impl<V: Width> Shared<V> {
    fn new(threads: usize) -> Self {
        let slots = || (0..threads).map(|_| Slot::default()).collect();
        Self {
            frontiers: [slots(), slots(), slots()],
            next: [const { AtomicU64::new(u64::MAX) }; 3],
        }
    }

    /// What that thread found for a round.
    fn slot(&self, round: usize, thread: usize) -> (&Cursor, RwLockReadGuard<'_, Vec<V>>) {
        let slot = &self.frontiers[round % 3][thread];
        (&slot.next, slot.vertices.read().expect("nobody panics with it"))
    }

    /// What this thread found for the round after `round`.
    fn publish(&self, round: usize, thread: usize, bucket: &mut Vec<V>) {
        let slot = &self.frontiers[(round + 1) % 3][thread];
        let mut vertices = slot.vertices.write().expect("nobody panics with it");
        vertices.clear();
        std::mem::swap(&mut *vertices, bucket);
        slot.next.reset();
    }
}

impl<V: Width, H: AccessSink> Search<'_, V, H> {
    fn begin(&self, worker: &Worker, source: V) {
        let pieces = &self.rounds.state(worker, 0).work;
        worker.each(pieces, self.distances.len(), 1 << 14, |range| {
            self.distances[range].iter().for_each(|distance| distance.set(V::NONE));
        });
        worker.barrier();
        self.timer.touched();
        if worker.id == 0 {
            self.distances[source.at()].set(V::default());
        }
        worker.barrier();
    }

    #[inline]
    fn far(&self, v: V) -> V {
        self.sink.read(Array::Property, &self.distances[v.at()]);
        self.distances[v.at()].get()
    }

    /// Lowers the distances of the neighbours of `from`, which is `far` away, and calls `lowered` for each that it lowered.
    #[inline]
    fn relax(&self, from: V, far: V, mut lowered: impl FnMut(V, V)) {
        let (out, distances) = (self.graph.out.rows(), self.distances);
        let row = out.range(from.at());
        out.record_access(from.at(), self.sink);
        for (to, weight) in out.edges[row.clone()].iter().zip(&out.weights[row]) {
            self.sink.read(Array::Edges, to);
            self.sink.read(Array::Weights, weight);
            let (way, distance) = (far.plus(*weight), &distances[to.at()]);
            self.sink.read(Array::Property, distance);
            if distance.lower(way) {
                self.sink.write(Array::Property, distance);
                lowered(*to, way);
            }
        }
    }

    fn delta(&self, worker: &Worker, source: V, delta: u64, shared: &Shared<V>) {
        let mut buckets = Buckets::new(delta, self.graph.out.heaviest.at() as u64);
        self.begin(worker, source);
        if worker.id == 0 {
            shared.publish(0, 0, &mut vec![source]);
        }
        worker.barrier();
        let (mut bucket, mut round) = (0, 1);
        loop {
            let begin = buckets.begin(bucket);
            for other in 0..worker.count {
                let whose = (worker.id + other) % worker.count;
                let (next, vertices) = shared.slot(round, whose);
                worker.frontier_of(whose, next, vertices.len(), |range| {
                    for &from in &vertices[range] {
                        let far = self.far(from);
                        // Nearer by now: it was worked on with an earlier bucket.
                        if far.at() as u64 >= begin {
                            self.relax(from, far, |to, way| buckets.push(to, way));
                        }
                    }
                });
            }
            while let Some(mut few) = buckets.take_few(bucket, FUSED) {
                for from in few.drain(..) {
                    let far = self.far(from);
                    self.relax(from, far, |to, way| buckets.push(to, way));
                }
                buckets.reuse(few);
            }
            shared.next[round % 3].fetch_min(buckets.first(bucket), Relaxed);
            worker.barrier();
            bucket = shared.next[round % 3].load(Relaxed);
            if bucket == u64::MAX {
                return;
            }
            if worker.id == 0 {
                shared.next[(round + 1) % 3].store(u64::MAX, Relaxed);
            }
            shared.publish(round, worker.id, buckets.bucket(bucket));
            worker.barrier();
            round += 1;
        }
    }

    fn bellman_ford(&self, worker: &Worker, source: V, queues: &[Queue<V>; 2], waiting: &Bitmap) {
        self.begin(worker, source);
        if worker.id == 0 {
            let mut found = queues[1].buffer();
            found.push(source);
            found.flush();
        }
        worker.barrier();
        let (mut round, mut len) = (1, 1);
        while len > 0 {
            let (now, next) = (&queues[round % 2], &queues[(round + 1) % 2]);
            let state = self.rounds.state(worker, round);
            let (mut found, mut count) = (next.buffer(), 0);
            worker.frontier(&state.work, len, |range| {
                for item in &now.items()[range] {
                    let from = item.get();
                    self.sink.read(Array::Worklist, item);
                    // Before the distance is read: who lowers it from here on finds it not waiting.
                    waiting.clear_bit(from.at());
                    let far = self.far(from);
                    self.relax(from, far, |to, _| {
                        if waiting.claim(to.at()) {
                            found.push(to);
                            count += 1;
                        }
                    });
                }
            });
            found.flush();
            state.add(count, 0);
            worker.barrier();
            (len, _) = self.rounds.sums(round);
            if worker.id == 0 {
                now.empty();
            }
            worker.barrier();
            round += 1;
        }
    }
}

impl<V: Width> Distances<V> {
    /// How many vertices were reached, the source among them.
    pub fn reached(&self) -> usize {
        self.distances.iter().filter(|&&far| far != V::NONE).count()
    }

    /// The sum of all distances.
    pub fn sum(&self) -> u128 {
        self.distances.iter().filter(|&&far| far != V::NONE).map(|far| far.at() as u128).sum()
    }

    /// The largest.
    pub fn most(&self) -> Option<V> {
        self.distances.iter().copied().filter(|&far| far != V::NONE).max()
    }

    /// No edge leads to a shorter way, and each vertex that is reached, but the source, has an edge that leads to it by exactly
    /// its distance. One pass over all edges. Weights are above 0.
    ///
    /// # Errors
    /// What does not hold, and where.
    pub fn verify(&self, graph: &Graph<V>, source: V) -> std::result::Result<(), String> {
        let mut confirmed = vec![false; self.distances.len()];
        if self.distances[source.at()] != V::default() {
            return Err(format!("the source is {} from itself", self.distances[source.at()]));
        }
        confirmed[source.at()] = true;
        for (v, &far) in self.distances.iter().enumerate() {
            if far == V::NONE {
                continue;
            }
            for (to, &weight) in graph.out.neighbours(v).iter().zip(graph.out.weights(v)) {
                let (way, known) = (far.plus(weight), self.distances[to.at()]);
                if way < known {
                    return Err(format!("{to} is {way} away by {v}, not {known}"));
                }
                confirmed[to.at()] |= way == known && weight > V::default();
            }
        }
        let reached = |v: &usize| self.distances[*v] != V::NONE;
        match confirmed.iter().enumerate().find(|&(v, confirmed)| reached(&v) && !confirmed) {
            Some((v, _)) => Err(format!("no edge leads to {v} by {}", self.distances[v])),
            None => Ok(()),
        }
    }
}
