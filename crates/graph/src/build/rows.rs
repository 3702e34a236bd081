//! Rows during the build: filled, sorted and deduplicated in place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hugepilot_alloc::{HugeVec, Plain, cells};

use super::{ArrayNames, Build};
use crate::width::Cell;
use crate::{Csr, Result, ThreadPool, Width};

/// Rows that become a [`Csr`].
pub(super) struct Rows<V: Width> {
    /// Position of the next edge of `v` in `offsets[v + 1]`; the end of its row once all edges are
    /// in.
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
    weights: HugeVec<V>,
    /// Chunks of rows after deduplication.
    compacted: Vec<CompactedChunk>,
}

#[derive(Clone, Copy, Debug)]
struct CompactedChunk {
    vertex: usize,
    start: usize,
    len: usize,
}

/// Writer of edges into rows, for any thread. Edges of one row must come from one thread at a time.
pub(super) struct Filler<'a, V: Width> {
    next: &'a [<V as Plain>::Cell],
    edges: &'a [<V as Plain>::Cell],
    weights: &'a [<V as Plain>::Cell],
}

impl<V: Width> Filler<'_, V> {
    #[inline]
    pub(super) fn put(&self, from: V, to: V, weight: V) {
        let next = &self.next[from.at() + 1];
        let at = next.get().at();
        next.set(V::new(at + 1));
        self.edges[at].set(to);
        if let Some(cell) = self.weights.get(at) {
            cell.set(weight);
        }
    }
}

/// Consecutive rows for one thread.
struct RowChunk<'a, V> {
    vertex: usize,
    start: usize,
    ends: &'a mut [V],
    edges: &'a mut [V],
    weights: &'a mut [V],
}

/// Target number of edges in a chunk.
const CHUNK: usize = 1 << 18;

impl<V: Width> Rows<V> {
    /// Allocates the rows; `counts[v + 1]` is the degree of `v`.
    pub(super) fn begin(
        build: &Build,
        names: ArrayNames,
        counts: HugeVec<V>,
        weighted: bool,
    ) -> Result<Self> {
        let mut offsets = counts;
        let mut sum = 0;
        for offset in offsets.iter_mut().skip(1) {
            let count = offset.at();
            *offset = V::new(sum);
            sum += count;
        }
        let edges = build.pages.zeroed(names.edges, sum)?;
        let weights = build.pages.zeroed(names.weights, if weighted { sum } else { 0 })?;
        Ok(Self { offsets, edges, weights, compacted: Vec::new() })
    }

    pub(super) fn filler(&mut self) -> Filler<'_, V> {
        Filler {
            next: cells(&mut self.offsets),
            edges: cells(&mut self.edges),
            weights: cells(&mut self.weights),
        }
    }

    /// Sorts each row and drops duplicates; of their weights, the least stays. Returns the number
    /// of dropped edges.
    pub(super) fn sort(&mut self, pool: ThreadPool) -> u64 {
        let (chunks, dropped) = (self.chunks(), AtomicU64::new(0));
        let kept = pool.share(chunks, |chunks| {
            let (mut kept, mut pairs) = (Vec::new(), Vec::new());
            for mut chunk in chunks {
                let len = chunk.sort(&mut pairs);
                dropped.fetch_add((chunk.edges.len() - len) as u64, Relaxed);
                kept.push(CompactedChunk { vertex: chunk.vertex, start: chunk.start, len });
            }
            kept
        });
        self.compacted = kept.concat();
        self.compacted.sort_unstable_by_key(|kept| kept.vertex);
        dropped.into_inner()
    }

    /// Splits the rows into chunks of similar numbers of edges.
    fn chunks(&mut self) -> Vec<RowChunk<'_, V>> {
        let vertices = self.offsets.len() - 1;
        let (mut ends, mut edges, mut weights) =
            (&mut self.offsets[1..], &mut self.edges[..], &mut self.weights[..]);
        let (mut vertex, mut start, mut chunks) = (0, 0, Vec::new());
        while vertex < vertices {
            let count = ends.partition_point(|end| end.at() <= start + CHUNK).max(1);
            let end = ends[count - 1].at();
            let chunk = RowChunk {
                vertex,
                start,
                ends: take(&mut ends, count),
                edges: take(&mut edges, end - start),
                weights: take(&mut weights, end - start),
            };
            chunks.push(chunk);
            (vertex, start) = (vertex + count, end);
        }
        chunks
    }

    /// Closes the gaps that dropped edges left.
    pub(super) fn finish(mut self) -> Result<Csr<V>> {
        let mut next = 0;
        for (i, kept) in self.compacted.iter().enumerate() {
            let last =
                self.compacted.get(i + 1).map_or(self.offsets.len() - 1, |after| after.vertex);
            let gone = kept.start - next;
            if gone > 0 {
                let range = kept.start..kept.start + kept.len;
                self.edges.copy_within(range.clone(), next);
                if !self.weights.is_empty() {
                    self.weights.copy_within(range, next);
                }
                for end in &mut self.offsets[kept.vertex + 1..=last] {
                    *end = V::new(end.at() - gone);
                }
            }
            next += kept.len;
        }
        for values in [&mut self.edges, &mut self.weights] {
            values.truncate(next);
            values.shrink_to_fit();
        }
        let heaviest = self.weights.iter().copied().max().unwrap_or_default();
        Ok(Csr { offsets: self.offsets, edges: self.edges, weights: self.weights, heaviest })
    }
}

/// Splits off the first `count` items, or all.
fn take<'a, T>(all: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let count = count.min(all.len());
    let (first, rest) = std::mem::take(all).split_at_mut(count);
    *all = rest;
    first
}

impl<V: Width> RowChunk<'_, V> {
    /// Sorts and deduplicates the rows towards the start of the chunk. Returns the remaining edges.
    fn sort(&mut self, pairs: &mut Vec<(V, V)>) -> usize {
        let (mut begin, mut kept) = (0, 0);
        for end in self.ends.iter_mut() {
            let row = begin..end.at() - self.start;
            begin = row.end;
            kept = if self.weights.is_empty() {
                let row_start = row.start;
                self.edges[row.clone()].sort_unstable();
                unique(self.edges, row_start..row.end, kept)
            } else {
                pairs.clear();
                pairs.extend(row.map(|i| (self.edges[i], self.weights[i])));
                pairs.sort_unstable();
                pairs.dedup_by_key(|pair| pair.0);
                for (i, &(to, weight)) in pairs.iter().enumerate() {
                    (self.edges[kept + i], self.weights[kept + i]) = (to, weight);
                }
                kept + pairs.len()
            };
            *end = V::new(self.start + kept);
        }
        kept
    }
}

/// Moves the distinct values of a sorted row to `to`, which is not after the row. Returns their
/// end.
fn unique<V: Copy + PartialEq>(
    values: &mut [V],
    row: std::ops::Range<usize>,
    mut to: usize,
) -> usize {
    let Some(&first) = values[row.clone()].first() else { return to };
    let mut last = first;
    values[to] = first;
    to += 1;
    for i in row.start + 1..row.end {
        let value = values[i];
        if value != last {
            values[to] = value;
            to += 1;
            last = value;
        }
    }
    to
}
