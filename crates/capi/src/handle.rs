//! Handles: Rust values that C holds by pointer.
//!
//! # Safety
//! A handle is a box. The header requires that the caller frees each handle once.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc};
use std::ptr;

use crate::error::Failure;

/// Moves `value` into a handle. Returns an error if `malloc` has no memory, unlike `Box::new`.
pub(crate) fn new<T>(value: T) -> Result<*mut T, Failure> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the layout has a size.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(Failure::NoMemory);
    }
    // SAFETY: memory of the layout of `T`, without other users.
    unsafe { place.write(value) };
    Ok(place)
}

/// Drops a handle; ignores NULL.
///
/// # Safety
/// `handle` is NULL or came from `new`, and is not used again.
pub(crate) unsafe fn drop<T>(handle: *mut T) {
    if !ptr::eq(handle, ptr::null()) {
        // SAFETY: `new` made it like a box: from the global allocator, with this layout.
        std::mem::drop(unsafe { Box::from_raw(handle) });
    }
}
