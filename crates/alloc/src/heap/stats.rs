//! Statistics of a heap, counted on request.
//!
//! # Safety
//! Spans and thread caches are read under the heap's lock, and only their atomic fields or fields
//! that change under that lock.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_units::Bytes;

use super::Heap;
use super::class::{CLASSES, size_of_class};
use super::span::LARGE;
use crate::{PageUsage, Result, Sys};

/// Statistics of a heap. Exact while no other thread allocates or frees; else each number is right
/// for some moment during the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes in use by the program, rounded up to size classes and to large objects.
    pub allocated: Bytes,
    /// Bytes in spans, parts of which may be free, and in large objects.
    pub held: Bytes,
    /// Free bytes kept for reuse, in whole huge pages or in regions of huge objects.
    pub idle: Bytes,
    /// Bytes freed to the kernel since the heap began, counted each time.
    pub returned: Bytes,
    /// Mapped bytes. Untouched memory uses no pages, but a pool reserves them.
    pub mapped: Bytes,
    /// Large objects, on whole units or on mappings of their own.
    pub large: ObjectCount,
    /// Threads with a cache, including ended threads whose cache waits for reuse.
    pub threads: usize,
    /// Objects in use by size class.
    pub classes: [ObjectCount; Self::CLASSES],
}

/// Objects of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCount {
    /// Size of one object of a class; 0 for large objects, which differ in size.
    pub size: Bytes,
    /// Number of objects in use.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: Bytes,
}

impl HeapStats {
    /// Number of size classes.
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
            threads: 0,
            classes,
        }
    }
}

impl<S: Sys> Heap<S> {
    /// Counts the objects in use. Holds the heap's lock for about 100 ns per span.
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
            stats.threads += usize::from(!ptr::eq(cache, core.header.lender_if_any()));
            for (used, ready) in used.iter_mut().zip(cache.ready()) {
                *used = used.saturating_sub(u64::from(ready));
            }
        }
        stats.allocated = stats.large.bytes;
        for (of, count) in stats.classes.iter_mut().zip(used) {
            (of.count, of.bytes) = (count, of.size.times(count));
            stats.allocated += of.bytes;
        }
        stats
    }

    /// Reads from the pagemap which pages the heap's memory is on, under the heap's lock. Costs one
    /// [`HugeRegion::usage`](crate::HugeRegion::usage) per region.
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
