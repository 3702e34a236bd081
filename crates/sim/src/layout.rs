//! Layout: the mappings of the simulated processes, as a snapshot has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hugepilot_record::trace::TraceMapping;
use hugepilot_record::{
    Headroom, Mapping, MappingKind, Pressure, ProcessMemory, RegionHeat, RegionPages as SeenPages,
};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, VirtAddr};

use crate::machine::Machine;
use crate::pages::{BASE_PER_REGION, PageClass};
use crate::runs::{Footprint, RegionPages, count};

const SIZES: PageSizes = PageSizes::X86_64;
/// Most memory for the mappings of a process. A trace may state others again and again.
pub const MAX_LAYOUT: Bytes = Bytes::mib(64);
/// Name of memory outside of all mappings.
const UNKNOWN: &str = "[unknown]";
/// Name of regions that several small mappings share.
const SMALL: &str = "[small mappings]";

/// Mappings of each process. Accesses outside of them belong to mappings named `[unknown]`.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    processes: BTreeMap<u16, ProcessLayout>,
}

/// Part of a mapping that no later mapping overlaps.
#[derive(Clone, Debug)]
struct Part {
    range: AddrRange,
    /// The mapping, as it was with the others of its time. Many parts of one may be left.
    whole: Arc<TraceMapping>,
    /// Place among the mappings of the name then.
    ordinal: u64,
    is_former: bool,
}

impl Part {
    /// Returns the part as a mapping.
    fn mapping(&self) -> TraceMapping {
        TraceMapping { range: self.range, name: self.whole.name.clone() }
    }

    /// Returns its memory, at most: its mapping may have other parts.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<TraceMapping>() + self.whole.name.len()
    }
}

/// Mappings of a process.
#[derive(Clone, Debug, Default)]
struct ProcessLayout {
    /// The latest, in address order.
    present: Vec<Part>,
    /// Parts of former ones that no later one overlaps, by first address.
    former: BTreeMap<VirtAddr, Part>,
    bytes: usize,
    /// Parts that were read to cut them.
    #[cfg(test)]
    cut: usize,
}

impl ProcessLayout {
    /// Makes the present mappings former ones, cuts those that `present` overlaps, and reads no
    /// others: a trace may state a mapping more in each block.
    fn set(&mut self, present: Vec<Part>) {
        for mut part in std::mem::take(&mut self.present) {
            part.is_former = true;
            self.former.insert(part.range.start, part);
        }
        present.iter().for_each(|part| self.cut(part.range));
        self.bytes += present.iter().map(Part::bytes).sum::<usize>();
        self.present = present;
    }

    /// Removes `range` from the former mappings.
    fn cut(&mut self, range: AddrRange) {
        while let Some((_, last)) = self.former.range(..range.end).next_back() {
            #[cfg(test)]
            {
                self.cut += 1;
            }
            if last.range.end <= range.start {
                break;
            }
            let (start, part) = (last.range.start, last.clone());
            self.former.remove(&start);
            self.bytes -= part.bytes();
            for rest in [(start, range.start), (range.end, part.range.end)] {
                if rest.0 < rest.1 {
                    let rest = Part { range: AddrRange::new(rest.0, rest.1), ..part.clone() };
                    self.bytes += rest.bytes();
                    self.former.insert(rest.range.start, rest);
                }
            }
        }
    }

    /// Returns all parts, in address order.
    fn parts(&self) -> Vec<Part> {
        let mut all: Vec<Part> = self.present.iter().chain(self.former.values()).cloned().collect();
        all.sort_by_key(|part| part.range.start);
        all
    }

    /// Returns the present parts, and the former ones in `regions`, in address order.
    fn parts_in(&self, regions: impl Iterator<Item = AddrRange>) -> Vec<Part> {
        let former = regions.flat_map(|region| {
            let before = self.former.range(..region.end).rev().map(|(_, part)| part);
            before.take_while(move |part| region.start < part.range.end)
        });
        let mut all: Vec<&Part> = self.present.iter().chain(former).collect();
        all.sort_by_key(|part| part.range.start);
        all.dedup_by_key(|part| part.range.start);
        all.into_iter().cloned().collect()
    }
}

