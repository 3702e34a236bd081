//! Mappings of a traced program, read when an access lies outside of the known ones.

use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, proc};
use hugepilot_record::trace::{MAX_MAPPINGS, TraceAccess, TraceMapping};
use hugepilot_record::{Mapping, Pid, Protection};
use hugepilot_sim::{MappingChange, PlacedArea, Placement};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

/// Time for reads at the start, when a program maps its libraries.
const ADVANCE: Duration = Duration::from_millis(20);
/// Later reads take this part of the time, so that a program that maps all the time is not slowed
/// down.
const SHARE: u32 = 10;
/// Name of anonymous memory.
const ANONYMOUS: &str = "[anon]";
/// Pages whose mapping is known, direct-mapped.
const KNOWN_PAGES: usize = 1024;

/// Part of a mapping that is all of one area, or of none.
#[derive(Clone, Debug)]
struct Part {
    /// First address in the program.
    start: u64,
    bytes: u64,
    /// Distance of its addresses under Linux.
    shift: u64,
    name: String,
    protection: Protection,
    /// Area, and its flags that forbid a merge; `None` outside of all areas.
    area: Option<(u64, u64)>,
}

/// Known mappings of a program that runs under an engine. The engine is in the same process; its
/// own mappings are omitted as far as they are known.
pub(super) struct Mappings {
    pid: Pid,
    /// File name of the engine.
    engine: &'static str,
    placement: Placement,
    /// Known ranges, sorted: first address, size, and shift to the address under Linux.
    ranges: Vec<(u64, u64, u64)>,
    /// Range of the last access.
    last: (u64, u64, u64),
    /// Pages with their shift.
    pages: Box<[(u64, u64); KNOWN_PAGES]>,
    /// Mapping of the first access, at which the program has its stack.
    stack: Option<u64>,
    /// Whether accesses go to addresses above the engine, so that no mapping may be omitted.
    keeps_all: bool,
    begun: Instant,
    /// Time that reads took.
    spent: Duration,
    /// Address outside of the known mappings, which were not read for it.
    unread: Option<u64>,
    delivered: Vec<TraceMapping>,
}

impl Mappings {
    pub(super) fn new(pid: Pid, engine: &'static str) -> Self {
        Self {
            pid,
            engine,
            placement: Placement::new(),
            ranges: Vec::new(),
            last: (0, 0, 0),
            pages: Box::new([(u64::MAX, 0); KNOWN_PAGES]),
            stack: None,
            keeps_all: false,
            begun: Instant::now(),
            spent: Duration::ZERO,
            unread: None,
            delivered: Vec::new(),
        }
    }

    /// Gives accesses the addresses that they have under Linux. Returns all mappings if one lies
    /// outside of the known ones, unless they have not changed, or reads take too much time: then
    /// [`Self::last`] has them.
    pub(super) fn place(&mut self, accesses: &mut [TraceAccess]) -> Option<Vec<TraceMapping>> {
        let (mut changed, mut may_read) = (None, true);
        for access in accesses {
            let address = access.address;
            let mut shift = self.shift(address).or_else(|| self.former_shift(address));
            if shift.is_none() && std::mem::take(&mut may_read) {
                changed = self.timed_read(address);
                shift = self.shift(address);
            }
            let shift = shift.unwrap_or_else(|| shift_of(self.placement.of(address)));
            access.address = address.wrapping_add(shift);
        }
        changed
    }

    /// Repeats a change of the mappings, after the accesses before it.
    pub(super) fn change(&mut self, change: MappingChange) {
        self.placement.change(change);
        match change {
            MappingChange::Map { start, bytes, .. } | MappingChange::Unmap { start, bytes } => {
                self.forget(start, bytes);
            }
            MappingChange::Remap { old, old_bytes, start, bytes } => {
                self.forget(old, old_bytes);
                self.forget(start, bytes);
            }
        }
    }

    /// Forgets the ranges with one of these addresses: the next access reads the mappings.
    fn forget(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        self.ranges.retain(|range| range.0 >= end || range.0 + range.1 <= start);
        self.forget_recent();
    }

