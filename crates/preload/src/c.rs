//! Allocation functions of C.
//!
//! # Safety
//! Each function implements the C standard, POSIX or the manual of the C library, and requires of
//! its caller what they require: memory is freed once, to these functions. They replace those of
//! the C library in the whole process, so no memory of another allocator arrives here. None unwinds
//! or allocates elsewhere.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_alloc::{AllocError, Heap};
use libc::{c_int, c_void, size_t};

use crate::environment::{self, PAGES, print_line};

/// Heap of the process.
pub(crate) static HEAP: Heap = Heap::lazy(environment::options);

/// Alignment of every object, in bytes.
const ALIGN: usize = 16;

fn fail(errno: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() = errno };
    ptr::null_mut()
}

fn answer(start: Option<NonNull<u8>>) -> *mut c_void {
    match start {
        Some(start) => start.as_ptr().cast(),
        None => no_memory(),
    }
}

#[cold]
fn no_memory() -> *mut c_void {
    report_refusal();
    fail(libc::ENOMEM)
}

/// Prints, once, why the backings of the user have no memory: programs only say that there is none.
fn report_refusal() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let Some(error) = HEAP.refused() else { return };
    // Another backing has memory whenever the machine has some.
    let options = HEAP.requested();
    let is_pool_only = options.chain.backings().iter().all(|one| one.pool_page().is_some());
    let is_of_backing = !matches!(error, AllocError::Map { .. } | AllocError::Overflow { .. });
    if is_pool_only && is_of_backing && !REPORTED.swap(true, Relaxed) {
        print_line(format_args!("no memory: {error}"));
        if let Some(help) = error.help() {
            print_line(format_args!(
                "help: {help}; or a backing to fall back to: {PAGES}=hugetlb-2m,thp,base"
            ));
        }
    }
}

/// Creates a layout; `None` above the largest object size.
fn layout(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size, align).ok()
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    match HEAP.allocate_ready(size) {
        Some(start) => start.as_ptr().cast(),
        None => malloc_slowly(size),
    }
}

/// Continues `malloc`. A C function does not unwind, so `malloc` needs no stack frame for it.
#[cold]
extern "C" fn malloc_slowly(size: size_t) -> *mut c_void {
    answer(layout(size, ALIGN).and_then(|layout| HEAP.allocate_slowly(layout)))
}

/// Frees memory; ignores null. Keeps `errno`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(start: *mut c_void) {
    // SAFETY: the caller's promise; the heap handles null.
    unsafe { HEAP.deallocate_or_null(start.cast()) };
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let layout = count.checked_mul(size).and_then(|size| layout(size, ALIGN));
    answer(layout.and_then(|layout| HEAP.allocate_zeroed(layout)))
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(start: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(old) = NonNull::new(start.cast::<u8>()) else { return malloc(size) };
        if size == 0 {
            free(start);
            return ptr::null_mut();
        }
        answer(layout(size, ALIGN).and_then(|layout| HEAP.reallocate(old, layout)))
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    start: *mut c_void,
    count: size_t,
    size: size_t,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(size) => unsafe { realloc(start, size) },
        None => no_memory(),
    }
}

fn aligned(align: usize, size: usize) -> Option<NonNull<u8>> {
    HEAP.allocate(layout(size, align.max(ALIGN))?)
}

/// Returns the error, and does not change `errno`.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: size_t,
    size: size_t,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    match aligned(align, size) {
        Some(start) => {
            // SAFETY: the caller's promise.
            unsafe { place.write(start.as_ptr().cast()) };
            0
        }
        None => {
            report_refusal();
            libc::ENOMEM
        }
    }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    if align.is_power_of_two() { answer(aligned(align, size)) } else { fail(libc::EINVAL) }
}

/// Rounds up an alignment that is not a power of two.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => answer(aligned(align, size)),
        None => fail(libc::EINVAL),
    }
}

fn page() -> usize {
    // SAFETY: takes no pointer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    answer(aligned(page(), size))
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    answer(size.checked_next_multiple_of(page()).and_then(|size| aligned(page(), size)))
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(start: *mut c_void) -> size_t {
    // SAFETY: the caller's promise.
    NonNull::new(start.cast()).map_or(0, |start| unsafe { HEAP.usable_size(start) })
}

/// Frees all unused memory in whole 2 MiB, and ignores `keep`. Returns 1 if there was any.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(_keep: size_t) -> c_int {
    c_int::from(HEAP.trim().get() > 0)
}

/// Reports mapped bytes of chunks in `arena` and bytes in use of them in `uordblks`; large objects
/// in `hblks` and `hblkhd`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let stats = HEAP.stats();
    // Other threads may change the numbers during the count.
    let chunks = stats.mapped.as_usize().saturating_sub(stats.large.bytes.as_usize());
    let large = stats.large.bytes.as_usize();
    let small = stats.allocated.as_usize().saturating_sub(large);
    // SAFETY: plain numbers, for which zeros are valid.
    let mut info: libc::mallinfo2 = unsafe { std::mem::zeroed() };
    info.arena = chunks;
    info.uordblks = small;
    info.fordblks = chunks.saturating_sub(small);
    info.hblks = usize::try_from(stats.large.count).unwrap_or(usize::MAX);
    info.hblkhd = stats.large.bytes.as_usize();
    info.keepcost = stats.idle.as_usize();
    info
}
