//! What a heap has, counted when it is asked for.
//!
//! # Safety
//! Spans and threads' parts are looked at under the heap's lock, and only at what is atomic or changes under that lock.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use hugepilot_units::Bytes;

use super::Heap;
use super::class::{CLASSES, size_of_class};
use super::span::LARGE;
use crate::{PageUsage, Result, Sys};

/// What a heap has. Exact while no other thread allocates or frees; else each number is right for some moment meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// In use by the program, as the sizes of the classes and large things that it was given.
    pub allocated: Bytes,
    /// In spans, of which parts may be free, and large things.
    pub held: Bytes,
    /// Free in whole huge pages or regions of huge things, and kept for new use.
    pub idle: Bytes,
    /// Given back to the kernel since the heap began; what was taken anew counts again when it is given back.
    pub returned: Bytes,
    /// Mapped now. Memory that was never touched takes no pages, but those of a pool are set aside.
    pub mapped: Bytes,
    /// Large things, on whole units of memory or on mappings of their own.
    pub large: ObjectCount,
    /// Objects before guard pages, of a heap that checks.
    pub guarded: ObjectCount,
    /// How many objects of a heap that checks had no guard page, since it began.
    pub unguarded: u64,
    /// Threads that have a part of the heap, those that have ended and whose part waits for another among them.
    pub threads: usize,
    /// Objects by class.
    pub classes: [ObjectCount; Self::CLASSES],
}

/// Things of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCount {
    /// The size of one, for classes; 0 for large things, which differ.
    pub size: Bytes,
    /// How many are in use.
    pub count: u64,
    /// What they take together.
    pub bytes: Bytes,
}

impl HeapStats {
    /// How many classes there are.
    pub const CLASSES: usize = CLASSES;

    fn none() -> Self {
        let mut classes = [ObjectCount::default(); CLASSES];
        for (class, of) in classes.iter_mut().enumerate() {
            of.size = Bytes::new(size_of_class(class) as u64);
        }
        let zero = Bytes::ZERO;
        let large = ObjectCount::default();
        Self {
            allocated: zero,
            held: zero,
            idle: zero,
            returned: zero,
            mapped: zero,
            large,
            guarded: ObjectCount::default(),
            unguarded: 0,
            threads: 0,
            classes,
        }
    }
}

impl<S: Sys> Heap<S> {
    /// Counts what there is. Takes the heap's lock for some 100 ns a span.
    pub fn stats(&self) -> HeapStats {
        let mut stats = HeapStats::none();
        let Some(core) = self.core_if_any() else { return stats };
        let central = core.central();
        let bytes = |bytes: usize| Bytes::new(bytes as u64);
        stats.held = bytes(central.used() + central.huge.mapped);
        stats.idle = bytes(central.idle());
        stats.returned = bytes(central.counts.returned);
        stats.mapped = bytes(central.mapped());
        stats.large = ObjectCount {
            size: Bytes::ZERO,
            count: central.huge.count as u64,
            bytes: bytes(central.huge.mapped),
        };
        let guarded = &central.guarded;
        stats.guarded = ObjectCount {
            size: Bytes::ZERO,
            count: guarded.count as u64,
            bytes: bytes(guarded.bytes),
        };
        stats.unguarded = guarded.unguarded;
        let mut used = [0_u64; CLASSES];
        // SAFETY: the lock is held.
        for span in central.chunks().flat_map(|chunk| unsafe { chunk.spans() }) {
            if span.class.get() == LARGE {
                stats.large.count += 1;
                stats.large.bytes += bytes(span.len());
            } else {
                let freed = span.remote_count();
                used[usize::from(span.class.get())] +=
                    u64::from(span.used.load(Relaxed).saturating_sub(freed));
            }
        }
        // SAFETY: the lock is held.
        for cache in unsafe { core.header.all() } {
            stats.threads += 1;
            for (used, ready) in used.iter_mut().zip(cache.ready()) {
                *used = used.saturating_sub(u64::from(ready));
            }
        }
        stats.allocated = stats.large.bytes + stats.guarded.bytes;
        for (of, count) in stats.classes.iter_mut().zip(used) {
            (of.count, of.bytes) = (count, of.size.times(count));
            stats.allocated += of.bytes;
        }
        stats
    }

    /// On which pages the heap's memory is, now; cost and errors as for [`HugeRegion::usage`](crate::HugeRegion::usage), for
    /// each of its regions, under the heap's lock.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`](crate::AllocError::Pagemap).
    pub fn usage(&self) -> Result<PageUsage> {
        let Some(core) = self.core_if_any() else { return Ok(PageUsage::default()) };
        let central = core.central();
        let chunks = central.chunks().filter_map(|chunk| chunk.region.as_ref());
        chunks
            .chain(central.huge_regions())
            .try_fold(PageUsage::default(), |sum, region| Ok(sum + region.usage()?))
    }
}
