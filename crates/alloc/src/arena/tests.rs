//! # Safety
//! Reads as initialised only bytes that were filled just before.
#![allow(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Backing;
use crate::sys::scripted::{Call, ScriptedSys, cases};

fn arena(sys: &ScriptedSys, chunk: Bytes) -> Arena<ScriptedSys> {
    Arena::new_on(sys.clone(), chunk, Options::only(Backing::Base))
}

#[test]
fn values_stay_where_they_are_while_the_arena_grows() {
    let sys = ScriptedSys::default();
    let arena = arena(&sys, Bytes::kib(4));
    let items: Vec<&mut [u64; 100]> = (0..50).map(|i| arena.alloc([i; 100]).unwrap()).collect();
    assert!(items.iter().enumerate().all(|(i, item)| **item == [i as u64; 100]));
    assert_eq!((sys.mappings(), arena.mapped()), (10, Bytes::kib(40)));
    drop(arena);
    assert_eq!(sys.mappings(), 0);
}

#[test]
fn slices_are_made_item_by_item() {
    let arena = Arena::new(Bytes::kib(64), Options::default());
    let squares = arena.alloc_slice(1000, |i| i * i).unwrap();
    let word = arena.alloc_slice(3, |i| b"huh"[i]).unwrap();
    assert!(squares.iter().enumerate().all(|(i, &square)| square == i * i));
    assert_eq!(word, b"huh");
    let error = arena.alloc_slice(usize::MAX / 4, |_| 0_u64).unwrap_err();
    assert_eq!(error, AllocError::Overflow { count: usize::MAX / 4, size: 8 });
}

#[test]
fn what_has_no_size_takes_nothing() {
    let sys = ScriptedSys::default();
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    let arena = arena(&sys, Bytes::kib(4));
    let nothing = arena.alloc_layout(Layout::from_size_align(0, 4096).unwrap()).unwrap();
    assert!(nothing.is_empty() && nothing.as_ptr().addr().is_multiple_of(4096));
    assert_eq!(arena.alloc(()), Ok(&mut ()));
    assert!(arena.alloc_slice(0, |_| 1_u64).unwrap().is_empty());
    assert_eq!(arena.alloc_slice(7, |_| ()).unwrap().len(), 7);
    assert_eq!((arena.mapped(), arena.usage()), (Bytes::ZERO, Ok(PageUsage::default())));
}

#[test]
fn large_things_and_alignments_get_regions_of_their_own() {
    let sys = ScriptedSys::default();
    let arena = arena(&sys, Bytes::kib(8));
    arena.alloc(1_u8).unwrap();
    for (size, align) in [(1 << 20, 1), (10, 8192), (3 << 20, 4 << 20), (1, 2 << 20)] {
        let bytes = arena.alloc_layout(Layout::from_size_align(size, align).unwrap()).unwrap();
        assert_eq!((bytes.len(), bytes.as_ptr().addr() % align), (size, 0));
    }
    let error = arena.alloc_layout(Layout::from_size_align(1, 2 << 30).unwrap()).unwrap_err();
    assert_eq!(error, AllocError::Alignment(Bytes::gib(2)));
    assert!(arena.alloc_layout(Layout::from_size_align(isize::MAX as usize, 1).unwrap()).is_err());
}

#[test]
fn the_limit_and_exhaustion_are_errors_and_what_was_given_stays() {
    let sys = ScriptedSys::default();
    let arena = arena(&sys, Bytes::kib(4)).with_limit(Bytes::kib(10));
    let first = arena.alloc([7_u8; 4096]).unwrap();
    arena.alloc([7_u8; 4096]).unwrap();
    let limit =
        AllocError::Limit { limit: Bytes::kib(10), used: Bytes::kib(8), wanted: Bytes::kib(4) };
    assert_eq!(arena.alloc([7_u8; 4096]).unwrap_err(), limit);
    assert_eq!((*first, sys.mappings()), ([7; 4096], 2));

    let arena = Arena::new_on(sys.clone(), Bytes::kib(4), Options::only(Backing::Base));
    sys.fail(Call::Map, 1, Errno::ENOMEM);
    let mut made = 0;
    let error = (0..9).find_map(|_| arena.alloc([1_u8; 1024]).map(|_| made += 1).err()).unwrap();
    assert_eq!((made, error), (4, AllocError::Map { len: Bytes::kib(4), errno: Errno::ENOMEM }));
}

