//! Addresses that Linux would give to the mappings of a program.
//!
//! QEMU puts each mapping above the one before, and leaves the holes of former ones empty. Linux
//! puts it at the end of the highest hole that holds it, so neighbours have another order, and
//! other mappings are merged. As schedules know memory by its mapping, addresses of a trace are
//! those of Linux, without ASLR: [`Placement`] repeats the calls of the program.

use std::collections::BTreeMap;

use crate::former::FormerAreas;

/// Addresses for mappings: those below the stack, where no program maps at fixed addresses.
const LOW: u64 = 0x6000_0000_0000;
const HIGH: u64 = 0x7fff_f7fc_1000;
const PAGE: u64 = 1 << 12;
const HUGE: u64 = 1 << 21;

const MAP_SHARED: u64 = 0x01;
const MAP_FIXED: u64 = 0x10 | 0x10_0000;
const MAP_ANONYMOUS: u64 = 0x20;
/// Flags with which Linux does not merge a mapping with one that has none of them: they become
/// flags of the mapping.
const KEPT_APART: u64 = MAP_SHARED | 0x4000 | 0x2_0000;

/// Change of the mappings by a system call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingChange {
    /// `mmap` returned `start`.
    Map {
        /// Address that the program wanted; zero for any.
        hint: u64,
        /// Size.
        bytes: u64,
        /// First address.
        start: u64,
        /// Flags of the call.
        flags: u64,
    },
    /// `munmap` succeeded.
    Unmap {
        /// First address.
        start: u64,
        /// Size.
        bytes: u64,
    },
    /// `mremap` returned `start`.
    Remap {
        /// First address before.
        old: u64,
        /// Size before.
        old_bytes: u64,
        /// First address.
        start: u64,
        /// Size.
        bytes: u64,
    },
}

/// Memory of one call of `mmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedArea {
    /// First address in the program.
    pub start: u64,
    /// Size.
    pub bytes: u64,
    /// First address under Linux.
    pub placed: u64,
    /// Linux does not merge it with an area that has another value.
    pub apart: u64,
}

impl PlacedArea {
    pub(crate) const fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Its part between two addresses; `None` if that is empty.
    pub(crate) fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (from.max(self.start), to.min(self.end()));
        let placed = self.placed.wrapping_add(from.wrapping_sub(self.start));
        (from < to).then(|| Self { start: from, bytes: to - from, placed, ..*self })
    }
}

/// Areas of a program, by address in the program.
#[derive(Debug)]
pub struct Placement {
    areas: BTreeMap<u64, PlacedArea>,
    former: FormerAreas,
    /// Holes under Linux: size by end.
    holes: BTreeMap<u64, u64>,
    /// Whether memory larger than a huge page was mapped.
    has_large: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self::new()
    }
}

impl Placement {
    /// Creates the placement of a program without mappings.
    pub fn new() -> Self {
        Self {
            areas: BTreeMap::new(),
            former: FormerAreas::default(),
            holes: [(HIGH, HIGH - LOW)].into(),
            has_large: false,
        }
    }

    /// Returns the area of an address; `None` for memory that the program did not get from `mmap`,
    /// or wanted at this address.
    pub fn of(&self, address: u64) -> Option<PlacedArea> {
        let (_, &area) = self.areas.range(..=address).next_back()?;
        (address < area.end()).then_some(area)
    }

    /// Returns the area that had an address before it was unmapped; `None` if the address is mapped
    /// again.
    pub fn former(&self, address: u64) -> Option<PlacedArea> {
        self.former.of(address)
    }

    /// Returns the first area that begins at `address` or above.
    pub fn next(&self, address: u64) -> Option<PlacedArea> {
        self.areas.range(address..).next().map(|(_, &area)| area)
    }

    /// Repeats a change.
    pub fn change(&mut self, change: MappingChange) {
        match change {
            MappingChange::Map { hint, bytes, start, flags } => {
                if let Some(bytes) = pages(start, bytes) {
                    self.former.remove(start, bytes);
                }
                if flags & MAP_FIXED == 0 && hint != start {
                    self.map(start, bytes, flags);
                }
            }
            MappingChange::Unmap { start, bytes } => self.unmap(start, bytes),
            MappingChange::Remap { old, old_bytes, start, bytes } => {
                self.remap(old, old_bytes, start, bytes);
            }
        }
    }

