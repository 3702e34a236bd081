//! Single-source shortest paths by weight.
//!
//! Delta-stepping (Meyer and Sanders, 2003) processes one bucket of distances at a time, and each
//! thread has its own buckets. A thread processes vertices that it adds to the current bucket at
//! once while they are few (bucket fusion; Zhang et al., CGO'20). This saves most barriers on road
//! networks. Bellman–Ford processes all vertices whose distance changed, as in the papers.

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
use super::verify::{Verdict, VerifyError};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::rounds::Rounds;
use crate::width::Cell;
use crate::{Array, Cursor, Graph, GraphError, Property, Result, Width, Worker};

/// Algorithm for shortest paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsspAlgorithm {
    /// Delta-stepping with buckets of this width, at least 1. Wider buckets mean fewer rounds and
    /// more repeated work: 1 or 2 suit graphs with hubs and weights up to 255, some thousands suit
    /// road networks.
    Delta(u64),
    /// Bellman–Ford.
    BellmanFord,
}

/// Result of shortest paths.
#[derive(Debug)]
pub struct Distances<V: Width> {
    /// Distance from the source; [`Width::NONE`] for unreachable vertices.
    pub distances: Property<V>,
    /// Cost of the kernel.
    pub cost: KernelCost,
}

/// State of a running search.
struct Search<'a, V: Width> {
    graph: &'a Graph<V>,
    distances: &'a [<V as Plain>::Cell],
    rounds: Rounds,
    timer: PhaseTimer,
}

/// Vertices of a thread's bucket below which the thread processes it at once.
const FUSED: usize = 1000;

/// Computes shortest paths from `source`. Delta-stepping takes one word per vertex, and the
/// vertices in buckets. Bellman–Ford takes three words and a bit per vertex.
///
/// # Errors
/// [`GraphError::Unweighted`], [`GraphError::Vertex`], [`GraphError::Memory`];
/// [`GraphError::Distance`] if a distance exceeds the width.
pub fn sssp<V: Width, T: Tracer>(
    graph: &Graph<V>,
    source: V,
    algorithm: SsspAlgorithm,
    setup: &Setup<T>,
) -> Result<Distances<V>> {
    let vertices = graph.vertices();
    graph.check(source)?;
    if graph.out.edges() > 0 && !graph.out.is_weighted() {
        return Err(GraphError::Unweighted);
    }
    let timer = PhaseTimer::start();
    let mut distances = setup.property::<V>(vertices)?;
    let search =
        Search { graph, distances: cells(&mut distances), rounds: Rounds::default(), timer };
    let mut cost;
    match algorithm {
        SsspAlgorithm::Delta(delta) => {
            setup.announce(graph, &|| vec![search.array()]);
            search.timer.allocated();
            let shared = Shared::new(setup.pool.threads());
            setup.run(|worker| search.delta(worker, source, delta.max(1), &shared));
            cost = search.timer.stop();
        }
        SsspAlgorithm::BellmanFord => {
            let queues = [Queue::new(vertices, &setup.pages)?, Queue::new(vertices, &setup.pages)?];
            let waiting = Bitmap::new(vertices, &setup.pages)?;
            setup.announce(graph, &|| {
                vec![
                    search.array(),
                    ArrayRange::new(Array::Worklist, "queue-0", queues[0].items()),
                    ArrayRange::new(Array::Worklist, "queue-1", queues[1].items()),
                    ArrayRange::new(Array::Worklist, "waiting", waiting.cells()),
                ]
            });
            search.timer.allocated();
            setup.run(|worker| search.bellman_ford(worker, source, &queues, &waiting));
            cost = search.timer.stop();
            cost.arrays = vec![queues[0].usage()?, queues[1].usage()?, waiting.usage()?];
        }
    }
    cost.arrays.push(ArrayUsage::read(Array::Property, &distances)?);
    let found = Distances { distances, cost };
    if found.is_cut(graph) { Err(GraphError::Distance { bits: V::BITS }) } else { Ok(found) }
}

/// State that threads share in delta-stepping: the vertices of the bucket of each round, by the
/// thread that found them.
struct Shared<V> {
    frontiers: [Vec<Slot<V>>; 3],
    /// Least non-empty bucket of any thread, of each round.
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

