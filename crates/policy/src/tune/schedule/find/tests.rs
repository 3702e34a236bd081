use hugepilot_units::{AddrRange, VirtAddr};
use proptest::prelude::*;

use super::*;

const SIZES: PageSizes = PageSizes::X86_64;

fn mapping(name: &str, start: u64, bytes: u64) -> Mapping {
    let range = AddrRange::at(VirtAddr::new(start), Bytes::new(bytes));
    Mapping { name: name.to_owned(), ..Mapping::anonymous(range) }
}

/// Anonymous mappings of these sizes in MiB, in address order.
fn anonymous(sizes: &[u64]) -> Vec<Mapping> {
    let place = |(at, &size): (usize, &u64)| mapping("", (1 + at as u64) << 40, size << 20);
    sizes.iter().enumerate().map(place).collect()
}

fn wanted(name: &str, ordinal: u32, mib: u64) -> ScheduledMapping {
    ScheduledMapping { name: name.to_owned(), ordinal, bytes: Bytes::mib(mib) }
}

#[test]
fn anonymous_memory_in_another_order_is_found_by_its_size() {
    let keys = [wanted("[anon]", 0, 1024), wanted("[anon]", 1, 64), wanted("[anon]", 2, 500)];
    let live = anonymous(&[8, 64, 1030, 8, 200]);
    let found = find_mappings(&keys, &live, SIZES, |_| true);
    let at = |one: &Option<FoundMapping>| one.map(|one| (one.position, one.by, one.is_resized));
    let found: Vec<_> = found.iter().map(at).collect();
    let by_size = Some((2, FoundBy::Size, true));
    assert_eq!(found, [by_size, Some((1, FoundBy::Ordinal, false)), None]);
}

#[test]
fn of_equal_sizes_the_order_decides() {
    // The live run has a mapping before them.
    let keys = [wanted("[anon]", 0, 64), wanted("[anon]", 1, 64), wanted("[anon]", 2, 64)];
    let live = anonymous(&[512, 64, 64, 64]);
    let found = find_mappings(&keys, &live, SIZES, |_| true);
    let positions: Vec<usize> = found.iter().map(|one| one.unwrap().position).collect();
    assert_eq!(positions, [1, 2, 3]);
}

#[test]
fn a_named_mapping_of_another_size_is_found_and_its_size_is_noted() {
    let heap = |mib: u64| mapping("[heap]", 1 << 40, mib << 20);
    let key = [wanted("[heap]", 0, 100)];
    let find = |mib| find_mappings(&key, &[heap(mib)], SIZES, |_| true)[0].unwrap();
    assert!(find(40).is_resized && !find(101).is_resized);
    assert_eq!(find(40).by, FoundBy::Ordinal);
    assert_eq!(region_at(&heap(40), 19, SIZES), Some(Region::new((1 << 19) + 19)));
    assert_eq!(region_at(&heap(40), 20, SIZES), None);
    assert_eq!(region_at(&heap(1), 0, SIZES), None);
    assert_eq!(region_at(&heap(40), u64::MAX, SIZES), None);
    assert_eq!(find_mappings(&key, &anonymous(&[100]), SIZES, |_| true), [None]);
}

fn find_one(key: &ScheduledMapping, mappings: &[Mapping]) -> FoundMapping {
    find_mappings(std::slice::from_ref(key), mappings, SIZES, |_| true)[0].unwrap()
}

proptest! {
    /// All mappings move, and small ones appear between them.
    #[test]
    fn a_region_is_found_again_at_other_addresses(
        sizes in prop::collection::vec((1u64..40, 0usize..3), 1..20),
        shifts in prop::collection::vec(0u64..1 << 30, 20),
        others in prop::collection::vec(any::<bool>(), 20),
        region in any::<prop::sample::Index>(),
    ) {
        let names = ["", "/usr/lib/libc.so.6", "[anon:cache]"];
        let layout = |shifts: &[u64], others: &[bool]| {
            let (mut mappings, mut next) = (Vec::new(), 1u64 << 40);
            for (at, &(regions, name)) in sizes.iter().enumerate() {
                next += shifts[at] & !4095;
                if others[at] {
                    mappings.push(mapping(names[1], next, 4096));
                    next += 8192;
                }
                // As the kernel aligns large mappings.
                next = next.next_multiple_of(2 << 20);
                let mapped = mapping(names[name], next, regions << 21);
                next = mapped.range.end.get() + 4096;
                mappings.push(mapped);
            }
            mappings
        };
        let first = layout(&[0; 20], &[false; 20]);
        let at = region.index(sizes.len());
        let known = SIZES.region_of(first[at].range.start).get() + sizes[at].0 / 2;
        let (key, index) = index_of(&first, Region::new(known), SIZES).unwrap();
        prop_assert_eq!(index, sizes[at].0 / 2);
        let second = layout(&shifts, &[false; 20]);
        let found = find_one(&key, &second);
        let expected = FoundMapping { position: at, by: FoundBy::Ordinal, is_resized: false };
        prop_assert_eq!(found, expected);
        let region = region_at(&second[at], index, SIZES).unwrap();
        prop_assert_eq!(index_of(&second, region, SIZES), Some((key.clone(), index)));
        // Mappings of a library do not change the ordinals of anonymous memory.
        let third = layout(&shifts, &others);
        let found = find_one(&key, &third);
        if sizes[at].1 != 1 {
            prop_assert_eq!(third[found.position].range.len(), key.bytes);
            prop_assert_eq!(found.by, FoundBy::Ordinal);
        }
    }
}
