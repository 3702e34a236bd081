//! Edges sorted roughly by where they begin, before they are put where they belong (propagation blocking; Beamer and others,
//! IPDPS'17).
//!
//! To put an edge into its row is two accesses to memory that is anywhere. If each waits for the last, as atomic additions do,
//! that takes longer than all else. So threads collect edges in bins, each of a run of vertices whose rows fit into the cache, and
//! then empty bins, each by one thread: no addition is atomic, and misses overlap. What is collected at a time is bounded.

use std::sync::RwLock;

use super::Wrong;
use crate::rounds::Rounds;
use crate::source::Source;
use crate::{Pieces, Team, Width, Worker};

/// Edges that a thread collects at most before bins are emptied, about: some tens of MiB.
const COLLECTED: u64 = 1 << 22;
/// All threads together collect such a part of the edges: with room to grow, bins take half as much as the rows then.
const PART: u64 = 8;
/// Bytes of rows in a bin, about: half of a cache of the second level.
const CACHED: u64 = 1 << 19;
/// Bins at most: each has a place that is written, and these must be in the cache, too.
const MOST: u64 = 2048;

/// Edges that a thread collects before bins are emptied; a block more, as blocks are collected whole.
pub(super) fn collected(source: &impl Source, team: Team) -> u64 {
    (source.edges() / (PART * team.threads() as u64)).clamp(1, COLLECTED)
}

/// Edges of a run of vertices.
#[derive(Default)]
struct Bin<V> {
    ends: Vec<(V, V)>,
    /// As many, or none.
    weights: Vec<V>,
}

/// How edges are dealt out.
pub(super) struct Bins<V> {
    /// A bin is of 2^`shift` vertices.
    shift: u32,
    weighted: bool,
    /// Each edge goes into the rows of both its ends.
    both: bool,
    team: Team,
    /// Of each thread. It alone collects; then all read.
    collected: Vec<RwLock<Vec<Bin<V>>>>,
}

impl<V: Width> Bins<V> {
    /// For a source, whose edges are put both ways round if `both`.
    pub(super) fn new(source: &impl Source, both: bool, team: Team) -> Self {
        let vertices = source.vertices().max(1);
        let bytes = source.edges().saturating_mul((1 + u64::from(both)) * size_of::<V>() as u64);
        let bins = (bytes / CACHED).clamp(1, MOST.min(vertices));
        let shift = vertices.div_ceil(bins).next_power_of_two().trailing_zeros();
        #[allow(clippy::cast_possible_truncation)] // a few thousand
        let count = ((vertices - 1) >> shift) as usize + 1;
        let bins = || (0..count).map(|_| Bin::default()).collect();
        let collected = (0..team.threads()).map(|_| RwLock::new(bins())).collect();
        Self { shift, weighted: source.is_weighted(), both, team, collected }
    }

    /// Has `put` called with the ends and the weight of each edge, and both ways round if need be. For edges that begin at one
    /// vertex, it is called by one thread at a time, which sees what was done before. What belongs into no graph is told.
    pub(super) fn deal(&self, source: &impl Source, put: impl Fn(V, V, V) + Sync) -> Wrong {
        let (blocks, rounds) = (Pieces::default(), Rounds::default());
        let wrong = self.team.run(|worker| {
            let (mut wrong, mut round) = (Wrong::default(), 0);
            loop {
                let collected = self.collect(&worker, source, &blocks, &mut wrong);
                let turn = rounds.turn(&worker, round);
                turn.add(usize::from(collected > 0), 0);
                worker.meet();
                if rounds.sums(round).0 == 0 {
                    return wrong;
                }
                self.empty(&worker, &turn.pieces, &put);
                worker.meet();
                round += 1;
            }
        });
        wrong.into_iter().fold(Wrong::default(), Wrong::and)
    }

    /// Collects edges of blocks that no other thread takes until there are enough. How many.
    fn collect(&self, worker: &Worker, source: &impl Source, blocks: &Pieces, wrong: &mut Wrong) -> u64 {
        let (vertices, most, mut count) = (source.vertices(), collected(source, self.team), 0);
        let mut bins = self.collected[worker.id].write().expect("nobody panics with it");
        for bin in bins.iter_mut() {
            bin.ends.clear();
            bin.weights.clear();
        }
        let mut push = |from: u64, to: u64, weight: u64| {
            #[allow(clippy::cast_possible_truncation)] // below the number of vertices
            let (bin, from, to) =
                (&mut bins[(from >> self.shift) as usize], V::new(from as usize), V::new(to as usize));
            bin.ends.push((from, to));
            if self.weighted {
                #[allow(clippy::cast_possible_truncation)] // 64-bit systems only
                bin.weights.push(V::new(weight as usize));
            }
        };
        while count < most
            && let Some(block) = blocks.one(source.blocks())
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
    fn empty(&self, worker: &Worker, pieces: &Pieces, put: impl Fn(V, V, V)) {
        let all: Vec<_> =
            self.collected.iter().map(|bins| bins.read().expect("nobody panics with it")).collect();
        worker.each(pieces, all[0].len(), 1, |bins| {
            for bins in bins.map(|bin| all.iter().map(move |bins| &bins[bin])) {
                for bin in bins {
                    if bin.weights.is_empty() {
                        bin.ends.iter().for_each(|&(from, to)| put(from, to, V::default()));
                    } else {
                        bin.ends
                            .iter()
                            .zip(&bin.weights)
                            .for_each(|(&(from, to), &weight)| put(from, to, weight));
                    }
                }
            }
        });
    }
}
