use super::*;
use hugepilot_policy::tune::index_of;
use hugepilot_units::Region;
use proptest::prelude::*;

use crate::machine::MachineConfig;
use crate::preset::Preset;
use crate::runs::Batch;

const MIB: u64 = 1 << 20;

fn mapping(start: u64, end: u64, name: &str) -> TraceMapping {
    let range = AddrRange::new(VirtAddr::new(start * MIB), VirtAddr::new(end * MIB));
    TraceMapping { range, name: name.to_owned() }
}

fn footprint(mib: &[u64]) -> Footprint {
    executed(mib).0
}

/// Footprint, and a machine that knows its regions.
fn executed(mib: &[u64]) -> (Footprint, Machine) {
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    footprint.add(0, 0, mib.iter().map(|at| at * MIB), &mut batch);
    let mut machine = Machine::new(MachineConfig::new(Preset::built_in("haswell").unwrap()));
    machine.run(&batch);
    (footprint, machine)
}

#[test]
fn a_region_belongs_to_the_mapping_of_its_middle() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(11, 20, "b"), mapping(4, 11, "a"), mapping(26, 27, "c")]);
    let footprint = footprint(&[4, 10, 12, 26, 40, 42]);
    let places = layout.places(&footprint);
    let names: Vec<_> = (0..6)
        .map(|region| {
            let Place { mapping, index, .. } = places.of(region);
            (places.mappings()[mapping].mapping.name.as_str(), index)
        })
        .collect();
    let outside = [("[unknown]", 0), ("[unknown]", 1)];
    assert_eq!(names, [&[("a", 0), ("b", 0), ("b", 1), ("c", 0)][..], &outside].concat());
    let all: Vec<_> = layout.of(0, &footprint).into_iter().map(|one| one.name).collect();
    assert_eq!(all, ["a", "b", "c", "[unknown]"]);
    assert_eq!(layout.of(0, &footprint)[3], mapping(40, 44, "[unknown]"));
}

#[test]
fn overlapping_and_empty_mappings_are_cut() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(4, 20, "a"), mapping(8, 12, "b"), mapping(5, 5, "c")]);
    let all = layout.of(0, &Footprint::new());
    assert_eq!(all, [mapping(4, 8, "a"), mapping(8, 12, "b")]);
    layout.set(0, vec![mapping(6, 9, "d")]);
    let all = layout.of(0, &Footprint::new());
    let known = [mapping(4, 6, "a"), mapping(6, 9, "d"), mapping(9, 12, "b")];
    assert_eq!(all, known, "the rest of former ones is known");
    layout.set(0, vec![mapping(30, 32, "e")]);
    let all = layout.of(0, &Footprint::new());
    assert_eq!(all, [&known[..], &[mapping(30, 32, "e")]].concat());
    layout.set(0, vec![mapping(0, 40, "f")]);
    assert_eq!(layout.of(0, &Footprint::new()), [mapping(0, 40, "f")]);
}

/// Mappings that cut others again and again, as a hostile trace has them.
#[test]
fn the_memory_of_former_mappings_is_known() {
    let mut layout = Layout::default();
    assert_eq!(layout.bytes(0), Bytes::ZERO);
    layout.set(0, vec![mapping(0, 4096, &"a".repeat(4096))]);
    let one = layout.bytes(0);
    assert!((4096..4300).contains(&one.get()), "{one}");
    layout.set(0, (0..1024).map(|at| mapping(4 * at + 1, 4 * at + 2, "b")).collect());
    let parts = layout.processes[&0].parts();
    let names: Vec<_> = parts.iter().map(|part| Arc::as_ptr(&part.whole)).collect();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!((names.len(), distinct.len()), (1024 + 1025, 1025), "parts share their mapping");
    assert!(layout.bytes(0) >= Bytes::new(1025 * one.get() + 1024), "each part counts");
}

/// A trace states one mapping more in each block, which needs 27 bytes.
#[test]
fn mappings_read_only_the_former_ones_that_they_overlap() {
    let mut layout = Layout::default();
    let count = 3000;
    layout.set(0, vec![mapping(0, 4 * count, "a")]);
    for at in (0..count).rev() {
        layout.set(0, vec![mapping(4 * at + 1, 4 * at + 2, "b")]);
    }
    let ProcessLayout { former, cut, .. } = &layout.processes[&0];
    assert_eq!(former.len() as u64, 2 * count, "all but the last of each name");
    assert!(*cut as u64 <= 2 * count, "{cut} for {count} mappings");
    let in_use = layout.parts_in_use(0, &footprint(&[0, 40, 400]));
    assert!(in_use.len() < 10, "{} parts for a decision", in_use.len());
}

