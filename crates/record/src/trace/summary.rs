//! Counts of a trace: accesses, touched pages, mappings.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_units::PageSizes;

use super::report::{TraceTotals, TracedMapping, TracedPhase};
use super::{MAX_MAPPINGS, MAX_PHASES, TraceAccess, TraceMapping, TracePiece};

/// Base pages and regions of the traced machine.
const SIZES: PageSizes = PageSizes::X86_64;
/// Most regions whose pages are counted: 2 TiB.
const MAX_REGIONS: usize = 1 << 20;
/// Words of the bit map of a region: a bit for each base page.
const WORDS: usize = 8;
/// Regions that are found without a search.
const RECENT: usize = 1 << 12;

/// Counts of the mappings of one name that overlapped, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    end: u64,
    loads: u64,
    stores: u64,
}

/// Counts of a trace, piece by piece.
#[derive(Clone, Debug, Default)]
pub struct TraceSummary {
    loads: u64,
    stores: u64,
    threads: BTreeSet<u16>,
    /// Threads that have ended.
    ended_threads: u64,
    /// Touched base pages of each region, in the order of first use.
    pages: Vec<[u64; WORDS]>,
    /// Index in `pages` of each region.
    regions: BTreeMap<u64, usize>,
    /// Regions and indices of late, direct-mapped.
    recent: Vec<(u64, usize)>,
    is_overfull: bool,
    mappings: Vec<TraceMapping>,
    /// Counts by name and start.
    counts: BTreeMap<String, BTreeMap<u64, Counts>>,
    /// How many.
    rows: usize,
    /// Phases; the accesses of later ones are not counted.
    phases: Vec<TracedPhase>,
    has_later_phases: bool,
}

impl TraceSummary {
    /// Adds a piece.
    pub fn add(&mut self, piece: &TracePiece) {
        match piece {
            TracePiece::Accesses { thread, accesses } => {
                self.threads.insert(*thread);
                let stores = accesses.iter().filter(|access| access.store).count() as u64;
                self.stores += stores;
                self.loads += accesses.len() as u64 - stores;
                if let Some(phase) = self.phases.last_mut().filter(|_| !self.has_later_phases) {
                    phase.accesses += accesses.len() as u64;
                    phase.stores += stores;
                }
                accesses.iter().for_each(|access| self.touch(access.address));
                self.attribute(accesses);
            }
            TracePiece::Mappings(mappings) => {
                self.mappings.clone_from(mappings);
                self.mappings.sort_by_key(|mapping| mapping.range.start);
            }
            TracePiece::ThreadEnd(thread) => {
                self.ended_threads += u64::from(self.threads.remove(thread));
            }
            TracePiece::Phase(name) => {
                self.has_later_phases = self.phases.len() >= MAX_PHASES;
                if !self.has_later_phases {
                    self.phases.push(TracedPhase { name: name.clone(), accesses: 0, stores: 0 });
                }
            }
        }
    }

    /// Accesses so far.
    pub const fn accesses(&self) -> u64 {
        self.loads + self.stores
    }

    fn touch(&mut self, address: u64) {
        let (base, region) = (SIZES.base.get(), SIZES.huge.get());
        let (number, page) = (address / region, address % region / base);
        let slot = number as usize % RECENT;
        if self.recent.get(slot).is_none_or(|recent| recent.0 != number) {
            let Some(index) = self.index(number) else { return };
            self.recent.resize(RECENT, (u64::MAX, 0));
            self.recent[slot] = (number, index);
        }
        self.pages[self.recent[slot].1][page as usize / 64] |= 1 << (page % 64);
    }

    /// Finds or adds a region; `None` if there are too many.
    fn index(&mut self, number: u64) -> Option<usize> {
        let next = self.pages.len();
        if let Some(&index) = self.regions.get(&number) {
            return Some(index);
        }
        if next >= MAX_REGIONS {
            self.is_overfull = true;
            return None;
        }
        self.regions.insert(number, next);
        self.pages.push([0; WORDS]);
        Some(next)
    }

    /// Counts accesses by mapping.
    fn attribute(&mut self, accesses: &[TraceAccess]) {
        let mut counts = vec![[0u64; 2]; self.mappings.len()];
        let (mut last, mut start, mut length) = (0, 0, 0);
        for access in accesses {
            if access.address.wrapping_sub(start) >= length {
                let behind = |mapping: &TraceMapping| mapping.range.start.get() <= access.address;
                let after = self.mappings.partition_point(behind);
                let Some(mapping) = self.mappings[..after].last() else { continue };
                if mapping.range.end.get() <= access.address {
                    continue;
                }
                (start, length) = (mapping.range.start.get(), mapping.range.len().get());
                last = after - 1;
            }
            counts[last][usize::from(access.store)] += 1;
        }
        for (at, [loads, stores]) in counts.into_iter().enumerate() {
            if loads + stores > 0 {
                let mapping = &self.mappings[at];
                let end = mapping.range.end.get();
                let (start, name) = (mapping.range.start.get(), mapping.name.clone());
                self.count(start, name, Counts { end, loads, stores });
            }
        }
    }

