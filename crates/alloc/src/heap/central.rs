//! Chunks of a heap: takes units for spans, maps more chunks, and frees unused memory.
//!
//! # Safety
//! All functions run under the heap's lock. A mapped chunk is in one of two lists, or of an older
//! epoch and never changed again. Pages are discarded, and chunks unmapped, only without a unit in
//! use.
#![allow(unsafe_code)]

mod mapping;

use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use super::chunk::{self, Chunk, PAGE, PAGE_UNITS};
use super::class::UNIT;
use super::huge::Table;
use super::huge_cache::HugeCache;
use super::span::Span;
use super::{map, os};
use crate::region::thp_never;
use crate::{AllocError, HugeRegion, Options, Setting, Sys};

/// State behind the heap's lock.
pub(super) struct Central<S: Sys> {
    /// Chunks with free units, the last full ones first, so that nearly empty ones become empty.
    open: *mut Chunk<S>,
    full: *mut Chunk<S>,
    /// Epoch of the chunks in these lists. The lists of an older epoch were lost.
    epoch: u32,
    /// Number of chunks without a unit in use.
    empty_chunks: usize,
    /// Number of units in use.
    used_units: usize,
    /// Number of whole pages without a unit in use whose memory was not freed.
    idle_pages: usize,
    /// Bytes of idle pages and of `huge_cache` to keep in any case.
    reserve: usize,
    pub(super) huge: Table<S>,
    /// Freed regions of huge objects.
    pub(super) huge_cache: HugeCache<S>,
    pub(super) counts: Counts,
    /// Last error of a backing.
    pub(super) refused: Option<AllocError>,
    /// Time of the last read of the THP settings, and the setting, if any, that denies THP.
    thp_never: Option<(Instant, Option<Setting>)>,
    options: Options,
    /// ID of the heap.
    id: u64,
    sys: S,
}

/// Counters: the number of chunks, and bytes since the heap began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) chunks: usize,
    pub(super) mapped: usize,
    pub(super) returned: usize,
}

impl<S: Sys> Central<S> {
    pub(super) const fn new(sys: S, options: &Options, reserve: usize, id: u64) -> Self {
        Self {
            open: ptr::null_mut(),
            full: ptr::null_mut(),
            epoch: 0,
            empty_chunks: 0,
            used_units: 0,
            idle_pages: 0,
            reserve,
            huge: Table::new(),
            huge_cache: HugeCache::new(),
            counts: Counts { chunks: 0, mapped: 0, returned: 0 },
            refused: None,
            thp_never: None,
            options: *options,
            id,
            sys,
        }
    }

    /// Resets the state in a child whose parent was changing it: no chunks, and no error. Memory
    /// freed into the old chunks, and the cached regions, are lost; huge objects in use stay.
    pub(super) fn reset_after_fork(&mut self) {
        (self.open, self.full) = (ptr::null_mut(), ptr::null_mut());
        self.epoch += 1;
        (self.empty_chunks, self.used_units, self.idle_pages) = (0, 0, 0);
        self.counts = Counts { returned: self.counts.returned, ..Counts::default() };
        (self.refused, self.thp_never) = (None, None);
        // SAFETY: this heap's own field, which may be torn: so its old value is not dropped.
        unsafe { ptr::write(&raw mut self.huge_cache, HugeCache::new()) };
        self.huge.recount();
    }

    /// Takes a span for a large object, at a multiple of `align` units; `None` if there is no
    /// memory.
    pub(super) fn take(&mut self, units: usize, align: usize) -> Option<*mut Span> {
        if let Some(span) = self.take_mapped(units, align) {
            return Some(span);
        }
        os::preserving_errno(|| {
            self.map_chunks(units, align).or_else(|| {
                self.empty_huge_cache().then(|| self.map_chunks(units, align)).flatten()
            })
        })?;
        self.take_mapped(units, align)
    }

    /// Returns the setting, if any, that denies THP; reads it again after a second.
    pub(super) fn thp_never(&mut self) -> Option<Setting> {
        const AGE: Duration = Duration::from_secs(1);
        if let Some((when, never)) = self.thp_never
            && when.elapsed() < AGE
        {
            return never;
        }
        let never = os::preserving_errno(|| thp_never(&self.sys));
        self.thp_never = Some((Instant::now(), never));
        never
    }

    fn take_mapped(&mut self, units: usize, align: usize) -> Option<*mut Span> {
        let mut next = self.open;
        // SAFETY: chunks in the list exist.
        while let Some(chunk) = unsafe { next.as_mut() } {
            next = chunk.next;
            if chunk.free_units < units {
                continue;
            }
            // A span of whole pages should begin with a page, so that they become free together.
            let whole = (units >= PAGE_UNITS)
                .then(|| chunk.free.find(units, align.max(PAGE_UNITS)))
                .flatten();
            let found = whole.or_else(|| chunk.free.find(units, align));
            let Some(at) = found else { continue };
            self.empty_chunks -= usize::from(chunk.is_empty());
            self.idle_pages -= idle_pages(chunk, at, units);
            // SAFETY: the lock is held.
            let span = unsafe { chunk.take(at, units) };
            self.used_units += units;
            if chunk.free_units == 0 {
                let chunk = ptr::from_mut(chunk);
                unlink(&mut self.open, chunk);
                link(&mut self.full, chunk);
            }
            return Some(span);
        }
        None
    }