impl Layout {
    /// Notes the mappings of a process. Overlapping ones are cut at the next one's begin. What no
    /// new one overlaps of a former one stays, for the accesses that it had.
    pub fn set(&mut self, process: u16, mut mappings: Vec<TraceMapping>) {
        mappings.retain(|mapping| !mapping.range.is_empty());
        mappings.sort_by_key(|mapping| (mapping.range.start, mapping.range.end));
        for at in 1..mappings.len() {
            let next = mappings[at].range.start;
            let before = &mut mappings[at - 1].range;
            *before = AddrRange::new(before.start, before.end.min(next).max(before.start));
        }
        mappings.retain(|mapping| !mapping.range.is_empty());
        let mut seen = BTreeMap::new();
        let part = |whole: TraceMapping| {
            let ordinal = next_ordinal(&mut seen, &whole.name);
            Part { range: whole.range, whole: Arc::new(whole), ordinal, is_former: false }
        };
        let parts = mappings.into_iter().map(part).collect();
        self.processes.entry(process).or_default().set(parts);
    }

    /// Returns the memory for the mappings of a process, at most: each part counts with its name.
    pub fn bytes(&self, process: u16) -> Bytes {
        let bytes = self.processes.get(&process).map_or(0, |process| process.bytes);
        Bytes::new(bytes as u64)
    }

    /// Returns the place of each region, by number.
    pub fn places(&self, footprint: &Footprint) -> Places {
        let processes: std::collections::BTreeSet<u16> =
            footprint.regions().iter().map(RegionPages::process).collect();
        let mut mappings: Vec<NamedMapping> = Vec::new();
        let mut known = BTreeMap::new();
        let mut own = BTreeMap::new();
        for process in processes {
            let parts = self.parts_of(process, footprint);
            let mut seen = BTreeMap::new();
            for part in parts.iter().filter(|part| !part.is_former) {
                next_ordinal(&mut seen, &part.whole.name);
            }
            let place = |Part { whole, ordinal, is_former, .. }: &Part| {
                // Several parts of a mapping may be left.
                let key = (process, whole.range.start, whole.range.end, *ordinal);
                *known.entry(key).or_insert_with(|| {
                    let (mapping, ordinal) = (TraceMapping::clone(whole), *ordinal);
                    let number =
                        if *is_former { next_ordinal(&mut seen, &whole.name) } else { ordinal };
                    mappings.push(NamedMapping { process, mapping, ordinal, number });
                    mappings.len() - 1
                })
            };
            let places: Vec<usize> = parts.iter().map(place).collect();
            own.insert(process, (parts, places));
        }
        let place = |region: &RegionPages| {
            let (parts, places) = &own[&region.process()];
            let at = place_in(parts, |part| part.range, range_of(region)).unwrap_or(0);
            let (range, own) = (parts[at].whole.range, region.region());
            let index = own.get().saturating_sub(SIZES.region_of(range.start).get());
            let inside = SIZES.span_inside(range).filter(|inside| inside.contains(&own));
            let inside = inside.map(|inside| own.get() - inside.start().get());
            Place { mapping: places[at], index, inside }
        };
        let regions = footprint.regions().iter().map(place).collect();
        let mut small: Vec<(u32, AddrRange, u16)> = Vec::new();
        for (number, region) in (0..).zip(footprint.regions()) {
            let (range, process) = (range_of(region), region.process());
            if is_shared(&own[&process].0, range) {
                small.push((number, range, process));
            }
        }
        let small = shared(small, &mut mappings);
        Places { mappings, regions, small }
    }

    /// Returns the mappings of a process in address order, with those of accesses outside of all.
    /// Of a former mapping, it has the parts that no later one overlaps.
    pub fn of(&self, process: u16, footprint: &Footprint) -> Vec<TraceMapping> {
        self.parts_of(process, footprint).iter().map(Part::mapping).collect()
    }

