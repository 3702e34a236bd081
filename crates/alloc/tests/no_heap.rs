//! Tests that regions never allocate from the global allocator, which can therefore be built on
//! them.
//!
//! # Safety
//! The allocator of this test passes every call on to the system's, and counts.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hugepilot_alloc::{Backing, Fork, Heap, HugeRegion, Label, Options};
use hugepilot_units::Bytes;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Counts the calls to the global allocator that `work` makes on this thread.
fn calls(work: impl FnOnce()) -> usize {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

#[test]
fn the_count_counts() {
    assert_eq!(calls(|| drop(std::hint::black_box(Box::new(1)))), 2);
}

#[test]
fn the_life_of_a_region_is_without_the_global_allocator() {
    let chains = ["base", "thp,base", "collapse,base", "hugetlb-1g,hugetlb-2m,thp:50%,base"];
    for chain in chains {
        let options =
            Options::new(chain.parse().unwrap()).aligned(Bytes::mib(4)).forked(Fork::Absent);
        let options = Options { name: Some(Label::new("no heap").unwrap()), ..options };
        let made = calls(|| {
            let mut region = HugeRegion::map(Bytes::mib(3), &options).unwrap();
            region.prefault(1).unwrap();
            region.bytes_mut()[0] = 1;
            let _ = (region.usage(), region.collapse());
            region.grow(Bytes::mib(9), 1).unwrap();
        });
        assert_eq!(made, 0, "{chain}");
    }
}

#[test]
fn errors_are_without_it_too() {
    let made = calls(|| {
        let huge = Bytes::gib(1 << 20);
        for backing in [Backing::Base, Backing::THP, Backing::Hugetlb2M, Backing::Hugetlb1G] {
            assert!(HugeRegion::map(huge, &Options::only(backing)).is_err());
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn a_heap_is_without_it() {
    let made = calls(|| {
        let heap = Heap::new(Options::default());
        for size in [1, 1000, 100_000, 1 << 20, 20 << 20] {
            let layout = Layout::from_size_align(size, 64).unwrap();
            let larger = Layout::from_size_align(size * 2, 64).unwrap();
            // SAFETY: allocated by this heap, and freed once.
            unsafe {
                let start = heap.allocate_zeroed(layout).unwrap();
                heap.deallocate(heap.reallocate(start, larger).unwrap());
            }
        }
        let _ = (heap.stats(), heap.usage(), heap.trim(), heap.refused());
    });
    assert_eq!(made, 0);
}