    /// Frees a span.
    pub(super) fn put(&mut self, span: *mut Span) {
        // SAFETY: a span in use lies in a mapped chunk.
        let units = unsafe {
            (*span).set_class(0);
            usize::from((*span).units.get())
        };
        self.put_units(chunk_of(span), chunk::unit_of(span), units);
    }

    fn put_units(&mut self, chunk: *mut Chunk<S>, at: usize, units: usize) {
        // SAFETY: as in `put`.
        if unsafe { (*chunk).epoch } != self.epoch {
            return;
        }
        // SAFETY: as in `put`.
        if unsafe { (*chunk).free_units } == 0 {
            unlink(&mut self.full, chunk);
            link(&mut self.open, chunk);
        }
        // SAFETY: as in `put`.
        let chunk = unsafe { &mut *chunk };
        chunk.free_span(at, units);
        self.used_units -= units;
        self.idle_pages += idle_pages(chunk, at, units);
        let limit = self.limit();
        while self.idle() > limit && self.unmap_oldest() {}
        if chunk.discards {
            for page in pages(at, units) {
                if self.idle() <= limit {
                    break;
                }
                self.discard(chunk, page);
            }
        }
        if chunk.is_empty() {
            if self.empty_chunks > 0 && !chunk.shared {
                self.unmap(chunk);
            } else {
                self.empty_chunks += 1;
            }
        }
    }

    /// Resizes a large object's span to `units` in place. False if the units after it are in use,
    /// or the chunk is of an older epoch.
    pub(super) fn resize(&mut self, span: &Span, units: usize) -> bool {
        // SAFETY: as in `put`.
        let chunk = unsafe { &mut *chunk_of::<S>(span) };
        let (at, old) = (chunk::unit_of(span), usize::from(span.units.get()));
        if chunk.epoch != self.epoch {
            return false;
        }
        if units > old {
            if at + units > chunk.units || !chunk.free.all(at + old, units - old) {
                return false;
            }
            self.idle_pages -= idle_pages(chunk, at + old, units - old);
            chunk.extend(at, old, units);
            self.used_units += units - old;
            if chunk.free_units == 0 {
                let chunk = ptr::from_mut(chunk);
                unlink(&mut self.open, chunk);
                link(&mut self.full, chunk);
            }
            span.zeroed().set(false);
        } else if units < old {
            self.put_units(chunk_of(span), at + units, old - units);
        }
        #[allow(clippy::cast_possible_truncation)] // at most 512
        span.units.set(units as u16);
        true
    }

    /// Frees all unused memory to the kernel. Returns the bytes.
    pub(super) fn trim(&mut self) -> usize {
        let before = self.counts.returned;
        self.empty_huge_cache();
        let mut next = self.open;
        // SAFETY: chunks in the list exist; the next is read before this one may be unmapped.
        while let Some(chunk) = unsafe { next.as_mut() } {
            next = chunk.next;
            if chunk.is_empty() && !chunk.shared {
                self.empty_chunks -= 1;
                self.unmap(chunk);
            } else if chunk.discards {
                for page in 0..chunk.units / PAGE_UNITS {
                    self.discard(chunk, page);
                }
            }
        }
        self.counts.returned - before
    }

    /// Frees the memory of a page if it is idle. If the kernel refuses, the memory stays.
    fn discard(&mut self, chunk: &mut Chunk<S>, page: usize) {
        if !is_idle(chunk, page) {
            return;
        }
        let start = ptr::with_exposed_provenance_mut(ptr::from_mut(chunk).addr() + page * PAGE);
        // SAFETY: no unit of the page is in use, and it lies in the chunk.
        let done = os::preserving_errno(|| unsafe {
            self.sys.discard(NonNull::new_unchecked(start), PAGE)
        });
        if done.is_ok() {
            chunk.dirty.clear(page * PAGE_UNITS, PAGE_UNITS);
            self.idle_pages -= 1;
            self.counts.returned += PAGE;
        }
    }

    /// Unmaps a chunk without a unit in use. It no longer counts as empty.
    fn unmap(&mut self, chunk: *mut Chunk<S>) {
        unlink(&mut self.open, chunk);
        // SAFETY: it was in the list, and exists until its region is dropped. No argument may be a
        // reference into it then.
        let chunk = unsafe { &mut *chunk };
        let pages = chunk.units / PAGE_UNITS;
        let idle = (0..pages).filter(|&page| is_idle(chunk, page)).count();
        self.idle_pages -= idle;
        self.counts.returned += idle * PAGE;
        self.counts.chunks -= 1;
        map::remove(ptr::from_ref(chunk).addr());
        let region = chunk.region.take();
        self.counts.mapped -= region.as_ref().map_or(0, |region| region.len().as_usize());
        os::preserving_errno(|| drop(region));
    }

