//! Census of huge pages in a recording: bloat by mapping, and its density.

use std::collections::BTreeMap;

use hugepilot_policy::debloat::round::SplitRow;
use hugepilot_record::ProcessId;
use hugepilot_units::{PageSizes, Region};

use super::areas::NamedRange;
use super::heat::index_of;
use crate::UNKNOWN_MAPPING;

/// The last census of a process, with what its round freed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessCensus {
    pub(crate) id: ProcessId,
    /// Huge pages that may be split, and those of them that were read.
    pub(crate) huge_pages: u64,
    pub(crate) read_pages: u64,
    sizes: PageSizes,
    /// Zero-filled base pages and freed bytes of the huge pages with bloat.
    bloated: BTreeMap<Region, (u32, u64)>,
    /// Whether its round was to split.
    pub(crate) is_split: bool,
}

/// Bloat of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappingBloat {
    pub(crate) name: String,
    /// Huge pages with bloat.
    pub(crate) huge_pages: u64,
    pub(crate) bloat_bytes: u64,
    pub(crate) freed_bytes: u64,
}

impl ProcessCensus {
    /// The census of a process in a round.
    pub(crate) fn of(row: &SplitRow, dry_run: bool) -> Self {
        let census = &row.seen.census;
        let pages = census.bloated.iter().map(|page| (page.region, (page.zero_pages, 0)));
        let mut bloated: BTreeMap<Region, (u32, u64)> = pages.collect();
        for act in &row.outcome.acts {
            if let Some((_, freed)) = bloated.get_mut(&act.region) {
                *freed = act.outcome.freed().get();
            }
        }
        Self {
            id: census.process.clone(),
            huge_pages: census.huge_pages,
            read_pages: census.read_pages,
            sizes: census.sizes,
            bloated,
            is_split: !dry_run,
        }
    }

    /// Bloat of each mapping, the most first.
    pub(crate) fn by_mapping(&self, ranges: &[NamedRange]) -> Vec<MappingBloat> {
        let huge = self.sizes.huge.get().max(1);
        let mut mappings = BTreeMap::<Option<usize>, MappingBloat>::new();
        for (region, &(zero_pages, freed)) in &self.bloated {
            let of = mappings.entry(index_of(ranges, region.get(), huge)).or_default();
            of.huge_pages += 1;
            of.bloat_bytes += self.sizes.base.times(zero_pages.into()).get();
            of.freed_bytes += freed;
        }
        let name = |at: Option<usize>| match at.map(|at| &ranges[at]) {
            Some(range) => format!("{} at {:#x}", range.name, range.start),
            None => UNKNOWN_MAPPING.to_owned(),
        };
        let named = mappings.into_iter().map(|(at, of)| MappingBloat { name: name(at), ..of });
        let mut all: Vec<MappingBloat> = named.collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.bloat_bytes));
        all
    }

    /// Share of the huge pages that were read of which at most each share is zero-filled.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn density(&self) -> Vec<(f64, f64)> {
        let base_pages = self.sizes.base_per_huge().max(1);
        let read = self.read_pages.max(self.bloated.len() as u64).max(1);
        let mut counts = BTreeMap::from([(0, read - self.bloated.len() as u64)]);
        for &(zero_pages, _) in self.bloated.values() {
            *counts.entry(u64::from(zero_pages)).or_default() += 1;
        }
        let mut sum = 0;
        let point = |(zero_pages, count): (u64, u64)| {
            sum += count;
            (zero_pages as f64 / base_pages as f64, sum as f64 / read as f64)
        };
        let mut points: Vec<(f64, f64)> = counts.into_iter().map(point).collect();
        // The curve ends at the right edge.
        points.push((1.0, 1.0));
        points.dedup();
        points
    }
}
