//! Stall samples of several processes at once, by process and region.

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Process, Target as _};
use hugepilot_policy::PredictionInput;
use hugepilot_profiler::Observation;
use hugepilot_units::{Bytes, Nanos, Region};

use crate::ManagerError;
use crate::engine::World as _;
use crate::engine::live::Live;
use crate::sampling::{SamplerKind, Sampling, SamplingOptions};
use crate::tune::Event;

/// Stall samples of one process.
#[derive(Debug, Default)]
pub struct Stalls {
    /// Samples that a huge page would avoid, by region.
    pub(crate) regions: BTreeMap<Region, u32>,
    /// All samples.
    pub(super) samples: u64,
    /// Samples with an address.
    pub(super) addressed: u64,
    /// Addressed samples of pointer chases.
    pub(super) chased: u64,
}

/// Stall samples of several processes.
#[derive(Debug, Default)]
pub(crate) struct StallSamples {
    /// Samples by process; `None` for one that could not be sampled.
    pub(crate) stalls: Vec<Option<Stalls>>,
    /// The error of one that could not.
    pub(crate) error: Option<KernelError>,
}

/// Samples all of `processes` for `time`, at `rate_hz` samples per second of CPU time each. If
/// there are too many processes, it samples the largest.
///
/// It samples by the clock even if the hardware could sample page walks: memory on huge pages
/// causes few walks, so its hottest regions would seem cold.
///
/// # Errors
/// [`ManagerError::Sample`] if no process can be sampled.
pub(crate) fn observe(
    processes: &[Rc<Process>],
    time: Nanos,
    rate_hz: u32,
    tlb_entries: u32,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<StallSamples, ManagerError> {
    if processes.is_empty() {
        return Ok(StallSamples::default());
    }
    let options = SamplingOptions {
        sampler: SamplerKind::Clock,
        with_children: false,
        rate_hz,
        boosted_hz: rate_hz,
    };
    let (sampling, mut not_sampled) = Sampling::start(processes, options)?;
    let mut say = |event: Event<'_>| {
        if let Event::Observing { samples } = event {
            progress(samples);
        }
    };
    let named = processes.to_vec();
    let mut world = Live::new(named, sampling, tlb_entries, None, interrupted, &mut say);
    world.observe(world.now() + time);
    let sampling = &world.sampling;
    let of = |process: &Rc<Process>| {
        let is_sampled = sampling.processes().iter().any(|one| Rc::ptr_eq(one, process));
        is_sampled.then(|| stalls(process, sampling.observation(), tlb_entries))
    };
    Ok(StallSamples {
        stalls: processes.iter().map(of).collect(),
        error: not_sampled.pop().map(|process| process.error),
    })
}

/// Summarises the samples of `process`, without those of its children.
fn stalls(process: &Process, observation: &Observation, tlb_entries: u32) -> Stalls {
    let Some(view) = observation.of(process.id().pid) else { return Stalls::default() };
    let heat = view.heat.regions(tlb_entries);
    Stalls {
        regions: heat.iter().map(|heat| (heat.region, heat.scattered())).collect(),
        samples: view.counts.total(),
        addressed: view.counts.addressed(),
        chased: view.counts.next,
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
