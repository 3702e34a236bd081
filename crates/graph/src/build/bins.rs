//! Edges sorted roughly by where they begin, before they are put where they belong (propagation blocking; Beamer and others,
//! IPDPS'17).
//!
//! To put an edge into its row is two accesses to memory that is anywhere. If each waits for the last, as atomic additions do,
//! that takes longer than all else. So threads collect edges in bins, each of a run of vertices whose rows fit into the cache, and
//! then empty bins, each by one thread: no addition is atomic, and misses overlap. What is collected at a time is bounded, and so
//! is the memory for it: bins share chunks, so that it takes no more where edges come in order and each round fills other bins.

use std::sync::RwLock;

use hugepilot_units::Bytes;

use super::InvalidEdges;
use crate::csr::BLOCK;
use crate::rounds::Rounds;
use crate::source::EdgeSource;
use crate::{Cursor, ThreadPool, Width, WorkQueue, Worker};

/// Edges that a thread collects at most before bins are emptied, about: some tens of MiB.
const COLLECTED: u64 = 1 << 22;
/// All threads together collect such a part of the edges: bins take a quarter as much as the rows then.
const PART: u64 = 8;
/// Bytes of rows in a bin, about: half of a cache of the second level.
const CACHED: u64 = 1 << 19;
/// Bins at most: each has a place that is written, and these must be in the cache, too.
const MOST: u64 = 2048;
/// Edges in a chunk: pages that are written stay as few as bins, and what is left free in the last of each bin is little.
const CHUNK: usize = 256;

/// Edges that a thread collects before bins are emptied; a block more, as blocks are collected whole.
fn collected(source: &impl EdgeSource, pool: ThreadPool) -> u64 {
    (source.edges() / (PART * pool.threads() as u64)).clamp(1, COLLECTED)
}

/// Base-2 logarithm of the vertices in a bin, and how many bins there are.
fn cut<V: Width>(source: &impl EdgeSource, both: bool) -> (u32, usize) {
    let vertices = source.vertices().max(1);
    let bytes = source.edges().saturating_mul((1 + u64::from(both)) * size_of::<V>() as u64);
    let bins = (bytes / CACHED).clamp(1, MOST.min(vertices));
    let shift = vertices.div_ceil(bins).next_power_of_two().trailing_zeros();
    #[allow(clippy::cast_possible_truncation)] // a few thousand
    let count = ((vertices - 1) >> shift) as usize + 1;
    (shift, count)
}

