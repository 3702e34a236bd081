//! Tests of the cache of freed huge objects.

use std::time::Instant;

use hugepilot_units::Bytes;

use super::{Object, layout, scripted};
use crate::Heap;
use crate::sys::scripted::{Call, ScriptedSys};

/// Allocates this number of MiB.
fn huge(heap: &Heap<ScriptedSys>, mib: usize) -> Object {
    Object::new(heap, layout(mib << 20, 16), mib as u8, false).expect("memory")
}

fn free(heap: &Heap<ScriptedSys>, objects: impl IntoIterator<Item = Object>) {
    objects.into_iter().for_each(|object| object.free(heap));
}

fn address(object: &Object) -> usize {
    object.start.as_ptr().addr()
}

#[test]
fn a_freed_region_is_reused_and_zeroed_on_request() {
    let (heap, sys) = scripted("thp,base");
    let one = huge(&heap, 9);
    let (start, maps) = (address(&one), sys.calls(Call::Map));
    one.free(&heap);
    let stats = heap.stats();
    // The span of its record is still held.
    assert_eq!((stats.allocated, stats.held, stats.large.count), (Bytes::ZERO, Bytes::kib(64), 0));
    assert!(stats.idle >= Bytes::mib(10) && stats.mapped >= Bytes::mib(42), "{stats:?}");
    // Miri has no pagemap.
    assert!(cfg!(miri) || heap.usage().unwrap().resident() > Bytes::ZERO);
    for zeroed in [false, true] {
        let again = Object::new(&heap, layout(9 << 20, 16), 7, zeroed).unwrap();
        assert_eq!((address(&again), sys.calls(Call::Map)), (start, maps));
        assert!(heap.stats().idle < Bytes::mib(4) && heap.stats().large.bytes == Bytes::mib(10));
        again.free(&heap);
    }
    assert!(heap.trim() >= Bytes::mib(10));
    assert_eq!((heap.stats().mapped, sys.mappings()), (Bytes::ZERO, 1));
}

#[test]
fn a_cached_region_is_reused_by_best_fit_and_at_most_a_quarter_longer() {
    let (heap, sys) = scripted("base");
    let heap = heap.with_reserve(Bytes::gib(1));
    let [small, middle, large] = [16, 19, 20].map(|mib| huge(&heap, mib));
    let starts = [&small, &middle, &large].map(address);
    free(&heap, [large, middle, small]);
    let maps = sys.calls(Call::Map);
    let fits = huge(&heap, 17);
    assert_eq!((address(&fits), sys.calls(Call::Map)), (starts[1], maps));
    let none = huge(&heap, 12);
    assert!(!starts.contains(&address(&none)), "16 MiB are more than a quarter too much");
    // Miri's largest alignment.
    let align = if cfg!(miri) { 1 << 27 } else { 1 << 30 };
    let aligned = Object::new(&heap, layout(16 << 20, align), 1, false).unwrap();
    assert!(address(&aligned).is_multiple_of(align));
    free(&heap, [fits, none, aligned]);
}

#[test]
fn the_cache_stays_within_the_reserve_and_evicts_the_oldest() {
    let (heap, sys) = scripted("base");
    let objects = [12; 3].map(|mib| huge(&heap, mib));
    let starts = [0, 1, 2].map(|i| address(&objects[i]));
    let before = sys.mappings();
    free(&heap, objects);
    assert_eq!(sys.mappings(), before - 1, "32 MiB hold two");
    let again = [12; 2].map(|mib| huge(&heap, mib));
    assert!(
        again.iter().all(|object| starts[1..].contains(&address(object))),
        "{starts:x?} {again:?}"
    );
    free(&heap, again);
    // Free memory in chunks counts towards the reserve, too.
    let parts = [7; 4].map(|mib| huge(&heap, mib));
    free(&heap, parts);
    let idle = heap.stats().idle;
    assert!(idle <= Bytes::mib(32) && idle > Bytes::mib(26), "{idle}");
    assert_eq!(sys.mappings(), 2, "the core and the chunk");
    huge(&heap, 33).free(&heap);
    assert_eq!(sys.mappings(), 2, "larger than the reserve");
}

#[test]
fn no_more_than_sixteen_are_kept() {
    let (heap, sys) = scripted("base");
    let heap = heap.with_reserve(Bytes::gib(1));
    let objects: Vec<_> = (0..20).map(|_| huge(&heap, 9)).collect();
    let before = sys.mappings();
    free(&heap, objects);
    assert_eq!(sys.mappings(), before - 4);
}

#[test]
fn cached_regions_make_room_if_memory_is_short() {
    let (heap, sys) = scripted("base");
    huge(&heap, 28).free(&heap);
    sys.limit(Bytes::mib(75));
    // A chunk and the cached region are 60 MiB.
    huge(&heap, 40).free(&heap);
    huge(&heap, 28).free(&heap);
    sys.limit(Bytes::mib(66));
    let parts = [7; 5].map(|mib| huge(&heap, mib));
    free(&heap, parts);
    assert!(heap.allocate(layout(60 << 20, 16)).is_none());
}

#[test]
fn cached_regions_make_room_for_growth() {
    // Memory partly on THP is mapped again and copied.
    let (heap, sys) = scripted("thp:50%");
    let mut one = huge(&heap, 9);
    huge(&heap, 28).free(&heap);
    // A chunk, the 10 MiB to grow and the 20 MiB that result are 62 MiB.
    sys.limit(Bytes::mib(75));
    one.resize(&heap, 20 << 20);
    assert_eq!((one.layout.size(), heap.stats().large.bytes), (20 << 20, Bytes::mib(20)));
    one.resize(&heap, 40 << 20);
    assert_eq!(one.layout.size(), 20 << 20, "nothing is left that could make room");
    one.free(&heap);
}

#[test]
fn hugetlb_pages_are_freed_at_once() {
    let (heap, sys) = scripted("hugetlb-2m");
    sys.pool(Bytes::mib(2), 10);
    let one = huge(&heap, 9);
    let free = sys.pool_free(Bytes::mib(2));
    one.free(&heap);
    assert_eq!(sys.pool_free(Bytes::mib(2)), free + 5);
}

#[test]
fn settings_are_read_once_a_second() {
    let (heap, sys) = scripted("thp,base");
    let began = Instant::now();
    let live: Vec<_> = (0..50).map(|_| heap.allocate(layout(9 << 20, 16)).unwrap()).collect();
    let (looks, seconds) = (sys.calls(Call::Setting), began.elapsed().as_secs());
    // One or two files each time.
    assert!(looks > 0 && looks as u64 <= 2 * (seconds + 2), "{looks} in {seconds} s");
    assert_eq!(live.len(), 50);
}
