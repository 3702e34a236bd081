//! Mappings of a schedule, found in a process whose addresses differ.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugepilot_record::Mapping;
use hugepilot_record::schedule::{FoundBy, ScheduledMapping};
use hugepilot_units::{Bytes, PageSizes, Region};

/// Label of anonymous memory without a name, whose ordinals may differ from run to run.
const ANONYMOUS: &str = "[anon]";
/// Difference of sizes, as a part of the size, up to which two mappings are alike: 2 %.
const ALIKE: u64 = 50;

/// Mapping of a process that stands for one of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMapping {
    /// Position in the mappings of the process.
    pub position: usize,
    /// Rule by which it was found.
    pub by: FoundBy,
    /// Whether its size differs by more than a region.
    pub is_resized: bool,
}

/// Mappings of a process by name, in address order.
struct Named<'a> {
    mappings: &'a [Mapping],
    sizes: PageSizes,
    by_name: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Named<'a> {
    fn new(mappings: &'a [Mapping], sizes: PageSizes) -> Self {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (position, mapping) in mappings.iter().enumerate() {
            by_name.entry(mapping.label()).or_default().push(position);
        }
        Self { mappings, sizes, by_name }
    }

    /// Positions of the mappings with this name.
    fn of(&self, name: &str) -> &[usize] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    fn differs(&self, one: &ScheduledMapping, position: usize) -> u64 {
        self.mappings[position].range.len().get().abs_diff(one.bytes.get())
    }

    fn found(&self, one: &ScheduledMapping, position: usize, by: FoundBy) -> FoundMapping {
        let is_resized = self.differs(one, position) > self.sizes.huge.get();
        FoundMapping { position, by, is_resized }
    }

    /// Position by ordinal.
    fn by_ordinal(&self, one: &ScheduledMapping) -> Option<usize> {
        let &position = self.of(&one.name).get(usize::try_from(one.ordinal).ok()?)?;
        let most = (one.bytes.get() / ALIKE).max(self.sizes.huge.get());
        (one.name != ANONYMOUS || self.differs(one, position) <= most).then_some(position)
    }

    /// Position by size; `rank` chooses among those of the same size.
    fn by_size(&self, one: &ScheduledMapping, rank: usize) -> Option<usize> {
        let named = || self.of(&one.name).iter().copied();
        let nearest = named().map(|position| self.differs(one, position)).min()?;
        let is_near = |position: &usize| self.differs(one, *position) == nearest;
        let equals: Vec<usize> = named().filter(is_near).collect();
        let alike = nearest <= one.bytes.get() / ALIKE;
        alike.then(|| equals.get(rank).or(equals.last()).copied()).flatten()
    }
}

/// Finds each of `wanted` among the mappings of a process, which are in address order; `None` for
/// those that it does not have. `is_wanted` selects by position.
///
/// The mapping of the same name and ordinal is taken. If its name is `[anon]`, its size must be the
/// same within 2 % or a region, and so must those of the other wanted ones of the same size.
/// Otherwise the mapping of that name with the nearest size within 2 % is taken; of several with
/// this size, the one with the same position among them as the wanted one has among the wanted ones
/// of its size.
pub fn find_mappings(
    wanted: &[ScheduledMapping],
    mappings: &[Mapping],
    sizes: PageSizes,
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<Option<FoundMapping>> {
    let named = Named::new(mappings, sizes);
    // Of each name and size: the ordinals, and whether all of them are found by it.
    let mut equals: BTreeMap<(&str, Bytes), (Vec<u32>, bool)> = BTreeMap::new();
    for one in wanted {
        let (ordinals, all) = equals.entry((&one.name, one.bytes)).or_insert((Vec::new(), true));
        ordinals.push(one.ordinal);
        *all &= named.by_ordinal(one).is_some();
    }
    equals.values_mut().for_each(|(ordinals, _)| ordinals.sort_unstable());
    let find = |(at, one): (usize, &ScheduledMapping)| {
        let (ordinals, all) = equals.get(&(&one.name, one.bytes)).filter(|_| is_wanted(at))?;
        let by_ordinal = named.by_ordinal(one).filter(|_| *all || one.name != ANONYMOUS);
        if let Some(position) = by_ordinal {
            return Some(named.found(one, position, FoundBy::Ordinal));
        }
        let rank = ordinals.partition_point(|&ordinal| ordinal < one.ordinal);
        let position = named.by_size(one, rank)?;
        Some(named.found(one, position, FoundBy::Size))
    };
    wanted.iter().enumerate().map(find).collect()
}

/// Returns the region at `index` of a mapping; `None` beyond its end.
pub fn region_at(mapping: &Mapping, index: u64, sizes: PageSizes) -> Option<Region> {
    let inside = sizes.span_inside(mapping.range)?;
    let region = Region::new(inside.start().get().checked_add(index)?);
    inside.contains(&region).then_some(region)
}

/// Returns the mapping of `region` without its address, and the index of the region in it; `None`
/// if the program has no mapping that holds the whole region.
pub fn index_of(
    mappings: &[Mapping],
    region: Region,
    sizes: PageSizes,
) -> Option<(ScheduledMapping, u64)> {
    let range = region.range(sizes);
    let after = mappings.partition_point(|mapping| mapping.range.start <= range.start);
    let (mapping, before) = mappings[..after].split_last()?;
    if mapping.unmapped {
        return None;
    }
    let inside = sizes.span_inside(mapping.range).filter(|_| mapping.range.covers(range))?;
    let is_same = |other: &&Mapping| !other.unmapped && other.label() == mapping.label();
    let same = before.iter().filter(is_same).count();
    let (name, ordinal) = (mapping.label().to_owned(), u32::try_from(same).ok()?);
    let bytes: Bytes = mapping.range.len();
    let index = region.get() - inside.start().get();
    Some((ScheduledMapping { name, ordinal, bytes }, index))
}
