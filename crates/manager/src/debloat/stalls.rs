//! Samples several processes at once: how often each waits on each of its regions.

use std::collections::BTreeMap;

use hugepilot_kernel::{Process, Target};
use hugepilot_policy::Expected;
use hugepilot_profiler::{AddressSource, Observation, StallSampler};
use hugepilot_units::{Bytes, Nanos, Region};

use crate::ManagerError;

/// The rings are emptied this often.
const DRAIN_EVERY: Nanos = Nanos::millis(50);

/// What sampling showed of one process.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Samples that a huge page helps, by region.
    pub(crate) regions: BTreeMap<Region, u32>,
    /// All samples.
    pub(super) samples: u64,
    /// Those with an address.
    pub(super) addressed: u64,
    /// Of these, the ones of pointer chases.
    pub(super) chased: u64,
}

/// Threads that came since are looked for this often.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Samples all of `processes` for `time`, at `rate_hz` samples a second of CPU time each; `None` for one that could not be
/// sampled. By the clock, whatever the hardware can do: memory that is on huge pages already takes few page walks, so
/// samples of walks would call the hottest of it cold.
///
/// # Errors
/// [`ManagerError::Sample`] when none can be sampled.
pub(crate) fn observe(
    processes: &[&Process],
    time: Nanos,
    rate_hz: u32,
    tlb_entries: u32,
    each: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Option<Stalls>>, ManagerError> {
    let mut refused = None;
    let mut attach = |process: &&Process| match StallSampler::attach(process, rate_hz) {
        Ok(source) => Some((source, Observation::new(process.sizes()))),
        Err(source) => {
            refused = Some(ManagerError::Sample { pid: process.id().pid, source });
            None
        }
    };
    let mut watched: Vec<Option<(StallSampler, Observation)>> = processes.iter().map(&mut attach).collect();
    if let Some(error) = refused.filter(|_| watched.iter().all(Option::is_none)) {
        return Err(error);
    }
    let Some(clock) = processes.first() else { return Ok(Vec::new()) };
    let end = clock.now() + time;
    let mut rescan = clock.now() + RESCAN_EVERY;
    while clock.now() < end {
        let samples = watched.iter().flatten().map(|(source, _)| source.counts().total()).sum();
        if !each(samples) {
            break;
        }
        clock.sleep(DRAIN_EVERY.min(end - clock.now()));
        let again = clock.now() > rescan;
        for (process, (source, observation)) in
            processes.iter().zip(&mut watched).filter_map(|(process, one)| Some((process, one.as_mut()?)))
        {
            source.drain(Nanos::ZERO, &mut |sample| observation.add(&sample));
            source.execs().into_iter().for_each(|pid| observation.forget(pid));
            if again {
                // One that ended has no new threads.
                let _ = source.rescan(process);
            }
        }
        rescan = if again { clock.now() + RESCAN_EVERY } else { rescan };
    }
    let seen = processes.iter().zip(&watched);
    let stalls = seen.map(|(process, one)| Some(stalls(process, &one.as_ref()?.1, tlb_entries)));
    Ok(stalls.collect())
}

/// What a process's children do is not its own.
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

/// What to expect of a plan that takes huge pages with `lost` stalls away, over all processes.
#[allow(clippy::cast_precision_loss)]
pub(super) fn expected(all: &[&Stalls], lost: f64, huge: Bytes) -> Expected {
    let sum = |of: fn(&Stalls) -> u64| all.iter().map(|one| of(one)).sum::<u64>();
    let (samples, addressed) = (sum(|one| one.samples), sum(|one| one.addressed));
    let hot = all.iter().map(|one| one.regions.values().filter(|&&count| count > 0).count() as u64).max();
    Expected {
        heat_ratio: lost / samples.max(1) as f64,
        samples,
        hot: huge.times(hot.unwrap_or(0)),
        chased_ratio: sum(|one| one.chased) as f64 / addressed.max(1) as f64,
    }
}
