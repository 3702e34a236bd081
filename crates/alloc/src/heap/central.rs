//! The chunks of a heap: units for spans, more chunks where they run out, and memory given back where it is free.
//!
//! # Safety
//! All of it is used under the heap's lock. Chunks are in one of two lists while they are mapped, or are of an older epoch, and
//! left alone. Pages are discarded, and chunks unmapped, when no unit of them is in use.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use hugepilot_units::Bytes;

use super::chunk::{self, CHUNK, Chunk, PAGE, PAGE_UNITS};
use super::class::UNIT;
use super::guarded::GuardedObjects;
use super::huge::Table;
use super::huge_cache::HugeCache;
use super::span::Span;
use super::{map, os};
use crate::region::thp_never;
use crate::{AllocError, Backing, Chain, HugeRegion, Options, Setting, Sys};

/// What is shared, under the lock.
pub(super) struct Central<S: Sys> {
    /// Chunks with free units. Those that were full last are first, so that what is nearly empty empties.
    open: *mut Chunk<S>,
    full: *mut Chunk<S>,
    /// That of the chunks in these lists. The lists of an older one were lost.
    epoch: u32,
    /// Chunks in which nothing is in use.
    empty_chunks: usize,
    /// Units in use.
    used_units: usize,
    /// Whole pages in which nothing is in use, and that were not given back.
    idle_pages: usize,
    /// Bytes of them and of `kept` that are kept in any case.
    reserve: usize,
    pub(super) huge: Table<S>,
    /// Of huge things that were freed.
    pub(super) huge_cache: HugeCache<S>,
    /// Of a heap that checks what the program does.
    pub(super) guarded: GuardedObjects,
    pub(super) counts: Counts,
    /// Why memory was last not to be had as it was asked for.
    pub(super) refused: Option<AllocError>,
    /// When THP's settings were looked at, and the one, if any, for which there is none.
    thp_never: Option<(Instant, Option<Setting>)>,
    options: Options,
    /// The heap's number.
    id: u64,
    sys: S,
}

