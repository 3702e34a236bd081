//! Heap as Rust's allocator, of a whole program or of one collection.
//!
//! # Safety
//! Both traits require what a heap provides: memory of the layout, without other users until it is
//! freed.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};

use super::Heap;
use crate::Sys;

// SAFETY: see the module. It does not unwind, and never allocates from the global allocator.
unsafe impl<S: Sys> GlobalAlloc for Heap<S> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.allocate_zeroed(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }
    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(NonNull::new_unchecked(start)) };
    }
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, also for the size.
        unsafe {
            let layout = Layout::from_size_align_unchecked(new_size, layout.align());
            let moved = self.reallocate(NonNull::new_unchecked(start), layout);
            moved.map_or(ptr::null_mut(), NonNull::as_ptr)
        }
    }
}

/// Allocator of one collection: `Vec::new_in(&heap)`.
#[cfg(feature = "allocator-api2")]
mod api2 {
    use allocator_api2::alloc::{AllocError, Allocator};

    use super::{Heap, Layout, NonNull, Sys};

    fn slice(start: Option<NonNull<u8>>, len: usize) -> Result<NonNull<[u8]>, AllocError> {
        start.map(|start| NonNull::slice_from_raw_parts(start, len)).ok_or(AllocError)
    }

    // SAFETY: see the module. Memory does not move with the heap, and lives until the heap is
    // dropped.
    unsafe impl<S: Sys> Allocator for Heap<S> {
        #[inline]
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(self.allocate(layout), layout.size())
        }
        #[inline]
        fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(self.allocate_zeroed(layout), layout.size())
        }
        #[inline]
        unsafe fn deallocate(&self, start: NonNull<u8>, _layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { self.deallocate(start) };
        }
        unsafe fn grow(
            &self,
            start: NonNull<u8>,
            _old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's promise.
            slice(unsafe { self.reallocate(start, new) }, new.size())
        }
        unsafe fn grow_zeroed(
            &self,
            start: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's promise; the new part follows the old one.
            unsafe {
                let moved = slice(self.reallocate(start, new), new.size())?;
                moved.cast::<u8>().add(old.size()).write_bytes(0, new.size() - old.size());
                Ok(moved)
            }
        }
        unsafe fn shrink(
            &self,
            start: NonNull<u8>,
            _old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: the caller's promise.
            slice(unsafe { self.reallocate(start, new) }, new.size())
        }
    }
}
