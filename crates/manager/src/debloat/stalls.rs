//! Samples several processes at once: how often each waits on each of its regions.

use std::collections::BTreeMap;

use hugepilot_kernel::{Process, Target};
use hugepilot_policy::Expected;
use hugepilot_profiler::{Chosen, Observation, choose};
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

/// Samples all of `processes` for `time`, at `rate_hz` samples a second of CPU time each.
///
/// # Errors
/// [`ManagerError::Sample`].
pub(crate) fn observe(
    processes: &[&Process],
    time: Nanos,
    rate_hz: u32,
    tlb_entries: u32,
    each: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Stalls>, ManagerError> {
    let attach = |process: &&Process| {
        let pid = process.id().pid;
        let chosen = choose(process, rate_hz).map_err(|source| ManagerError::Sample { pid, source })?;
        Ok((chosen, Observation::new(process.sizes())))
    };
    let mut watched =
        processes.iter().map(attach).collect::<Result<Vec<(Chosen, Observation)>, ManagerError>>()?;
    let Some(clock) = processes.first() else { return Ok(Vec::new()) };
    let end = clock.now() + time;
    while clock.now() < end {
        let samples = watched.iter().map(|(chosen, _)| chosen.source.counts().total()).sum();
        if !each(samples) {
            break;
        }
        clock.sleep(DRAIN_EVERY.min(end - clock.now()));
        for (chosen, observation) in &mut watched {
            chosen.source.drain(Nanos::ZERO, &mut |sample| observation.add(&sample));
        }
    }
    let seen = processes.iter().zip(&watched);
    Ok(seen.map(|(process, (_, observation))| stalls(process, observation, tlb_entries)).collect())
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