/// Edges that a thread has room for, each counted both ways round if `both`: as many as it collects where blocks are alike, those
/// of the source and of the rows that become its transpose, and a chunk for each bin.
fn places<V: Width>(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> u64 {
    let block = source.edges().div_ceil((source.blocks() as u64).max(1)).max(BLOCK as u64);
    let edges = collected(source, pool).saturating_add(block).min(source.edges());
    let chunks = (cut::<V>(source, both).1 * CHUNK) as u64;
    edges.saturating_mul(1 + u64::from(both)).saturating_add(chunks)
}

/// Memory that all threads take at most where blocks are alike.
pub(super) fn room<V: Width>(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> Bytes {
    let values = if source.is_weighted() { 3 } else { 2 };
    let place = Bytes::new(values * size_of::<V>() as u64);
    place.times(places::<V>(source, both, pool)).times(pool.threads() as u64)
}

/// What a thread collected.
struct ThreadBins<V> {
    /// Chunks of edges, each of one bin.
    ends: Vec<(V, V)>,
    /// As many, or none.
    weights: Vec<V>,
    weighted: bool,
    /// Of each bin, where its next edge goes; where a chunk ends, into a new one.
    next: Vec<usize>,
    /// Of each chunk in use, where the one before it in its bin ends; 0 for the first.
    before: Vec<usize>,
}

impl<V: Width> ThreadBins<V> {
    fn new(bins: usize, places: u64, weighted: bool) -> Self {
        // Only what is used becomes resident.
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        Self {
            ends: Vec::with_capacity(places),
            weights: Vec::with_capacity(if weighted { places } else { 0 }),
            weighted,
            next: vec![0; bins],
            before: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.next.fill(0);
        self.before.clear();
    }

    #[inline]
    fn push(&mut self, bin: usize, ends: (V, V), weight: V) {
        let mut at = self.next[bin];
        if at.is_multiple_of(CHUNK) {
            at = self.chunk(bin);
        }
        self.ends[at] = ends;
        if self.weighted {
            self.weights[at] = weight;
        }
        self.next[bin] = at + 1;
    }

    /// Where a new chunk of a bin begins.
    #[cold]
    fn chunk(&mut self, bin: usize) -> usize {
        let start = self.before.len() * CHUNK;
        self.before.push(self.next[bin]);
        if self.ends.len() == start {
            self.ends.resize(start + CHUNK, Default::default());
            self.weights.resize(if self.weighted { start + CHUNK } else { 0 }, V::default());
        }
        start
    }

    /// Calls `put` with the ends and the weight of each edge in a bin.
    fn each(&self, bin: usize, put: impl Fn(V, V, V)) {
        let mut end = self.next[bin];
        while end > 0 {
            let chunk = (end - 1) / CHUNK;
            let range = chunk * CHUNK..end;
            let ends = self.ends[range.clone()].iter();
            match self.weights.get(range) {
                Some(weights) => {
                    ends.zip(weights).for_each(|(&(from, to), &weight)| put(from, to, weight))
                }
                None => ends.for_each(|&(from, to)| put(from, to, V::default())),
            }
            end = self.before[chunk];
        }
    }
}

/// How edges are dealt out.
pub(super) struct Bins<V> {
    /// A bin is of 2^`shift` vertices.
    shift: u32,
    /// Each edge goes into the rows of both its ends.
    both: bool,
    pool: ThreadPool,
    /// Of each thread. It alone collects; then all read.
    collected: Vec<RwLock<ThreadBins<V>>>,
}

impl<V: Width> Bins<V> {
    /// For a source, whose edges are put both ways round if `both`.
    pub(super) fn new(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> Self {
        let (shift, bins) = cut::<V>(source, both);
        let places = places::<V>(source, both, pool);
        let of_one = |_| RwLock::new(ThreadBins::new(bins, places, source.is_weighted()));
        Self { shift, both, pool, collected: (0..pool.threads()).map(of_one).collect() }
    }

    /// Has `put` called with the ends and the weight of each edge, and both ways round if need be. For edges that begin at one
    /// vertex, it is called by one thread at a time, which sees what was done before. What belongs into no graph is told.
    pub(super) fn deal(
        &self,
        source: &impl EdgeSource,
        put: impl Fn(V, V, V) + Sync,
    ) -> InvalidEdges {
        let (blocks, rounds) = (Cursor::default(), Rounds::default());
        let wrong = self.pool.run(|worker| {
            let (mut wrong, mut round) = (InvalidEdges::default(), 0);
            loop {
                let collected = self.collect(&worker, source, &blocks, &mut wrong);
                let state = rounds.state(&worker, round);
                state.add(usize::from(collected > 0), 0);
                worker.barrier();
                if rounds.sums(round).0 == 0 {
                    return wrong;
                }
                self.empty(&worker, &state.work, &put);
                worker.barrier();
                round += 1;
            }
        });
        wrong.into_iter().fold(InvalidEdges::default(), InvalidEdges::and)
    }

    /// Collects edges of blocks that no other thread takes until there are enough. How many.
    fn collect(
        &self,
        worker: &Worker,
        source: &impl EdgeSource,
        blocks: &Cursor,
        wrong: &mut InvalidEdges,
    ) -> u64 {
        let (vertices, most, mut count) = (source.vertices(), collected(source, self.pool), 0);
        let mut own = self.collected[worker.id].write().expect("nobody panics with it");
        let bins = &mut *own;
        bins.clear();
        #[allow(clippy::cast_possible_truncation)]
        // below the number of vertices, and 64-bit systems only
        let mut push = |from: u64, to: u64, weight: u64| {
            let ends = (V::new(from as usize), V::new(to as usize));
            bins.push((from >> self.shift) as usize, ends, V::new(weight as usize));
        };
        while count < most
            && let Some(block) = blocks.next(source.blocks())
        {
            source.block(block, |edge| {
                // Also what is left out counts: it is not the end of the source.
                count += 1;
                if edge.from >= vertices || edge.to >= vertices {
                    wrong.id = wrong.id.max(Some(edge.from.max(edge.to)));
                } else if edge.from == edge.to {
                    wrong.self_loops += 1;
                } else {
                    push(edge.from, edge.to, edge.weight);
                    if self.both {
                        push(edge.to, edge.from, edge.weight);
                    }
                }
            });
        }
        count
    }

    /// Puts what all threads collected where it belongs, bin by bin.
    fn empty(&self, worker: &Worker, pieces: &WorkQueue, put: impl Fn(V, V, V)) {
        let all: Vec<_> =
            self.collected.iter().map(|bins| bins.read().expect("nobody panics with it")).collect();
        worker.each(pieces, all[0].next.len(), 1, |bins| {
            bins.for_each(|bin| all.iter().for_each(|collected| collected.each(bin, &put)));
        });
    }
}
