//! Stall samples of processes on huge pages, by region.

use std::collections::BTreeMap;

use hugepilot_policy::PredictionInput;
use hugepilot_profiler::ProcessView;
use hugepilot_units::{Bytes, Region};

/// Stall samples of one process.
#[derive(Debug, Default)]
pub struct Stalls {
    /// Samples that a huge page would avoid, by region.
    pub(crate) regions: BTreeMap<Region, u32>,
    /// All samples.
    pub(crate) samples: u64,
    /// Samples with an address.
    pub(crate) addressed: u64,
    /// Addressed samples of pointer chases.
    pub(crate) chased: u64,
}

impl Stalls {
    /// Summarises the samples of a process.
    pub(crate) fn of(view: &ProcessView, tlb_entries: u32) -> Self {
        let heat = view.heat.regions(tlb_entries);
        Self {
            regions: heat.iter().map(|heat| (heat.region, heat.scattered())).collect(),
            samples: view.counts.total(),
            addressed: view.counts.addressed(),
            chased: view.counts.next,
        }
    }
}

/// Derives the expected effect, over all processes, of splitting huge pages with `lost` stalls.
#[allow(clippy::cast_precision_loss)]
pub(super) fn expected(all: &[&Stalls], lost: f64, huge: Bytes) -> PredictionInput {
    let sum = |of: fn(&Stalls) -> u64| all.iter().map(|one| of(one)).sum::<u64>();
    let (samples, addressed) = (sum(|one| one.samples), sum(|one| one.addressed));
    let hot =
        all.iter().map(|one| one.regions.values().filter(|&&count| count > 0).count() as u64).max();
    PredictionInput {
        heat_ratio: lost / samples.max(1) as f64,
        samples,
        hot: huge.times(hot.unwrap_or(0)),
        chased_ratio: sum(|one| one.chased) as f64 / addressed.max(1) as f64,
    }
}
