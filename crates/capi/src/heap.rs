//! C interface of heaps: `hugepilot_heap` is a [`Heap`].
//!
//! # Safety
//! Memory is raw, and the caller's from alloc to free. The header requires that it is freed once,
//! to the same heap, and that a deleted heap has no users.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use hugepilot_alloc::{AllocError, Backing, Chain, Heap, HeapStats, Options};

use crate::arena::layout;
use crate::error::{Failure, handle_or_null, status};
use crate::handle;
use crate::options::RawOptions;
use crate::region::{RESULT, RawPageUsage};

/// `hugepilot_stats` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the header says what they mean
pub struct RawStats {
    pub allocated_bytes: u64,
    pub held_bytes: u64,
    pub idle_bytes: u64,
    pub returned_bytes: u64,
    pub mapped_bytes: u64,
}

impl From<HeapStats> for RawStats {
    fn from(stats: HeapStats) -> Self {
        Self {
            allocated_bytes: stats.allocated.get(),
            held_bytes: stats.held.get(),
            idle_bytes: stats.idle.get(),
            returned_bytes: stats.returned.get(),
            mapped_bytes: stats.mapped.get(),
        }
    }
}

static THP: Heap = Heap::new(Options::new(Chain::THP_OR_BASE));
static HUGETLB: Heap = Heap::new(Options::only(Backing::Hugetlb2M));

const HEAP: Failure = Failure::Argument("the handle is not one of a heap");

/// Returns the cause why `heap` has no memory of this layout.
fn error_of(heap: &Heap, size: usize) -> Failure {
    // Without a core, the heap stores no error: there was no memory for its first page.
    heap.refused().map_or(Failure::NoMemory, |error| for_all_of(size, error).into())
}

/// Corrects the requested pages to those for `size` bytes: a heap takes pool pages one by one, and
/// its error counts one.
fn for_all_of(size: usize, mut error: AllocError) -> AllocError {
    if let AllocError::PoolEmpty { page, wanted, .. } = &mut error {
        *wanted = (size as u64).div_ceil(page.get()).max(*wanted);
    }
    error
}

/// Implements the function of the header.
///
/// # Safety
/// The texts in `options` are NULL or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_new(options: Option<&RawOptions>) -> *mut Heap {
    // SAFETY: the caller's promise.
    let options = unsafe { RawOptions::read(options) };
    handle_or_null(options.and_then(|options| handle::new(Heap::new(options))))
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_thp() -> *const Heap {
    &raw const THP
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_hugetlb() -> *const Heap {
    &raw const HUGETLB
}

/// Implements the function of the header.
///
/// # Safety
/// `heap` is NULL or a handle of `hugepilot_heap_new`, and neither it nor its memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_delete(heap: *mut Heap) {
    // SAFETY: the caller's promise.
    unsafe { handle::drop(heap) };
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_alloc(heap: Option<&Heap>, size: usize, align: usize) -> *mut u8 {
    let alloc = || {
        let heap = heap.ok_or(HEAP)?;
        let start = heap.allocate(layout(size, align)?).ok_or_else(|| error_of(heap, size))?;
        Ok(start.as_ptr())
    };
    handle_or_null(alloc())
}

/// Implements the function of the header.
///
/// # Safety
/// `memory` is NULL or in use, from this heap; after a success it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_realloc(
    heap: Option<&Heap>,
    memory: *mut u8,
    size: usize,
    align: usize,
) -> *mut u8 {
    let Some(start) = NonNull::new(memory) else { return hugepilot_heap_alloc(heap, size, align) };
    let realloc = || {
        let heap = heap.ok_or(HEAP)?;
        // SAFETY: the caller's promise.
        let moved = unsafe { heap.reallocate(start, layout(size, align)?) };
        Ok(moved.ok_or_else(|| error_of(heap, size))?.as_ptr())
    };
    handle_or_null(realloc())
}

/// Implements the function of the header.
///
/// # Safety
/// `memory` is NULL or in use, from this heap, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_free(heap: Option<&Heap>, memory: *mut u8) {
    if let (Some(heap), Some(start)) = (heap, NonNull::new(memory)) {
        // SAFETY: the caller's promise.
        unsafe { heap.deallocate(start) };
    }
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_trim(heap: Option<&Heap>) -> usize {
    heap.map_or(0, |heap| heap.trim().as_usize())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_stats(
    heap: Option<&Heap>,
    stats: Option<&mut MaybeUninit<RawStats>>,
) -> c_int {
    let count = || {
        stats.ok_or(RESULT)?.write(heap.ok_or(HEAP)?.stats().into());
        Ok(())
    };
    status(count())
}

/// Implements the function of the header.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_usage(
    heap: Option<&Heap>,
    usage: Option<&mut MaybeUninit<RawPageUsage>>,
) -> c_int {
    let look = || {
        let (heap, usage) = (heap.ok_or(HEAP)?, usage.ok_or(RESULT)?);
        usage.write(heap.usage()?.into());
        Ok(())
    };
    status(look())
}

#[cfg(test)]
mod tests {
    use hugepilot_alloc::{Help, Pool};
    use hugepilot_record::Errno;
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn the_fix_of_an_empty_pool_has_pages_for_all_that_was_wanted() {
        let pool = Pool { total: 3, free: 1, reserved: 0 };
        let empty = |wanted| AllocError::PoolEmpty {
            page: Bytes::mib(2),
            wanted,
            pool,
            errno: Errno::ENOMEM,
        };
        for (size, wanted, pages) in [(7 << 20, 1, 4), (16, 1, 1), (1 << 20, 9, 9)] {
            assert_eq!(for_all_of(size, empty(wanted)), empty(pages), "{size}");
        }
        let help = for_all_of(7 << 20, empty(1)).help();
        assert_eq!(help, Some(Help::ResizePool { page: Bytes::mib(2), count: 6 }));
        assert_eq!(for_all_of(9, AllocError::ThpDisabled), AllocError::ThpDisabled);
    }
}
