//! PageRank by pulling, each vertex summing what leads to it, or by pushing (`push.rs`).
//!
//! What a vertex hands on along each of its edges is kept in an array of its own, so that the one value read per edge is one
//! number and no division: that array is the one that is read all over, and belongs on huge pages with the ranks.

mod push;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{Plain, cells};

use super::Setup;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use crate::access_sink::AccessSink;
use crate::rounds::Rounds;
use crate::width::{Cell, Real};
use crate::{Array, Graph, Property, Result, Width, Worker};

/// From which ranks the next ones are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageRankAlgorithm {
    /// Those of the iteration before: the same bits on any number of threads.
    #[default]
    Jacobi,
    /// Those that are new, where they are: fewer iterations, and bits that depend on the order of threads. What dangles is shared
    /// at last, by scaling the ranks to a sum of 1, which comes to the same (Del Corso, Gullì and Romani, 2005) and in fewer
    /// iterations, as one that lags behind would never lose the difference quickly.
    GaussSeidel,
    /// None: each vertex pushes what its rank rose by, as in the papers. An iteration is a round, of those vertices only that have
    /// something to push; as ranks grow from nothing, there are more rounds than iterations otherwise. Bits depend on the order of
    /// threads.
    DeltaPush,
}

/// What becomes of the rank of a vertex without edges out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dangling {
    /// Nothing, as in the GAP benchmark suite: ranks then do not add up to 1.
    Drop,
    /// It is shared by all, as in LDBC Graphalytics.
    #[default]
    Redistribute,
}

/// When to stop, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRankConfig {
    /// At most so many.
    pub max_iterations: usize,
    /// When the ranks change by less in sum. By pushing, a vertex pushes what is above this divided by the vertices.
    pub tolerance: f64,
    /// The share of a rank that is handed on.
    pub damping: f64,
    /// From which ranks.
    pub algorithm: PageRankAlgorithm,
    /// What becomes of what is not handed on.
    pub dangling: Dangling,
}

/// As the GAP benchmark suite has it, but for what dangles and the sweep.
impl Default for PageRankConfig {
    fn default() -> Self {
        let (algorithm, dangling) = (PageRankAlgorithm::default(), Dangling::default());
        Self { max_iterations: 20, tolerance: 1e-4, damping: 0.85, algorithm, dangling }
    }
}

impl PageRankConfig {
    /// Whether what dangles is shared by scaling.
    fn scales(&self) -> bool {
        self.algorithm == PageRankAlgorithm::GaussSeidel && self.dangling == Dangling::Redistribute
    }
}

/// The ranks.
#[derive(Debug)]
pub struct PageRank<V: Width> {
    /// As bits of [`Width::Real`].
    pub ranks: Property<V>,
    /// How many were done.
    pub iterations: usize,
    /// By how much the ranks changed in the last, in sum; by pushing, by how much they would in one more of the power method.
    pub residual: f64,
    /// What it took.
    pub cost: KernelCost,
}

/// Vertices in a piece of work.
const PIECE: usize = 1 << 14;

type CellOf<V> = <V as Plain>::Cell;

/// What a vertex hands on along each of its edges, as bits; nobody reads that of a vertex without any.
#[inline]
fn share<V: Width>(rank: V::Real, degree: usize) -> V {
    (rank / V::Real::count(degree)).bits()
}

struct Work<'a, V: Width, H: AccessSink> {
    graph: &'a Graph<V>,
    ranks: &'a [CellOf<V>],
    /// What each vertex hands on along an edge.
    shares: &'a [CellOf<V>],
    /// Of each piece in this round and the one before, as bits: two numbers to be summed.
    sums: [Vec<[AtomicU64; 2]>; 2],
    rounds: Rounds,
    sink: H,
    config: PageRankConfig,
    timer: PhaseTimer,
}

