//! Areas that a program unmapped: other threads may have accesses to them that are not read yet.

use std::collections::BTreeMap;

use crate::placement::PlacedArea;

/// Most areas that are kept.
const MOST: usize = 1 << 16;

/// Unmapped areas, by address in the program, until their addresses are mapped again. Of too many,
/// the first unmapped are forgotten.
#[derive(Debug, Default)]
pub(crate) struct FormerAreas {
    /// Areas with their numbers.
    areas: BTreeMap<u64, (PlacedArea, u64)>,
    /// First addresses, in the order in which the areas were unmapped.
    order: BTreeMap<u64, u64>,
    next: u64,
}

impl FormerAreas {
    pub(crate) fn of(&self, address: u64) -> Option<PlacedArea> {
        let (_, &(area, _)) = self.areas.range(..=address).next_back()?;
        (address < area.end()).then_some(area)
    }

    /// Adds an area whose addresses were removed.
    pub(crate) fn add(&mut self, area: PlacedArea) {
        self.insert(area, self.next);
        self.next += 1;
        if self.areas.len() > MOST
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.areas.remove(&oldest);
        }
    }

    /// Forgets addresses, which are mapped again.
    pub(crate) fn remove(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        while let Some((&first, &(area, number))) = self.areas.range(..end).next_back() {
            if area.end() <= start {
                break;
            }
            self.areas.remove(&first);
            self.order.remove(&number);
            if let Some(before) = area.part(first, start) {
                self.insert(before, number);
            }
            if let Some(after) = area.part(end, area.end()) {
                self.add(after);
            }
        }
    }

    fn insert(&mut self, area: PlacedArea, number: u64) {
        self.areas.insert(area.start, (area, number));
        self.order.insert(number, area.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(start: u64, bytes: u64) -> PlacedArea {
        PlacedArea { start, bytes, placed: start + 0x1000, apart: 0 }
    }

    #[test]
    fn addresses_that_are_mapped_again_are_forgotten() {
        let mut former = FormerAreas::default();
        former.add(area(100, 50));
        former.add(area(200, 50));
        former.add(area(300, 50));
        former.remove(110, 200);
        let known: Vec<u64> = (90..360).filter(|&at| former.of(at).is_some()).collect();
        assert_eq!(known, (100..110).chain(310..350).collect::<Vec<u64>>());
        assert_eq!(former.of(320).unwrap(), PlacedArea { start: 310, bytes: 40, ..area(310, 40) });
        former.remove(320, 10);
        let known: Vec<u64> = (310..350).filter(|&at| former.of(at).is_some()).collect();
        assert_eq!(known, (310..320).chain(330..350).collect::<Vec<u64>>());
        assert_eq!(former.areas.len(), former.order.len());
    }

    #[test]
    fn the_first_unmapped_of_too_many_are_forgotten() {
        let mut former = FormerAreas::default();
        (0..MOST as u64).for_each(|number| former.add(area(number * 2, 1)));
        // The first one again: it is the latest.
        former.remove(0, 1);
        former.add(area(0, 1));
        former.add(area(1 << 40, 1));
        let known = [0, 2, 4, 1 << 40].map(|at| former.of(at).is_some());
        assert_eq!(known, [true, false, true, true]);
        assert_eq!((former.areas.len(), former.order.len()), (MOST, MOST));
    }
}