proptest! {
    /// Against a list of the latest mapping of each MiB.
    #[test]
    fn parts_are_those_of_the_latest_mappings(
        sets in prop::collection::vec(prop::collection::vec((0u64..48, 1u64..16), 0..6), 1..12),
    ) {
        let mut layout = Layout::default();
        let mut latest = [const { None }; 64];
        for (number, set) in sets.into_iter().enumerate() {
            let name = |at: usize| format!("{number} {at}");
            let mut all: Vec<_> = set.iter().map(|&(start, len)| (start, start + len)).collect();
            all.sort_unstable();
            all.dedup_by_key(|one| one.0);
            latest.iter_mut().flatten().for_each(|(_, is_former)| *is_former = true);
            for (at, &(start, end)) in all.iter().enumerate() {
                // Later ones overwrite the ends of those before, and what is behind.
                let next = all.get(at + 1).map_or(u64::MAX, |next| next.0);
                for mib in start..end.min(next) {
                    latest[mib as usize] = Some((name(at), false));
                }
            }
            let mappings = all.iter().enumerate();
            let mappings = mappings.map(|(at, &(start, end))| mapping(start, end, &name(at)));
            layout.set(0, mappings.rev().collect());
            let parts = layout.processes[&0].parts();
            prop_assert!(parts.is_sorted_by(|a, b| a.range.end <= b.range.start));
            let mut found = [const { None }; 64];
            for part in &parts {
                for mib in part.range.start.get() / MIB..part.range.end.get() / MIB {
                    found[mib as usize] = Some((part.whole.name.clone(), part.is_former));
                }
            }
            prop_assert_eq!(&found, &latest);
            let footprint = footprint(&[3, 9, 20, 41, 62]);
            let in_use = layout.parts_in_use(0, &footprint);
            let all = layout.parts_of(0, &footprint);
            for region in ranges_of(0, &footprint) {
                let place = |parts: &[Part]| {
                    let at = place_in(parts, |part| part.range, region).unwrap();
                    (parts[at].range, parts[at].whole.name.clone(), parts[at].is_former)
                };
                prop_assert_eq!(place(&in_use), place(&all));
            }
            let bytes: usize = parts.iter().map(Part::bytes).sum();
            prop_assert_eq!(layout.bytes(0), Bytes::new(bytes as u64));
        }
    }
}

/// A stack beside libraries has no name that is right for their region.
#[test]
fn small_mappings_of_a_region_have_one_name() {
    let at = |kib: u64, kib_end: u64, name: &str| {
        let [start, end] = [kib, kib_end].map(|kib| VirtAddr::new(kib << 10));
        TraceMapping { range: AddrRange::new(start, end), name: name.to_owned() }
    };
    let mut layout = Layout::default();
    layout.set(
        0,
        vec![
            at(4096, 4100, "a"),
            at(5000, 5200, "b"),
            at(6200, 6300, "c"),
            at(7900, 8000, "d"),
            at(10240, 10400, "alone"),
            at(12288, 12300, "file"),
            at(13300, 13400, "file"),
            at(14336, 15400, "half"),
            at(15400, 15500, "e"),
            at(16384, 16400, "f"),
            at(17400, 40000, "large"),
        ],
    );
    let footprint = footprint(&[4, 6, 10, 12, 14, 16]);
    let places = layout.places(&footprint);
    let shown: Vec<_> = (0..6)
        .map(|region| {
            let Place { mapping, index, inside } = places.shown(region);
            let named = &places.mappings()[mapping];
            (named.mapping.name.as_str(), named.number, index, inside.is_some())
        })
        .collect();
    let names = ["alone", "file", "half", "large"].map(|name| {
        let number = u64::from(name == "file");
        (name, number, 0, false)
    });
    let small = [("[small mappings]", 0, 0, false), ("[small mappings]", 0, 1, false)];
    assert_eq!(shown, [&small[..], &names].concat());
    assert_eq!(places.mappings()[places.of(0).mapping].mapping.name, "b");
}

