//! Whether samples really come: tried on a child of ours.

use std::time::{Duration, Instant};

use hugepilot_units::{Bytes, Nanos};

use super::{Event, PerfSampler, Record, SamplerOptions};
use crate::rights::Rights;
use crate::sys::anon::{AnonMap, Pages};
use crate::sys::fork::{Child, Task};
use crate::sys::reach::{self, Call};
use crate::{KernelError, Process, Root, Unsupported, memory, unsupported};

/// Enough samples to believe in a source.
const ENOUGH: u64 = 4;
/// How long to wait for them: a busy machine may not let the child run at once.
const PATIENCE: Duration = Duration::from_millis(250);

/// Samples a child that wanders through `memory` with `event`, for a quarter of a second at most, and counts the
/// samples that `fit`.
///
/// # Errors
/// Why the event cannot be had.
pub(crate) fn samples_of(
    root: &Root,
    memory: Bytes,
    event: Event,
    rights: &Rights,
    fits: impl Fn(&Record) -> bool,
) -> Result<u64, Unsupported> {
    let other = |error: KernelError| Unsupported::because(error.to_string());
    let sizes = memory::page_sizes(root).map_err(other)?;
    let mut map = AnonMap::new(memory, Pages::Base, sizes)
        .map_err(|errno| Unsupported::NoProbeMemory { errno })?;
    let child = Child::start(&mut map, sizes.base, Task::Wander, sizes)
        .map_err(|errno| Unsupported::NoProbeChild { errno })?;
    let process = Process::open(root, child.pid()).map_err(other)?;
    let refused = |error: KernelError| match error.errno() {
        Some(errno) => unsupported::of_event(errno, reach::answer(Call::PerfEventOpen), rights),
        None => other(error),
    };
    let options = SamplerOptions { event, per_thread: false };
    let mut sampler = PerfSampler::attach(&process, options).map_err(refused)?;
    sampler.enable().map_err(refused)?;
    let started = Instant::now();
    let mut count = 0;
    while count < ENOUGH && started.elapsed() < PATIENCE {
        sampler.drain(Nanos::millis(5), |record| count += u64::from(fits(&record)));
    }
    Ok(count)
}
