//! Tests of heaps on the running kernel and on a scripted one.
//!
//! # Safety
//! Each test writes only into its allocations, up to their size, and frees them once.
#![allow(unsafe_code)]

mod fork;
mod huge_cache;
mod injected;
mod misuse;
mod model;
mod pages;
mod threads;

use std::alloc::Layout;
use std::ptr::NonNull;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use super::Heap;
use crate::sys::scripted::{Call, ScriptedSys};
use crate::{Chain, Options, Setting, Sys};

/// Creates a heap on a scripted kernel with THP enabled.
fn scripted(chain: &str) -> (Heap<ScriptedSys>, ScriptedSys) {
    let sys = ScriptedSys::default();
    sys.set(Setting::ThpEnabled, "always [madvise] never");
    sys.set(Setting::Thp2MEnabled, "always [inherit] madvise never");
    (Heap::new_on(sys.clone(), Options::new(chain.parse().unwrap())), sys)
}

/// Lets at most `owners` threads own spans; further ones borrow.
fn limit_owners<S: Sys>(heap: &Heap<S>, owners: usize) {
    heap.core().unwrap().header.most_owners.store(owners, std::sync::atomic::Ordering::Relaxed);
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Number of marked places in an object; Miri is slow.
const PLACES: usize = if cfg!(miri) { 6 } else { 64 };

/// Object whose contents are checked.
#[derive(Debug)]
struct Object {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

// SAFETY: memory that only this value refers to.
unsafe impl Send for Object {}

impl Object {
    /// Allocates an object and marks it; checks for zeros if `zeroed`.
    fn new<S: Sys>(heap: &Heap<S>, layout: Layout, mark: u8, zeroed: bool) -> Option<Self> {
        let start = if zeroed { heap.allocate_zeroed(layout) } else { heap.allocate(layout) }?;
        assert!(
            start.as_ptr().addr().is_multiple_of(layout.align().max(16)),
            "{layout:?} at {start:?}"
        );
        // SAFETY: allocated just now.
        let usable = unsafe { heap.usable_size(start) };
        assert!(usable >= layout.size(), "{layout:?} has {usable}");
        let object = Self { start, layout, mark };
        if zeroed {
            assert!(
                object.places().all(|place| object.read(place) == 0),
                "{layout:?} is not zeroed"
            );
        }
        object.fill();
        Some(object)
    }

    /// Returns the marked places: all of a small object, and some of a large one, including both
    /// ends.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let (len, step) = (self.layout.size(), self.layout.size() / PLACES + 1);
        (0..len).step_by(step).chain(len.checked_sub(1))
    }
    fn read(&self, place: usize) -> u8 {
        // SAFETY: inside of the object.
        unsafe { self.start.add(place).read() }
    }
    fn fill(&self) {
        // SAFETY: inside of the object.
        self.places().for_each(|place| unsafe { self.start.add(place).write(self.mark) });
    }
    fn check(&self) {
        assert!(
            self.places().all(|place| self.read(place) == self.mark),
            "{self:?} is overwritten"
        );
    }

    /// Resizes the object and checks the contents that fit.
    fn resize<S: Sys>(&mut self, heap: &Heap<S>, size: usize) {
        let new = layout(size, self.layout.align());
        // SAFETY: allocated by this heap.
        let Some(start) = (unsafe { heap.reallocate(self.start, new) }) else {
            return self.check();
        };
        let kept = Self { start, layout: self.layout, mark: self.mark };
        assert!(
            kept.places().filter(|&place| place < size).all(|place| kept.read(place) == kept.mark)
        );
        assert!(start.as_ptr().addr().is_multiple_of(new.align()));
        *self = Self { start, layout: new, mark: self.mark };
        self.fill();
    }

    fn free<S: Sys>(self, heap: &Heap<S>) {
        self.check();
        // SAFETY: allocated by this heap, and gone with this value.
        unsafe { heap.deallocate(self.start) };
    }
}

/// Sizes on both sides of each threshold.
const SIZES: [usize; 21] = [
    0,
    1,
    16,
    17,
    128,
    129,
    1024,
    1025,
    4096,
    8192,
    8193,
    65_536,
    65_537,
    200_000,
    524_288,
    524_289,
    2 << 20,
    (8 << 20) - 1,
    8 << 20,
    (8 << 20) + 1,
    33 << 20,
];

#[test]
fn every_size_and_alignment_is_served_and_nothing_stays() {
    let (most, chains) = if cfg!(miri) { (20, 1) } else { (30, 4) };
    for chain in ["thp,base", "base", "collapse,base", "thp:50%,base"].into_iter().take(chains) {
        let (heap, sys) = scripted(chain);
        let mut live = Vec::new();
        for (i, &size) in SIZES.iter().enumerate() {
            for shift in (0..=most).step_by(if size > 65_536 || cfg!(miri) { 5 } else { 1 }) {
                let object =
                    Object::new(&heap, layout(size, 1 << shift), 1 + i as u8 * 7, shift % 2 == 0);
                live.push(object.expect("memory"));
            }
        }
        let stats = heap.stats();
        let asked: usize = live.iter().map(|object| object.layout.size()).sum();
        assert!(
            stats.allocated >= Bytes::new(asked as u64) && stats.held >= stats.allocated,
            "{stats:?}"
        );
        assert!(stats.mapped >= stats.held, "{stats:?}");
        live.into_iter().for_each(|object| object.free(&heap));
        let stats = heap.stats();
        assert_eq!(stats.allocated, Bytes::ZERO, "{stats:?}");
        heap.trim();
        let stats = heap.stats();
        assert_eq!(
            (stats.held, stats.idle, stats.mapped),
            (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
            "{stats:?}"
        );
        // Only the core is left.
        assert_eq!(sys.mappings(), 1, "{chain}");
        drop(heap);
        assert_eq!(sys.mappings(), 0, "{chain}");
    }
}

#[test]
fn small_things_are_packed_densely() {
    let (heap, _sys) = scripted("base");
    let count = if cfg!(miri) { 2048 } else { 65_536 };
    let live: Vec<_> =
        (0..count).map(|_| heap.allocate(layout(24, 8)).unwrap().as_ptr().addr()).collect();
    let mut pages: Vec<_> = live.iter().map(|address| address >> 21).collect();
    pages.sort_unstable();
    pages.dedup();
    // 2 MiB of objects, and the head of the chunk.
    assert!(pages.len() <= 2, "{} huge pages", pages.len());
}

#[test]
fn growing_bit_by_bit_keeps_what_is_there() {
    let (heap, sys) = scripted("thp,base");
    let most = if cfg!(miri) { 1 << 20 } else { 100 << 20 };
    let mut object = Object::new(&heap, layout(1, 1), 9, false).unwrap();
    let neighbour = Object::new(&heap, layout(600_000, 1), 5, false).unwrap();
    let mut size = 1;
    while size < most {
        size = size * 3 / 2 + 1;
        object.resize(&heap, size);
    }
    while size > 1 {
        size = size * 2 / 3;
        object.resize(&heap, size);
    }
    neighbour.free(&heap);
    object.free(&heap);
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
    drop(heap);
    assert_eq!(sys.mappings(), 0);
}

#[test]
fn large_things_grow_in_place_where_there_is_room() {
    let (heap, _sys) = scripted("base");
    let object = Object::new(&heap, layout(1 << 20, 1), 1, false).unwrap();
    // SAFETY: allocated by this heap.
    let same = unsafe { heap.reallocate(object.start, layout(7 << 20, 1)) };
    assert_eq!(same, Some(object.start));
    object.check();
    // SAFETY: as above.
    let same = unsafe { heap.reallocate(object.start, layout(600_000, 1)) };
    assert_eq!(same, Some(object.start), "shrunk in place");
    assert!(heap.stats().held < Bytes::mib(1));
    object.check();
}

/// Resizes an object. Returns whether it stayed in place, and the large bytes held before it is
/// freed.
fn resized(heap: &Heap<ScriptedSys>, from: usize, to: usize) -> (bool, Bytes) {
    let mut object = Object::new(heap, layout(from, 1), 3, false).unwrap();
    let start = object.start;
    object.resize(heap, to);
    object.check();
    let (in_place, held) = (object.start == start, heap.stats().large.bytes);
    object.free(heap);
    (in_place, held)
}

#[test]
#[cfg_attr(miri, ignore = "memory of the global allocator is given back in one piece")]
fn shrinking_frees_whole_huge_pages() {
    const MIB: usize = 1 << 20;
    let (heap, sys) = scripted("thp,base");
    // From, to, whether in place, and the bytes held then.
    for (from, to, in_place, held) in [
        (64 * MIB, 40 * MIB, true, Bytes::mib(40)),
        (64 * MIB, 61 * MIB, true, Bytes::mib(62)),
        (64 * MIB, 63 * MIB, true, Bytes::mib(64)),
        (64 * MIB, 5 * MIB, true, Bytes::mib(6)),
        (64 * MIB, MIB, false, Bytes::mib(1)),
        (7 * MIB, 4 * MIB + 1, true, Bytes::new((4 << 20) + (64 << 10))),
        (6 * MIB, 5 * MIB, true, Bytes::mib(6)),
        (3 * MIB, MIB, true, Bytes::mib(1)),
    ] {
        assert_eq!(resized(&heap, from, to), (in_place, held), "{from} to {to}");
    }
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
    sys.fail(Call::Shrink, 0, Errno::ENOMEM);
    assert_eq!(resized(&heap, 64 * MIB, 40 * MIB), (true, Bytes::mib(64)), "it stays as it is");
    assert_eq!(resized(&heap, 64 * MIB, 20 * MIB), (false, Bytes::mib(20)), "it is copied");
    let (heap, sys) = scripted("hugetlb-2m");
    sys.pool(Bytes::mib(2), 11);
    let mut object = Object::new(&heap, layout(20 * MIB, 1), 3, false).unwrap();
    object.resize(&heap, 11 * MIB);
    assert_eq!(sys.pool_free(Bytes::mib(2)), 4);
    object.free(&heap);
    assert_eq!(sys.pool_free(Bytes::mib(2)), 10);
}

#[test]
fn empty_spans_are_kept_for_few_classes() {
    const UNIT: usize = 64 << 10;
    let (heap, _sys) = scripted("base");
    let (least, step) = if cfg!(miri) { (4096, 2048) } else { (512, 512) };
    let sizes: Vec<usize> = (least..=8192).step_by(step).collect();
    // Two spans of each.
    let fill = |&size: &usize| {
        let object = |i| Object::new(&heap, layout(size, 8), i as u8, false).unwrap();
        (0..UNIT / size * 2).map(object).collect::<Vec<_>>()
    };
    let live: Vec<_> = sizes.iter().flat_map(fill).collect();
    live.into_iter().for_each(|object| object.free(&heap));
    let held = heap.stats().held;
    let spans = held.as_usize() / UNIT;
    assert!(spans <= sizes.len() + 4, "{spans} spans of {} classes", sizes.len());
    // The last ones to become empty are still there.
    let again: Vec<_> = sizes.iter().rev().take(4).flat_map(fill).collect();
    assert_eq!(heap.stats().held, held);
    again.into_iter().for_each(|object| object.free(&heap));
}

#[test]
#[cfg_attr(miri, ignore = "memory of the global allocator does not move by itself")]
fn very_large_things_grow_without_a_copy() {
    let (heap, sys) = scripted("thp,base");
    let mut object = Object::new(&heap, layout(20 << 20, 1), 3, false).unwrap();
    let maps = sys.calls(Call::Map);
    for size in [40, 80, 160, 320] {
        object.resize(&heap, size << 20);
    }
    assert_eq!((sys.calls(Call::Grow), sys.calls(Call::Map)), (4, maps));
    object.free(&heap);
}

#[test]
fn a_heap_that_goes_takes_what_is_in_use_along() {
    let (heap, sys) = scripted("thp,base");
    for size in SIZES {
        Object::new(&heap, layout(size, 1), 3, false).unwrap();
    }
    drop(heap);
    assert_eq!(sys.mappings(), 0);
}

#[test]
fn two_heaps_on_one_thread_do_not_mix() {
    let (first, second) =
        (Heap::new(Options::default()), Heap::new(Options::new(Chain::only(crate::Backing::Base))));
    let mut live = Vec::new();
    for i in 0..if cfg!(miri) { 50 } else { 1000_u32 } {
        let mark = (i % 251) as u8;
        let size = (i as usize * 37) % 3000;
        live.push((
            Object::new(&first, layout(size, 8), mark, i % 3 == 0).unwrap(),
            Object::new(&second, layout(size, 8), !mark, false).unwrap(),
        ));
    }
    let both = (first.stats().allocated, second.stats().allocated);
    assert_eq!(both.0, both.1);
    for (a, b) in live {
        a.free(&first);
        b.free(&second);
    }
    assert_eq!((first.stats().allocated, second.stats().allocated), (Bytes::ZERO, Bytes::ZERO));
    drop(first);
    // The thread's cache of the dropped heap must not serve the other heap, or a new one.
    let third = Heap::new(Options::default());
    let c = Object::new(&third, layout(100, 8), 3, true).unwrap();
    let d = Object::new(&second, layout(100, 8), 4, true).unwrap();
    c.free(&third);
    d.free(&second);
}

#[test]
fn the_statistics_count_objects_by_class() {
    let heap = Heap::new(Options::default());
    let live: Vec<_> = (0..100).map(|_| heap.allocate(layout(40, 8)).unwrap()).collect();
    let stats = heap.stats();
    let of_48 = stats.classes.iter().find(|class| class.size == Bytes::new(48)).unwrap();
    assert_eq!(
        (of_48.count, of_48.bytes, stats.allocated),
        (100, Bytes::new(4800), Bytes::new(4800))
    );
    assert_eq!(stats.threads, 1);
    for start in live {
        // SAFETY: allocated above.
        unsafe { heap.deallocate(start) };
    }
    assert_eq!(heap.stats().classes.iter().map(|class| class.count).sum::<u64>(), 0);
    assert_eq!(Heap::new(Options::default()).stats().mapped, Bytes::ZERO);
}