    /// Adds counts to the rows of the name that overlap, which become one: a mapping that grows or
    /// merges is the same.
    fn count(&mut self, mut start: u64, name: String, mut counts: Counts) {
        if self.rows >= MAX_MAPPINGS && !self.counts.contains_key(&name) {
            return;
        }
        let rows = self.counts.entry(name).or_default();
        let before = rows.len();
        while let Some((&first, &row)) = rows.range(..counts.end).next_back() {
            if row.end <= start {
                break;
            }
            rows.remove(&first);
            start = start.min(first);
            counts.end = counts.end.max(row.end);
            counts.loads += row.loads;
            counts.stores += row.stores;
        }
        if self.rows + rows.len() - before < MAX_MAPPINGS {
            rows.insert(start, counts);
        }
        self.rows = self.rows + rows.len() - before;
    }

    /// Takes the phases.
    pub fn phases(&mut self) -> Vec<TracedPhase> {
        std::mem::take(&mut self.phases)
    }

    /// Ends the trace. Returns its totals and the mappings with accesses, most accesses first.
    pub fn finish(self) -> (TraceTotals, Vec<TracedMapping>) {
        let pages = self.pages.iter().flatten().map(|word| u64::from(word.count_ones())).sum();
        let regions = self.regions.len() as u64;
        let totals = TraceTotals {
            accesses: self.accesses(),
            loads: self.loads,
            stores: self.stores,
            threads: self.threads.len() as u64 + self.ended_threads,
            touched_pages: (!self.is_overfull).then_some(pages),
            touched_regions: (!self.is_overfull).then_some(regions),
        };
        let mapping = |name: &String, (start, counts): (&u64, &Counts)| {
            let (pages, regions) = self.touched(*start, counts.end);
            TracedMapping {
                name: name.clone(),
                start: hugepilot_units::VirtAddr::new(*start),
                bytes: hugepilot_units::Bytes::new(counts.end - start),
                accesses: counts.loads + counts.stores,
                loads: counts.loads,
                stores: counts.stores,
                touched_pages: (!self.is_overfull).then_some(pages),
                touched_regions: (!self.is_overfull).then_some(regions),
            }
        };
        let named = self.counts.iter();
        let mut mappings: Vec<TracedMapping> =
            named.flat_map(|(name, rows)| rows.iter().map(move |row| mapping(name, row))).collect();
        mappings.sort_by_key(|mapping| (std::cmp::Reverse(mapping.accesses), mapping.start));
        (totals, mappings)
    }

