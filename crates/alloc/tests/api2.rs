//! Tests of collections on a heap of their own, with `allocator-api2`.
#![cfg(feature = "allocator-api2")]

use allocator_api2::vec::Vec;
use hugepilot_alloc::{Heap, Options};
use hugepilot_units::Bytes;

#[test]
fn a_vector_grows_shrinks_and_frees() {
    let heap = Heap::new(Options::default());
    let mut vec: Vec<u64, &Heap> = Vec::new_in(&heap);
    vec.extend(0..3_000_000);
    assert!(heap.stats().allocated >= Bytes::new(24_000_000));
    vec.truncate(100);
    vec.shrink_to_fit();
    assert!(heap.stats().allocated < Bytes::kib(1));
    assert!(vec.iter().copied().eq(0..100));
    drop(vec);
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
}

#[test]
fn a_collection_may_own_its_heap_and_move() {
    let mut vec: Vec<String, Heap> = Vec::new_in(Heap::new(Options::default()));
    vec.push("first".to_owned());
    let mut vec = std::thread::spawn(move || {
        vec.extend((0..1000).map(|i| i.to_string()));
        vec
    })
    .join()
    .unwrap();
    vec.retain(|text| text.len() != 2);
    assert_eq!((vec.len(), vec[0].as_str(), vec[1000 - 90].as_str()), (911, "first", "999"));
}
