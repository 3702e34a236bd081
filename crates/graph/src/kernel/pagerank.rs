//! PageRank by pulling: each vertex sums the shares of its predecessors. `push.rs` pushes instead.
//!
//! The share that a vertex passes along each of its edges has its own array, so that each edge
//! costs one read and no division. This array is the one read at random, and belongs on huge pages
//! with the ranks. The edges of consecutive vertices follow each other, so that the reads are known
//! long before their row, and are prefetched: a row that ends early, which no CPU predicts, then
//! delays no read of the next rows.

mod push;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{Plain, cells, prefetch};

use super::Setup;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::verify::{Verdict, VerifyError};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Property, Result, Width, Worker};

/// Algorithm for `PageRank`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageRankAlgorithm {
    /// Jacobi: ranks of the previous iteration. The same bits for any number of threads.
    #[default]
    Jacobi,
    /// Gauss–Seidel: updated ranks as soon as they exist. Fewer iterations, and bits that depend on
    /// thread timing. Dangling ranks are redistributed at the end, by scaling ranks to a unit sum.
    /// This gives the same ranks (Del Corso, Gullì and Romani, 2005) in fewer iterations than a
    /// lagging share.
    GaussSeidel,
    /// Delta push, as in the papers: each vertex pushes the increase of its rank. An iteration is a
    /// round over the vertices with an increase to push. As ranks start at 0, rounds exceed the
    /// iterations of the other algorithms. Bits depend on thread timing.
    DeltaPush,
}

/// Treatment of the rank of vertices without outgoing edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dangling {
    /// Dropped, as in the GAP benchmark suite: ranks then do not sum to 1.
    Drop,
    /// Redistributed to all vertices, as in LDBC Graphalytics.
    #[default]
    Redistribute,
}

/// Parameters of `PageRank`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRankConfig {
    /// Most iterations.
    pub max_iterations: usize,
    /// Sum of rank changes below which the iteration stops. In delta push, a vertex pushes
    /// increases above this divided by the vertices.
    pub tolerance: f64,
    /// Share of a rank that is passed along edges.
    pub damping: f64,
    /// Algorithm.
    pub algorithm: PageRankAlgorithm,
    /// Treatment of dangling ranks.
    pub dangling: Dangling,
}

/// Values of the GAP benchmark suite, except for dangling ranks and the algorithm.
impl Default for PageRankConfig {
    fn default() -> Self {
        let (algorithm, dangling) = (PageRankAlgorithm::default(), Dangling::default());
        Self { max_iterations: 20, tolerance: 1e-4, damping: 0.85, algorithm, dangling }
    }
}

impl PageRankConfig {
    /// Whether dangling ranks are redistributed by scaling.
    fn scales(&self) -> bool {
        self.algorithm == PageRankAlgorithm::GaussSeidel && self.dangling == Dangling::Redistribute
    }
}

/// Result of `PageRank`.
#[derive(Debug)]
pub struct PageRank<V: Width> {
    /// Rank of each vertex as bits of [`Width::Real`].
    pub ranks: Property<V>,
    /// Iterations.
    pub iterations: usize,
    /// Sum of the rank changes in the last iteration; in delta push, in one further iteration of
    /// the power method.
    pub residual: f64,
    /// Cost of the kernel.
    pub cost: KernelCost,
}

/// Vertices in a chunk.
const CHUNK: usize = 1 << 14;
/// Predecessors whose shares are summed in the width of ranks.
const LONG: usize = 1 << 12;

type CellOf<V> = <V as Plain>::Cell;

/// Edges between the prefetch of a share and its addition: 48 were too few for a large graph, and
/// 512 fill a first-level cache.
const AHEAD: usize = 128;

/// Computes the share that a vertex passes along each edge, as bits. The share of a vertex without
/// edges is never read.
#[inline]
fn share<V: Width>(rank: V::Real, degree: usize) -> V {
    (rank / V::Real::count(degree)).bits()
}