/// Ranks by power iteration. Two words per vertex; an iteration reads each edge once. By pushing, four, and the
/// edges of fewer vertices from round to round.
///
/// # Errors
/// [`GraphError::Memory`](crate::GraphError::Memory).
pub fn pagerank<V: Width, H: AccessSink>(
    graph: &Graph<V>,
    config: PageRankConfig,
    setup: &Setup<H>,
) -> Result<PageRank<V>> {
    if config.algorithm == PageRankAlgorithm::DeltaPush {
        return push::push(graph, config, setup);
    }
    let (vertices, timer) = (graph.vertices(), PhaseTimer::start());
    let property = || setup.property::<V>(vertices);
    let (mut ranks, mut shares) = (property()?, property()?);
    let sums = || (0..vertices.div_ceil(PIECE)).map(|_| Default::default()).collect();
    let work = Work {
        graph,
        ranks: cells(&mut ranks),
        shares: cells(&mut shares),
        sums: [sums(), sums()],
        rounds: Rounds::default(),
        sink: setup.sink,
        config,
        timer,
    };
    work.timer.allocated();
    let mut done = setup.pool.run(|worker| work.work(&worker));
    let (iterations, residual) = done.swap_remove(0);
    let mut cost = work.timer.stop();
    for values in [&ranks, &shares] {
        cost.arrays.push(ArrayUsage::read(Array::Property, values)?);
    }
    Ok(PageRank { ranks, iterations, residual, cost })
}