/// The memory of a former mapping is known by that mapping, not by the part that is left of it,
/// which no process has.
#[test]
fn a_region_of_a_former_mapping_has_its_place_there() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(2, 4, "a"), mapping(10, 30, "a"), mapping(40, 44, "a")]);
    layout.set(0, vec![mapping(2, 4, "a"), mapping(16, 24, "a"), mapping(40, 44, "b")]);
    let places = layout.places(&footprint(&[2, 12, 20, 26, 40, 42]));
    let all: Vec<_> = (0..6)
        .map(|region| {
            let Place { mapping, index, inside } = places.of(region);
            let named = &places.mappings()[mapping];
            let mib = named.mapping.range.len().get() / MIB;
            let name = (named.mapping.name.as_str(), named.ordinal, named.number);
            (name, mib, index, inside)
        })
        .collect();
    let former = |index| (("a", 1, 2), 20, index, Some(index));
    let latest = |index| (("b", 0, 0), 4, index, Some(index));
    let present = (("a", 1, 1), 8, 2, Some(2));
    let same = [(("a", 0, 0), 2, 0, Some(0)), former(1), present, former(8)];
    assert_eq!(all, [&same[..], &[latest(0), latest(1)]].concat());
    assert_eq!(places.mappings().len(), 4, "both parts are of one mapping");
}

#[test]
fn memory_is_as_the_kernel_shows_it() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(4, 8, "[anon]"), mapping(8, 12, "/lib/c.so")]);
    let (footprint, mut machine) = executed(&[4, 5, 6, 8]);
    machine.set_class(1, PageClass::Huge);
    let memory = layout.memory(0, Nanos::seconds(1), &footprint, &machine, &[2, 1, 1]);
    let resident: Vec<_> = memory.mappings.iter().map(|one| one.resident.get()).collect();
    assert_eq!(resident, [8192 + 2 * MIB, 4096]);
    assert_eq!(memory.mappings[0].huge, SIZES.huge);
    assert_eq!(memory.mappings[1].kind, MappingKind::File);
    assert_eq!(memory.pages[&Region::new(2)].resident, 2);
    assert!(memory.pages[&Region::new(3)].huge);
    assert_eq!(memory.heat[0].sampled_pages, 2);
}

/// A schedule out of the journal has the ordinals of that out of the simulation.
#[test]
fn memory_has_no_former_mapping_without_pages() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(2, 8, "a"), mapping(20, 22, "a"), mapping(30, 34, "a")]);
    layout.set(0, vec![mapping(4, 6, "a"), mapping(10, 14, "a")]);
    let (footprint, machine) = executed(&[10, 12, 30]);
    let memory = layout.memory(0, Nanos::seconds(1), &footprint, &machine, &[]);
    let ranges: Vec<_> = memory.mappings.iter().map(|one| one.range).collect();
    let expected = [mapping(4, 6, "a"), mapping(10, 14, "a"), mapping(30, 34, "a")];
    assert_eq!(ranges, expected.map(|one| one.range));

    let places = layout.places(&footprint);
    let named = &places.mappings()[places.of(1).mapping];
    let found = index_of(&memory.mappings, Region::new(6), SIZES);
    let (scheduled, index) = found.unwrap();
    assert_eq!((u64::from(scheduled.ordinal), Some(index)), (named.ordinal, places.of(1).inside));
}

#[test]
fn a_former_mapping_with_pages_leaves_the_ordinals() {
    let mut layout = Layout::default();
    layout.set(0, vec![mapping(2, 8, "a"), mapping(10, 14, "a")]);
    layout.set(0, vec![mapping(10, 14, "a")]);
    let (footprint, machine) = executed(&[2, 12, 30]);
    let memory = layout.memory(0, Nanos::seconds(1), &footprint, &machine, &[]);
    let of = |region| index_of(&memory.mappings, Region::new(region), SIZES);
    let unmapped: Vec<_> = memory.mappings.iter().map(|one| one.unmapped).collect();
    assert_eq!(unmapped, [true, false, true], "that with pages, and that outside of all");
    assert_eq!((of(1), of(15)), (None, None));
    let places = layout.places(&footprint);
    let named = &places.mappings()[places.of(1).mapping];
    let (scheduled, index) = of(6).unwrap();
    assert_eq!((u64::from(scheduled.ordinal), index), (named.ordinal, 1));
    assert_eq!(named.ordinal, 0);
}