    /// Places memory. Linux (since 6.7, `thp_get_unmapped_area`) aligns anonymous memory that
    /// consists of huge pages, and puts the first mapping at random. Both are put as far from a
    /// boundary of huge pages as in QEMU, so that what the program aligns in them remains aligned.
    fn map(&mut self, start: u64, bytes: u64, flags: u64) {
        let Some(bytes) = pages(start, bytes) else { return };
        self.unmap(start, bytes);
        let is_anonymous = flags & MAP_ANONYMOUS != 0;
        let is_aligned = is_anonymous && bytes.is_multiple_of(HUGE);
        let is_large = is_anonymous && bytes > HUGE;
        let is_first = is_large && !std::mem::replace(&mut self.has_large, true);
        let room = if is_aligned || is_first { HUGE } else { 0 };
        let Some(hole) = self.hole(bytes + room) else { return };
        let highest = hole + room;
        let gap = if room > 0 { highest.wrapping_sub(start) % HUGE } else { 0 };
        let placed = highest - gap;
        // Only what is aligned has a hole behind it.
        self.take(placed, if is_aligned { bytes } else { bytes + gap });
        self.areas.insert(start, PlacedArea { start, bytes, placed, apart: flags & KEPT_APART });
    }

    fn unmap(&mut self, start: u64, bytes: u64) {
        let Some(bytes) = pages(start, bytes) else { return };
        let end = start + bytes;
        while let Some(area) = self.of(start).or_else(|| self.next(start)) {
            if area.start >= end {
                break;
            }
            self.areas.remove(&area.start);
            if let Some(gone) = area.part(start, end) {
                self.give_back(gone.placed, gone.bytes);
                self.former.add(gone);
            }
            let rests = [area.part(area.start, start), area.part(end, area.end())];
            self.areas.extend(rests.into_iter().flatten().map(|rest| (rest.start, rest)));
        }
    }

    /// Linux grows a mapping in place if a hole follows it, whether QEMU does or not.
    fn remap(&mut self, old: u64, old_bytes: u64, start: u64, bytes: u64) {
        let sizes = pages(old, old_bytes).zip(pages(start, bytes));
        let Some((area, (old_bytes, bytes))) = self.of(old).zip(sizes) else { return };
        let placed = area.placed + (old - area.start);
        let kept = old_bytes.min(area.end() - old).min(bytes);
        let grown = bytes - kept;
        let end = placed + kept;
        let is_hole = grown == 0 || self.hole_at(end).is_some_and(|hole| hole >= grown);
        let placed = if is_hole { Some(placed) } else { self.hole(bytes) };
        // Linux does not merge memory in use that was moved.
        let apart = if is_hole { Some(area.apart) } else { placed };
        self.unmap(old, old_bytes);
        self.unmap(start, bytes);
        self.former.remove(start, bytes);
        if let Some((placed, apart)) = placed.zip(apart) {
            self.take(placed, bytes);
            self.areas.insert(start, PlacedArea { start, bytes, placed, apart });
        }
    }

    /// Size of the hole that begins at `address`.
    fn hole_at(&self, address: u64) -> Option<u64> {
        let (&end, &bytes) = self.holes.range(address + 1..).next()?;
        (end - bytes == address).then_some(bytes)
    }

    /// Returns the address of a mapping at the end of the highest hole that holds it.
    fn hole(&self, bytes: u64) -> Option<u64> {
        let (&end, _) = self.holes.iter().rev().find(|(_, size)| **size >= bytes)?;
        Some(end - bytes)
    }

    /// Takes addresses out of the hole that has them.
    fn take(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        let Some((&hole_end, &size)) = self.holes.range(end..).next() else { return };
        let hole_start = hole_end - size;
        if hole_start > start {
            return;
        }
        self.holes.remove(&hole_end);
        for (end, size) in [(start, start - hole_start), (hole_end, hole_end - end)] {
            if size > 0 {
                self.holes.insert(end, size);
            }
        }
    }

    /// Makes addresses a hole, together with the holes beside them.
    fn give_back(&mut self, start: u64, bytes: u64) {
        let mut hole = (start, start + bytes);
        if let Some(before) = self.holes.remove(&start) {
            hole.0 -= before;
        }
        if let Some(after) = self.hole_at(hole.1) {
            self.holes.remove(&(hole.1 + after));
            hole.1 += after;
        }
        self.holes.insert(hole.1, hole.1 - hole.0);
    }
}

