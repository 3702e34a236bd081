//! Samples several processes at once: how often each waits on each of its regions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_kernel::proc::resident;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_policy::PredictionInput;
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

/// What sampling showed of several processes.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Of each; `None` for one that could not be sampled.
    pub(crate) stalls: Vec<Option<Stalls>>,
    /// Why one could not.
    pub(crate) refused: Option<KernelError>,
}

/// Samples all of `processes` for `time`, at `rate_hz` samples a second of CPU time each, through rings that they share; where
/// there are too many for that, the largest. By the clock, whatever the hardware can do: memory that is on huge pages already
/// takes few page walks, so samples of walks would call the hottest of it cold.
///
/// # Errors
/// [`ManagerError::Sample`] when none can be sampled.
pub(crate) fn observe(
    processes: &[&Process],
    time: Nanos,
    rate_hz: u32,
    tlb_entries: u32,
    each: &mut dyn FnMut(u64) -> bool,
) -> Result<Seen, ManagerError> {
    let mut largest = processes.to_vec();
    // One whose size cannot be read goes last, as one that ended does.
    largest.sort_by_cached_key(|process| {
        Reverse(resident(process.root(), process.id().pid).ok().flatten())
    });
    let Some(&clock) = largest.first() else { return Ok(Seen::default()) };
    let failed = |source| ManagerError::Sample { pid: clock.id().pid, source };
    let (mut source, attached) = StallSampler::attach_all(&largest, rate_hz).map_err(failed)?;
    let (mut watched, mut refused) = (BTreeMap::new(), None);
    for (process, attached) in largest.iter().zip(attached) {
        match attached {
            Ok(()) => _ = watched.insert(process.id().pid, Observation::new(process.sizes())),
            Err(error) => refused = Some((process.id().pid, error)),
        }
    }
    if let Some((pid, source)) = refused.take_if(|_| watched.is_empty()) {
        return Err(ManagerError::Sample { pid, source });
    }
    let end = clock.now() + time;
    let mut rescan = clock.now() + RESCAN_EVERY;
    while clock.now() < end && each(source.counts().total()) {
        clock.sleep(DRAIN_EVERY.min(end - clock.now()));
        source.drain(Nanos::ZERO, &mut |sample| {
            watched
                .get_mut(&sample.pid)
                .into_iter()
                .for_each(|observation| observation.add(&sample));
        });
        for pid in source.execs() {
            watched.get_mut(&pid).into_iter().for_each(|observation| observation.forget(pid));
        }
        if clock.now() > rescan {
            rescan = clock.now() + RESCAN_EVERY;
            for process in largest.iter().filter(|process| watched.contains_key(&process.id().pid))
            {
                // One that ended has no new threads.
                let _ = source.rescan(process);
            }
        }
    }
    let of =
        |process: &&Process| Some(stalls(process, watched.get(&process.id().pid)?, tlb_entries));
    Ok(Seen {
        stalls: processes.iter().map(of).collect(),
        refused: refused.map(|(_, error)| error),
    })
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
