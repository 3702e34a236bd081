//! Handles: values of ours that C holds by pointer.
//!
//! # Safety
//! A handle is a box. It is given out once and taken back once, which the header asks of the caller.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc};
use std::ptr;

use crate::error::Failure;

/// `value`, from now on the caller's. Where `malloc` has no more, that is an error, unlike with `Box::new`.
pub(crate) fn give<T>(value: T) -> Result<*mut T, Failure> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the layout has a size.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(Failure::NoMemory);
    }
    // SAFETY: memory of the layout of `T`, ours alone.
    unsafe { place.write(value) };
    Ok(place)
}

/// Ends what `give` gave; NULL is nothing.
///
/// # Safety
/// `handle` is NULL or came from `give`, and is not used again.
pub(crate) unsafe fn end<T>(handle: *mut T) {
    if !ptr::eq(handle, ptr::null()) {
        // SAFETY: `give` made it as a box is made: from the global allocator, with this layout.
        drop(unsafe { Box::from_raw(handle) });
    }
}
