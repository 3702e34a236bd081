//! Tests of misuse with two heaps in one process. Misuse of one heap: see the tests of the
//! preloaded library.
//!
//! # Safety
//! Calls that break a contract run in a child that aborts; all else is allocated and freed once.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::super::Heap;
use super::fork::status;
use super::{layout, limit_owners};
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

#[test]
#[cfg_attr(miri, ignore = "no fork")]
fn a_second_free_of_a_borrowed_object_is_misuse() {
    let [heap, _] = heaps();
    limit_owners(&heap, 0);
    let objects: Vec<NonNull<u8>> =
        (0..100).map(|_| heap.allocate(layout(48, 1)).unwrap()).collect();
    // In the bin, behind others in the bin, and in the span because the bin was full.
    for freed in [1, 3, 60] {
        // SAFETY: misuse on purpose, in a child.
        let work = || unsafe {
            objects[..freed].iter().for_each(|&object| heap.deallocate(object));
            heap.deallocate(objects[0]);
        };
        assert!(aborts(work), "{freed} freed");
    }
    // SAFETY: allocated once, freed once.
    objects.into_iter().for_each(|object| unsafe { heap.deallocate(object) });
    assert_eq!(heap.stats().allocated.get(), 0);
}