#[test]
fn a_limit_counts_what_pages_round_up() {
    let sys = ScriptedSys::default();
    let options = Options::only(Backing::COLLAPSE);
    let arena = Arena::new_on(sys.clone(), Bytes::kib(4), options).with_limit(Bytes::mib(3));
    arena.alloc(1_u8).unwrap();
    arena.alloc_layout(Layout::new::<[u8; 2 << 20]>()).unwrap_err();
    assert_eq!((arena.mapped(), sys.mappings()), (Bytes::mib(2), 1));
}

#[test]
fn a_reset_takes_all_back_and_maps_nothing_new() {
    let sys = ScriptedSys::default();
    let mut arena = arena(&sys, Bytes::kib(4));
    for _ in 0..5 {
        for size in [4096, 9000, 100, 4096, 20000] {
            arena.alloc_layout(Layout::from_size_align(size, 8).unwrap()).unwrap();
        }
        arena.reset();
    }
    // In another order, each still finds a region that it fits in.
    for size in [20000, 4096, 9000, 4096, 100] {
        arena.alloc_layout(Layout::from_size_align(size, 8).unwrap()).unwrap();
    }
    assert_eq!(sys.mappings(), 5);
}

#[test]
fn destructors_do_not_run() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            unreachable!("an arena runs no destructors");
        }
    }
    let mut arena = Arena::new(Bytes::kib(4), Options::default());
    arena.alloc([Loud, Loud]).map(|_| ()).unwrap();
    arena.reset();
    arena.alloc_slice(3, |_| Loud).map(|_| ()).unwrap();
}

#[test]
fn it_may_be_sent_but_not_shared() {
    fn sent<T: Send>(it: T) -> T {
        it
    }
    let arena = sent(Arena::new(Bytes::kib(4), Options::default()));
    let arena =
        std::thread::spawn(move || arena.alloc(5).map(|five| *five).map(|_| arena)).join().unwrap();
    assert!(arena.is_ok());
}

/// Largest part in bytes; Miri is slow.
const MAX_PART: usize = if cfg!(miri) { 60 } else { 6000 };

proptest! {
    #![proptest_config(cases(100, 4))]
    #[test]
    fn parts_are_apart_aligned_and_keep_their_contents(
        rounds in vec(vec((1..MAX_PART, 0..15_u32), 1..30), 1..4),
        chunk in 1..40_u64,
    ) {
        check_parts(rounds, Bytes::kib(chunk));
    }
}

/// Allocates and fills parts of these sizes and alignments, round by round, and checks them.
fn check_parts(rounds: Vec<Vec<(usize, u32)>>, chunk: Bytes) {
    let sys = ScriptedSys::default();
    let mut arena = arena(&sys, chunk);
    for round in rounds {
        let mut parts: Vec<&mut [MaybeUninit<u8>]> = Vec::new();
        for (i, (size, align)) in round.into_iter().enumerate() {
            let part =
                arena.alloc_layout(Layout::from_size_align(size, 1 << align).unwrap()).unwrap();
            assert_eq!((part.len(), part.as_ptr().addr() % (1 << align)), (size, 0));
            part.fill(MaybeUninit::new(u8::try_from(i).unwrap()));
            parts.push(part);
        }
        for (i, part) in parts.iter().enumerate() {
            // SAFETY: filled above.
            let kept = part.iter().all(|byte| usize::from(unsafe { byte.assume_init() }) == i);
            assert!(kept);
        }
        let mut ranges: Vec<_> = parts.iter().map(|part| part.as_ptr_range()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        arena.reset();
    }
    drop(arena);
    assert_eq!(sys.mappings(), 0);
}