/// Whether at least one in four edges reads a share in a cache line that none of the thousand edges
/// before it read. If not, as in a grid, a cache has the shares, and a prefetch costs a tenth.
/// Takes less than a millisecond.
fn is_scattered<V: Width>(graph: &Graph<V>) -> bool {
    const WINDOW: usize = 1024;
    const WINDOWS: usize = 16;
    let edges = &graph.incoming().edges[..];
    let windows = edges.chunks(WINDOW).step_by((edges.len() / WINDOW / WINDOWS).max(1));
    let (mut lines, mut all) = (0, 0);
    for window in windows {
        let line = |to: &V| to.at() * size_of::<V>() / 64;
        lines += window.iter().map(line).collect::<HashSet<_>>().len();
        all += window.len();
    }
    lines * 4 > all
}

struct Work<'a, V: Width> {
    graph: &'a Graph<V>,
    ranks: &'a [CellOf<V>],
    /// Share that each vertex passes along each edge.
    shares: &'a [CellOf<V>],
    /// Two partial sums of each chunk as bits, for this round and the one before.
    sums: [Vec<[AtomicU64; 2]>; 2],
    rounds: Rounds,
    config: PageRankConfig,
    is_scattered: bool,
    timer: PhaseTimer,
}

/// Computes ranks by power iteration. Takes two words per vertex; an iteration reads each edge
/// once. Delta push takes four, and reads the edges of fewer vertices from round to round.
///
/// # Errors
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn pagerank<V: Width, T: Tracer>(
    graph: &Graph<V>,
    config: PageRankConfig,
    setup: &Setup<T>,
) -> Result<PageRank<V>> {
    if config.algorithm == PageRankAlgorithm::DeltaPush {
        return push::push(graph, config, setup);
    }
    let (vertices, timer) = (graph.vertices(), PhaseTimer::start());
    let property = || setup.property::<V>(vertices);
    let (mut ranks, mut shares) = (property()?, property()?);
    let sums = || (0..vertices.div_ceil(CHUNK)).map(|_| Default::default()).collect();
    let work = Work {
        graph,
        ranks: cells(&mut ranks),
        shares: cells(&mut shares),
        sums: [sums(), sums()],
        rounds: Rounds::default(),
        config,
        is_scattered: is_scattered(graph),
        timer,
    };
    setup.announce(graph, &|| {
        vec![
            ArrayRange::new(Array::Property, "ranks", work.ranks),
            ArrayRange::new(Array::Property, "shares", work.shares),
        ]
    });
    work.timer.allocated();
    let mut done = setup.run(|worker| work.work(worker));
    let (iterations, residual) = done.swap_remove(0);
    let mut cost = work.timer.stop();
    for values in [&ranks, &shares] {
        cost.arrays.push(ArrayUsage::read(Array::Property, values)?);
    }
    Ok(PageRank { ranks, iterations, residual, cost })
}

