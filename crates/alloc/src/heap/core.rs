//! What a heap's threads share: its chunks, what of them is free, and the things too large for a chunk.
//!
//! # Safety
//! A `Core` lies in a mapping of its own, so that it stays where it is when its [`Heap`](super::Heap) moves. [`Central`] is
//! reached under the lock only. A span that is given back is used by nobody, and has left its owner's queues.
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

/// The part of a heap that all its threads use.
#[repr(C)]
pub(super) struct Core<S: Sys> {
    /// First, because what a thread leaves at its end knows no more of the heap than this.
    pub(super) header: HeapHeader,
    pub(super) options: Options,
    central: UnsafeCell<Central<S>>,
}

/// The lock is held, and opens this.
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
        // SAFETY: the lock is held, and `&mut self` is the only way through this guard.
        unsafe { &mut *self.core.central.get() }
    }
}

impl<S: Sys> Core<S> {
    fn len(sys: &S) -> (usize, usize) {
        let base = sys.sizes().base.as_usize();
        (size_of::<Self>().next_multiple_of(base), base.max(align_of::<Self>()))
    }

    /// Maps and makes one; `None` where there is no memory.
    pub(super) fn map(sys: &S, options: Options, reserve: Bytes) -> Option<NonNull<Self>> {
        // A thread of a child that ends gives back what it had, so that must be there.
        let options = Options { fork: Fork::Inherit, ..options };
        let (len, align) = Self::len(sys);
        let core = os::preserving_errno(|| sys.map(len, align, Pages::Plain)).ok()?.cast::<Self>();
        map::keep_small();
        let header = HeapHeader::new(abandon::<S>, reset_after_fork::<S>);
        let central = Central::new(sys.clone(), &options, reserve.as_usize(), header.id);
        // SAFETY: the mapping is large enough, aligned and ours.
        unsafe {
            core.write(Self { header, options, central: UnsafeCell::new(central) });
        }
        // A local knows its shared part only, from which `abandon` comes back to all of it.
        core.as_ptr().expose_provenance();
        Some(core)
    }

    /// Unmaps it, and all memory of the heap.
    ///
    /// # Safety
    /// It was made by `map` with `sys`, nobody uses it or anything allocated from it, and it has been retired if it was
    /// enrolled.
    pub(super) unsafe fn unmap(core: NonNull<Self>, sys: &S) {
        let (len, align) = Self::len(sys);
        // SAFETY: by contract. The chunks go with the central part.
        unsafe {
            core.drop_in_place();
            sys.unmap(core.cast(), len, align);
        }
    }

    /// Opens what is shared.
    pub(super) fn central(&self) -> Guard<'_, S> {
        Guard { core: self, _held: self.header.lock.lock() }
    }

    /// The next object of that class where the bin has none; `None` where there is no memory.
    ///
    /// # Safety
    /// `local` is the calling thread's, of this heap.
    #[cold]
    pub(super) unsafe fn take_slowly(
        &self,
        cache: &ThreadCache,
        class: usize,
    ) -> Option<NonNull<u8>> {
        let empty = EmptySpans::new();
        // SAFETY: the calling thread's local.
        unsafe {
            // It may be another than the one that was looked at before.
            if let Some(start) = NonNull::new(cache.take(class)) {
                return Some(start);
            }
            let filled = cache.refill(class, &empty);
            // Before a new span is asked for: where memory is short it is made of these.
            self.put_all(&empty);
            if !filled {
                self.new_span(cache, class)?;
                cache.refill(class, &empty);
                self.put_all(&empty);
            }
            NonNull::new(cache.take(class))
        }
    }

    /// Spans with free objects, of threads that have ended, or else a new one.
    ///
    /// # Safety
    /// As for [`Self::take_slowly`].
    unsafe fn new_span(&self, cache: &ThreadCache, class: usize) -> Option<()> {
        /// Locals looked at for each span: there may be thousands.
        const LOOKS: usize = 4;
        let empty = EmptySpans::new();
        let mut central = self.central();
        for _ in 0..LOOKS {
            // SAFETY: what is abandoned belongs to the holder of the lock.
            unsafe {
                let Some(other) = self.header.next_abandoned() else { break };
                other.collect_remote(&empty);
                while let Some(span) = empty.pop() {
                    central.put(span);
                }
                if cache.adopt(other, class) {
                    return Some(());
                }
            }
        }
        let span = central.take(class::units_of_class(class), 1)?;
        // SAFETY: a span in nobody's hands.
        cache.begin(class, unsafe { &*span });
        Some(())
    }

    /// After a thread freed the object at `address` of a span that is its own.
    ///
    /// # Safety
    /// As for [`Self::take_slowly`]; the span is `local`'s.
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

    /// Gives back what `local` holds ready and does not need.
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

    /// Takes back what was freed of threads that have ended.
    pub(super) fn collect_abandoned(&self) {
        let empty = EmptySpans::new();
        let mut central = self.central();
        // SAFETY: what is abandoned belongs to the holder of the lock.
        unsafe {
            let mut next = self.header.abandoned.get();
            while let Some(cache) = next.as_ref() {
                next = cache.next.get();
                cache.flush(&empty);
            }
            while let Some(span) = empty.pop() {
                central.put(span);
            }
        }
    }

    /// # Safety
    /// The spans were the caller's.
    unsafe fn put_all(&self, empty: &EmptySpans) {
        if empty.is_empty() {
            return;
        }
        let mut central = self.central();
        // SAFETY: by contract.
        while let Some(span) = unsafe { empty.pop() } {
            central.put(span);
        }
    }

    /// Frees a large thing.
    ///
    /// # Safety
    /// By contract of the caller nobody uses it any more.
    pub(super) unsafe fn free_large(&self, span: *mut Span, address: usize) {
        let mut central = self.central();
        // Another thread may have freed it since it was looked up.
        // SAFETY: descriptions in a chunk's head are there while the chunk is.
        if !unsafe { (*span).is_large() } {
            drop(central);
            misuse::end(Call::Free, address, Misuse::Unused);
        }
        central.put(span);
    }
}

/// Takes what a thread that ends leaves, under the pool's and the heap's lock.
///
/// # Safety
/// `shared` is the first part of a `Core<S>`, and `local` is that thread's.
unsafe fn abandon<S: Sys>(header: *const HeapHeader, cache: &ThreadCache) {
    let empty = EmptySpans::new();
    // SAFETY: by contract; a `Core` begins with its shared part, and the lock that opens the rest is held.
    unsafe {
        let central = &mut *(*header.cast::<Core<S>>()).central.get();
        cache.flush(&empty);
        while let Some(span) = empty.pop() {
            central.put(span);
        }
    }
}

/// Begins what the lock guards anew, in a child, under that lock.
///
/// # Safety
/// `shared` is the first part of a `Core<S>`.
unsafe fn reset_after_fork<S: Sys>(header: *const HeapHeader) {
    // SAFETY: by contract; a `Core` begins with its shared part, and the lock that opens the rest is held.
    unsafe { (*(*header.cast::<Core<S>>()).central.get()).reset_after_fork() };
}
