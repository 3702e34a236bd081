//! Test of a sample source on a child process.

use std::time::{Duration, Instant};

use hugepilot_record::Errno;
use hugepilot_units::{Bytes, Nanos};

use super::{Event, PerfSampler, Record, SamplerOptions};
use crate::rights::Rights;
use crate::sys::anon::{AnonMap, Pages};
use crate::sys::fork::{Child, Task};
use crate::sys::reach::{self, Call};
use crate::{KernelError, OwnMemory, Process, Root, Unsupported, memory, unsupported};

/// Samples that are enough to trust a source.
const ENOUGH: u64 = 4;
/// Time to wait for them: a busy machine may not run the child at once.
const PATIENCE: Duration = Duration::from_millis(250);

/// Samples a child that reads `memory` in pseudorandom order with `event`, for a quarter of a
/// second at most, and counts the samples that `fit`.
///
/// # Errors
/// [`Unsupported`] if the event cannot be opened.
pub(crate) fn samples_of(
    root: &Root,
    memory: Bytes,
    event: Event,
    rights: &Rights,
    fits: impl Fn(&Record<'_>) -> bool,
) -> Result<u64, Unsupported> {
    let other = |error: KernelError| Unsupported::because(&error);
    let sizes = memory::page_sizes(root).map_err(other)?;
    let no_memory = |errno| Unsupported::NoProbeMemory { errno };
    if memory > OwnMemory::read(root).room() {
        return Err(no_memory(Errno::ENOMEM));
    }
    let mut map = AnonMap::new(memory, Pages::Base, sizes).map_err(no_memory)?;
    let child = Child::start(&mut map, sizes.base, Task::Wander, sizes)
        .map_err(|errno| Unsupported::NoProbeChild { errno })?;
    let process = Process::open(root, child.pid()).map_err(other)?;
    let denied = |error: KernelError| match error.errno() {
        Some(errno) => unsupported::of_event(errno, reach::answer(Call::PerfEventOpen), rights),
        None => other(error),
    };
    let options = SamplerOptions::new(event);
    let mut sampler = PerfSampler::attach(&process, options).map_err(denied)?;
    sampler.enable().map_err(denied)?;
    let started = Instant::now();
    let mut count = 0;
    while count < ENOUGH && started.elapsed() < PATIENCE {
        sampler.drain(Nanos::millis(5), |record| count += u64::from(fits(&record)));
    }
    Ok(count)
}
