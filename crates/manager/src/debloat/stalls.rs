//! Stall samples of several processes at once, by process and region.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_kernel::proc::resident;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_policy::PredictionInput;
use hugepilot_profiler::{Observation, clock_all};
use hugepilot_units::{Bytes, Nanos, Region};

use crate::ManagerError;

/// Interval between drains of the rings.
const DRAIN_EVERY: Nanos = Nanos::millis(50);

/// Stall samples of one process.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Samples that a huge page would avoid, by region.
    pub(crate) regions: BTreeMap<Region, u32>,
    /// All samples.
    pub(super) samples: u64,
    /// Samples with an address.
    pub(super) addressed: u64,
    /// Addressed samples of pointer chases.
    pub(super) chased: u64,
}

/// Interval between searches for new threads.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Stall samples of several processes.
#[derive(Debug, Default)]
pub(crate) struct StallSamples {
    /// Samples by process; `None` for one that could not be sampled.
    pub(crate) stalls: Vec<Option<Stalls>>,
    /// The error of one that could not.
    pub(crate) error: Option<KernelError>,
}

/// Samples all of `processes` for `time`, at `rate_hz` samples per second of CPU time each, through
/// shared rings. If there are too many processes, it samples the largest.
///
/// It samples by the clock even if the hardware could sample page walks: memory on huge pages
/// causes few walks, so its hottest regions would seem cold.
///
/// # Errors
/// [`ManagerError::Sample`] if no process can be sampled.
pub(crate) fn observe(
    processes: &[&Process],
    time: Nanos,
    rate_hz: u32,
    tlb_entries: u32,
    each: &mut dyn FnMut(u64) -> bool,
) -> Result<StallSamples, ManagerError> {
    let mut largest = processes.to_vec();
    // A process whose size cannot be read goes last, like one that ended.
    largest.sort_by_cached_key(|process| {
        Reverse(resident(process.root(), process.id().pid).ok().flatten())
    });
    let Some(&clock) = largest.first() else { return Ok(StallSamples::default()) };
    let failed = |source| ManagerError::Sample { pid: clock.id().pid, source };
    let (chosen, attached) = clock_all(&largest, rate_hz).map_err(failed)?;
    let mut source = chosen.source;
    let (mut observed, mut failure) = (BTreeMap::new(), None);
    for (process, attached) in largest.iter().zip(attached) {
        match attached {
            Ok(()) => _ = observed.insert(process.id().pid, Observation::new(process.sizes())),
            Err(error) => failure = Some((process.id().pid, error)),
        }
    }
    if let Some((pid, source)) = failure.take_if(|_| observed.is_empty()) {
        return Err(ManagerError::Sample { pid, source });
    }
    let end = clock.now() + time;
    let mut rescan = clock.now() + RESCAN_EVERY;
    while clock.now() < end && each(source.counts().total()) {
        clock.sleep(DRAIN_EVERY.min(end - clock.now()));
        source.drain(Nanos::ZERO, &mut |sample| {
            observed
                .get_mut(&sample.pid)
                .into_iter()
                .for_each(|observation| observation.add(&sample));
        });
        for pid in source.execs() {
            observed.get_mut(&pid).into_iter().for_each(|observation| observation.forget(pid));
        }
        if clock.now() > rescan {
            rescan = clock.now() + RESCAN_EVERY;
            for process in largest.iter().filter(|process| observed.contains_key(&process.id().pid))
            {
                // A process that ended has no new threads.
                let _ = source.rescan(process);
            }
        }
    }
    let of =
        |process: &&Process| Some(stalls(process, observed.get(&process.id().pid)?, tlb_entries));
    Ok(StallSamples {
        stalls: processes.iter().map(of).collect(),
        error: failure.map(|(_, error)| error),
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
