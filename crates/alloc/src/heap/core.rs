//! Shared part of a heap: its chunks, its free memory, and its huge objects.
//!
//! # Safety
//! A `Core` lies in a mapping of its own, so it does not move with its [`Heap`](super::Heap).
//! [`Central`] is accessed under the lock only. A freed span has no users and is in no queue.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use hugepilot_units::Bytes;

use super::central::Central;
use super::lock::LockGuard;
use super::misuse::{self, Call, Misuse};
use super::span::Span;
use super::thread::HeapHeader;
use super::thread_cache::{EmptySpans, ThreadCache};
use super::{class, map, os};
use crate::{Fork, Options, Pages, Sys};

/// Part of a heap that all its threads use.
#[repr(C)]
pub(super) struct Core<S: Sys> {
    /// First field: an ending thread knows only this part of the heap.
    pub(super) header: HeapHeader,
    pub(super) options: Options,
    central: UnsafeCell<Central<S>>,
}

/// Access to [`Central`] while the lock is held.
pub(super) struct Guard<'a, S: Sys> {
    core: &'a Core<S>,
    _held: LockGuard<'a>,
}

impl<S: Sys> Deref for Guard<'_, S> {
    type Target = Central<S>;
    fn deref(&self) -> &Central<S> {
        // SAFETY: the lock is held.
        unsafe { &*self.core.central.get() }
    }
}

impl<S: Sys> DerefMut for Guard<'_, S> {
    fn deref_mut(&mut self) -> &mut Central<S> {
        // SAFETY: the lock is held, and `&mut self` is the only access through this guard.
        unsafe { &mut *self.core.central.get() }
    }
}

impl<S: Sys> Core<S> {
    fn len(sys: &S) -> (usize, usize) {
        let base = sys.sizes().base.as_usize();
        (size_of::<Self>().next_multiple_of(base), base.max(align_of::<Self>()))
    }

    /// Maps a core; `None` if there is no memory.
    pub(super) fn map(sys: &S, options: Options, reserve: Bytes) -> Option<NonNull<Self>> {
        // A thread that ends in a child frees its objects, so their memory must exist there.
        let options = Options { fork: Fork::Inherit, ..options };
        let (len, align) = Self::len(sys);
        let core = os::preserving_errno(|| sys.map(len, align, Pages::Plain)).ok()?.cast::<Self>();
        map::keep_small();
        let header = HeapHeader::new(abandon::<S>, reset_after_fork::<S>);
        let central = Central::new(sys.clone(), &options, reserve.as_usize(), header.id);
        // SAFETY: the mapping is large enough, aligned and without other users.
        unsafe {
            core.write(Self { header, options, central: UnsafeCell::new(central) });
        }
        // A thread cache stores a pointer to the header, from which `abandon` derives one to the
        // core.
        core.as_ptr().expose_provenance();
        Some(core)
    }

    /// Unmaps the core and all memory of the heap.
    ///
    /// # Safety
    /// It was made by `map` with `sys`, is retired if it was enrolled, and has no users, nor do
    /// objects allocated from it.
    pub(super) unsafe fn unmap(core: NonNull<Self>, sys: &S) {
        let (len, align) = Self::len(sys);
        // SAFETY: by contract. Dropping the central part unmaps the chunks.
        unsafe {
            core.drop_in_place();
            sys.unmap(core.cast(), len, align);
        }
    }