    /// Returns the vertices that a thread found for a round.
    fn slot(&self, round: usize, thread: usize) -> (&Cursor, RwLockReadGuard<'_, Vec<V>>) {
        let slot = &self.frontiers[round % 3][thread];
        (&slot.next, slot.vertices.read().expect("no thread panics while it holds the lock"))
    }

    /// Publishes the vertices that this thread found for the round after `round`.
    fn publish(&self, round: usize, thread: usize, bucket: &mut Vec<V>) {
        let slot = &self.frontiers[(round + 1) % 3][thread];
        let mut vertices = slot.vertices.write().expect("no thread panics while it holds the lock");
        vertices.clear();
        std::mem::swap(&mut *vertices, bucket);
        slot.next.reset();
    }
}

impl<V: Width> Search<'_, V> {
    fn array(&self) -> ArrayRange {
        ArrayRange::new(Array::Property, "distances", self.distances)
    }

    fn begin(&self, worker: &Worker<impl AccessSink>, source: V) {
        let work = &self.rounds.state(worker, 0).work;
        worker.each(work, self.distances.len(), 1 << 14, |range| {
            for distance in &self.distances[range] {
                worker.sink.write(Array::Property, distance);
                distance.set(V::NONE);
            }
        });
        worker.barrier();
        self.timer.touched();
        if worker.id == 0 {
            worker.sink.write(Array::Property, &self.distances[source.at()]);
            self.distances[source.at()].set(V::default());
        }
        worker.barrier();
    }

    #[inline]
    fn far(&self, v: V, sink: &impl AccessSink) -> V {
        sink.read(Array::Property, &self.distances[v.at()]);
        self.distances[v.at()].get()
    }

    /// Lowers the distances of the neighbours of `from` at distance `far`, and calls `lowered` for
    /// each lowered one.
    #[inline]
    fn relax(&self, from: V, far: V, sink: &impl AccessSink, mut lowered: impl FnMut(V, V)) {
        let (out, distances) = (self.graph.out.rows(), self.distances);
        let row = out.range(from.at());
        out.record_access(from.at(), sink);
        for (to, weight) in out.edges[row.clone()].iter().zip(&out.weights[row]) {
            sink.read(Array::Edges, to);
            sink.read(Array::Weights, weight);
            let (length, distance) = (far.plus(*weight), &distances[to.at()]);
            sink.read(Array::Property, distance);
            if distance.lower(length) {
                sink.write(Array::Property, distance);
                lowered(*to, length);
            }
        }
    }

    fn delta(&self, worker: &Worker<impl AccessSink>, source: V, delta: u64, shared: &Shared<V>) {
        let mut buckets = Buckets::new(delta, self.graph.out.heaviest.at() as u64);
        worker.phase(format_args!("sssp begin"));
        self.begin(worker, source);
        if worker.id == 0 {
            shared.publish(0, 0, &mut vec![source]);
        }
        worker.barrier();
        let (mut bucket, mut round) = (0, 1);
        loop {
            worker.phase(format_args!("sssp {round}"));
            let begin = buckets.begin(bucket);
            for other in 0..worker.count {
                let owner = (worker.id + other) % worker.count;
                let (next, vertices) = shared.slot(round, owner);
                worker.frontier_of(owner, next, vertices.len(), |range| {
                    for &from in &vertices[range] {
                        let far = self.far(from, worker.sink);
                        // A vertex with a lower distance was processed with an earlier bucket.
                        if far.at() as u64 >= begin {
                            self.relax(from, far, worker.sink, |to, distance| {
                                buckets.push(to, distance)
                            });
                        }
                    }
                });
            }
            while let Some(mut few) = buckets.take_few(bucket, FUSED) {
                for from in few.drain(..) {
                    let far = self.far(from, worker.sink);
                    self.relax(from, far, worker.sink, |to, distance| buckets.push(to, distance));
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

    fn bellman_ford(
        &self,
        worker: &Worker<impl AccessSink>,
        source: V,
        queues: &[Queue<V>; 2],
        waiting: &Bitmap,
    ) {
        worker.phase(format_args!("sssp begin"));
        self.begin(worker, source);
        if worker.id == 0 {
            let mut buffer = queues[1].buffer(worker.sink);
            buffer.push(source);
            buffer.flush();
        }
        worker.barrier();
        let (mut round, mut len) = (1, 1);
        while len > 0 {
            worker.phase(format_args!("sssp {round}"));
            let (now, next) = (&queues[round % 2], &queues[(round + 1) % 2]);
            let state = self.rounds.state(worker, round);
            let (mut buffer, mut count) = (next.buffer(worker.sink), 0);
            worker.frontier(&state.work, len, |range| {
                for item in &now.items()[range] {
                    let from = item.get();
                    worker.sink.read(Array::Worklist, item);
                    // Cleared before the distance is read: a thread that lowers it afterwards adds
                    // the vertex again.
                    waiting.clear_bit(from.at(), worker.sink);
                    let far = self.far(from, worker.sink);
                    self.relax(from, far, worker.sink, |to, _| {
                        if waiting.claim(to.at(), worker.sink) {
                            buffer.push(to);
                            count += 1;
                        }
                    });
                }
            });
            buffer.flush();
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
    /// Returns the number of reached vertices, including the source.
    pub fn reached(&self) -> usize {
        self.distances.iter().filter(|&&far| far != V::NONE).count()
    }

    /// Returns the sum of all distances.
    pub fn sum(&self) -> u128 {
        self.distances.iter().filter(|&&far| far != V::NONE).map(|far| far.at() as u128).sum()
    }

    /// Returns the largest distance.
    pub fn max(&self) -> Option<V> {
        self.distances.iter().copied().filter(|&far| far != V::NONE).max()
    }

    /// Whether a vertex has a path whose length is [`Width::NONE`] or more, and so counts as
    /// unreachable. The last vertex before that on the path has a distance within the largest
    /// weight of that limit.
    fn is_cut(&self, graph: &Graph<V>) -> bool {
        let exceeds = |far: V, weight: V| wide(far) + wide(weight) >= wide(V::NONE);
        let heaviest = graph.out.heaviest();
        let is_near = |v: &usize| {
            let far = self.distances[*v];
            far != V::NONE && exceeds(far, heaviest)
        };
        (0..self.distances.len()).filter(is_near).any(|v| {
            let edges = graph.out.neighbours(v).iter().zip(graph.out.weights(v));
            edges.into_iter().any(|(to, &weight)| {
                self.distances[to.at()] == V::NONE && exceeds(self.distances[v], weight)
            })
        })
    }

    /// Checks that no edge yields a shorter path, and that each reached vertex except the source
    /// has an edge of exactly its distance. One pass over all edges, in 128 bits. Weights are above
    /// 0.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self, graph: &Graph<V>, source: V) -> Verdict {
        let mut confirmed = vec![false; self.distances.len()];
        if self.distances[source.at()] != V::default() {
            let distance = self.distances[source.at()].at() as u64;
            return Err(VerifyError::SourceDistance(distance));
        }
        confirmed[source.at()] = true;
        for (v, &far) in self.distances.iter().enumerate() {
            if far == V::NONE {
                continue;
            }
            for (to, &weight) in graph.out.neighbours(v).iter().zip(graph.out.weights(v)) {
                let (distance, to) = (wide(far) + wide(weight), to.at());
                let known = Some(self.distances[to]).filter(|&known| known != V::NONE).map(wide);
                match known {
                    None => return Err(VerifyError::Unreached { vertex: to, by: v, distance }),
                    Some(found) if distance < found => {
                        return Err(VerifyError::Shorter { vertex: to, by: v, distance, found });
                    }
                    Some(found) => confirmed[to] |= distance == found && weight > V::default(),
                }
            }
        }
        let reached = |v: &usize| self.distances[*v] != V::NONE;
        match confirmed.iter().enumerate().find(|&(v, confirmed)| reached(&v) && !confirmed) {
            Some((vertex, _)) => {
                let distance = self.distances[vertex].at() as u64;
                Err(VerifyError::Unconfirmed { vertex, distance })
            }
            None => Ok(()),
        }
    }
}

/// Converts for arithmetic that cannot overflow.
fn wide<V: Width>(value: V) -> u128 {
    value.at() as u128
}