    /// Forgets the range and the pages that were used last.
    fn forget_recent(&mut self) {
        self.last = (0, 0, 0);
        self.pages.fill((u64::MAX, 0));
    }

    /// Distance of an address in a known range from the one under Linux.
    fn shift(&mut self, address: u64) -> Option<u64> {
        if address.wrapping_sub(self.last.0) < self.last.1 {
            return Some(self.last.2);
        }
        let page = address >> 12;
        let known = &mut self.pages[page as usize % KNOWN_PAGES];
        if known.0 == page {
            return Some(known.1);
        }
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let &(start, length, shift) = self.ranges[..after].last()?;
        if address - start >= length {
            return None;
        }
        *known = (page, shift);
        self.last = (start, length, shift);
        Some(shift)
    }

    /// Distance of an address in memory that another thread has unmapped since the access.
    fn former_shift(&self, address: u64) -> Option<u64> {
        self.placement.former(address).map(|area| shift_of(Some(area)))
    }

    /// Returns all mappings, if accesses lie outside of the known ones because reads took too much
    /// time. On a busy machine, that may be those at the start of the program.
    pub(super) fn last(&mut self) -> Option<Vec<TraceMapping>> {
        let unknown = self.unread?;
        self.read(unknown)
    }

    fn timed_read(&mut self, unknown: u64) -> Option<Vec<TraceMapping>> {
        let read = Instant::now();
        if self.spent > ADVANCE + (read - self.begun) / SHARE {
            self.unread = Some(unknown);
            return None;
        }
        let changed = self.read(unknown);
        self.spent += read.elapsed();
        changed
    }

    fn read(&mut self, unknown: u64) -> Option<Vec<TraceMapping>> {
        let text = Root::live().read(format!("proc/{}/maps", self.pid)).ok()?;
        let lines = text.split(|&byte| byte == b'\n');
        let mut all: Vec<Mapping> = lines.filter_map(proc::parse_map_line).collect();
        if all.is_empty() {
            // The program has just ended.
            return None;
        }
        self.unread = None;
        self.stack.get_or_insert(unknown);
        let floor = floor(&all, self.engine);
        all.retain(|mapping| !is_own(&mapping.name, self.engine));
        self.keeps_all |= unknown >= floor;
        let floor = if self.keeps_all { u64::MAX } else { floor };
        let parts = parts(&named(&all, floor, self.stack), &self.placement);
        self.ranges = parts.iter().map(|part| (part.start, part.bytes, part.shift)).collect();
        self.forget_recent();
        let mappings = merged(parts);
        if mappings == self.delivered {
            return None;
        }
        self.delivered.clone_from(&mappings);
        Some(mappings)
    }
}

fn shift_of(area: Option<PlacedArea>) -> u64 {
    area.map_or(0, |area| area.placed.wrapping_sub(area.start))
}

/// Cuts mappings, in address order, at the borders of areas.
fn parts(named: &[(&Mapping, &str)], placement: &Placement) -> Vec<Part> {
    let mut parts = Vec::with_capacity(named.len());
    for (mapping, name) in named {
        let (mut start, end) = (mapping.range.start.get(), mapping.range.end.get());
        while start < end {
            let area = placement.of(start);
            let next = match area {
                Some(area) => area.start + area.bytes,
                None => placement.next(start).map_or(end, |area| area.start),
            };
            parts.push(Part {
                start,
                bytes: next.min(end) - start,
                shift: shift_of(area),
                name: (*name).to_owned(),
                protection: mapping.protection,
                area: area.map(|area| (area.start, area.apart)),
            });
            start = next;
        }
    }
    parts
}

