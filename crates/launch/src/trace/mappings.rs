//! Mappings of a traced program, read when an access lies outside of the known ones.

use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, proc};
use hugepilot_record::trace::{MAX_MAPPINGS, TraceAccess, TraceMapping};
use hugepilot_record::{Mapping, Pid};

/// Time for reads at the start, when a program maps its libraries.
const ADVANCE: Duration = Duration::from_millis(20);
/// Later reads take this part of the time, so that a program that maps all the time is not slowed
/// down.
const SHARE: u32 = 10;
/// Pages whose mapping is known, direct-mapped.
const KNOWN_PAGES: usize = 1024;

/// Known mappings of a program that runs under an engine. The engine is in the same process; its
/// own mappings are omitted as far as they are known.
pub(super) struct Mappings {
    pid: Pid,
    /// File name of the engine.
    engine: &'static str,
    /// Sorted ranges of the known mappings.
    ranges: Vec<(u64, u64)>,
    /// Range of the last access.
    last: (u64, u64),
    pages: Box<[u64; KNOWN_PAGES]>,
    /// Mapping of the first access, at which the program has its stack.
    stack: Option<u64>,
    /// Whether accesses go to addresses above the engine, so that no mapping may be omitted.
    keeps_all: bool,
    begun: Instant,
    /// Time that reads took.
    spent: Duration,
    delivered: Vec<TraceMapping>,
}

impl Mappings {
    pub(super) fn new(pid: Pid, engine: &'static str) -> Self {
        Self {
            pid,
            engine,
            ranges: Vec::new(),
            last: (0, 0),
            pages: Box::new([u64::MAX; KNOWN_PAGES]),
            stack: None,
            keeps_all: false,
            begun: Instant::now(),
            spent: Duration::ZERO,
            delivered: Vec::new(),
        }
    }

    /// Returns all mappings if an access of `accesses` lies outside of the known ones, unless they
    /// have not changed, or reads take too much time. `is_at_end` permits one more read.
    pub(super) fn changed(
        &mut self,
        accesses: &[TraceAccess],
        is_at_end: bool,
    ) -> Option<Vec<TraceMapping>> {
        let unknown = accesses.iter().find(|access| !self.knows(access.address))?.address;
        let read = Instant::now();
        if !is_at_end && self.spent > ADVANCE + (read - self.begun) / SHARE {
            return None;
        }
        let changed = self.read(unknown);
        self.spent += read.elapsed();
        changed
    }

    fn knows(&mut self, address: u64) -> bool {
        if address.wrapping_sub(self.last.0) < self.last.1 {
            return true;
        }
        let page = address >> 12;
        let known = &mut self.pages[page as usize % KNOWN_PAGES];
        if *known == page {
            return true;
        }
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let Some(&(start, length)) = self.ranges[..after].last() else { return false };
        if address - start >= length {
            return false;
        }
        *known = page;
        self.last = (start, length);
        true
    }

    fn read(&mut self, unknown: u64) -> Option<Vec<TraceMapping>> {
        let text = Root::live().read(format!("proc/{}/maps", self.pid)).ok()?;
        let lines = text.split(|&byte| byte == b'\n');
        let mut all: Vec<Mapping> = lines.filter_map(proc::parse_map_line).collect();
        if all.is_empty() {
            // The program has just ended.
            return None;
        }
        self.stack.get_or_insert(unknown);
        let floor = floor(&all, self.engine);
        all.retain(|mapping| !is_own(&mapping.name, self.engine));
        self.keeps_all |= unknown >= floor;
        let floor = if self.keeps_all { u64::MAX } else { floor };
        let mappings = named(&all, floor, self.stack);
        let range = |mapping: &TraceMapping| (mapping.range.start.get(), mapping.range.len().get());
        self.ranges = mappings.iter().map(range).collect();
        self.last = (0, 0);
        self.pages.fill(u64::MAX);
        if mappings == self.delivered {
            return None;
        }
        self.delivered.clone_from(&mappings);
        Some(mappings)
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
fn named(all: &[Mapping], floor: u64, stack: Option<u64>) -> Vec<TraceMapping> {
    let is_anonymous = |mapping: &Mapping| mapping.name.is_empty();
    let below = || all.iter().filter(|mapping| mapping.range.start.get() < floor);
    let program = below().find(|mapping| mapping.name.starts_with('/'));
    let program = program.map(|mapping| mapping.name.as_str());
    let mut behind = None;
    let name = |mapping: &Mapping| {
        let holds_stack =
            |at: u64| (mapping.range.start.get()..mapping.range.end.get()).contains(&at);
        let is_heap = is_anonymous(mapping) && behind == Some(mapping.range.start);
        if program == Some(mapping.name.as_str()) || is_heap {
            behind = Some(mapping.range.end);
        }
        let name = match mapping.name.as_str() {
            "" if stack.is_some_and(holds_stack) => "[stack]",
            "" if is_heap => "[heap]",
            "" => "[anon]",
            name => name,
        };
        TraceMapping { range: mapping.range, name: name.to_owned() }
    };
    below().take(MAX_MAPPINGS).map(name).collect()
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
        let names: Vec<&str> = named.iter().map(|mapping| mapping.name.as_str()).collect();
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
        mappings.ranges = vec![(0x1000, 0x2000), (0x8000, 0x1000)];
        let table = [(0x1000, true), (0x2fff, true), (0x3000, false), (0x0fff, false)];
        for (address, known) in table.into_iter().chain([(0x8fff, true), (0x9000, false)]) {
            for _ in 0..2 {
                assert_eq!(mappings.knows(address), known, "{address:#x}");
            }
        }
    }
}
