//! Simulation of page reuse.

use std::collections::BTreeMap;

use hugepilot_reports::sim::{
    DistanceBucket, KindOfReuse, KindShare, MappingReuse, MissPoint, PageCell, REUSE_SCHEMA,
    ReuseBucket, ReuseLevel, SimReuseReport,
};
use hugepilot_sim::{
    Batch, MemoryUse, PageClass, PageReuse, Reuse, ReuseConfig, ReuseKind, ReuseOfPages,
    ReuseOfRegions, place_of,
};

use super::tlb::page_bytes;
use super::{Job, Simulator};
use crate::TraceError;

impl Simulator for ReuseOfPages {
    fn memory(&self) -> MemoryUse {
        self.memory()
    }
    fn run(&mut self, batch: &Batch) {
        self.run(batch);
    }
}

impl Simulator for ReuseOfRegions {
    fn memory(&self) -> MemoryUse {
        self.memory()
    }
    fn run(&mut self, batch: &Batch) {
        self.run(batch);
    }
}

/// Page with its place, for scatter data.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedReuse {
    /// Process.
    pub process: u16,
    /// Name of the mapping.
    pub mapping: String,
    /// Place among the mappings of that name, former ones last.
    pub ordinal: u64,
    /// First address.
    pub address: u64,
    /// Accesses.
    pub accesses: u64,
    /// Mean time distance of the base page; infinite if it was used once.
    pub base: f64,
    /// Mean time distance of its 2 MiB region.
    pub huge: f64,
    /// Mean time distance of its 1 GiB region.
    pub giant: f64,
    /// Kind.
    pub kind: KindOfReuse,
}

/// Analyses the reuse of pages. `each` gets every base page that was used.
///
/// # Errors
/// As [`super::simulate`], and those of `each`.
pub fn reuse<E: From<TraceError>>(
    job: &mut Job<'_>,
    config: ReuseConfig,
    mut each: impl FnMut(PlacedReuse) -> Result<(), E>,
) -> Result<SimReuseReport, E> {
    let mut reuse = Reuse::new(config);
    let (simulated, input) = job.run(None, &mut [&mut reuse.pages, &mut reuse.regions])?;
    let footprint = &simulated.footprint;
    let places = simulated.layout.places(footprint);
    let mut pages: BTreeMap<usize, Pages> = BTreeMap::new();
    for page in reuse.pages(footprint) {
        let (process, address) = place_of(page.page);
        let Some(region) = footprint.find(process, address) else { continue };
        let at = places.shown(region).mapping;
        let kind = pages.entry(at).or_default().add(&page);
        let named = &places.mappings()[at];
        let PageReuse { accesses, base, huge, giant, .. } = page;
        let (mapping, ordinal) = (named.mapping.name.clone(), named.number);
        let page =
            PlacedReuse { process, mapping, ordinal, address, accesses, base, huge, giant, kind };
        each(page)?;
    }
    let mut all = Pages::default();
    pages.values().for_each(|one| all.join(one));
    let of_mapping = |(at, pages): (usize, Pages)| {
        let named = &places.mappings()[at];
        let (mapping, ordinal) = (named.mapping.name.clone(), named.number);
        let (process, (kinds, distances, page_cells)) = (named.process, pages.report());
        MappingReuse { process, mapping, ordinal, kinds, distances, page_cells }
    };
    let mut per_mapping: Vec<MappingReuse> = pages.into_iter().map(of_mapping).collect();
    let accesses = |one: &MappingReuse| one.kinds.iter().map(|kind| kind.accesses).sum::<u64>();
    per_mapping.sort_by_key(|one| std::cmp::Reverse(accesses(one)));
    let (kinds, distances, page_cells) = all.report();
    Ok(SimReuseReport {
        schema: REUSE_SCHEMA.to_owned(),
        input,
        sampled_ratio: config.rate,
        levels: PageClass::ALL.map(|class| level(&reuse, class)).into(),
        kinds,
        distances,
        page_cells,
        per_mapping,
    })
}

/// Pages of a mapping, by kind and by distance.
#[derive(Clone, Debug, Default)]
struct Pages {
    kinds: BTreeMap<KindOfReuse, (u64, u64)>,
    /// Buckets by their least distance; pages that were used once are last.
    distances: BTreeMap<u64, DistanceBucket>,
    /// Pages by their distance and that of their region.
    cells: BTreeMap<(u64, u64), u64>,
}

impl Pages {
    /// Adds a page. Returns its kind.
    fn add(&mut self, page: &PageReuse) -> KindOfReuse {
        let kind = kind(page.kind);
        self.add_kind(kind, 1, page.accesses);
        let own = self.bucket(bucket_of(page.base));
        (own.pages, own.accesses) = (own.pages + 1, own.accesses + page.accesses);
        self.bucket(bucket_of(page.huge)).pages_by_region += 1;
        self.bucket(bucket_of(page.giant)).pages_by_giant += 1;
        *self.cells.entry((key_of(page.base), key_of(page.huge))).or_default() += 1;
        kind
    }