/// Mappings under Linux, which merges neighbours of anonymous memory.
fn merged(mut parts: Vec<Part>) -> Vec<TraceMapping> {
    parts.sort_by_key(|part| part.start.wrapping_add(part.shift));
    let mut all: Vec<TraceMapping> = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let start = VirtAddr::new(part.start.wrapping_add(part.shift));
        let range = AddrRange::at(start, Bytes::new(part.bytes));
        let before = at.checked_sub(1).map(|before| &parts[before]);
        match all.last_mut() {
            Some(last) if last.range.end == start && before.is_some_and(|one| one.merges(part)) => {
                last.range = AddrRange::new(last.range.start, range.end);
            }
            _ => all.push(TraceMapping { range, name: part.name.clone() }),
        }
    }
    all.truncate(MAX_MAPPINGS);
    all
}

impl Part {
    /// Whether Linux merges adjacent parts. Those of one area are mappings that it keeps apart.
    fn merges(&self, next: &Self) -> bool {
        let areas = self.area.zip(next.area);
        let may = areas.is_some_and(|(one, other)| one.0 != other.0 && one.1 == other.1);
        may && self.name == ANONYMOUS
            && next.name == ANONYMOUS
            && self.protection == next.protection
    }
}

/// Whether a mapping has a file of the engine that the program does not use.
fn is_own(name: &str, engine: &str) -> bool {
    name.rsplit('/').next() == Some(engine)
        || name.contains("/vgdb-pipe-")
        || name.starts_with("/memfd:hugepilot-trace")
}

/// Returns the lowest address of the engine. QEMU is a position-independent executable, so the
/// system puts it, its libraries and its stacks far above the program.
fn floor(all: &[Mapping], engine: &str) -> u64 {
    let own = |mapping: &&Mapping| mapping.name.rsplit('/').next() == Some(engine);
    all.iter().find(own).map_or(u64::MAX, |mapping| mapping.range.start.get())
}