    fn parts_of(&self, process: u16, footprint: &Footprint) -> Vec<Part> {
        let all = self.processes.get(&process).map_or_else(Vec::new, ProcessLayout::parts);
        with_unknown(all, ranges_of(process, footprint))
    }

    /// The same without former parts that have no page: a decision costs no time for these.
    fn parts_in_use(&self, process: u16, footprint: &Footprint) -> Vec<Part> {
        let own = self.processes.get(&process);
        let parts = |own: &ProcessLayout| own.parts_in(ranges_of(process, footprint));
        with_unknown(own.map_or_else(Vec::new, parts), ranges_of(process, footprint))
    }

    /// Returns the memory of a process, as the kernel would show it: of former mappings, only those
    /// with pages. `covered` has the base pages of each region that count as used recently, by
    /// number in `footprint`.
    pub(crate) fn memory(
        &self,
        process: u16,
        time: Nanos,
        footprint: &Footprint,
        machine: &Machine,
        covered: &[u32],
    ) -> ProcessMemory {
        let parts = self.parts_in_use(process, footprint);
        let mut mappings: Vec<Mapping> = parts.iter().map(seen).collect();
        let mut pages = BTreeMap::new();
        let mut heat = Vec::new();
        for (number, own) in (0..).zip(footprint.regions()) {
            if own.process() != process {
                continue;
            }
            let region = own.region();
            let huge = machine.class(number) != PageClass::Base;
            let touched = u64::from(count(&own.touched()));
            let resident = if huge { BASE_PER_REGION as u64 } else { touched };
            pages.insert(region, SeenPages { huge, ..SeenPages::on_base_pages(region, resident) });
            let sampled_pages = covered.get(number as usize).copied().unwrap_or(0);
            heat.push(RegionHeat { region, samples: 0, streamed: 0, tlb_held: 0, sampled_pages });
            let place = place_in(&parts, |part| part.range, range_of(own));
            if let Some(mapping) = place.and_then(|at| mappings.get_mut(at)) {
                mapping.resident += SIZES.base.times(resident);
                mapping.huge += if huge { SIZES.huge } else { Bytes::ZERO };
            }
        }
        let all = parts.iter().zip(mappings);
        let present = all.filter(|(part, own)| !part.is_former || own.resident > Bytes::ZERO);
        ProcessMemory {
            time,
            sizes: SIZES,
            mappings: present.map(|(_, own)| own).collect(),
            heat,
            stacks: std::collections::BTreeSet::new(),
            pages,
            thp_disabled: false,
            untouched: Bytes::ZERO,
            headroom: Headroom::UNLIMITED,
            pressure: Pressure::default(),
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
    /// Place among the mappings of that name at its time, in address order, from 0: schedules know
    /// it by that.
    pub ordinal: u64,
    /// Place among all mappings of that name, former ones last, from 0.
    pub number: u64,
}

impl NamedMapping {
    /// Whether it is a mapping of the process. If not, it stands for accesses outside of all.
    pub fn is_known(&self) -> bool {
        self.mapping.name != UNKNOWN
    }
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
    /// Regions that several small mappings share.
    small: BTreeMap<u32, Place>,
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
    /// Returns the place of a region in reports: as [`Self::of`], or in `[small mappings]` if
    /// several small mappings share it.
    pub fn shown(&self, region: u32) -> Place {
        self.small.get(&region).copied().unwrap_or_else(|| self.of(region))
    }
}

/// Counts the mappings of each name.
fn next_ordinal(seen: &mut BTreeMap<String, u64>, name: &str) -> u64 {
    if let Some(count) = seen.get_mut(name) {
        *count += 1;
        return *count;
    }
    seen.insert(name.to_owned(), 0);
    0
}

/// Returns the addresses of the regions of a process.
fn ranges_of(process: u16, footprint: &Footprint) -> impl Iterator<Item = AddrRange> {
    let own = footprint.regions().iter().filter(move |region| region.process() == process);
    own.map(range_of)
}

/// Adds parts for those of `regions` that are outside of all.
fn with_unknown(mut all: Vec<Part>, regions: impl Iterator<Item = AddrRange>) -> Vec<Part> {
    let is_outside = |range: &AddrRange| place_in(&all, |part| part.range, *range).is_none();
    let mut outside: Vec<AddrRange> = regions.filter(is_outside).collect();
    outside.sort_by_key(|range| range.start);
    let mut unknown: Vec<AddrRange> = Vec::new();
    for range in outside {
        match unknown.last_mut() {
            Some(last) if last.end == range.start => {
                *last = AddrRange::new(last.start, range.end);
            }
            _ => unknown.push(range),
        }
    }
    let part = |(ordinal, range)| Part {
        range,
        whole: Arc::new(TraceMapping { range, name: UNKNOWN.to_owned() }),
        ordinal,
        is_former: false,
    };
    all.extend((0..).zip(unknown).map(part));
    all.sort_by_key(|part| part.range.start);
    all
}

/// Returns the mapping of a region: that of its middle, or else of its first address, or else the
/// first that begins in it. `None` outside all. `mappings` are in address order.
fn place_in<T>(
    mappings: &[T],
    range_of: impl Fn(&T) -> AddrRange,
    region: AddrRange,
) -> Option<usize> {
    let middle = region.start.plus(Bytes::new(SIZES.huge.get() / 2));
    let holds = |address| {
        let after = mappings.partition_point(|one| range_of(one).start <= address);
        let at = after.checked_sub(1)?;
        range_of(&mappings[at]).contains(address).then_some(at)
    };
    let after = mappings.partition_point(|one| range_of(one).start < region.start);
    let begins = (after < mappings.len() && region.contains(range_of(&mappings[after]).start))
        .then_some(after);
    holds(middle).or_else(|| holds(region.start)).or(begins)
}

/// Whether the mapping of a region is a small part of it beside others: it has less than half of
/// the region and nothing outside, and a mapping of another name is in the region, too.
fn is_shared(parts: &[Part], region: AddrRange) -> bool {
    let Some(at) = place_in(parts, |part| part.range, region) else { return false };
    let Part { range, whole, .. } = &parts[at];
    let is_small = region.start <= whole.range.start
        && whole.range.end <= region.end
        && range.len().get() < SIZES.huge.get() / 2;
    let first = parts.partition_point(|part| part.range.end <= region.start);
    let mut all = parts[first..].iter().take_while(|part| part.range.start < region.end);
    is_small && all.any(|part| part.whole.name != whole.name)
}

/// Adds a mapping for neighbours among shared regions. Returns the place of each.
fn shared(
    mut regions: Vec<(u32, AddrRange, u16)>,
    mappings: &mut Vec<NamedMapping>,
) -> BTreeMap<u32, Place> {
    regions.sort_by_key(|&(_, range, process)| (process, range.start));
    let mut places = BTreeMap::new();
    let (mut number, mut index) = (0, 0);
    for (at, &(region, range, process)) in regions.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| regions[before]);
        let of_process = before.filter(|before| before.2 == process);
        match (of_process, mappings.last_mut()) {
            (Some(before), Some(last)) if before.1.end == range.start => {
                index += 1;
                last.mapping.range = AddrRange::new(last.mapping.range.start, range.end);
            }
            _ => {
                number = of_process.map_or(0, |_| number + 1);
                index = 0;
                let mapping = TraceMapping { range, name: SMALL.to_owned() };
                mappings.push(NamedMapping { process, mapping, ordinal: number, number });
            }
        }
        places.insert(region, Place { mapping: mappings.len() - 1, index, inside: None });
    }
    places
}

/// Returns the addresses of a region.
pub(crate) fn range_of(region: &RegionPages) -> AddrRange {
    region.region().range(SIZES)
}

/// Returns a mapping as the kernel shows it: a path is a file, which policies exclude.
fn seen(part: &Part) -> Mapping {
    let mapping = part.mapping();
    let mut seen = Mapping::anonymous(mapping.range);
    seen.unmapped = part.is_former || mapping.name == UNKNOWN;
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
mod tests;
