//! Tests of the pages under small objects, and of freeing them.

use hugepilot_testkit::requires;
use hugepilot_units::Bytes;

use super::{Object, layout, scripted};
use crate::region::tests::thp;
use crate::sys::scripted::Call;
use crate::{Heap, Options};

#[test]
#[cfg_attr(miri, ignore = "there are no huge pages")]
fn small_things_are_on_huge_pages() {
    requires!(thp());
    let heap = Heap::new(Options::default());
    let live: Vec<_> =
        (0..200_000).map(|i| Object::new(&heap, layout(64, 8), i as u8, false).unwrap()).collect();
    let usage = heap.usage().unwrap();
    // 12.8 MB of objects, and at most one more page. A kernel short of huge pages may refuse some.
    assert!(usage.thp >= Bytes::mib(12) && usage.resident() <= Bytes::mib(16), "{usage:?}");
    live.iter().for_each(Object::check);
}

#[test]
fn free_memory_above_the_reserve_is_freed_and_reads_as_zeros() {
    let (heap, sys) = scripted("base");
    let heap = heap.with_reserve(Bytes::mib(4));
    let keeper = Object::new(&heap, layout(8, 8), 1, false).unwrap();
    let large = layout(2 << 20, 2 << 20);
    let live: Vec<_> = (0..7).map(|i| Object::new(&heap, large, i + 1, true).unwrap()).collect();
    assert_eq!(sys.calls(Call::Discard), 0);
    live.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(sys.calls(Call::Discard), 5, "two are kept");
    let stats = heap.stats();
    assert_eq!((stats.idle, stats.returned), (Bytes::mib(4), Bytes::mib(10)));
    let live: Vec<_> = (0..7).map(|i| Object::new(&heap, large, i + 1, true).unwrap()).collect();
    live.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(heap.trim(), Bytes::mib(4));
    keeper.free(&heap);
}

#[test]
fn an_empty_chunk_is_kept_and_a_second_goes() {
    let (heap, sys) = scripted("base");
    let heap = heap.with_reserve(Bytes::gib(1));
    let live: Vec<_> =
        (0..40).map(|i| Object::new(&heap, layout(4 << 20, 8), i, false).unwrap()).collect();
    let most = sys.mappings();
    assert!(most > 4, "{most}");
    live.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(sys.mappings(), 2, "the core and one chunk");
    assert!(heap.trim() > Bytes::ZERO);
    assert_eq!(sys.mappings(), 1);
}
