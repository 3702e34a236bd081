//! Tests with injected failures: allocation fails, or less memory is freed, and nothing is leaked.

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use super::{Object, layout, limit_owners, scripted};
use crate::sys::scripted::{Call, ScriptedSys};
use crate::{Advice, AllocError, Backing, Fork, Heap, Options, Setting};

/// Sizes that need a core, a chunk and mappings.
const SIZES: [usize; 6] = [24, 3000, 100_000, 1 << 20, 5 << 20, 20 << 20];

#[test]
fn whenever_mmap_fails_there_is_no_memory_and_nothing_is_lost() {
    let mut refused = 0;
    let (step, count) = if cfg!(miri) { (19, 12) } else { (1, 30) };
    for after in (0..40).step_by(step) {
        for call in [Call::Map, Advice::Huge.into(), Advice::NoHuge.into()] {
            let (heap, sys) = scripted("thp");
            sys.fail(call, after, Errno::ENOMEM);
            let mut live = Vec::new();
            for i in 0..count {
                match Object::new(
                    &heap,
                    layout(SIZES[i % SIZES.len()], 16),
                    i as u8 + 1,
                    i % 2 == 0,
                ) {
                    Some(object) => live.push(object),
                    None => refused += 1,
                }
            }
            for object in &mut live {
                object.resize(&heap, object.layout.size() * 2);
            }
            live.iter().for_each(Object::check);
            sys.clear_failures();
            let late =
                Object::new(&heap, layout(40 << 20, 16), 1, true).expect("the kernel relented");
            late.free(&heap);
            live.into_iter().for_each(|object| object.free(&heap));
            assert_eq!(heap.stats().allocated, Bytes::ZERO);
            drop(heap);
            assert_eq!(sys.mappings(), 0, "{call:?} after {after}");
        }
    }
    assert!(refused > if cfg!(miri) { 5 } else { 100 }, "{refused}");
}

#[test]
fn where_a_mapping_cannot_grow_it_is_copied() {
    let (heap, sys) = scripted("base");
    sys.fail(Call::Grow, 0, Errno::ENOMEM);
    let mut object = Object::new(&heap, layout(9 << 20, 16), 3, false).unwrap();
    object.resize(&heap, 20 << 20);
    assert_eq!(object.layout.size(), 20 << 20);
    object.free(&heap);
}

#[test]
fn a_refused_backing_is_reported() {
    let (heap, sys) = scripted("base");
    assert_eq!(heap.refused(), None);
    Object::new(&heap, layout(1, 1), 1, false).expect("memory").free(&heap);
    assert_eq!(heap.refused(), None);
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    assert!(heap.allocate(layout(64 << 20, 8)).is_none());
    let map = AllocError::Map { len: Bytes::mib(64), errno: Errno::ENOMEM };
    assert_eq!(heap.refused(), Some(map));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_pool_is_used_up_and_the_next_backing_taken() {
    let page = Bytes::mib(2);
    let (heap, sys) = scripted("hugetlb-2m,base");
    sys.pool(page, 5);
    // The counters of an exhausted pool.
    for (setting, count) in
        [(Setting::Pool2MTotal, "5"), (Setting::Pool2MFree, "5"), (Setting::Pool2MReserved, "5")]
    {
        sys.set(setting, count);
    }
    let mut live: Vec<_> = (0..3000)
        .map(|i| Object::new(&heap, layout(8000, 8), i as u8, i % 2 == 0).unwrap())
        .collect();
    assert_eq!(sys.pool_free(page), 0, "all of the pool is used");
    assert!(matches!(heap.refused(), Some(AllocError::PoolEmpty { .. })), "{:?}", heap.refused());
    live.iter().for_each(Object::check);
    live.drain(..).for_each(|object| object.free(&heap));
    heap.trim();
    assert_eq!(sys.pool_free(page), 5, "and given back");

    let (heap, sys) = scripted("hugetlb-2m");
    sys.pool(page, 5);
    while let Some(object) = Object::new(&heap, layout(8000, 8), 1, false) {
        live.push(object);
    }
    assert!(live.len() > 1000 && live.len() < 1310, "{}", live.len());
    live.pop().unwrap().free(&heap);
    live.push(Object::new(&heap, layout(8000, 8), 1, false).expect("what was freed"));
    live.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(heap.requested().chain.backings(), [Backing::Hugetlb2M]);
}

#[test]
fn memory_that_cannot_be_freed_is_kept() {
    let (heap, sys) = scripted("thp");
    let keeper = Object::new(&heap, layout(100, 8), 1, false).unwrap();
    let live: Vec<_> =
        (0..20).map(|i| Object::new(&heap, layout(4 << 20, 8), i, false).unwrap()).collect();
    sys.fail(Call::Discard, 0, Errno::EINVAL);
    live.into_iter().for_each(|object| object.free(&heap));
    heap.trim();
    let idle = heap.stats().idle;
    assert!(idle > Bytes::ZERO && sys.calls(Call::Discard) > 0, "{idle}");
    // Memory that was not freed must not count as zeroed.
    Object::new(&heap, layout(4 << 20, 8), 7, true).unwrap().free(&heap);
    sys.clear_failures();
    heap.trim();
    assert_eq!(heap.stats().idle, Bytes::ZERO);
    keeper.free(&heap);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn remotely_freed_objects_are_used_at_once_if_memory_is_short() {
    let (heap, sys) = scripted("hugetlb-2m");
    sys.pool(Bytes::mib(2), 1);
    let mut large: Vec<_> =
        (0..16).map(|_| Object::new(&heap, layout(4096, 16), 1, false).unwrap()).collect();
    let small: Vec<_> =
        std::iter::from_fn(|| Object::new(&heap, layout(64, 16), 2, false)).collect();
    assert!(small.len() > 20_000, "{}", small.len());
    std::thread::scope(|scope| {
        scope.spawn(|| small.into_iter().for_each(|object| object.free(&heap)));
    });
    for _ in 0..100 {
        large.push(
            Object::new(&heap, layout(4096, 16), 3, false).expect("nearly all of the page is free"),
        );
    }
    large.into_iter().for_each(|object| object.free(&heap));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn memory_returned_to_the_lender_serves_every_size_if_memory_is_short() {
    for size in [200, 4096, 600_000] {
        let (heap, sys) = scripted("hugetlb-2m");
        sys.pool(Bytes::mib(2), 1);
        limit_owners(&heap, 0);
        let small: Vec<_> =
            std::iter::from_fn(|| Object::new(&heap, layout(64, 16), 2, false)).collect();
        assert!(small.len() > 20_000, "{}", small.len());
        small.into_iter().for_each(|object| object.free(&heap));
        Object::new(&heap, layout(size, 16), 3, false).expect("all is free").free(&heap);
    }
}

#[test]
fn children_inherit_the_heap_whatever_the_options_say() {
    let sys = ScriptedSys::default();
    let heap =
        Heap::new_on(sys.clone(), Options::new("base".parse().unwrap()).forked(Fork::Absent));
    for size in [64, 1 << 20, 20 << 20] {
        Object::new(&heap, layout(size, 16), 1, false).unwrap().free(&heap);
    }
    assert_eq!(sys.calls(Advice::DontFork), 0);
}
