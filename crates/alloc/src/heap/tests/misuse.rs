//! Tests of misuse with two heaps in one process. Misuse of one heap: see the tests of the
//! preloaded library.
//!
//! # Safety
//! Calls that break a contract run in a child that aborts; all else is allocated and freed once.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::super::Heap;
use super::fork::status;
use super::layout;
use crate::{Chain, Options};

fn heaps() -> [Heap; 2] {
    [(); 2].map(|()| Heap::new(Options::new(Chain::only(crate::Backing::Base))))
}

/// Returns whether a child that runs `work` ends by SIGABRT.
fn aborts<T>(work: impl FnOnce() -> T) -> bool {
    let status = status(|| drop(work()));
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT
}

#[test]
#[cfg_attr(miri, ignore = "no fork")]
fn objects_of_another_heap_are_misuse() {
    let [own, other] = heaps();
    let of = |heap: &Heap, layout: Layout| heap.allocate(layout).unwrap();
    let in_use: Vec<NonNull<u8>> = [&own, &other].map(|heap| of(heap, layout(1 << 20, 1))).into();
    for size in [1 << 20, 20 << 20] {
        let object = of(&own, layout(size, 1));
        // SAFETY: misuse on purpose, in children that abort.
        unsafe {
            assert!(aborts(|| other.deallocate(object)), "{size} bytes");
            assert!(aborts(|| other.reallocate(object, layout(2 * size, 1))), "{size} bytes");
            assert!(aborts(|| other.usable_size(object)), "{size} bytes");
            assert!(!aborts(|| own.deallocate(object)), "{size} bytes");
            own.deallocate(object);
        }
    }
    let small = of(&own, layout(48, 1));
    // SAFETY: misuse on purpose, in a child.
    assert!(aborts(|| unsafe { other.usable_size(small) }));
    assert_eq!(in_use.len(), 2);
}
