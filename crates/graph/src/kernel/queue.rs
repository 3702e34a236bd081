//! Vertices in the order in which they were found: each level of a search is a part of it.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{HugeVec, Plain};

use super::cost::ArrayUsage;
use crate::width::Cell;
use crate::{Array, PagePlan, Result, Width};

/// Room for every vertex once.
pub(super) struct Queue<V: Width> {
    items: HugeVec<<V as Plain>::Cell>,
    end: AtomicUsize,
}

/// What one thread found and has not put into the queue yet.
pub(super) struct QueueBuffer<'a, V: Width> {
    queue: &'a Queue<V>,
    items: Vec<V>,
}

/// Vertices that a thread keeps before it takes a place in the queue. So many that most levels of a road network go in by thread, whole:
/// where threads take places in turns, each level strews neighbours further (up to twice the time of a search on a grid). That they are
/// in the second cache then, and no longer in the first, could not be measured on other graphs.
const KEPT: usize = 1 << 14;

impl<V: Width> Queue<V> {
    pub(super) fn new(vertices: usize, pages: &PagePlan) -> Result<Self> {
        Ok(Self { items: pages.zeroed(Array::Worklist, vertices)?, end: AtomicUsize::new(0) })
    }

    #[inline]
    pub(super) fn items(&self) -> &[<V as Plain>::Cell] {
        &self.items
    }

    /// Forgets all. For one worker, between two barriers.
    pub(super) fn empty(&self) {
        self.end.store(0, Relaxed);
    }

    /// On which pages it is.
    pub(super) fn usage(&self) -> Result<ArrayUsage> {
        ArrayUsage::read(Array::Worklist, &self.items)
    }

    pub(super) fn buffer(&self) -> QueueBuffer<'_, V> {
        QueueBuffer { queue: self, items: Vec::with_capacity(KEPT) }
    }
}

impl<V: Width> QueueBuffer<'_, V> {
    #[inline]
    pub(super) fn push(&mut self, vertex: V) {
        if self.items.len() == KEPT {
            self.flush();
        }
        self.items.push(vertex);
    }

    /// Puts all into the queue.
    pub(super) fn flush(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let start = self.queue.end.fetch_add(self.items.len(), Relaxed);
        for (cell, item) in self.queue.items[start..].iter().zip(self.items.drain(..)) {
            cell.set(item);
        }
    }
}
