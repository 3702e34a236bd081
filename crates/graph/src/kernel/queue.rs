//! Queue of vertices in the order in which they were found. Each level of a search is a range of
//! it.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, Plain};

use super::cost::ArrayUsage;
use crate::access_sink::AccessSink;
use crate::width::Cell;
use crate::{Array, PagePlan, Result, Width};

/// Queue with room for each vertex once.
pub(super) struct Queue<V: Width> {
    items: HugeVec<<V as Plain>::Cell>,
    end: AtomicUsize,
}

/// Vertices that one thread found and has not added to the queue yet.
pub(super) struct QueueBuffer<'a, V: Width, S: AccessSink> {
    queue: &'a Queue<V>,
    items: Vec<V>,
    sink: &'a S,
}

/// Vertices that a thread buffers before it reserves a range of the queue. Most levels of a road
/// network thus enter by thread, whole. If threads alternate, each level scatters neighbours
/// further, up to twice the time of a search on a grid. The buffer occupies the second-level cache
/// instead of the first, with no measurable effect on other graphs.
const BUFFERED: usize = 1 << 14;

impl<V: Width> Queue<V> {
    pub(super) fn new(vertices: usize, pages: &PagePlan) -> Result<Self> {
        Ok(Self { items: pages.zeroed(Array::Worklist, vertices)?, end: AtomicUsize::new(0) })
    }

    #[inline]
    pub(super) fn items(&self) -> &[<V as Plain>::Cell] {
        &self.items
    }

    /// Empties the queue. For one thread, between two barriers.
    pub(super) fn empty(&self) {
        self.end.store(0, Relaxed);
    }

    /// Reads the pagemap.
    pub(super) fn usage(&self) -> Result<ArrayUsage> {
        ArrayUsage::read(Array::Worklist, &self.items)
    }

    pub(super) fn buffer<'a, S: AccessSink>(&'a self, sink: &'a S) -> QueueBuffer<'a, V, S> {
        QueueBuffer { queue: self, items: Vec::with_capacity(BUFFERED), sink }
    }
}

impl<V: Width, S: AccessSink> QueueBuffer<'_, V, S> {
    #[inline]
    pub(super) fn push(&mut self, vertex: V) {
        if self.items.len() == BUFFERED {
            self.flush();
        }
        self.items.push(vertex);
    }

    /// Adds the buffered vertices to the queue.
    pub(super) fn flush(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let start = self.queue.end.fetch_add(self.items.len(), Relaxed);
        for (cell, item) in self.queue.items[start..].iter().zip(self.items.drain(..)) {
            self.sink.write(Array::Worklist, cell);
            cell.set(item);
        }
    }
}