    /// Locks the shared state.
    pub(super) fn central(&self) -> Guard<'_, S> {
        Guard { core: self, _held: self.header.lock.lock() }
    }

    /// Takes an object of this class when the bin is empty; `None` if there is no memory.
    ///
    /// # Safety
    /// `cache` is the calling thread's, of this heap.
    #[cold]
    pub(super) unsafe fn take_slowly(
        &self,
        cache: &ThreadCache,
        class: usize,
    ) -> Option<NonNull<u8>> {
        let empty = EmptySpans::new();
        // SAFETY: the calling thread's own cache.
        unsafe {
            // It may be a different cache from the one that was empty.
            if let Some(start) = NonNull::new(cache.take::<false>(class)) {
                return Some(start);
            }
            if cache.borrows() && !self.header.own(cache) {
                return self.borrow(cache, class);
            }
            let filled = cache.refill(class, &empty);
            // Before a new span is taken: if memory is short, these spans provide it.
            self.put_all(&empty);
            if !filled {
                self.new_span(&mut self.central(), cache, class)?;
                cache.refill(class, &empty);
                self.put_all(&empty);
            }
            NonNull::new(cache.take::<false>(class))
        }
    }

    /// Takes a span for a large object; `None` if there is no memory.
    pub(super) fn take_large(&self, units: usize, align: usize) -> Option<*mut Span> {
        let mut central = self.central();
        central.take(units, align).or_else(|| {
            self.collect_lender(&mut central).then(|| central.take(units, align)).flatten()
        })
    }

    /// Adopts spans with free objects of ended threads or of the lender, or takes a new one.
    ///
    /// # Safety
    /// The caller owns `cache`, a cache of this heap.
    pub(super) unsafe fn new_span(
        &self,
        central: &mut Central<S>,
        cache: &ThreadCache,
        class: usize,
    ) -> Option<()> {
        /// Abandoned caches scanned per span: there may be thousands.
        const SCANS: usize = 4;
        let empty = EmptySpans::new();
        // SAFETY: abandoned caches and the lender belong to the holder of the lock.
        let lender = unsafe { self.header.lender_if_any().as_ref() };
        let lender = lender.filter(|&lender| !ptr::eq(lender, cache));
        // SAFETY: as above.
        let abandoned = (0..SCANS).map_while(|_| unsafe { self.header.next_abandoned() });
        for other in abandoned.chain(lender) {
            // SAFETY: as above.
            unsafe {
                other.collect_remote(&empty);
                Self::put_into(central, &empty);
                if cache.adopt(other, class) {
                    return Some(());
                }
            }
        }
        let span = central.take(class::units_of_class(class), 1)?;
        // SAFETY: a span without an owner.
        cache.begin(class, unsafe { &*span });
        Some(())
    }

    /// Completes a free by the owner of the span.
    ///
    /// # Safety
    /// As for [`Self::take_slowly`]; `cache` owns the span.
    #[cold]
    pub(super) unsafe fn freed(&self, cache: &ThreadCache, span: *mut Span, address: usize) {
        if !ptr::eq(cache.header.get(), &raw const self.header) {
            misuse::end(Call::Free, address, Misuse::Foreign);
        }
        // SAFETY: by contract.
        if let Some(empty) = unsafe { cache.after_free(&*span) } {
            self.central().put(empty);
        }
    }

    /// Frees the unused objects that `cache` holds.
    ///
    /// # Safety
    /// As for [`Self::take_slowly`].
    pub(super) unsafe fn flush(&self, cache: &ThreadCache) {
        let empty = EmptySpans::new();
        // SAFETY: by contract.
        unsafe {
            cache.flush(&empty);
            self.put_all(&empty);
        }
    }

    /// Frees the unused objects of ended threads and of the lender.
    pub(super) fn collect_abandoned(&self) {
        let empty = EmptySpans::new();
        let mut central = self.central();
        // SAFETY: abandoned caches and the lender belong to the holder of the lock.
        unsafe {
            let mut next = self.header.abandoned.get();
            while let Some(cache) = next.as_ref() {
                next = cache.next.get();
                cache.flush(&empty);
            }
            if let Some(lender) = self.header.lender_if_any().as_ref() {
                lender.flush(&empty);
            }
            Self::put_into(&mut central, &empty);
        }
    }

    /// Frees empty spans.
    ///
    /// # Safety
    /// The caller owned the spans.
    unsafe fn put_all(&self, empty: &EmptySpans) {
        if !empty.is_empty() {
            // SAFETY: by contract.
            unsafe { Self::put_into(&mut self.central(), empty) };
        }
    }

    /// Frees empty spans under the lock.
    ///
    /// # Safety
    /// As for [`Self::put_all`].
    pub(super) unsafe fn put_into(central: &mut Central<S>, empty: &EmptySpans) {
        // SAFETY: by contract.
        while let Some(span) = unsafe { empty.pop() } {
            central.put(span);
        }
    }

    /// Frees a large object.
    ///
    /// # Safety
    /// By contract of the caller it is not used again.
    pub(super) unsafe fn free_large(&self, span: *mut Span, address: usize) {
        let mut central = self.central();
        // Another thread may have freed it since the lookup.
        //
        // SAFETY: descriptions in a chunk's head live as long as the chunk.
        if !unsafe { (*span).is_large() } {
            drop(central);
            misuse::end(Call::Free, address, Misuse::Unused);
        }
        central.put(span);
    }
}

/// Takes over the cache of an ending thread, under the registry's and the heap's lock.
///
/// # Safety
/// `header` is the first field of a `Core<S>`, and `cache` is that thread's.
unsafe fn abandon<S: Sys>(header: *const HeapHeader, cache: &ThreadCache) {
    let empty = EmptySpans::new();
    // SAFETY: by contract; a `Core` begins with its header, and the lock of the central part is
    // held.
    unsafe {
        let core = &*header.cast::<Core<S>>();
        let central = &mut *core.central.get();
        if cache.borrows() {
            core.collect_lender(central);
        } else {
            cache.flush(&empty);
            Core::put_into(central, &empty);
        }
    }
}

/// Resets the central part in a child, under the heap's lock.
///
/// # Safety
/// `header` is the first field of a `Core<S>`.
unsafe fn reset_after_fork<S: Sys>(header: *const HeapHeader) {
    // SAFETY: by contract; a `Core` begins with its header, and the lock of the central part is
    // held.
    unsafe { (*(*header.cast::<Core<S>>()).central.get()).reset_after_fork() };
}
