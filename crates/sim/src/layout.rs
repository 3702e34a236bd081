//! Layout: the mappings of the simulated processes, as a snapshot has them.

use std::collections::BTreeMap;

use hugepilot_record::trace::TraceMapping;
use hugepilot_record::{
    Headroom, Mapping, MappingKind, ProcessMemory, RegionHeat, RegionPages as SeenPages,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, VirtAddr};

use crate::machine::Machine;
use crate::pages::{BASE_PER_REGION, PageClass};
use crate::runs::{Footprint, RegionPages, count};

const SIZES: PageSizes = PageSizes::X86_64;

/// Mappings of each process. Accesses outside of them belong to mappings named `[unknown]`.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    mappings: BTreeMap<u16, Vec<TraceMapping>>,
}

impl Layout {
    /// Notes the mappings of a process. Overlapping ones are cut at the next one's begin. A former
    /// one stays if no new one overlaps it, for the accesses that it had.
    pub fn set(&mut self, process: u16, mut mappings: Vec<TraceMapping>) {
        let overlaps = |old: &TraceMapping| {
            mappings.iter().any(|new| !new.range.intersect(old.range).is_empty())
        };
        let former = self.mappings.remove(&process).unwrap_or_default();
        let kept: Vec<_> = former.into_iter().filter(|old| !overlaps(old)).collect();
        mappings.extend(kept);
        mappings.retain(|mapping| !mapping.range.is_empty());
        mappings.sort_by_key(|mapping| (mapping.range.start, mapping.range.end));
        for at in 1..mappings.len() {
            let next = mappings[at].range.start;
            let before = &mut mappings[at - 1].range;
            *before = AddrRange::new(before.start, before.end.min(next).max(before.start));
        }
        mappings.retain(|mapping| !mapping.range.is_empty());
        self.mappings.insert(process, mappings);
    }

    fn mapping_of(&self, region: &RegionPages) -> Option<usize> {
        place_in(self.mappings.get(&region.process())?, range_of(region))
    }

    /// Returns the place of each region, by number.
    pub fn places(&self, footprint: &Footprint) -> Places {
        let processes: std::collections::BTreeSet<u16> =
            footprint.regions().iter().map(RegionPages::process).collect();
        let mut all = Places::default();
        let mut first = BTreeMap::new();
        for process in processes {
            let mut seen: BTreeMap<String, u64> = BTreeMap::new();
            let mappings = self.of(process, footprint);
            first.insert(process, (all.mappings.len(), mappings.clone()));
            for mapping in mappings {
                let count = seen.entry(mapping.name.clone()).or_insert(0);
                let ordinal = std::mem::replace(count, *count + 1);
                all.mappings.push(NamedMapping { process, mapping, ordinal });
            }
        }
        all.regions = footprint
            .regions()
            .iter()
            .map(|region| {
                let (first, mappings) = &first[&region.process()];
                let at = place_in(mappings, range_of(region)).unwrap_or(0);
                let (range, own) = (mappings[at].range, SIZES.region_of(range_of(region).start));
                let index = own.get().saturating_sub(SIZES.region_of(range.start).get());
                let inside = SIZES.span_inside(range).filter(|inside| inside.contains(&own));
                let inside = inside.map(|inside| own.get() - inside.start().get());
                Place { mapping: first + at, index, inside }
            })
            .collect();
        all
    }

    /// Returns the mappings of a process in address order, with those of accesses outside of all.
    pub fn of(&self, process: u16, footprint: &Footprint) -> Vec<TraceMapping> {
        let known = self.mappings.get(&process).map_or(&[][..], Vec::as_slice);
        let regions = footprint.regions().iter();
        let mut outside: Vec<AddrRange> = regions
            .filter(|region| region.process() == process && self.mapping_of(region).is_none())
            .map(range_of)
            .collect();
        outside.sort_by_key(|range| range.start);
        let mut all = known.to_vec();
        for range in outside {
            match all[known.len()..].last_mut() {
                Some(last) if last.range.end == range.start => {
                    last.range = AddrRange::new(last.range.start, range.end);
                }
                _ => all.push(TraceMapping { range, name: "[unknown]".to_owned() }),
            }
        }
        all.sort_by_key(|mapping| mapping.range.start);
        all
    }

    /// Returns the memory of a process, as the kernel would show it. `covered` has the base pages
    /// of each region that count as used recently, by number in `footprint`.
    pub(crate) fn memory(
        &self,
        process: u16,
        time: Nanos,
        footprint: &Footprint,
        machine: &Machine,
        covered: &[u32],
    ) -> ProcessMemory {
        let laid_out = self.of(process, footprint);
        let mut mappings: Vec<Mapping> = laid_out.iter().cloned().map(seen).collect();
        let mut pages = BTreeMap::new();
        let mut heat = Vec::new();
        for (number, own) in (0..).zip(footprint.regions()) {
            if own.process() != process {
                continue;
            }
            let region = SIZES.region_of(VirtAddr::new(own.address()));
            let huge = machine.class(number) != PageClass::Base;
            let touched = u64::from(count(&own.touched()));
            let resident = if huge { BASE_PER_REGION as u64 } else { touched };
            pages.insert(region, SeenPages { region, resident, swapped: 0, huge, shared: 0 });
            let sampled_pages = covered.get(number as usize).copied().unwrap_or(0);
            heat.push(RegionHeat { region, samples: 0, streamed: 0, tlb_held: 0, sampled_pages });
            let place = place_in(&laid_out, range_of(own));
            if let Some(mapping) = place.and_then(|at| mappings.get_mut(at)) {
                mapping.resident += SIZES.base.times(resident);
                mapping.huge += if huge { SIZES.huge } else { Bytes::ZERO };
            }
        }
        ProcessMemory {
            time,
            sizes: SIZES,
            mappings,
            heat,
            stacks: std::collections::BTreeSet::new(),
            pages,
            thp_disabled: false,
            headroom: Headroom::UNLIMITED,
        }
    }
}

