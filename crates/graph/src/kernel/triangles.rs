//! Triangle counting: each triangle once, at its highest vertex.
//!
//! The lower neighbours of a vertex are marked in a bitmap. Their own lower neighbours are then
//! looked up there: one bit per lookup, in a bitmap that mostly stays in the cache. If a few
//! vertices have most edges, vertices are first ordered by degree, so that each has few lower
//! neighbours.

mod lower;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use self::lower::Lower;
use super::Setup;
use super::bitmap::WORD;
use super::cost::{ArrayUsage, KernelCost, PhaseTimer};
use super::verify::{Verdict, VerifyError};
use crate::access_sink::{AccessSink, ArrayRange, Tracer};
use crate::csr::{AHEAD, Row, Rows};
use crate::{Array, Graph, GraphError, Result, Width, WorkQueue};

/// Result of triangle counting.
#[derive(Debug)]
pub struct Triangles {
    /// Triangles, each counted once.
    pub count: u64,
    /// Cost of the kernel, including reordering. The rows that the kernel maps are reported with
    /// those of the graph.
    pub cost: KernelCost,
}

/// Vertices in a chunk.
const CHUNK: usize = 64;
/// Neighbours up to which pairs are looked up without marks.
const FEW: usize = 3;

/// Counts the triangles of an undirected graph. Takes one bit per vertex and thread. If vertices
/// are reordered, takes a word per vertex, untouched otherwise, and a copy of the lower half of the
/// edges.
///
/// # Errors
/// [`GraphError::Directed`], [`GraphError::Memory`].
pub fn triangles<V: Width, T: Tracer>(graph: &Graph<V>, setup: &Setup<T>) -> Result<Triangles> {
    if graph.is_directed() {
        return Err(GraphError::Directed);
    }
    let (vertices, timer) = (graph.vertices(), PhaseTimer::start());
    let ranks = setup.property::<V>(vertices)?;
    let marks =
        || setup.pages.zeroed::<u64>(Array::Worklist, vertices.div_ceil(WORD)).map(Mutex::new);
    let marks = (0..setup.pool.threads()).map(|_| marks()).collect::<Result<Vec<_>>>()?;
    let worklists: Vec<ArrayRange> = marks
        .iter()
        .enumerate()
        .map(|(worker, marks)| {
            let marks = marks.lock().expect("no worker runs yet");
            ArrayRange::new(Array::Worklist, format!("marks-{worker}"), &marks)
        })
        .collect();
    timer.allocated();
    let lower = Lower::of(graph, ranks, setup, &worklists, &timer)?;
    let (rows, whole) = (lower.rows(), lower.are_whole());
    let (work, total) = (WorkQueue::default(), AtomicU64::new(0));
    setup.run(|worker| {
        worker.phase(format_args!("tc count"));
        let mut marks = marks[worker.id].lock().expect("each worker has its own");
        let mut count = 0;
        worker.each(&work, vertices, CHUNK, |range| {
            for (v, row) in range.clone().zip(rows.each(range, worker.sink)) {
                let row = if whole { before(V::new(v), row, worker.sink) } else { row };
                count += match row.len() {
                    0 | 1 => 0,
                    2..=FEW if whole => looked_up(rows, row, worker.sink),
                    _ => closed(rows, row, &mut marks, worker.sink),
                };
            }
        });
        total.fetch_add(count, Relaxed);
    });
    let mut cost = timer.stop();
    cost.arrays = lower.usage()?;
    for marks in marks.into_iter().flat_map(Mutex::into_inner) {
        cost.arrays.push(ArrayUsage::read(Array::Worklist, &marks)?);
    }
    Ok(Triangles { count: total.into_inner(), cost })
}

/// Returns the start of an ascending row up to `v`.
#[inline]
fn before<'a, V: Width>(v: V, row: &'a [V], sink: &impl AccessSink) -> &'a [V] {
    let before = row.partition_point(|to| {
        sink.read(Array::Edges, to);
        *to < v
    });
    &row[..before]
}