/// Rounds a size up to pages; `None` for a range that no program has.
fn pages(start: u64, bytes: u64) -> Option<u64> {
    let bytes = bytes.checked_next_multiple_of(PAGE)?;
    let end = start.checked_add(bytes)?;
    (start.is_multiple_of(PAGE) && bytes > 0 && end <= 1 << 57).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PRIVATE: u64 = MAP_ANONYMOUS | 2;

    fn map(placement: &mut Placement, start: u64, bytes: u64) {
        placement.change(MappingChange::Map { hint: 0, bytes, start, flags: PRIVATE });
    }

    fn placed(placement: &Placement, start: u64) -> u64 {
        placement.of(start).unwrap().placed
    }

    /// The arrays of PageRank of the GAP benchmark suite: QEMU puts them in the order of their
    /// allocation, Linux the vertex arrays at both ends of the others.
    #[test]
    fn arrays_are_where_linux_puts_them() {
        let mut placement = Placement::new();
        let [offsets, edges, index] = [0x40_02da_5000, 0x40_04da_6000, 0x40_2371_f000];
        let [scores, sums] = [0x40_2572_0000, 0x40_2672_1000];
        let (offset_bytes, edge_bytes, vertex_bytes) = (33_558_528, 513_249_280, 16_781_312);
        map(&mut placement, offsets, offset_bytes);
        let top = placed(&placement, offsets) + offset_bytes;
        assert_eq!((top - offset_bytes - offsets) % HUGE, 0, "as far from a boundary as in QEMU");
        assert!(HIGH - top < HUGE);
        map(&mut placement, edges, edge_bytes);
        map(&mut placement, index, offset_bytes);
        placement.change(MappingChange::Unmap { start: offsets, bytes: offset_bytes });
        map(&mut placement, scores, vertex_bytes);
        map(&mut placement, sums, vertex_bytes);
        let [scores, edges, index, sums] =
            [scores, edges, index, sums].map(|start| placed(&placement, start));
        assert_eq!(scores + vertex_bytes, top, "at the end of the hole of the offsets");
        let below = [edges + edge_bytes, index + offset_bytes, sums + vertex_bytes];
        assert_eq!(below, [top - offset_bytes, edges, index]);
        assert_eq!(placement.of(offsets), None);
        assert_eq!(placement.former(offsets).unwrap().placed, top - offset_bytes);
    }

    /// Late accesses of other threads have the addresses that the memory had.
    #[test]
    fn unmapped_memory_is_known_until_it_is_mapped_again() {
        let mut placement = Placement::new();
        let (start, bytes) = (0x10_0000_0000, 8 * PAGE);
        map(&mut placement, start, bytes);
        let first = placed(&placement, start);
        let unmapped = |start, bytes| MappingChange::Unmap { start, bytes };
        placement.change(unmapped(start + 2 * PAGE, 4 * PAGE));
        let was = |placement: &Placement, page: u64| {
            let address = start + page * PAGE;
            placement.former(address).map(|area| area.placed + (address - area.start))
        };
        assert_eq!(
            [1, 2, 5, 6].map(|page| was(&placement, page).is_some()),
            [false, true, true, false]
        );
        assert_eq!(was(&placement, 5), Some(first + 5 * PAGE));
        placement.change(unmapped(start, bytes));
        assert_eq!(
            [0, 3, 7].map(|page| was(&placement, page)),
            [0, 3, 7].map(|page| { Some(first + page * PAGE) })
        );
        // At a fixed address, and moved there.
        let (hint, flags) = (start + PAGE, PRIVATE | 0x10);
        placement.change(MappingChange::Map { hint, bytes: PAGE, start: hint, flags });
        map(&mut placement, 0x20_0000_0000, PAGE);
        placement.change(MappingChange::Remap {
            old: 0x20_0000_0000,
            old_bytes: PAGE,
            start: start + 5 * PAGE,
            bytes: 2 * PAGE,
        });
        let known: Vec<u64> = (0..8).filter(|&page| was(&placement, page).is_some()).collect();
        assert_eq!(known, [0, 2, 3, 4, 7]);
        assert!(placement.former(0x20_0000_0000).is_some());
    }

    #[test]
    fn mappings_of_huge_pages_are_neighbours_of_each_other_only() {
        let mut placement = Placement::new();
        let starts = [0x1000_1000, 0x2000_1000, 0x3000_2000, 0x4000_3000];
        let sizes = [3 * HUGE, 2 * HUGE, HUGE + PAGE, 4 * HUGE];
        starts.iter().zip(sizes).for_each(|(&start, bytes)| map(&mut placement, start, bytes));
        let [first, second, other, third] = starts.map(|start| placed(&placement, start));
        assert_eq!((first % HUGE, third % HUGE), (0x1000, 0x3000), "as in QEMU");
        assert_eq!([second + sizes[1], other + sizes[2]], [first, second]);
        assert_eq!(other - third - sizes[3], 0x1f_d000, "a hole");
        // It is the highest hole but that behind the first one.
        map(&mut placement, 0x5000_0000, 0x1f_d000);
        assert_eq!(placed(&placement, 0x5000_0000), other - 0x1f_d000);
    }

    #[test]
    fn fixed_and_wanted_addresses_are_left() {
        let mut placement = Placement::new();
        let (start, bytes) = (0x10_0000_0000, HUGE);
        for (hint, flags) in
            [(start, PRIVATE | 0x10), (start, PRIVATE), (start, PRIVATE | 0x10_0000)]
        {
            placement.change(MappingChange::Map { hint, bytes, start, flags });
            assert_eq!(placement.of(start), None);
        }
        // Another one at the address of an area stays in it.
        map(&mut placement, start, bytes);
        let area = placement.of(start);
        placement.change(MappingChange::Map {
            hint: start,
            bytes: PAGE,
            start,
            flags: PRIVATE | 0x10,
        });
        assert_eq!(placement.of(start), area);
    }

    #[test]
    fn a_mapping_grows_in_place_where_a_hole_follows() {
        let mut placement = Placement::new();
        let starts = [0x1000_0000, 0x2000_0000, 0x3000_0000];
        starts.iter().for_each(|&start| map(&mut placement, start, 4 * PAGE));
        let [first, _, third] = starts.map(|start| placed(&placement, start));
        placement.change(MappingChange::Unmap { start: starts[1], bytes: 4 * PAGE });
        let grow = |placement: &mut Placement, old: u64, start: u64, bytes: u64| {
            placement.change(MappingChange::Remap { old, old_bytes: 4 * PAGE, start, bytes });
            (placed(placement, start), placement.of(start).unwrap().bytes)
        };
        // QEMU moves it, Linux does not.
        assert_eq!(grow(&mut placement, starts[2], 0x5000_0000, 8 * PAGE), (third, 8 * PAGE));
        assert_eq!(placement.of(starts[2]), None);
        // Linux moves it, QEMU does not.
        let moved = grow(&mut placement, starts[0], starts[0], 5 * PAGE);
        assert_eq!(moved, (third - 5 * PAGE, 5 * PAGE));
        // The hole that it left is the highest.
        map(&mut placement, 0x6000_0000, PAGE);
        assert_eq!(placed(&placement, 0x6000_0000), first + 3 * PAGE);
        placement.change(MappingChange::Remap {
            old: starts[0],
            old_bytes: 5 * PAGE,
            start: starts[0],
            bytes: PAGE,
        });
        assert_eq!(placement.of(starts[0] + PAGE), None);
    }

    #[test]
    fn numbers_that_no_kernel_returns_change_nothing() {
        let mut placement = Placement::new();
        for (start, bytes) in [(0, 0), (1, PAGE), (!4095, PAGE), (0, u64::MAX), (PAGE, 1 << 57)] {
            map(&mut placement, start, bytes);
            placement.change(MappingChange::Unmap { start, bytes });
            placement.change(MappingChange::Remap { old: start, old_bytes: bytes, start, bytes });
        }
        // More than the addresses have.
        map(&mut placement, PAGE, 1 << 46);
        assert!(placement.areas.is_empty());
        assert_eq!(placement.holes, Placement::new().holes);
    }

    proptest! {
        /// Areas and holes cover the addresses once.
        #[test]
        fn no_address_is_given_twice(
            steps in prop::collection::vec((0u8..3, 0u64..64, 1u64..24, 0u64..64, 1u64..24), 1..80),
        ) {
            let mut placement = Placement::new();
            let at = |page: u64| 0x1000_0000 + page * PAGE;
            for (kind, first, pages, second, others) in steps {
                placement.change(match kind {
                    0 => MappingChange::Map {
                        hint: 0,
                        bytes: pages * PAGE,
                        start: at(first),
                        flags: PRIVATE,
                    },
                    1 => MappingChange::Unmap { start: at(first), bytes: pages * PAGE },
                    _ => MappingChange::Remap {
                        old: at(first),
                        old_bytes: pages * PAGE,
                        start: at(second),
                        bytes: others * PAGE,
                    },
                });
                let areas = placement.areas.values();
                let areas = areas.map(|area| (area.placed, area.placed + area.bytes));
                let holes = placement.holes.iter().map(|(&end, &bytes)| (end - bytes, end));
                let mut all: Vec<(u64, u64)> = areas.chain(holes).collect();
                all.sort_unstable();
                prop_assert_eq!((all[0].0, all[all.len() - 1].1), (LOW, HIGH));
                prop_assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0), "{:x?}", all);
            }
        }
    }
}
