//! Simulation of page reuse.

use std::collections::BTreeMap;

use hugepilot_record::sim::{
    KindOfReuse, KindShare, MappingReuse, MissPoint, REUSE_SCHEMA, ReuseBucket, ReuseLevel,
    SimReuseReport,
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
    /// Mean time distance of its region.
    pub huge: f64,
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
    let mut shares: BTreeMap<usize, BTreeMap<KindOfReuse, (u64, u64)>> = BTreeMap::new();
    for page in reuse.pages(footprint) {
        let (process, address) = place_of(page.page);
        let Some(region) = footprint.find(process, address) else { continue };
        let at = places.shown(region).mapping;
        let kind = kind(page.kind);
        let share = shares.entry(at).or_default().entry(kind).or_default();
        *share = (share.0 + 1, share.1 + page.accesses);
        let named = &places.mappings()[at];
        let PageReuse { accesses, base, huge, .. } = page;
        let (mapping, ordinal) = (named.mapping.name.clone(), named.number);
        each(PlacedReuse { process, mapping, ordinal, address, accesses, base, huge, kind })?;
    }
    let mut per_mapping: Vec<MappingReuse> = shares
        .iter()
        .map(|(&at, kinds)| {
            let named = &places.mappings()[at];
            MappingReuse {
                process: named.process,
                mapping: named.mapping.name.clone(),
                ordinal: named.number,
                kinds: shares_of(kinds),
            }
        })
        .collect();
    let accesses = |one: &MappingReuse| one.kinds.iter().map(|kind| kind.accesses).sum::<u64>();
    per_mapping.sort_by_key(|one| std::cmp::Reverse(accesses(one)));
    let mut all = BTreeMap::new();
    for (&kind, &(pages, accesses)) in shares.values().flatten() {
        let share: &mut (u64, u64) = all.entry(kind).or_default();
        *share = (share.0 + pages, share.1 + accesses);
    }
    Ok(SimReuseReport {
        schema: REUSE_SCHEMA.to_owned(),
        input,
        sampled_ratio: config.rate,
        levels: PageClass::ALL.map(|class| level(&reuse, class)).into(),
        kinds: shares_of(&all),
        per_mapping,
    })
}

fn shares_of(kinds: &BTreeMap<KindOfReuse, (u64, u64)>) -> Vec<KindShare> {
    kinds.iter().map(|(&kind, &(pages, accesses))| KindShare { kind, pages, accesses }).collect()
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
