//! Lender: the cache that owns the spans of all threads beyond the first few.
//!
//! A thread that owns spans holds at least 64 KiB for each size class that it uses, and keeps them
//! while it sleeps. So only the first threads own spans, as many as the CPUs can keep busy. Further
//! ones borrow: such a thread has bins of at most [`LENT`] bytes or one object, filled from the
//! lender under the heap's lock. It puts a borrowed object that it frees back into its bin, or
//! returns it like an object of another thread. It owns spans once there is a place.
//!
//! # Safety
//! The lender belongs to the holder of its heap's lock. The bins of a borrower belong to its
//! thread.
#![allow(unsafe_code)]

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use super::central::Central;
use super::class::{UNIT, size_of_class};
use super::core::Core;
use super::misuse::{self, Call, Misuse};
use super::span::{self, Block, Span};
use super::thread_cache::{EmptySpans, ThreadCache};
use super::{chunk, mark};
use crate::Sys;

/// Bytes of one class to lend at a time, and to keep; at least one object of up to a quarter of a
/// unit.
const LENT: usize = 1024;

/// Returns the number of objects that a bin of a borrower keeps.
fn lent_at_most(class: usize) -> u32 {
    let size = size_of_class(class);
    #[allow(clippy::cast_possible_truncation)] // at most 64
    let count = (LENT / size) as u32;
    count.max(u32::from(size <= UNIT / 4))
}

/// Returns the most threads of a heap that own spans, of which each allocates without a lock.
pub(super) fn most_owners() -> usize {
    (4 * super::os::cpus()).max(16)
}

impl ThreadCache {
    /// Whether its thread borrows.
    pub(super) fn borrows(&self) -> bool {
        !self.lender.get().is_null()
    }

    /// Makes the calling thread, which owns this cache, borrow from `lender`, unless that is null.
    pub(super) fn borrow_from(&self, lender: *mut Self) {
        self.lender.set(lender);
        super::slot::get().lender.set(lender);
    }

    /// Puts a borrowed object that its thread frees into the bin. Returns `false` if the bin is
    /// full.
    ///
    /// # Safety
    /// The caller owns the cache and is the last user of the object, which is one of the span, and
    /// the span is the lender's.
    unsafe fn keep(&self, span: &Span, address: usize) -> bool {
        // The heap of a cache without an ID is gone, and its lender may be in use elsewhere.
        if self.id.load(Relaxed) == 0 {
            return false;
        }
        let block = ptr::with_exposed_provenance_mut::<Block>(address);
        // SAFETY: an object of a heap.
        if unsafe { mark::is_on(block) } {
            misuse::end(Call::Free, address, Misuse::Free { size: span.object_size() });
        }
        let class = usize::from(span.class.get());
        let has_room = self.ready_of(class) < lent_at_most(class);
        if has_room {
            // SAFETY: by contract.
            unsafe { self.add(class, block) };
        }
        has_room
    }

    /// Returns all objects of the bins to their spans.
    ///
    /// # Safety
    /// The caller owns the cache, whose thread borrows.
    pub(super) unsafe fn give_back<const LOCKED: bool>(&self) {
        for class in 0..super::class::CLASSES {
            // SAFETY: free objects that this cache holds, each returned once.
            unsafe {
                while let Some(start) = NonNull::new(self.take::<LOCKED>(class)) {
                    let address = start.as_ptr().addr();
                    span::return_object::<LOCKED>(chunk::span_of(address), address);
                }
            }
        }
    }
}

/// Frees a borrowed object. A C function does not unwind.
///
/// # Safety
/// The span has the object, which is not used again, and the lender of the calling thread's slot.
pub(super) unsafe extern "C" fn free_borrowed(span: *mut Span, address: usize) {
    // SAFETY: a slot with a lender has a cache, the calling thread's own; the rest by contract.
    unsafe {
        if !(*super::slot::get().cache.get()).keep(&*span, address) {
            span::free_elsewhere(span, address);
        }
    }
}

impl<S: Sys> Core<S> {
    /// Takes an object for a thread that borrows, and fills its bin; `None` if there is no memory.
    ///
    /// # Safety
    /// `cache` is the calling thread's, of this heap.
    pub(super) unsafe fn borrow(&self, cache: &ThreadCache, class: usize) -> Option<NonNull<u8>> {
        let lender = self.header.lender()?;
        let mut central = self.central();
        cache.borrow_from(lender);
        // SAFETY: the lender is owned by the holder of the lock, and is never unmapped.
        unsafe {
            let lender = &*lender;
            let first = NonNull::new(lender.take::<true>(class))
                .or_else(|| self.fill(&mut central, lender, class))?;
            for _ in 1..lent_at_most(class) {
                let Some(more) = NonNull::new(lender.take::<true>(class)) else { break };
                cache.add(class, more.as_ptr().cast());
            }
            Some(first)
        }
    }

    /// Takes an object of the lender, whose bin is empty.
    ///
    /// # Safety
    /// The lender belongs to the caller, which holds the lock.
    unsafe fn fill(
        &self,
        central: &mut Central<S>,
        lender: &ThreadCache,
        class: usize,
    ) -> Option<NonNull<u8>> {
        let empty = EmptySpans::new();
        // SAFETY: by contract.
        unsafe {
            let filled = lender.refill(class, &empty);
            if !filled {
                // Before a new span is taken: if memory is short, these spans provide it.
                Self::put_into(central, &empty);
                self.collect_lender(central);
                self.new_span(central, lender, class)?;
                lender.refill(class, &empty);
            }
            Self::put_into(central, &empty);
            NonNull::new(lender.take::<true>(class))
        }
    }

    /// Frees spans of the lender that other threads emptied. Returns whether there is a lender.
    pub(super) fn collect_lender(&self, central: &mut Central<S>) -> bool {
        let empty = EmptySpans::new();
        // SAFETY: the lender belongs to the holder of the lock, which guards `central`.
        unsafe {
            let Some(lender) = self.header.lender_if_any().as_ref() else { return false };
            lender.collect_remote(&empty);
            Self::put_into(central, &empty);
        }
        true
    }
}
