use std::collections::BTreeMap;

use hugepilot_kernel::Pages;
use hugepilot_units::Bytes;

use super::super::memory::tests::ROOMY;
use super::*;

fn tree(mib: u64, seed: u64) -> GrownTree {
    let config = MemoryConfig { footprint: Bytes::mib(mib), pages: Pages::Base, seed };
    GrownTree::prepare(config, &ROOMY).unwrap()
}

/// All entries, in the order of the tree.
fn contents(tree: &GrownTree) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for &(_, group) in &tree.root {
        let words = tree.words(group).unwrap();
        for leaf in 0..words[0] as usize {
            let place = words[NODE_WORDS + 1 + leaf] as usize;
            let leaf = &words[(HEADS + place) * NODE_WORDS..][..NODE_WORDS];
            all.extend((0..leaf[0] as usize).map(|at| (leaf[2 + 2 * at], leaf[3 + 2 * at])));
        }
    }
    all
}

#[test]
fn it_holds_what_a_map_of_the_standard_library_holds() {
    for seed in [1, 7] {
        let tree = tree(16, seed);
        let keys = (0..tree.entries as u64).map(|number| tree.keys.key(number));
        let expected: BTreeMap<u64, u64> = keys.map(|key| (key, mix(key))).collect();
        assert!(tree.entries > 100_000, "{}", tree.entries);
        // The last insertion found no room.
        assert_eq!(tree.root.len(), 8);
        assert!(contents(&tree) == expected.iter().map(|(&k, &v)| (k, v)).collect::<Vec<_>>());
        for (&key, &value) in &expected {
            assert_eq!(tree.get(key), Some(value));
            if !expected.contains_key(&(key + 1)) {
                assert_eq!(tree.get(key + 1), None);
            }
        }
        assert_eq!((tree.get(0), tree.get(u64::MAX)), (None, None));
    }
}

#[test]
fn bloat_is_the_pages_that_are_zero_filled() {
    let tree = tree(64, 1);
    let zero = |page: &&[u64]| page.iter().all(|&word| word == 0);
    let zeros: Vec<usize> = (tree.arena.words().chunks(GROUP_WORDS))
        .map(|group| group.chunks(NODE_WORDS).filter(zero).count())
        .collect();
    assert_eq!(tree.bloat_bytes(), Some(zeros.iter().sum::<usize>() as u64 * 4096));
    let count = |range: Range<usize>| zeros.iter().filter(|zeros| range.contains(zeros)).count();
    let (full, some, empty) = (count(0..32), count(32..320), count(320..512));
    assert!(full > 0 && some > 0 && empty > 0, "{zeros:?}");
    assert!(zeros.iter().max() < Some(&512), "every group is used");
    assert!(!zeros.is_sorted() && !zeros.iter().rev().is_sorted(), "{zeros:?}");
}

#[test]
fn the_size_of_a_tenant_falls_as_one_over_its_rank() {
    let keys = Keys { seed: 3, tenants: 100 };
    let mut sizes = [0_u32; 101];
    for number in 0..700_000 {
        sizes[(keys.key(number) >> TENANT_SHIFT) as usize] += 1;
    }
    assert_eq!(sizes[0], 0);
    // Seven octaves of 100,000 keys. The ranks 101 to 127 of the last one fall to 50 to 63.
    let about = |rank: usize, wanted: u32| {
        assert!(sizes[rank].abs_diff(wanted) < wanted / 10, "{rank}: {}", sizes[rank]);
    };
    for (rank, wanted) in
        [(1, 100_000), (2, 50_000), (7, 25_000), (40, 3125), (49, 3125), (50, 4687), (55, 6250)]
    {
        about(rank, wanted);
    }
    about(90, 1562);
}