/// Sums since the heap began, in bytes, but for the first.
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
            guarded: GuardedObjects::new(),
            counts: Counts { chunks: 0, mapped: 0, returned: 0 },
            refused: None,
            thp_never: None,
            options: *options,
            id,
            sys,
        }
    }

    /// Begins anew in a child, whose parent was changing this when it was copied: with no chunks, and no reason. What comes
    /// back of the chunks that were there is lost, and what was kept; huge things in use stay.
    pub(super) fn reset_after_fork(&mut self) {
        (self.open, self.full) = (ptr::null_mut(), ptr::null_mut());
        self.epoch += 1;
        (self.empty_chunks, self.used_units, self.idle_pages) = (0, 0, 0);
        self.counts = Counts { returned: self.counts.returned, ..Counts::default() };
        (self.refused, self.thp_never) = (None, None);
        // SAFETY: our own field, which may be torn: so what was in it is not dropped.
        unsafe { ptr::write(&raw mut self.huge_cache, HugeCache::new()) };
        self.huge.recount();
        self.guarded.reset_after_fork();
    }

    /// The span of a large thing, at a multiple of `align` units; `None` where there is no memory.
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

    /// The setting, if any, for which there is no THP; read anew after a second.
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
        // SAFETY: chunks in the list are there.
        while let Some(chunk) = unsafe { next.as_mut() } {
            next = chunk.next;
            if chunk.free_units < units {
                continue;
            }
            // What covers whole pages had better begin with one: then they are free together.
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

    /// Takes a span back.
    pub(super) fn put(&mut self, span: *mut Span) {
        // SAFETY: a span that was in use is in a chunk that is there.
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
        chunk.give_back(at, units);
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

    /// Makes a large thing's span `units` long where it is. False where what follows is in use, or the chunk of an older epoch.
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

    /// Gives back all that is not in use. Bytes.
    pub(super) fn trim(&mut self) -> usize {
        let before = self.counts.returned;
        self.empty_huge_cache();
        let mut next = self.open;
        // SAFETY: chunks in the list are there; the next is read before this one may go.
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

    /// Gives a page's memory back, if it is idle. Where the kernel refuses, it stays.
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

    /// Unmaps a chunk in which nothing is in use. It is not counted among the empty ones.
    fn unmap(&mut self, chunk: *mut Chunk<S>) {
        unlink(&mut self.open, chunk);
        // SAFETY: it was in the list, and is there until its region is dropped. No reference into it may be an argument then.
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

    /// Maps chunks of which one holds `units` units at a multiple of `align`.
    fn map_chunks(&mut self, units: usize, align: usize) -> Option<()> {
        // With the head, and what alignment may cost.
        let least = ((units + align + 1) * UNIT).next_power_of_two().clamp(PAGE, CHUNK);
        let chain = self.options.chain;
        for &backing in chain.backings() {
            // The pages of a pool are taken from others: so a heap that is small takes few.
            let most = if backing.pool_page().is_some() {
                self.counts.mapped.next_power_of_two()
            } else {
                CHUNK
            };
            let mut len = most.clamp(least, CHUNK);
            while len >= least {
                match self.map_region(len, backing) {
                    Ok(region) => {
                        self.add(region);
                        return Some(());
                    }
                    Err(error) => self.refused = Some(error),
                }
                len /= 2;
            }
        }
        None
    }

    fn map_region(&mut self, len: usize, backing: Backing) -> crate::Result<HugeRegion<S>> {
        let never = matches!(backing, Backing::Thp(_)).then(|| self.thp_never()).flatten();
        let align = self.options.align.max(Bytes::new(CHUNK as u64));
        let options = Options { chain: Chain::only(backing), align, ..self.options };
        HugeRegion::map_with(self.sys.clone(), Bytes::new(len as u64), &options, |_| never)
    }

    /// Makes chunks of a region, most often one.
    fn add(&mut self, region: HugeRegion<S>) {
        let (start, len) = (region.as_ptr().as_ptr(), region.len().as_usize());
        // Larger huge pages would be split, and those of a pool are set aside once.
        let discards =
            region.backing().pool_page().is_none() && self.sys.sizes().huge.as_usize() <= PAGE;
        self.counts.mapped += len;
        let mut first = ptr::null_mut();
        // The first is linked last, and so used first.
        for at in (0..len).step_by(CHUNK).rev() {
            let part = (len - at).min(CHUNK) / PAGE * PAGE;
            // SAFETY: inside of the region, which is new, zeroed, aligned and ours.
            first = unsafe {
                let chunk = Chunk::begin(start.wrapping_add(at), part, self.id);
                ((*chunk).shared, (*chunk).discards) = (len > CHUNK, discards);
                (*chunk).epoch = self.epoch;
                chunk
            };
            link(&mut self.open, first);
            self.empty_chunks += 1;
            self.counts.chunks += 1;
        }
        // SAFETY: a region has at least one chunk, which was made above.
        unsafe { (*first).region = Some(region) };
    }

    /// Units in use, in bytes.
    pub(super) fn used(&self) -> usize {
        self.used_units * UNIT
    }

    /// Resident or set aside, and free, in bytes.
    pub(super) fn idle(&self) -> usize {
        self.idle_pages * PAGE + self.huge_cache.len
    }

    /// How much of that is kept, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.reserve.max((self.used() + self.huge.mapped) / 8)
    }

    /// Bytes that are mapped.
    pub(super) fn mapped(&self) -> usize {
        self.counts.mapped + self.huge.mapped + self.huge_cache.len
    }

    /// Regions of huge things, in use or kept.
    pub(super) fn huge_regions(&self) -> impl Iterator<Item = &HugeRegion<S>> {
        self.huge.all().map(|huge| &huge.region).chain(self.huge_cache.all())
    }

    /// As a holder of the lock may leave it who is no longer there; the chunks that are lost.
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

    /// Every chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<S>> {
        [self.open, self.full].into_iter().flat_map(|first| {
            // SAFETY: chunks in the lists are there while the lock is held.
            std::iter::successors(unsafe { first.as_ref() }, |chunk| unsafe { chunk.next.as_ref() })
        })
    }
}

/// Unmaps all.
impl<S: Sys> Drop for Central<S> {
    fn drop(&mut self) {
        // Their records lie in chunks.
        // SAFETY: nobody uses memory of a heap that goes.
        unsafe { self.huge.unmap_all() };
        while !self.full.is_null() {
            let chunk = self.full;
            unlink(&mut self.full, chunk);
            link(&mut self.open, chunk);
        }
        // A region is in the head of its first chunk: the other chunks on it must not be looked at when it is gone.
        let (mut next, mut regions) = (self.open, ptr::null_mut());
        // SAFETY: chunks in the list are there until their region is dropped.
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

/// The pages that units lie on.
fn pages(at: usize, units: usize) -> std::ops::RangeInclusive<usize> {
    at / PAGE_UNITS..=(at + units - 1) / PAGE_UNITS
}

/// Nothing of the page is in use, but its memory was not given back.
fn is_idle<S: Sys>(chunk: &Chunk<S>, page: usize) -> bool {
    let at = page * PAGE_UNITS;
    chunk.free.all(at, PAGE_UNITS) && chunk.dirty.any(at, PAGE_UNITS)
}

/// How many pages that these units lie on are idle.
fn idle_pages<S: Sys>(chunk: &Chunk<S>, at: usize, units: usize) -> usize {
    pages(at, units).filter(|&page| is_idle(chunk, page)).count()
}

fn link<S: Sys>(list: &mut *mut Chunk<S>, chunk: *mut Chunk<S>) {
    // What is kept must not depend on a reference that the caller has for a while.
    let chunk: *mut Chunk<S> = ptr::with_exposed_provenance_mut(chunk.addr());
    // SAFETY: the chunk and those in the list are there.
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
    // SAFETY: the chunk is in the list, and its neighbours are there.
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