/// Counts the pairs of lower neighbours that are adjacent. `marks` are clear before and after.
#[inline]
fn closed<V: Width>(rows: Rows<V>, row: &[V], marks: &mut [u64], sink: &impl AccessSink) -> u64 {
    for to in row {
        sink.read(Array::Edges, to);
        sink.read(Array::Worklist, &marks[to.at() / WORD]);
        sink.write(Array::Worklist, &marks[to.at() / WORD]);
        marks[to.at() / WORD] |= 1 << (to.at() % WORD);
    }
    let count = row.chunks(AHEAD).map(|some| marked(rows, some, marks, sink)).sum();
    for to in row {
        sink.read(Array::Edges, to);
        sink.write(Array::Worklist, &marks[to.at() / WORD]);
        marks[to.at() / WORD] = 0;
    }
    count
}

/// Counts the marked lower neighbours of at most [`AHEAD`] vertices.
#[inline]
fn marked<V: Width>(rows: Rows<V>, some: &[V], marks: &[u64], sink: &impl AccessSink) -> u64 {
    let mut ahead = [Row::default(); AHEAD];
    let vertices = some.iter().map(|to| {
        sink.read(Array::Edges, to);
        *to
    });
    let ahead = rows.ahead(vertices, &mut ahead, sink);
    // Reads the first neighbour of all before the rest of any, so that cache misses overlap.
    let mut kept = 0;
    for i in 0..ahead.len() {
        let row = ahead[i];
        ahead[kept] = row;
        kept += usize::from(row.to.first().is_some_and(|first| {
            sink.read(Array::Edges, first);
            *first < row.vertex
        }));
    }
    let mut count = 0;
    for row in &ahead[..kept] {
        let lower = row.to.iter().take_while(|third| {
            sink.read(Array::Edges, *third);
            **third < row.vertex
        });
        for third in lower {
            sink.read(Array::Worklist, &marks[third.at() / WORD]);
            count += marks[third.at() / WORD] >> (third.at() % WORD) & 1;
        }
    }
    count
}

/// Counts as [`closed`] does, for short rows of the graph itself.
#[inline]
fn looked_up<V: Width>(rows: Rows<V>, row: &[V], sink: &impl AccessSink) -> u64 {
    let mut count = 0;
    for (i, to) in row.iter().enumerate().skip(1) {
        sink.read(Array::Edges, to);
        rows.record_access(to.at(), sink);
        let others = rows.neighbours(to.at());
        for third in &row[..i] {
            sink.read(Array::Edges, third);
            let found = others.binary_search_by(|other| {
                sink.read(Array::Edges, other);
                other.cmp(third)
            });
            count += u64::from(found.is_ok());
        }
    }
    count
}

impl Triangles {
    /// Counts again on one thread by merging rows, without marks and reordering.
    ///
    /// # Errors
    /// The count.
    pub fn verify<V: Width>(&self, graph: &Graph<V>) -> Verdict {
        let lower = |v: usize, end: V| {
            let row = graph.out.neighbours(v);
            &row[..row.partition_point(|&to| to < end)]
        };
        let mut count = 0;
        for v in 0..graph.vertices() {
            for &to in lower(v, V::new(v)) {
                count += common(lower(v, to), lower(to.at(), to));
            }
        }
        if count == self.count {
            Ok(())
        } else {
            Err(VerifyError::Count { found: self.count, expected: count })
        }
    }
}

/// Counts the common values of two ascending rows.
fn common<V: Width>(mut one: &[V], mut other: &[V]) -> u64 {
    let mut count = 0;
    while let ([a, rest @ ..], [b, others @ ..]) = (one, other) {
        count += u64::from(a == b);
        (one, other) = (if a <= b { rest } else { one }, if b <= a { others } else { other });
    }
    count
}
