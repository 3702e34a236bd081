//! Bins: edges sorted coarsely by source vertex before they enter their rows (propagation blocking;
//! Beamer et al., IPDPS'17).
//!
//! An edge enters its row by two accesses to scattered memory. If each stalls on the one before, as
//! atomic additions do, they dominate the build. Threads therefore collect edges in bins, one for
//! each range of vertices whose rows fit into the cache. Then each bin is emptied by one thread:
//! additions need no atomics, and cache misses overlap. The edges collected at a time are bounded.
//! Bins share chunks of memory, so that ordered edges, which fill other bins in each round, take no
//! more memory.

use std::sync::RwLock;

use hugepilot_units::Bytes;

use super::InvalidEdges;
use crate::csr::BLOCK;
use crate::rounds::Rounds;
use crate::source::EdgeSource;
use crate::{Cursor, ThreadPool, Width, WorkQueue, Worker};

/// Edges that a thread collects in one round at most: some tens of MiB.
const MAX_COLLECTED: u64 = 1 << 22;
/// Inverse share of the edges that all threads collect in one round. Bins then take a quarter of
/// the memory of the rows.
const INVERSE_SHARE: u64 = 8;
/// Target size of the rows of a bin in bytes: half a second-level cache.
const BIN_BYTES: u64 = 1 << 19;
/// Most bins: the write position of each must fit into the cache, too.
const MAX_BINS: u64 = 2048;
/// Edges in a chunk. Few pages are written at a time, and little memory is unused in the last chunk
/// of each bin.
const CHUNK: usize = 256;

/// Returns the edges that a thread collects in one round. It collects whole blocks, so up to one
/// block more.
fn collected(source: &impl EdgeSource, pool: ThreadPool) -> u64 {
    (source.edges() / (INVERSE_SHARE * pool.threads() as u64)).clamp(1, MAX_COLLECTED)
}

/// Returns the base-2 logarithm of the vertices of a bin, and the number of bins.
fn layout<V: Width>(source: &impl EdgeSource, both: bool) -> (u32, usize) {
    let vertices = source.vertices().max(1);
    let bytes = source.edges().saturating_mul((1 + u64::from(both)) * size_of::<V>() as u64);
    let bins = (bytes / BIN_BYTES).clamp(1, MAX_BINS.min(vertices));
    let shift = vertices.div_ceil(bins).next_power_of_two().trailing_zeros();
    #[allow(clippy::cast_possible_truncation)] // a few thousand
    let count = ((vertices - 1) >> shift) as usize + 1;
    (shift, count)
}

/// Returns the edges that a thread has room for, counted twice if `both`: those of a round if
/// blocks are alike, a block of the source or of the rows to transpose, and a chunk for each bin.
fn capacity<V: Width>(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> u64 {
    let block = source.edges().div_ceil((source.blocks() as u64).max(1)).max(BLOCK as u64);
    let edges = collected(source, pool).saturating_add(block).min(source.edges());
    let chunks = (layout::<V>(source, both).1 * CHUNK) as u64;
    edges.saturating_mul(1 + u64::from(both)).saturating_add(chunks)
}

/// Returns the memory of all threads, an upper bound if blocks are alike.
pub(super) fn memory<V: Width>(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> Bytes {
    let values = if source.is_weighted() { 3 } else { 2 };
    let place = Bytes::new(values * size_of::<V>() as u64);
    place.times(capacity::<V>(source, both, pool)).times(pool.threads() as u64)
}

/// Edges that a thread collected.
struct ThreadBins<V> {
    /// Chunks of edges, each of one bin.
    ends: Vec<(V, V)>,
    /// Weight of each edge, or empty.
    weights: Vec<V>,
    weighted: bool,
    /// Position of the next edge of each bin. At the end of a chunk, the edge goes to a new one.
    next: Vec<usize>,
    /// End of the previous chunk of the bin, for each chunk in use; 0 for the first.
    before: Vec<usize>,
}

impl<V: Width> ThreadBins<V> {
    fn new(bins: usize, capacity: u64, weighted: bool) -> Self {
        // Only used memory becomes resident.
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self {
            ends: Vec::with_capacity(capacity),
            weights: Vec::with_capacity(if weighted { capacity } else { 0 }),
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

    /// Adds a chunk to a bin, and returns its start.
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

    /// Calls `put` with vertices and weight of each edge of a bin.
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

/// Bins of all threads.
pub(super) struct Bins<V> {
    /// Base-2 logarithm of the vertices of a bin.
    shift: u32,
    /// Whether each edge enters the rows of both vertices.
    both: bool,
    pool: ThreadPool,
    /// Bins of each thread. Only that thread writes them, then all read them.
    collected: Vec<RwLock<ThreadBins<V>>>,
}

impl<V: Width> Bins<V> {
    /// Allocates bins for a source. If `both`, each edge enters the rows of both vertices.
    pub(super) fn new(source: &impl EdgeSource, both: bool, pool: ThreadPool) -> Self {
        let (shift, bins) = layout::<V>(source, both);
        let capacity = capacity::<V>(source, both, pool);
        let of_one = |_| RwLock::new(ThreadBins::new(bins, capacity, source.is_weighted()));
        Self { shift, both, pool, collected: (0..pool.threads()).map(of_one).collect() }
    }

    /// Calls `put` with vertices and weight of each edge, in both directions if configured. Edges
    /// of one source vertex come from one thread at a time, which sees the writes of the ones
    /// before. Returns the invalid edges.
    pub(super) fn distribute(
        &self,
        source: &impl EdgeSource,
        put: impl Fn(V, V, V) + Sync,
    ) -> InvalidEdges {
        let (blocks, rounds) = (Cursor::default(), Rounds::default());
        let invalid = self.pool.run(|worker| {
            let (mut invalid, mut round) = (InvalidEdges::default(), 0);
            loop {
                let collected = self.collect(&worker, source, &blocks, &mut invalid);
                let state = rounds.state(&worker, round);
                state.add(usize::from(collected > 0), 0);
                worker.barrier();
                if rounds.sums(round).0 == 0 {
                    return invalid;
                }
                self.empty(&worker, &state.work, &put);
                worker.barrier();
                round += 1;
            }
        });
        invalid.into_iter().fold(InvalidEdges::default(), InvalidEdges::and)
    }

    /// Collects edges of unclaimed blocks until there are enough. Returns their number.
    fn collect(
        &self,
        worker: &Worker,
        source: &impl EdgeSource,
        blocks: &Cursor,
        invalid: &mut InvalidEdges,
    ) -> u64 {
        let (vertices, most, mut count) = (source.vertices(), collected(source, self.pool), 0);
        let mut own =
            self.collected[worker.id].write().expect("no thread panics while it holds the lock");
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
                // Dropped edges count too: a count of 0 means the end of the source.
                count += 1;
                if edge.from >= vertices || edge.to >= vertices {
                    invalid.id = invalid.id.max(Some(edge.from.max(edge.to)));
                } else if edge.from == edge.to {
                    invalid.self_loops += 1;
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

    /// Calls `put` for the edges that all threads collected, by bin.
    fn empty(&self, worker: &Worker, work: &WorkQueue, put: impl Fn(V, V, V)) {
        let all: Vec<_> = self
            .collected
            .iter()
            .map(|bins| bins.read().expect("no thread panics while it holds the lock"))
            .collect();
        worker.each(work, all[0].next.len(), 1, |bins| {
            bins.for_each(|bin| all.iter().for_each(|collected| collected.each(bin, &put)));
        });
    }
}
