//! Random use against a model: objects do not overlap, contents are kept, all memory is freed.

use std::collections::BTreeMap;

use hugepilot_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Object, layout, limit_owners, scripted};
use crate::sys::scripted::cases;

#[derive(Clone, Debug)]
enum Step {
    /// Size, shift of the alignment, and whether zeroed.
    Allocate(usize, u32, bool),
    Resize(usize, usize),
    Free(usize),
    Trim,
}

/// Each power of two is equally likely.
fn size() -> impl Strategy<Value = usize> {
    let most = if cfg!(miri) { 18_u32 } else { 25 };
    (0..most, any::<u32>()).prop_map(|(top, low)| (1 << top) + (low as usize % (1 << top)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (size(), prop_oneof![4 => 0..5_u32, 1 => 5..26_u32], any::<bool>())
            .prop_map(|(size, align, zeroed)| Step::Allocate(size, align, zeroed)),
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Resize(which, size)),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Trim),
    ]
}

/// Checks that no two objects share a byte.
pub(super) fn assert_apart(live: &[Object]) {
    let mut ranges = BTreeMap::new();
    for object in live {
        let start = object.start.as_ptr().addr();
        assert!(ranges.insert(start, start + object.layout.size().max(1)).is_none());
    }
    assert!(ranges.values().zip(ranges.keys().skip(1)).all(|(end, next)| end <= next), "{live:?}");
}

proptest! {
    #![proptest_config(cases(60, 4))]
    #[test]
    fn objects_are_apart_and_all_is_freed(
        chain in 0..3_usize,
        owners in 0..2_usize,
        steps in vec(step(), 1..if cfg!(miri) { 40 } else { 120 }),
    ) {
        run(["thp,base", "base", "hugetlb-2m,thp,base"][chain], owners, steps);
    }
}

/// Runs the steps on a heap and checks it after each.
fn run(chain: &str, owners: usize, steps: Vec<Step>) {
    let (heap, sys) = scripted(chain);
    limit_owners(&heap, owners);
    sys.pool(Bytes::mib(2), 9);
    let mut live: Vec<Object> = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        match step {
            Step::Allocate(size, shift, zeroed) => {
                let mark = (i % 255) as u8 + 1;
                live.push(
                    Object::new(&heap, layout(size, 1 << shift), mark, zeroed).expect("memory"),
                );
            }
            Step::Resize(which, size) if !live.is_empty() => {
                let which = which % live.len();
                live[which].resize(&heap, size);
            }
            Step::Free(which) if !live.is_empty() => {
                live.swap_remove(which % live.len()).free(&heap)
            }
            Step::Resize(..) | Step::Free(_) => {}
            Step::Trim => drop(heap.trim()),
        }
        live.iter().for_each(Object::check);
        assert_apart(&live);
    }
    let stats = heap.stats();
    let requested: u64 = live.iter().map(|object| object.layout.size() as u64).sum();
    assert!(stats.allocated.get() >= requested && stats.held >= stats.allocated, "{stats:?}");
    live.into_iter().for_each(|object| object.free(&heap));
    assert_eq!(heap.stats().allocated, Bytes::ZERO);
    heap.trim();
    // Only the core may be left.
    assert!(heap.stats().mapped == Bytes::ZERO && sys.mappings() <= 1);
    drop(heap);
    assert_eq!((sys.mappings(), sys.pool_free(Bytes::mib(2))), (0, 9));
}