    /// Touched pages and regions between two addresses.
    fn touched(&self, start: u64, end: u64) -> (u64, u64) {
        let (base, region) = (SIZES.base.get(), SIZES.huge.get());
        let (mut pages, mut regions) = (0, 0);
        for (number, &index) in self.regions.range(start / region..=(end - 1) / region) {
            let touched = &self.pages[index];
            let inside = |page: &u64| {
                let is_touched = touched[*page as usize / 64] >> (page % 64) & 1 == 1;
                is_touched && (start..end).contains(&(number * region + page * base))
            };
            let count = (0..region / base).filter(inside).count() as u64;
            pages += count;
            regions += u64::from(count > 0);
        }
        (pages, regions)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::{AddrRange, VirtAddr};

    use super::*;

    fn accesses(thread: u16, addresses: impl IntoIterator<Item = u64>) -> TracePiece {
        let access = |address| TraceAccess { address, store: address % 16 == 8 };
        TracePiece::Accesses { thread, accesses: addresses.into_iter().map(access).collect() }
    }

    fn mapping(start: u64, end: u64, name: &str) -> TraceMapping {
        let range = AddrRange { start: VirtAddr::new(start), end: VirtAddr::new(end) };
        TraceMapping { range, name: name.to_owned() }
    }

    #[test]
    fn accesses_pages_and_mappings_are_counted() {
        let mut summary = TraceSummary::default();
        summary.add(&accesses(0, [0x9000]));
        summary.add(&TracePiece::Mappings(vec![
            mapping(0x20_0000, 0x60_0000, "[heap]"),
            mapping(0x1000, 0x3000, "/bin/a"),
        ]));
        summary.add(&accesses(1, [0x1000, 0x1008, 0x2ff8, 0x3000, 0xfff]));
        summary.add(&accesses(0, (0x20_0000..0x60_0000).step_by(8)));
        let (totals, mappings) = summary.finish();
        let heap = (0x40_0000 / 8, 0x40_0000 / 16);
        assert_eq!(totals.accesses, heap.0 + 6);
        assert_eq!((totals.loads, totals.stores), (heap.1 + 4, heap.1 + 2));
        assert_eq!(totals.threads, 2);
        assert_eq!((totals.touched_pages, totals.touched_regions), (Some(1024 + 5), Some(3)));
        let found: Vec<_> = mappings
            .iter()
            .map(|found| (found.name.as_str(), found.accesses, found.touched_pages))
            .collect();
        assert_eq!(found, [("[heap]", heap.0, Some(1024)), ("/bin/a", 3, Some(2))]);
        assert_eq!((mappings[0].touched_regions, mappings[1].touched_regions), (Some(2), Some(1)));
        assert_eq!((mappings[1].loads, mappings[1].stores), (1, 2));
    }

    #[test]
    fn a_number_of_an_ended_thread_is_of_another_one_later() {
        let mut summary = TraceSummary::default();
        for number in [0, 1, 1, 1] {
            summary.add(&accesses(number, [0x1000]));
            summary.add(&TracePiece::ThreadEnd(number));
        }
        summary.add(&TracePiece::ThreadEnd(1));
        summary.add(&accesses(0, [0x1000]));
        assert_eq!(summary.finish().0.threads, 5);
    }

    /// Linux puts a mapping below the one before, and merges them.
    #[test]
    fn a_mapping_that_grows_or_merges_is_one_row() {
        let mut summary = TraceSummary::default();
        let mut step = |mappings: &[TraceMapping], address| {
            summary.add(&TracePiece::Mappings(mappings.to_vec()));
            summary.add(&accesses(0, [address]));
        };
        let anon = |start, end| mapping(start, end, "[anon]");
        for start in (0x10..0x20).rev().map(|page| page << 12) {
            step(&[anon(start, 0x2_0000)], start);
        }
        let rest = [mapping(0x1_0000, 0x1_1000, "/bin/a"), anon(0x1_2000, 0x1_3000)];
        step(&rest, 0x1_0000);
        step(&rest, 0x1_2008);
        // Two that are one later.
        step(&[anon(0x3_0000, 0x3_1000), anon(0x3_2000, 0x3_3000)], 0x3_0000);
        step(&[anon(0x3_0000, 0x3_1000), anon(0x3_2000, 0x3_3000)], 0x3_2000);
        step(&[anon(0x4_0000, 0x4_1000)], 0x4_0000);
        step(&[anon(0x3_0000, 0x3_3000)], 0x3_1008);
        assert_eq!(summary.rows, 4);
        let (_, mappings) = summary.finish();
        let found: Vec<_> = mappings
            .iter()
            .map(|row| (row.name.as_str(), row.start.get(), row.bytes.get(), row.loads, row.stores))
            .collect();
        let anon = |start, bytes, loads, stores| ("[anon]", start, bytes, loads, stores);
        let expected = [
            anon(0x1_0000, 0x1_0000, 16, 1),
            anon(0x3_0000, 0x3000, 2, 1),
            ("/bin/a", 0x1_0000, 0x1000, 1, 0),
            anon(0x4_0000, 0x1000, 1, 0),
        ];
        assert_eq!(found, expected);
        assert_eq!(mappings[0].touched_pages, Some(16));
    }

    #[test]
    fn phases_have_their_accesses_up_to_a_limit() {
        let mut summary = TraceSummary::default();
        summary.add(&accesses(0, [0]));
        for number in 0..MAX_PHASES + 2 {
            summary.add(&TracePiece::Phase(number.to_string()));
            summary.add(&accesses(0, [0, 8, 16]));
            summary.add(&accesses(1, [8]));
        }
        let phases = summary.phases();
        let phase = |name: &str| TracedPhase { name: name.to_owned(), accesses: 4, stores: 2 };
        assert_eq!((phases.len(), &phases[0]), (MAX_PHASES, &phase("0")));
        assert_eq!(phases.last(), Some(&phase("4095")));
    }

    #[test]
    fn an_empty_trace_has_no_pages() {
        let (totals, mappings) = TraceSummary::default().finish();
        assert_eq!(
            totals,
            TraceTotals {
                touched_pages: Some(0),
                touched_regions: Some(0),
                ..TraceTotals::default()
            }
        );
        assert!(mappings.is_empty());
    }
}
