//! Address ranges of a process over time, with names.

use std::collections::BTreeMap;

use hugepilot_units::AddrRange;

/// Mappings kept for a process at most.
const MAX_MAPPINGS: usize = 65_536;
/// Ranges with the same name this near to each other are one.
const GAP: u64 = 2 << 20;

/// Mappings that a process had.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Areas {
    /// End and name, by start.
    seen: BTreeMap<(u64, String), u64>,
    ignored: u64,
}

/// A range with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) name: String,
}

/// A name with the address of its range, as heat maps have it, or with the number of the ranges of
/// this name, if there are several.
pub(crate) fn with_address(ranges: &[NamedRange], name: &str) -> String {
    let mut named = ranges.iter().filter(|range| range.name == name);
    match (named.next(), named.count()) {
        (Some(only), 0) => format!("{name} at {:#x}", only.start),
        (Some(_), others) => format!("{name}, one of {}", others + 1),
        (None, _) => name.to_owned(),
    }
}

/// The first address of the range with this name around an address; that address without such a
/// range.
pub(crate) fn range_start(ranges: &[NamedRange], name: &str, address: u64) -> u64 {
    let after = ranges.partition_point(|range| range.start <= address);
    let before = after.checked_sub(1).map(|at| &ranges[at]);
    let is_it = |range: &&NamedRange| address < range.end && range.name == name;
    before.filter(is_it).map_or(address, |range| range.start)
}

impl Areas {
    /// Adds a mapping, which may have grown.
    pub(crate) fn add(&mut self, range: AddrRange, name: &str) {
        let (start, end) = (range.start.get(), range.end.get());
        let key = (start, name.to_owned());
        if !self.seen.contains_key(&key) && self.seen.len() >= MAX_MAPPINGS {
            self.ignored += 1;
            return;
        }
        let known = self.seen.entry(key).or_insert(end);
        *known = (*known).max(end);
    }

    /// Mappings beyond the limit.
    pub(crate) const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The ranges in order of address, without overlap; neighbours with the same name are one.
    pub(crate) fn ranges(&self) -> Vec<NamedRange> {
        let mut ranges: Vec<NamedRange> = Vec::new();
        for ((start, name), &end) in &self.seen {
            let mut start = *start;
            if let Some(last) = ranges.last_mut() {
                if last.name == *name && start <= last.end.saturating_add(GAP) {
                    last.end = last.end.max(end);
                    continue;
                }
                // Another mapping was there at another time.
                start = start.max(last.end);
            }
            if start < end {
                ranges.push(NamedRange { start, end, name: name.clone() });
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::VirtAddr;

    use super::*;

    #[test]
    fn ranges_grow_join_and_never_overlap() {
        let mut areas = Areas::default();
        let mib = 1 << 20;
        for (start, end, name) in [
            (10, 20, "[heap]"),
            (10, 30, "[heap]"),
            (31, 40, "[heap]"),
            (35, 60, "file"),
            (50, 55, "inside"),
            (100, 110, "file"),
        ] {
            let range = AddrRange::new(VirtAddr::new(start * mib), VirtAddr::new(end * mib));
            areas.add(range, name);
        }
        let ranges = areas.ranges();
        let found: Vec<_> =
            ranges.iter().map(|range| (range.start / mib, range.end / mib, &*range.name)).collect();
        let expected = [(10, 40, "[heap]"), (40, 60, "file"), (100, 110, "file")];
        assert_eq!(found, expected);
        assert_eq!(with_address(&ranges, "[heap]"), "[heap] at 0xa00000");
        assert_eq!(with_address(&ranges, "file"), "file, one of 2");
        assert_eq!(with_address(&ranges, "gone"), "gone");
        let starts = [5, 10, 39, 40, 70].map(|at| range_start(&ranges, "[heap]", at * mib) / mib);
        assert_eq!(starts, [5, 10, 10, 40, 70]);
        let other = range_start(&ranges, "was there before", 39 * mib);
        assert_eq!(other / mib, 39, "a mapping that was there at another time");
    }
}
