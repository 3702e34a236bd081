//! Resizing and measuring of objects.
//!
//! # Safety
//! The caller's object is in use until it is freed here, after its contents were copied.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

use super::allocation::Allocation;
use super::class::{self, UNIT};
use super::misuse::Call;
use super::{Heap, MAX_IN_CHUNK, chunk};
use crate::Sys;

impl<S: Sys> Heap<S> {
    /// Resizes memory to `layout`, in place or by moving it, and keeps the contents that fit.
    ///
    /// Shrinking frees the excess in whole 2 MiB. `None` if there is no memory; the memory is then
    /// unchanged.
    ///
    /// # Safety
    /// As for [`Self::deallocate`], unless it returns `None`.
    pub unsafe fn reallocate(&self, start: NonNull<u8>, layout: Layout) -> Option<NonNull<u8>> {
        let address = start.as_ptr().addr();
        // SAFETY: by contract.
        let allocation = unsafe { self.allocation_at(address, Call::Resize) };
        let usable = allocation.size();
        let (size, is_aligned) = (layout.size(), address.is_multiple_of(layout.align()));
        // A small object does not keep a much larger place, and a needless huge page is freed.
        let fits = is_aligned && size <= usable && size >= usable / 2;
        if fits && usable - size < chunk::PAGE {
            return Some(start);
        }
        if is_aligned && size > class::MAX_SMALL {
            // SAFETY: by contract; an object in use has a span.
            let is_done = unsafe {
                match allocation {
                    Allocation::Huge(_) if size > usable && layout.align() <= chunk::CHUNK => {
                        return self.grow_huge(address, size);
                    }
                    Allocation::Huge(_) => {
                        size <= usable && size > chunk::PAGE && self.shrink_huge(address, size)
                    }
                    Allocation::Large(span) if size <= MAX_IN_CHUNK => {
                        self.core()?.central().resize(&*span, size.div_ceil(UNIT))
                    }
                    Allocation::Large(_) | Allocation::Small(_) => false,
                }
            };
            if is_done {
                return Some(start);
            }
        }
        if fits {
            return Some(start);
        }
        let moved = self.allocate(layout)?;
        // SAFETY: both have that length and do not overlap; by contract the old one may be freed.
        unsafe {
            moved.copy_from_nonoverlapping(start, usable.min(size));
            self.deallocate(start);
        }
        Some(moved)
    }

    /// Returns the usable bytes, at least the requested size.
    ///
    /// # Safety
    /// This heap allocated it.
    pub unsafe fn usable_size(&self, start: NonNull<u8>) -> usize {
        // SAFETY: by contract.
        unsafe { self.allocation_at(start.as_ptr().addr(), Call::Size) }.size()
    }
}
