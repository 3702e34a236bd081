//! Mappings of a process at the last two readings, by which addresses of samples get names.

use hugepilot_kernel::Process;
use hugepilot_record::Mapping;
use hugepilot_units::{Nanos, VirtAddr};

use super::pace::{Clocks, Pace};

/// Shortest time between two readings. A program that starts maps its libraries within
/// milliseconds.
const EVERY: Nanos = Nanos::millis(10);

/// Mappings at a time.
#[derive(Default)]
struct Layout {
    time: Nanos,
    mappings: Vec<Mapping>,
}

impl Layout {
    fn find(&self, address: VirtAddr) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|mapping| mapping.range.end <= address);
        self.mappings.get(at).filter(|mapping| mapping.range.contains(address))
    }
}

/// The last two readings of the mappings.
pub(super) struct Layouts {
    old: Layout,
    new: Layout,
    pace: Pace,
}

impl Layouts {
    pub(super) fn new() -> Self {
        let pace = Pace::new(EVERY, Nanos::ZERO).at_once();
        Self { old: Layout::default(), new: Layout::default(), pace }
    }

    /// Whether the mappings may be read again.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.pace.is_due(now)
    }

    /// Reads the mappings. Those of a process that ended stay as they were.
    pub(super) fn read(&mut self, process: &Process, clock: Clocks) {
        let began = (clock.cpu)();
        let mappings = process.layout().unwrap_or_default();
        let time = (clock.now)();
        self.pace.done(time, (clock.cpu)() - began);
        if !mappings.is_empty() {
            self.old = std::mem::replace(&mut self.new, Layout { time, mappings });
        }
    }

    /// Returns the mapping of an address at the last reading.
    pub(super) fn find(&self, address: VirtAddr) -> Option<&Mapping> {
        self.new.find(address)
    }

    /// Returns the mapping of an address at `time`, by the nearer reading; `None` if the readings
    /// before and after have mappings of other names, or none.
    pub(super) fn at(&self, address: VirtAddr, time: Nanos) -> Option<&Mapping> {
        let Self { old, new, .. } = self;
        match (old.find(address), new.find(address)) {
            (Some(before), _) if time <= old.time => Some(before),
            (_, Some(after)) if time >= new.time => Some(after),
            (Some(before), Some(after)) if before.label() != after.label() => None,
            (Some(_), Some(after)) if new.time - time < time - old.time => Some(after),
            // It may have been mapped or unmapped in between.
            (before, after) => before.or(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use hugepilot_kernel::Root;
    use hugepilot_record::Pid;

    use super::*;

    thread_local! {
        static NOW: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
    }

    /// A process with these lines of `maps` at each second, read at each.
    fn read(texts: &[&str]) -> Layouts {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("proc/7")).unwrap();
        let stat = "7 (a) R 1 2 3 0 -1 4194304 1 5 4 0 1 3 0 0 20 0 2 0 99 3133440 383 1 9 9 9 0 0";
        fs::write(root.join("proc/7/stat"), stat).unwrap();
        fs::write(root.join("proc/meminfo"), "MemTotal: 9 kB\nHugepagesize: 2048 kB\n").unwrap();
        let process = Process::open(&Root::at(root), Pid(7)).unwrap();
        let mut layouts = Layouts::new();
        for (second, text) in (1..).zip(texts) {
            NOW.set(Nanos::seconds(second));
            fs::write(root.join("proc/7/maps"), text).unwrap();
            assert!(layouts.is_due(NOW.get()));
            layouts.read(&process, Clocks { now: || NOW.get(), cpu: || NOW.get() });
        }
        layouts
    }

    /// Start and name of the mapping of 0x1800 at a time.
    fn at(layouts: &Layouts, millis: u64) -> Option<(u64, &str)> {
        let found = layouts.at(VirtAddr::new(0x1800), Nanos::millis(millis))?;
        Some((found.range.start.get(), found.label()))
    }

    const ANON: &str = "1000-2000 rw-p 00000000 00:00 0 \n";
    const GROWN: &str = "0000-2000 rw-p 00000000 00:00 0 \n";
    const FILE: &str = "1000-2000 r--p 00000000 08:01 77 /bin/solve\n";
    const ELSEWHERE: &str = "5000-6000 r--p 00000000 08:01 77 /bin/solve\n";

    #[test]
    fn the_nearer_reading_names_an_address() {
        let grown = read(&[ANON, GROWN]);
        assert_eq!(at(&grown, 1_400), Some((0x1000, "[anon]")));
        assert_eq!(at(&grown, 1_600), Some((0, "[anon]")));
        let mapped = read(&[ELSEWHERE, ANON]);
        assert_eq!(at(&mapped, 1_100), Some((0x1000, "[anon]")));
        let unmapped = read(&[ANON, ELSEWHERE]);
        assert_eq!(at(&unmapped, 1_900), Some((0x1000, "[anon]")));
        assert_eq!(at(&read(&[ELSEWHERE]), 500), None);
    }

    #[test]
    fn a_mapping_that_became_another_has_no_name_in_between() {
        let other = read(&[ANON, FILE]);
        let found = [900, 1_000, 1_100, 1_900, 2_000].map(|millis| at(&other, millis));
        let (anon, file) = (Some((0x1000, "[anon]")), Some((0x1000, "/bin/solve")));
        assert_eq!(found, [anon, anon, None, None, file]);
    }

    #[test]
    fn a_process_that_ended_keeps_its_mappings() {
        let ended = read(&[ANON, ""]);
        assert_eq!(at(&ended, 1_500), Some((0x1000, "[anon]")));
    }
}
