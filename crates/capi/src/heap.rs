//! Heaps for C: `hugepilot_heap` is a [`Heap`].
//!
//! # Safety
//! Memory is raw, and the caller's from alloc to free, which the header asks to be done once and on the same heap. A heap ends
//! when nobody uses it or what came from it.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use hugepilot_alloc::{AllocError, Backing, Chain, Heap, HeapStats, Options};

use crate::arena::layout;
use crate::error::{Failure, made, status};
use crate::handle;
use crate::options::RawOptions;
use crate::region::{ANSWER, RawPageUsage};

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

/// Why `heap` has nothing of that layout.
fn refusal(heap: &Heap, size: usize) -> Failure {
    // Without a core it has no reason either: there was no memory for the first page.
    heap.refused().map_or(Failure::NoMemory, |error| for_all_of(size, error).into())
}

/// A heap takes pages of a pool one by one, and is refused one: whoever raises the pool shall know how many `size` bytes take.
fn for_all_of(size: usize, mut error: AllocError) -> AllocError {
    if let AllocError::PoolEmpty { page, wanted, .. } = &mut error {
        *wanted = (size as u64).div_ceil(page.get()).max(*wanted);
    }
    error
}

/// As the header says.
///
/// # Safety
/// The texts in `options` are NULL or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_new(options: Option<&RawOptions>) -> *mut Heap {
    // SAFETY: the caller's promise.
    let options = unsafe { RawOptions::read(options) };
    made(options.and_then(|options| handle::give(Heap::new(options))))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_thp() -> *const Heap {
    &raw const THP
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_hugetlb() -> *const Heap {
    &raw const HUGETLB
}

/// As the header says.
///
/// # Safety
/// `heap` is NULL or a handle of `hugepilot_heap_new`, and neither it nor its memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hugepilot_heap_delete(heap: *mut Heap) {
    // SAFETY: the caller's promise.
    unsafe { handle::end(heap) };
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_alloc(heap: Option<&Heap>, size: usize, align: usize) -> *mut u8 {
    let alloc = || {
        let heap = heap.ok_or(HEAP)?;
        let start = heap.allocate(layout(size, align)?).ok_or_else(|| refusal(heap, size))?;
        Ok(start.as_ptr())
    };
    made(alloc())
}

/// As the header says.
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
        Ok(moved.ok_or_else(|| refusal(heap, size))?.as_ptr())
    };
    made(realloc())
}

/// As the header says.
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

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_trim(heap: Option<&Heap>) -> usize {
    heap.map_or(0, |heap| heap.trim().as_usize())
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_stats(
    heap: Option<&Heap>,
    stats: Option<&mut MaybeUninit<RawStats>>,
) -> c_int {
    let count = || {
        stats.ok_or(ANSWER)?.write(heap.ok_or(HEAP)?.stats().into());
        Ok(())
    };
    status(count())
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn hugepilot_heap_usage(
    heap: Option<&Heap>,
    usage: Option<&mut MaybeUninit<RawPageUsage>>,
) -> c_int {
    let look = || {
        let (heap, usage) = (heap.ok_or(HEAP)?, usage.ok_or(ANSWER)?);
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