impl<V: Width> Work<'_, V> {
    fn work(&self, worker: &Worker<impl AccessSink>) -> (usize, f64) {
        let at_once = self.config.algorithm == PageRankAlgorithm::GaussSeidel;
        let mut round = 0;
        worker.phase(format_args!("pr begin"));
        let mut dangling = self.begin(worker, &mut round);
        self.timer.touched();
        for iteration in 1..=self.config.max_iterations {
            worker.phase(format_args!("pr {iteration}"));
            let [change, sum] = if at_once {
                self.iterate::<true>(worker, &mut round, 0.0)
            } else {
                if iteration > 1 {
                    dangling = self.pass_on(worker, &mut round);
                }
                self.iterate::<false>(worker, &mut round, dangling)
            };
            let scales = self.config.scales() && sum > 0.0;
            let change = if scales { change / sum } else { change };
            if change < self.config.tolerance || iteration == self.config.max_iterations {
                if scales {
                    worker.phase(format_args!("pr end"));
                    self.scale(worker, round, 1.0 / sum);
                }
                return (iteration, change);
            }
        }
        (0, f64::INFINITY)
    }

    fn scale(&self, worker: &Worker<impl AccessSink>, round: usize, by: f64) {
        worker.each(&self.rounds.state(worker, round).work, self.ranks.len(), CHUNK, |range| {
            for rank in &self.ranks[range] {
                worker.sink.read(Array::Property, rank);
                worker.sink.write(Array::Property, rank);
                rank.set(V::Real::of(V::Real::of_bits(rank.get()).wide() * by).bits());
            }
        });
    }

    /// Sets equal ranks. Returns the dangling rank.
    fn begin(&self, worker: &Worker<impl AccessSink>, round: &mut usize) -> f64 {
        let rank = V::Real::of(1.0 / self.ranks.len() as f64);
        let out = self.graph.out.rows();
        let [dangling, _] = self.round(worker, round, |range| {
            let values = self.ranks[range.clone()].iter().zip(&self.shares[range.clone()]);
            let mut dangling = 0.0;
            for (degree, (own, passed)) in out.degrees(range, worker.sink).zip(values) {
                worker.sink.write(Array::Property, own);
                worker.sink.write(Array::Property, passed);
                own.set(rank.bits());
                passed.set(share::<V>(rank, degree));
                dangling += if degree == 0 { rank.wide() } else { 0.0 };
            }
            [dangling, 0.0]
        });
        dangling
    }

    /// Computes all shares in a separate pass, so that none is newer than others. Returns the
    /// dangling rank.
    fn pass_on(&self, worker: &Worker<impl AccessSink>, round: &mut usize) -> f64 {
        let out = self.graph.out.rows();
        let [dangling, _] = self.round(worker, round, |range| {
            let values = self.ranks[range.clone()].iter().zip(&self.shares[range.clone()]);
            let mut dangling = 0.0;
            for (degree, (rank, passed)) in out.degrees(range, worker.sink).zip(values) {
                worker.sink.read(Array::Property, rank);
                worker.sink.write(Array::Property, passed);
                let rank = V::Real::of_bits(rank.get());
                passed.set(share::<V>(rank, degree));
                dangling += if degree == 0 { rank.wide() } else { 0.0 };
            }
            [dangling, 0.0]
        });
        dangling
    }

    /// Computes new ranks. Returns the sum of changes, and the sum of ranks if shares are updated
    /// `AT_ONCE`.
    fn iterate<const AT_ONCE: bool>(
        &self,
        worker: &Worker<impl AccessSink>,
        round: &mut usize,
        dangling: f64,
    ) -> [f64; 2] {
        let PageRankConfig { damping, dangling: what, .. } = self.config;
        let all = self.ranks.len() as f64;
        let redistributed =
            if what == Dangling::Redistribute { damping * dangling / all } else { 0.0 };
        let base = V::Real::of((1.0 - damping) / all + redistributed);
        let damping = V::Real::of(damping);
        self.round(worker, round, |range| match self.is_scattered {
            true => self.chunk::<AT_ONCE, true, _>(range, base, damping, worker.sink),
            false => self.chunk::<AT_ONCE, false, _>(range, base, damping, worker.sink),
        })
    }

    /// Computes the new ranks of a chunk. Prefetches shares if `SOON`.
    fn chunk<const AT_ONCE: bool, const SOON: bool, S: AccessSink>(
        &self,
        range: Range<usize>,
        base: V::Real,
        damping: V::Real,
        sink: &S,
    ) -> [f64; 2] {
        let (incoming, shares) = (self.graph.incoming_rows(), self.shares);
        let rows = incoming
            .ends(range.clone(), sink)
            .zip(self.graph.out.rows().degrees(range.clone(), &()));
        let values = range.clone().zip(self.ranks[range.clone()].iter().zip(&shares[range]));
        let [mut change, mut sum] = [0.0, 0.0];
        for (((start, end), degree), (v, (own, passed))) in rows.zip(values) {
            let row = &incoming.edges[start..end];
            let ahead = (start + AHEAD).min(incoming.edges.len() - row.len());
            let ahead = if SOON { &incoming.edges[ahead..ahead + row.len()] } else { row };
            let gathered = self.gather::<SOON>(shares, incoming.names[1], [row, ahead], sink);
            let rank = base + damping * gathered;
            sink.read(Array::Property, own);
            sink.write(Array::Property, own);
            change += (rank - V::Real::of_bits(own.get())).wide().abs();
            own.set(rank.bits());
            if AT_ONCE {
                // The degree is read only here.
                self.graph.out.rows().record_access(v, sink);
                sink.write(Array::Property, passed);
                passed.set(share::<V>(rank, degree));
                sum += rank.wide();
            }
        }
        [change, sum]
    }

    /// Sums the shares of the predecessors, and prefetches those of the edges `ahead`. The sum of
    /// a long row is that of its parts in `f64`: a share of a millionth of a sum would be rounded
    /// away.
    #[inline(always)]
    fn gather<const SOON: bool>(
        &self,
        shares: &[CellOf<V>],
        edges: Array,
        [from, ahead]: [&[V]; 2],
        sink: &impl AccessSink,
    ) -> V::Real {
        if from.len() <= LONG {
            return self.gather_part::<SOON>(shares, edges, [from, ahead], sink);
        }
        let parts = from.chunks(LONG).zip(ahead.chunks(LONG));
        let sums = parts.map(|part| self.gather_part::<SOON>(shares, edges, part.into(), sink));
        V::Real::of(sums.map(Real::wide).sum())
    }

    #[inline(always)]
    fn gather_part<const SOON: bool>(
        &self,
        shares: &[CellOf<V>],
        edges: Array,
        [from, ahead]: [&[V]; 2],
        sink: &impl AccessSink,
    ) -> V::Real {
        let share = |v: &V| {
            sink.read(edges, v);
            sink.read(Array::Property, &shares[v.at()]);
            V::Real::of_bits(shares[v.at()].get())
        };
        let soon = |v: &V| {
            if SOON {
                prefetch(shares.as_ptr().wrapping_add(v.at()));
            }
        };
        let mut sum = V::Real::default();
        // In groups of four, whose additions are independent of the running sum.
        let (fours, rest) = from.as_chunks::<4>();
        let (fours_ahead, rest_ahead) = ahead.as_chunks::<4>();
        for ([a, b, c, d], ahead) in fours.iter().zip(fours_ahead) {
            ahead.iter().for_each(soon);
            sum = sum + ((share(a) + share(b)) + (share(c) + share(d)));
        }
        for (v, ahead) in rest.iter().zip(rest_ahead) {
            soon(ahead);
            sum = sum + share(v);
        }
        sum
    }

    /// Runs `work` on all chunks, and returns the sums of its results in the order of chunks: the
    /// sums become part of ranks, which must not depend on thread timing.
    fn round(
        &self,
        worker: &Worker<impl AccessSink>,
        round: &mut usize,
        work: impl Fn(Range<usize>) -> [f64; 2],
    ) -> [f64; 2] {
        let sums = &self.sums[*round % 2];
        worker.each(&self.rounds.state(worker, *round).work, self.ranks.len(), CHUNK, |range| {
            let of = &sums[range.start / CHUNK];
            of.iter().zip(work(range)).for_each(|(sum, own)| sum.store(own.to_bits(), Relaxed));
        });
        worker.barrier();
        *round += 1;
        sums.iter().fold([0.0; 2], |sums, own| {
            [0, 1].map(|i| sums[i] + f64::from_bits(own[i].load(Relaxed)))
        })
    }
}