/// Mapping of a process, with its name among those of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedMapping {
    /// Process.
    pub process: u16,
    /// Mapping.
    pub mapping: TraceMapping,
    /// Place among the mappings of that name, in address order, from 0.
    pub ordinal: u64,
}

/// Place of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Place of its mapping in [`Places::mappings`].
    pub mapping: usize,
    /// Index among the 2 MiB regions of the mapping, from that of the first address.
    pub index: u64,
    /// Index among those wholly inside the mapping; `None` at its border.
    pub inside: Option<u64>,
}

/// Places of regions in mappings.
#[derive(Clone, Debug, Default)]
pub struct Places {
    mappings: Vec<NamedMapping>,
    regions: Vec<Place>,
}

impl Places {
    /// Returns all mappings, by process and address.
    pub fn mappings(&self) -> &[NamedMapping] {
        &self.mappings
    }
    /// Returns the place of a region, by its ID in the footprint.
    pub fn of(&self, region: u32) -> Place {
        self.regions[region as usize]
    }
}

/// Returns the mapping of a region: that of its middle, or else of its first address, or else the
/// first that begins in it. `None` outside all. `mappings` are in address order.
fn place_in(mappings: &[TraceMapping], range: AddrRange) -> Option<usize> {
    let middle = range.start.plus(Bytes::new(SIZES.huge.get() / 2));
    let holds = |address| {
        let after = mappings.partition_point(|one| one.range.start <= address);
        let at = after.checked_sub(1)?;
        mappings[at].range.contains(address).then_some(at)
    };
    let after = mappings.partition_point(|one| one.range.start < range.start);
    let begins =
        (after < mappings.len() && range.contains(mappings[after].range.start)).then_some(after);
    holds(middle).or_else(|| holds(range.start)).or(begins)
}

/// Returns the addresses of a region.
pub(crate) fn range_of(region: &RegionPages) -> AddrRange {
    AddrRange::at(VirtAddr::new(region.address()), SIZES.huge)
}

/// Returns a mapping as the kernel shows it: a path is a file, which policies exclude.
fn seen(mapping: TraceMapping) -> Mapping {
    let mut seen = Mapping::anonymous(mapping.range);
    (seen.resident, seen.proportional) = (Bytes::ZERO, Bytes::ZERO);
    seen.kind = match mapping.name.as_str() {
        "[stack]" => MappingKind::Stack,
        name if name.starts_with('/') => MappingKind::File,
        "[vdso]" | "[vvar]" | "[vsyscall]" => MappingKind::Special,
        _ => MappingKind::Anonymous,
    };
    if mapping.name != "[anon]" {
        seen.name = mapping.name;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepilot_units::Region;

    use crate::machine::MachineConfig;
    use crate::preset::Preset;

    const MIB: u64 = 1 << 20;

    fn mapping(start: u64, end: u64, name: &str) -> TraceMapping {
        let range = AddrRange::new(VirtAddr::new(start * MIB), VirtAddr::new(end * MIB));
        TraceMapping { range, name: name.to_owned() }
    }

    fn footprint(mib: &[u64]) -> Footprint {
        let (mut footprint, mut runs) = (Footprint::new(), Vec::new());
        footprint.add(0, 0, mib.iter().map(|at| at * MIB), &mut runs);
        footprint
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
        assert_eq!(layout.of(0, &Footprint::new()), [mapping(6, 9, "d")]);
        layout.set(0, vec![mapping(30, 32, "e")]);
        let all: Vec<_> = layout.of(0, &Footprint::new()).into_iter().map(|one| one.name).collect();
        assert_eq!(all, ["d", "e"], "a former one is known");
    }

    #[test]
    fn memory_is_as_the_kernel_shows_it() {
        let mut layout = Layout::default();
        layout.set(0, vec![mapping(4, 8, "[anon]"), mapping(8, 12, "/lib/c.so")]);
        let footprint = footprint(&[4, 5, 6, 8]);
        let mut machine = Machine::new(MachineConfig::new(Preset::built_in("haswell").unwrap()));
        machine.run(&[], &footprint);
        machine.set_class(1, PageClass::Huge, &footprint);
        let memory = layout.memory(0, Nanos::seconds(1), &footprint, &machine, &[2, 1, 1]);
        let resident: Vec<_> = memory.mappings.iter().map(|one| one.resident.get()).collect();
        assert_eq!(resident, [8192 + 2 * MIB, 4096]);
        assert_eq!(memory.mappings[0].huge, SIZES.huge);
        assert_eq!(memory.mappings[1].kind, MappingKind::File);
        assert_eq!(memory.pages[&Region::new(2)].resident, 2);
        assert!(memory.pages[&Region::new(3)].huge);
        assert_eq!(memory.heat[0].sampled_pages, 2);
    }
}