    /// Returns the units in use, in bytes.
    pub(super) fn used(&self) -> usize {
        self.used_units * UNIT
    }

    /// Returns the free memory that is resident or reserved, in bytes.
    pub(super) fn idle(&self) -> usize {
        self.idle_pages * PAGE + self.huge_cache.len
    }

    /// Returns the idle memory to keep, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.reserve.max((self.used() + self.huge.mapped) / 8)
    }

    /// Returns the mapped bytes.
    pub(super) fn mapped(&self) -> usize {
        self.counts.mapped + self.huge.mapped + self.huge_cache.len
    }

    /// Returns the regions of huge objects, in use or cached.
    pub(super) fn huge_regions(&self) -> impl Iterator<Item = &HugeRegion<S>> {
        self.huge.all().map(|huge| &huge.region).chain(self.huge_cache.all())
    }

    /// Corrupts the state like a holder of the lock that vanished. Returns the lost chunks.
    #[cfg(test)]
    pub(super) fn tear(&mut self) -> Vec<*mut Chunk<S>> {
        let lost = self
            .chunks()
            .map(|chunk| ptr::with_exposed_provenance_mut(ptr::from_ref(chunk).addr()));
        let (lost, nowhere) = (lost.collect(), ptr::without_provenance_mut(64));
        (self.open, self.full) = (nowhere, nowhere);
        (self.empty_chunks, self.used_units, self.idle_pages) = (usize::MAX, 7, usize::MAX);
        (self.counts.chunks, self.counts.mapped, self.huge.count) = (99, 1, 1000);
        lost
    }

    /// Returns every chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<S>> {
        [self.open, self.full].into_iter().flat_map(|first| {
            // SAFETY: chunks in the lists exist while the lock is held.
            std::iter::successors(unsafe { first.as_ref() }, |chunk| unsafe { chunk.next.as_ref() })
        })
    }
}

/// Unmaps everything.
impl<S: Sys> Drop for Central<S> {
    fn drop(&mut self) {
        // Their records lie in chunks.
        //
        // SAFETY: the heap is dropped, so its memory has no users.
        unsafe { self.huge.unmap_all() };
        while !self.full.is_null() {
            let chunk = self.full;
            unlink(&mut self.full, chunk);
            link(&mut self.open, chunk);
        }
        // The first chunk of a region holds it: the others must not be read after it is dropped.
        let (mut next, mut regions) = (self.open, ptr::null_mut());
        // SAFETY: chunks in the list exist until their region is dropped.
        unsafe {
            while let Some(chunk) = next.as_mut() {
                next = chunk.next;
                map::remove(ptr::from_ref(chunk).addr());
                if chunk.region.is_some() {
                    chunk.next = regions;
                    regions = chunk;
                }
            }
            while let Some(chunk) = regions.as_mut() {
                regions = chunk.next;
                drop(chunk.region.take());
            }
        }
    }
}

fn chunk_of<S: Sys>(span: *const Span) -> *mut Chunk<S> {
    ptr::with_exposed_provenance_mut(chunk::start_of(span.addr()))
}

/// Returns the pages that contain these units.
fn pages(at: usize, units: usize) -> std::ops::RangeInclusive<usize> {
    at / PAGE_UNITS..=(at + units - 1) / PAGE_UNITS
}

/// Returns whether the page has no unit in use and its memory was not freed.
fn is_idle<S: Sys>(chunk: &Chunk<S>, page: usize) -> bool {
    let at = page * PAGE_UNITS;
    chunk.free.all(at, PAGE_UNITS) && chunk.dirty.any(at, PAGE_UNITS)
}

/// Counts idle pages among those that contain these units.
fn idle_pages<S: Sys>(chunk: &Chunk<S>, at: usize, units: usize) -> usize {
    pages(at, units).filter(|&page| is_idle(chunk, page)).count()
}

fn link<S: Sys>(list: &mut *mut Chunk<S>, chunk: *mut Chunk<S>) {
    // The list must not hold a pointer derived from a temporary reference of the caller.
    let chunk: *mut Chunk<S> = ptr::with_exposed_provenance_mut(chunk.addr());
    // SAFETY: the chunk and those in the list exist.
    unsafe {
        (*chunk).previous = ptr::null_mut();
        (*chunk).next = *list;
        if let Some(first) = list.as_mut() {
            first.previous = chunk;
        }
    }
    *list = chunk;
}

fn unlink<S: Sys>(list: &mut *mut Chunk<S>, chunk: *mut Chunk<S>) {
    // SAFETY: the chunk is in the list, and its neighbours exist.
    unsafe {
        let (before, after) = ((*chunk).previous, (*chunk).next);
        match before.as_mut() {
            Some(before) => before.next = after,
            None => *list = after,
        }
        if let Some(after) = after.as_mut() {
            after.previous = before;
        }
    }
}