    fn add_kind(&mut self, kind: KindOfReuse, pages: u64, accesses: u64) {
        let share = self.kinds.entry(kind).or_default();
        *share = (share.0 + pages, share.1 + accesses);
    }

    fn bucket(&mut self, distance: Option<u64>) -> &mut DistanceBucket {
        let bucket = self.distances.entry(distance.unwrap_or(u64::MAX)).or_default();
        bucket.distance = distance;
        bucket
    }

    fn join(&mut self, other: &Self) {
        for (&kind, &(pages, accesses)) in &other.kinds {
            self.add_kind(kind, pages, accesses);
        }
        for one in other.distances.values() {
            let bucket = self.bucket(one.distance);
            bucket.pages += one.pages;
            bucket.accesses += one.accesses;
            bucket.pages_by_region += one.pages_by_region;
            bucket.pages_by_giant += one.pages_by_giant;
        }
        for (&cell, &pages) in &other.cells {
            *self.cells.entry(cell).or_default() += pages;
        }
    }

    fn report(&self) -> (Vec<KindShare>, Vec<DistanceBucket>, Vec<PageCell>) {
        let share = |(&kind, &(pages, accesses)): (&KindOfReuse, &(u64, u64))| KindShare {
            kind,
            pages,
            accesses,
        };
        let distance = |key: u64| (key < u64::MAX).then_some(key);
        let cell = |(&(page, region), &pages): (&(u64, u64), &u64)| PageCell {
            distance: distance(page),
            region_distance: distance(region),
            pages,
        };
        (
            self.kinds.iter().map(share).collect(),
            self.distances.values().copied().collect(),
            self.cells.iter().map(cell).collect(),
        )
    }
}

/// Least distance of the bucket of a mean: a power of two; `None` for a page that was used once.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bucket_of(mean: f64) -> Option<u64> {
    mean.is_finite().then(|| 1 << (mean as u64).max(1).ilog2())
}

/// Returns the same with pages that were used once at the end.
fn key_of(mean: f64) -> u64 {
    bucket_of(mean).unwrap_or(u64::MAX)
}

fn level(reuse: &Reuse, class: PageClass) -> ReuseLevel {
    let histogram = reuse.histogram(class);
    ReuseLevel {
        page_bytes: page_bytes(class),
        first_uses: histogram.cold(),
        histogram: histogram
            .buckets()
            .map(|(distance, accesses)| ReuseBucket { distance, accesses })
            .collect(),
        curve: histogram
            .curve()
            .into_iter()
            .map(|point| MissPoint { entries: point.entries, miss_ratio: point.ratio })
            .collect(),
    }
}

const fn kind(kind: ReuseKind) -> KindOfReuse {
    match kind {
        ReuseKind::TlbFriendly => KindOfReuse::TlbFriendly,
        ReuseKind::Hub => KindOfReuse::Hub,
        ReuseKind::LowReuse => KindOfReuse::LowReuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_the_distance_of_themselves_and_of_their_region() {
        let page = |accesses, base, huge, giant| PageReuse {
            page: 0,
            accesses,
            base,
            huge,
            giant,
            kind: ReuseKind::of(base, huge),
        };
        let (mut one, mut all) = (Pages::default(), Pages::default());
        one.add(&page(5, 1023.9, 1.0, 1.0));
        one.add(&page(7, 1024.0, 1000.0, 600.0));
        one.add(&page(1, f64::INFINITY, 1.5, 1.2));
        all.join(&one);
        all.join(&one);
        let buckets = |pages: &Pages| -> Vec<_> {
            let all = pages.report().1.into_iter();
            let row = |one: DistanceBucket| {
                (one.distance, one.pages, one.accesses, one.pages_by_region, one.pages_by_giant)
            };
            all.map(row).collect()
        };
        let expected = [
            (Some(1), 0, 0, 2, 2),
            (Some(512), 1, 5, 1, 1),
            (Some(1024), 1, 7, 0, 0),
            (None, 1, 1, 0, 0),
        ];
        assert_eq!(buckets(&one), expected);
        assert_eq!(buckets(&all)[1], (Some(512), 2, 10, 2, 2));
        let kinds: Vec<_> = all.report().0.iter().map(|one| (one.kind, one.pages)).collect();
        assert_eq!(kinds, [(KindOfReuse::TlbFriendly, 2), (KindOfReuse::Hub, 4)]);
        let cells = all.report().2.into_iter();
        let cells: Vec<_> =
            cells.map(|one| (one.distance, one.region_distance, one.pages)).collect();
        let expected = [(Some(512), Some(1), 2), (Some(1024), Some(512), 2), (None, Some(1), 2)];
        assert_eq!(cells, expected);
    }
}