impl<V: Width, H: AccessSink> Work<'_, V, H> {
    fn work(&self, worker: &Worker) -> (usize, f64) {
        let at_once = self.config.algorithm == PageRankAlgorithm::GaussSeidel;
        let mut round = 0;
        let mut dangling = self.begin(worker, &mut round);
        self.timer.touched();
        for iteration in 1..=self.config.max_iterations {
            let [change, sum] = if at_once {
                self.iterate::<true>(worker, &mut round, 0.0)
            } else {
                if iteration > 1 {
                    dangling = self.hand_on(worker, &mut round);
                }
                self.iterate::<false>(worker, &mut round, dangling)
            };
            let scales = self.config.scales() && sum > 0.0;
            let change = if scales { change / sum } else { change };
            if change < self.config.tolerance || iteration == self.config.max_iterations {
                if scales {
                    self.scale(worker, round, 1.0 / sum);
                }
                return (iteration, change);
            }
        }
        (0, f64::INFINITY)
    }

    fn scale(&self, worker: &Worker, round: usize, by: f64) {
        worker.each(&self.rounds.state(worker, round).work, self.ranks.len(), PIECE, |range| {
            for rank in &self.ranks[range] {
                rank.set(V::Real::of(V::Real::of_bits(rank.get()).wide() * by).bits());
            }
        });
    }

    /// All have the same rank. What dangles.
    fn begin(&self, worker: &Worker, round: &mut usize) -> f64 {
        let rank = V::Real::of(1.0 / self.ranks.len() as f64);
        let out = self.graph.out.rows();
        let [dangling, _] = self.round(worker, round, |range| {
            let values = self.ranks[range.clone()].iter().zip(&self.shares[range.clone()]);
            let mut dangling = 0.0;
            for (degree, (own, handed)) in out.degrees(range, ()).zip(values) {
                own.set(rank.bits());
                handed.set(share::<V>(rank, degree));
                dangling += if degree == 0 { rank.wide() } else { 0.0 };
            }
            [dangling, 0.0]
        });
        dangling
    }

    /// What all hand on by their ranks: a pass of its own, so that none is new while others are old. What dangles.
    fn hand_on(&self, worker: &Worker, round: &mut usize) -> f64 {
        let out = self.graph.out.rows();
        let [dangling, _] = self.round(worker, round, |range| {
            let values = self.ranks[range.clone()].iter().zip(&self.shares[range.clone()]);
            let mut dangling = 0.0;
            for (degree, (rank, handed)) in out.degrees(range, self.sink).zip(values) {
                self.sink.read(Array::Property, rank);
                self.sink.write(Array::Property, handed);
                let rank = V::Real::of_bits(rank.get());
                handed.set(share::<V>(rank, degree));
                dangling += if degree == 0 { rank.wide() } else { 0.0 };
            }
            [dangling, 0.0]
        });
        dangling
    }

    /// New ranks: by how much they change, and their sum where each hands on `AT_ONCE`.
    fn iterate<const AT_ONCE: bool>(
        &self,
        worker: &Worker,
        round: &mut usize,
        dangling: f64,
    ) -> [f64; 2] {
        let PageRankConfig { damping, dangling: what, .. } = self.config;
        let all = self.ranks.len() as f64;
        let given = if what == Dangling::Redistribute { damping * dangling / all } else { 0.0 };
        let base = V::Real::of((1.0 - damping) / all + given);
        self.round(worker, round, |range| self.piece::<AT_ONCE>(range, base, V::Real::of(damping)))
    }

    /// Those of some.
    fn piece<const AT_ONCE: bool>(
        &self,
        range: Range<usize>,
        base: V::Real,
        damping: V::Real,
    ) -> [f64; 2] {
        let (incoming, shares) = (self.graph.incoming_rows(), self.shares);
        let rows = incoming
            .each(range.clone(), self.sink)
            .zip(self.graph.out.rows().degrees(range.clone(), ()));
        let values = self.ranks[range.clone()].iter().zip(&shares[range]);
        let [mut change, mut sum] = [0.0, 0.0];
        for ((row, degree), (own, handed)) in rows.zip(values) {
            let rank = base + damping * self.gather(shares, incoming.names[1], row);
            self.sink.read(Array::Property, own);
            self.sink.write(Array::Property, own);
            change += (rank - V::Real::of_bits(own.get())).wide().abs();
            own.set(rank.bits());
            if AT_ONCE {
                self.sink.write(Array::Property, handed);
                handed.set(share::<V>(rank, degree));
                sum += rank.wide();
            }
        }
        [change, sum]
    }

    #[inline(always)]
    fn gather(&self, shares: &[CellOf<V>], edges: Array, from: &[V]) -> V::Real {
        let share = |v: &V| {
            self.sink.read(edges, v);
            self.sink.read(Array::Property, &shares[v.at()]);
            V::Real::of_bits(shares[v.at()].get())
        };
        let mut sum = V::Real::default();
        // By fours, of which three additions need not wait for what was before.
        let (fours, rest) = from.as_chunks::<4>();
        for [a, b, c, d] in fours {
            sum = sum + ((share(a) + share(b)) + (share(c) + share(d)));
        }
        for v in rest {
            sum = sum + share(v);
        }
        sum
    }

    /// Does `work` for all pieces of the vertices, and sums what it gives: each thread in the order of the pieces, as the sums become
    /// part of ranks.
    fn round(
        &self,
        worker: &Worker,
        round: &mut usize,
        work: impl Fn(Range<usize>) -> [f64; 2],
    ) -> [f64; 2] {
        let sums = &self.sums[*round % 2];
        worker.each(&self.rounds.state(worker, *round).work, self.ranks.len(), PIECE, |range| {
            let of = &sums[range.start / PIECE];
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
    /// One more iteration by one thread, in `f64`, from the ranks before: they change by less than the tolerance, or by less
    /// than twice what the last one changed where it was not reached, and four times where ranks were scaled.
    ///
    /// # Errors
    /// By how much they change.
    pub fn verify(
        &self,
        graph: &Graph<V>,
        config: PageRankConfig,
    ) -> std::result::Result<(), String> {
        let all = graph.vertices() as f64;
        let handed: Vec<f64> = (0..graph.vertices())
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
                    graph.incoming().neighbours(v).iter().map(|from| handed[from.at()]).sum();
                (base + config.damping * sum - self.rank(v)).abs()
            })
            .sum();
        // Ranks in fewer bits are that far from those in more.
        let bits = if V::BITS == 32 { 1e-5 } else { 1e-12 };
        let times = if config.scales() { 4.0 } else { 2.0 };
        let allowed = config.tolerance.max(times * self.residual) + bits;
        if change <= allowed {
            Ok(())
        } else {
            Err(format!("one more iteration changes the ranks by {change}"))
        }
    }

    /// The rank of a vertex.
    pub fn rank(&self, v: usize) -> f64 {
        V::Real::of_bits(self.ranks[v]).wide()
    }
}
