//! Rows while they are filled, sorted and rid of duplicates, in place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hugepilot_alloc::{HugeVec, Plain, cells};

use super::{Build, Names};
use crate::width::Cell;
use crate::{Csr, Result, ThreadPool, Width};

/// Rows that become a [`Csr`].
pub(super) struct Rows<V: Width> {
    /// `offsets[v + 1]` is where the next edge of `v` goes; once all are in, where its row ends.
    offsets: HugeVec<V>,
    edges: HugeVec<V>,
    weights: HugeVec<V>,
    /// Of each piece of rows, after duplicates have gone: its first vertex, where it begins, and how long it is.
    kept: Vec<CompactedChunk>,
}

#[derive(Clone, Copy, Debug)]
struct CompactedChunk {
    vertex: usize,
    start: usize,
    len: usize,
}

/// Puts edges into rows, from any thread, those of one row from one at a time.
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

/// Some rows in a row, for one thread.
struct Piece<'a, V> {
    vertex: usize,
    start: usize,
    ends: &'a mut [V],
    edges: &'a mut [V],
    weights: &'a mut [V],
}

/// Edges in a piece, about.
const PIECE: usize = 1 << 18;

impl<V: Width> Rows<V> {
    /// Room for as many edges as were counted: `counts[v + 1]` is how many `v` has.
    pub(super) fn begin(
        build: &Build,
        names: Names,
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
        Ok(Self { offsets, edges, weights, kept: Vec::new() })
    }

    pub(super) fn filler(&mut self) -> Filler<'_, V> {
        Filler {
            next: cells(&mut self.offsets),
            edges: cells(&mut self.edges),
            weights: cells(&mut self.weights),
        }
    }

    /// Sorts each row and keeps the first of what is there twice: of weights the smallest. How many went.
    pub(super) fn sort(&mut self, pool: ThreadPool) -> u64 {
        let (pieces, dropped) = (self.pieces(), AtomicU64::new(0));
        let kept = pool.share(pieces, |pieces| {
            let (mut kept, mut pairs) = (Vec::new(), Vec::new());
            for mut piece in pieces {
                let len = piece.sort(&mut pairs);
                dropped.fetch_add((piece.edges.len() - len) as u64, Relaxed);
                kept.push(CompactedChunk { vertex: piece.vertex, start: piece.start, len });
            }
            kept
        });
        self.kept = kept.concat();
        self.kept.sort_unstable_by_key(|kept| kept.vertex);
        dropped.into_inner()
    }

    /// Cuts the rows into pieces of about as many edges.
    fn pieces(&mut self) -> Vec<Piece<'_, V>> {
        let vertices = self.offsets.len() - 1;
        let (mut ends, mut edges, mut weights) =
            (&mut self.offsets[1..], &mut self.edges[..], &mut self.weights[..]);
        let (mut vertex, mut start, mut pieces) = (0, 0, Vec::new());
        while vertex < vertices {
            let count = ends.partition_point(|end| end.at() <= start + PIECE).max(1);
            let end = ends[count - 1].at();
            let piece = Piece {
                vertex,
                start,
                ends: take(&mut ends, count),
                edges: take(&mut edges, end - start),
                weights: take(&mut weights, end - start),
            };
            pieces.push(piece);
            (vertex, start) = (vertex + count, end);
        }
        pieces
    }

    /// Moves what was kept together.
    pub(super) fn finish(mut self) -> Result<Csr<V>> {
        let mut next = 0;
        for (i, kept) in self.kept.iter().enumerate() {
            let last = self.kept.get(i + 1).map_or(self.offsets.len() - 1, |after| after.vertex);
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

/// The first `count` of them, or all.
fn take<'a, T>(all: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let count = count.min(all.len());
    let (first, rest) = std::mem::take(all).split_at_mut(count);
    *all = rest;
    first
}

impl<V: Width> Piece<'_, V> {
    /// Sorts its rows and moves what is kept to its beginning. How long that is.
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

/// Moves the values of a sorted row, each once, to `to`, which is not after it. Where they end.
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
