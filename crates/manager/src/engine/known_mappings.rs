//! Mappings of a process with their sizes, which are expensive to read, joined with the list of
//! mappings, which is cheap.

use std::collections::BTreeSet;

use hugepilot_kernel::{Process, Result, Target, clock};
use hugepilot_record::Mapping;
use hugepilot_units::{Nanos, PageSizes, Region};

use super::NeededRegions;

/// Rest after a reading of all mappings, as a multiple of its duration: nine tenths of the time
/// remain for other work.
const REST: u64 = 10;
/// Age of the sizes from which they are read again.
const MAX_AGE: Nanos = Nanos::seconds(1);

/// Mappings with their sizes, as last read.
#[derive(Default)]
pub(super) struct KnownMappings {
    mappings: Vec<Mapping>,
    /// Time from which the sizes are too old.
    old: Nanos,
    /// Time before which they are not read again.
    rests: Nanos,
}

impl KnownMappings {
    /// Returns the mappings and the needed regions. Sizes are a second old at most, or ten times as
    /// old as their reading took. A mapping that is new since then has none; one with a needed
    /// region causes a reading, and is omitted while that must wait.
    ///
    /// # Errors
    /// As for [`Target::mappings`].
    pub(super) fn select(
        &mut self,
        process: &Process,
        needed: NeededRegions<'_>,
    ) -> Result<(Vec<Mapping>, BTreeSet<Region>)> {
        let layout = process.layout()?;
        let regions = needed(&layout);
        let now = clock::monotonic();
        let (joined, is_complete) = self.join(layout, &regions, process.sizes());
        if now < self.rests || now < self.old && is_complete {
            return Ok((joined, regions));
        }
        self.mappings = process.mappings()?;
        let read = clock::monotonic();
        self.rests = read + Nanos::new((read - now).get().saturating_mul(REST));
        self.old = read + MAX_AGE;
        // The list may be another now.
        Ok((self.mappings.clone(), needed(&self.mappings)))
    }

    /// Adds the known sizes to `layout`. Leaves out mappings with a needed region whose sizes are
    /// unknown, and returns whether there are none.
    fn join(
        &self,
        mut layout: Vec<Mapping>,
        regions: &BTreeSet<Region>,
        sizes: PageSizes,
    ) -> (Vec<Mapping>, bool) {
        let is_needed = |mapping: &Mapping| {
            let inside = sizes.span_inside(mapping.range);
            inside.is_some_and(|inside| regions.range(inside).next().is_some())
        };
        let all = layout.len();
        layout.retain_mut(|mapping| {
            let start = mapping.range.start;
            let at = self.mappings.binary_search_by_key(&start, |known| known.range.start);
            match at.ok().map(|at| &self.mappings[at]).filter(|known| is_same(known, mapping)) {
                Some(known) => mapping.clone_from(known),
                None => return !is_needed(mapping),
            }
            true
        });
        let is_complete = layout.len() == all;
        (layout, is_complete)
    }
}

/// Whether two readings are about the same mapping.
fn is_same(a: &Mapping, b: &Mapping) -> bool {
    let key =
        |mapping: &Mapping| (mapping.range, mapping.protection, mapping.offset, mapping.inode);
    key(a) == key(b) && a.name == b.name
}

#[cfg(test)]
mod tests {
    use hugepilot_units::{AddrRange, Bytes, VirtAddr};

    use super::*;

    const SIZES: PageSizes = PageSizes::X86_64;

    fn mapping(first: u64, regions: u64, resident: u64) -> Mapping {
        let range = AddrRange::at(VirtAddr::new(first << 21), SIZES.huge.times(regions));
        Mapping { resident: Bytes::mib(resident), ..Mapping::anonymous(range) }
    }

    #[test]
    fn known_sizes_stand_for_those_of_the_same_mapping() {
        let mappings = vec![mapping(1, 4, 8), mapping(9, 2, 4)];
        let known = KnownMappings { mappings, ..KnownMappings::default() };
        let join = |layout: Vec<Mapping>, region: u64| {
            let (joined, is_complete) =
                known.join(layout, &BTreeSet::from([Region::new(region)]), SIZES);
            let sizes = joined.iter().map(|one| one.resident.get() >> 20).collect::<Vec<_>>();
            (sizes, is_complete)
        };
        let unknown = || mapping(20, 2, 0);
        assert_eq!(join(vec![mapping(1, 4, 0), mapping(9, 2, 0)], 2), (vec![8, 4], true));
        assert_eq!(join(vec![mapping(1, 4, 0), unknown()], 2), (vec![8, 0], true));
        assert_eq!(join(vec![mapping(1, 4, 0), unknown()], 21), (vec![8], false), "a new mapping");
        assert_eq!(join(vec![mapping(1, 6, 0)], 2), (vec![], false), "one that grew");
        assert_eq!(join(vec![mapping(1, 6, 0), mapping(9, 2, 0)], 9), (vec![0, 4], true));
    }
}