/// Names the mappings below `floor`. The stack has the address `stack`. The heap is the anonymous
/// memory behind the first file, which is the program.
fn named(all: &[Mapping], floor: u64, stack: Option<u64>) -> Vec<(&Mapping, &str)> {
    let is_anonymous = |mapping: &Mapping| mapping.name.is_empty();
    let below = || all.iter().filter(|mapping| mapping.range.start.get() < floor);
    let program = below().find(|mapping| mapping.name.starts_with('/'));
    let program = program.map(|mapping| mapping.name.as_str());
    let mut behind = None;
    let mut labelled: Vec<(&Mapping, &str)> = Vec::new();
    for mapping in below() {
        let Mapping { range, name, .. } = mapping;
        let holds_stack = |at: u64| range.contains(VirtAddr::new(at));
        let is_heap = is_anonymous(mapping) && behind == Some(range.start);
        if program == Some(name.as_str()) || is_heap {
            behind = Some(range.end);
        }
        let name = match name.as_str() {
            "" if stack.is_some_and(holds_stack) => "[stack]",
            "" if is_heap => "[heap]",
            "" => ANONYMOUS,
            name => name,
        };
        labelled.push((mapping, name));
    }
    labelled
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
4000000000-4000003000 r--p 00000000 fe:00 99 /tmp/probe
4000004000-4000005000 rw-p 00003000 fe:00 99 /tmp/probe
4000005000-4000026000 rw-p 00000000 00:00 0 
4002005000-4002006000 ---p 00000000 00:00 0 
4002006000-4002806000 rw-p 00000000 00:00 0 
4002847000-4002849000 rw-p 00000000 00:00 0 
4002849000-400286f000 r--p 00000000 fe:00 77 /usr/lib/libc.so.6
561e07506000-561e07572000 r--p 00000000 fe:00 1016 /usr/bin/qemu-x86_64
561e16b9e000-561e16d0c000 rw-p 00000000 00:00 0 [heap]
7fa2c2a00000-7fa2ca9ff000 rwxp 00000000 00:00 0 
";

    fn all() -> Vec<Mapping> {
        MAPS.lines().filter_map(|line| proc::parse_map_line(line.as_bytes())).collect()
    }

    #[test]
    fn mappings_of_the_program_are_named_and_those_of_the_engine_left_out() {
        let all = all();
        let floor = floor(&all, "qemu-x86_64");
        assert_eq!(floor, 0x561e_0750_6000);
        let named = named(&all, floor, Some(0x40_0280_0000));
        let names: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
        let expected = [
            "/tmp/probe",
            "/tmp/probe",
            "[heap]",
            "[anon]",
            "[stack]",
            "[anon]",
            "/usr/lib/libc.so.6",
        ];
        assert_eq!(names, expected);
        assert_eq!(super::named(&all, u64::MAX, None).len(), all.len());
        assert_eq!(super::floor(&all, "other"), u64::MAX);
    }

    #[test]
    fn known_addresses_need_no_read() {
        let mut mappings = Mappings::new(Pid(0), "qemu-x86_64");
        mappings.ranges = vec![(0x1000, 0x2000, 7), (0x8000, 0x1000, 0)];
        let table = [(0x1000, Some(7)), (0x2fff, Some(7)), (0x3000, None), (0x0fff, None)];
        for (address, shift) in table.into_iter().chain([(0x8fff, Some(0)), (0x9000, None)]) {
            for _ in 0..2 {
                assert_eq!(mappings.shift(address), shift, "{address:#x}");
            }
        }
        mappings.change(MappingChange::Unmap { start: 0x2000, bytes: 0x1000 });
        assert_eq!((mappings.shift(0x1000), mappings.shift(0x8000)), (None, Some(0)));
    }

    #[test]
    fn mappings_that_were_not_read_in_time_are_read_at_the_end() {
        let mut mappings = Mappings::new(Pid(std::process::id().cast_signed()), "none");
        let memory = Box::new(0u64);
        let address = std::ptr::from_ref(&*memory) as u64;
        let access = || vec![TraceAccess { address, store: false }];
        assert_eq!(mappings.last(), None);
        mappings.spent = Duration::from_secs(3600);
        assert_eq!(mappings.place(&mut access()), None);
        let all = mappings.last().expect("the mappings");
        assert!(all.iter().any(|one| one.range.contains(VirtAddr::new(address))));
        assert_eq!(mappings.last(), None, "they are known");
        assert_eq!(mappings.place(&mut access()), None);
    }

    /// Three arrays side by side in the engine, one of which ends with a guard page. Memory below
    /// them was unmapped before the last two were mapped.
    const ARRAYS: &str = "\
4000005000-4000026000 rw-p 00000000 00:00 0 
4002008000-400201b000 rw-p 00000000 00:00 0 
400201b000-400201c000 ---p 00000000 00:00 0 
400201c000-4002021000 rw-p 00000000 00:00 0 
";

    #[test]
    fn mappings_are_those_of_linux() {
        let mut mappings = Mappings::new(Pid(0), "qemu-x86_64");
        let map = |pages: u64, start: u64| MappingChange::Map {
            hint: 0,
            bytes: pages << 12,
            start,
            flags: 0x22,
        };
        let gone = (0x40_0200_0000, 8);
        let [edges, scores, sums] = [0x40_0200_8000, 0x40_0201_8000, 0x40_0201_c000];
        mappings.change(map(gone.1, gone.0));
        mappings.change(map(16, edges));
        mappings.change(MappingChange::Unmap { start: gone.0, bytes: gone.1 << 12 });
        mappings.change(map(4, scores));
        mappings.change(map(5, sums));
        let lines = ARRAYS.lines().filter_map(|line| proc::parse_map_line(line.as_bytes()));
        let all: Vec<Mapping> = lines.collect();
        let parts = parts(&named(&all, u64::MAX, None), &mappings.placement);
        let of = |start: u64| parts.iter().find(|part| part.start == start).unwrap();
        let placed = |start: u64| start.wrapping_add(of(start).shift) >> 12;
        assert_eq!(placed(sums) + 5, placed(edges), "below the edges: {parts:x?}");
        assert_eq!(placed(scores), placed(edges) + 20, "in the hole: {parts:x?}");
        let sizes: Vec<u64> =
            merged(parts.clone()).iter().map(|one| one.range.len().get() >> 12).collect();
        // The heap, sums with edges, scores, and their guard page.
        assert_eq!(sizes, [33, 21, 3, 1], "{:x?}", merged(parts));
    }
}