impl<V: Width> PageRank<V> {
    /// Computes one more iteration on one thread in `f64`. Accepts a change below the tolerance,
    /// below twice the last residual if the tolerance was not reached, or below four times it if
    /// ranks were scaled.
    ///
    /// # Errors
    /// The change.
    pub fn verify(&self, graph: &Graph<V>, config: PageRankConfig) -> Verdict {
        let all = graph.vertices() as f64;
        let passed: Vec<f64> = (0..graph.vertices())
            .map(|v| {
                if graph.out.degree(v) == 0 {
                    0.0
                } else {
                    self.rank(v) / graph.out.degree(v) as f64
                }
            })
            .collect();
        let dangling: f64 = match config.dangling {
            Dangling::Drop => 0.0,
            Dangling::Redistribute => (0..graph.vertices())
                .filter(|&v| graph.out.degree(v) == 0)
                .map(|v| self.rank(v))
                .sum(),
        };
        let base = (1.0 - config.damping + config.damping * dangling) / all;
        let change: f64 = (0..graph.vertices())
            .map(|v| {
                let sum: f64 =
                    graph.incoming().neighbours(v).iter().map(|from| passed[from.at()]).sum();
                (base + config.damping * sum - self.rank(v)).abs()
            })
            .sum();
        // Rounding error of ranks in this width.
        let bits = if V::BITS == 32 { 1e-5 } else { 1e-12 };
        let times = if config.scales() { 4.0 } else { 2.0 };
        let allowed = config.tolerance.max(times * self.residual) + bits;
        if change <= allowed { Ok(()) } else { Err(VerifyError::Change(change)) }
    }

    /// Returns the rank of a vertex.
    pub fn rank(&self, v: usize) -> f64 {
        V::Real::of_bits(self.ranks[v]).wide()
    }
}
