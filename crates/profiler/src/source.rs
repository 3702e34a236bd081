//! Where addressed samples come from: one trait over hardware and software.

use std::collections::BTreeMap;

use hugepilot_kernel::perf::hardware::candidates;
use hugepilot_kernel::rights::Rights;
use hugepilot_kernel::{KernelError, Process, cpu};
use hugepilot_record::{ProvenanceCounts, Sample};
use hugepilot_units::Nanos;

use crate::hardware::HardwareSampler;
use crate::stall::StallSampler;

/// A running source of samples of one process, its threads and its children.
pub trait AddressSource {
    /// Its name in reports, such as `cpu-clock`.
    fn name(&self) -> &str;
    /// Waits at most `wait`, then gives each sample to `each`.
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample));
    /// Attaches to threads that came since. For about once a second.
    ///
    /// # Errors
    /// When the process is gone.
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError>;
    /// Samples so far, by provenance, and losses.
    fn counts(&self) -> ProvenanceCounts;
    /// Processes that started another program since the last call: what is known of their addresses is void.
    fn execs(&mut self) -> Vec<hugepilot_record::Pid>;
}

/// The best source that works here, and why better ones do not.
pub struct Chosen {
    /// The source, enabled.
    pub source: Box<dyn AddressSource>,
    /// Whether each sample stands for the same time. Where each is a page walk, shares of samples are no shares of time.
    pub samples_time: bool,
    /// Better sources and what is missing for them.
    pub unavailable: BTreeMap<String, String>,
}

/// Attaches the best source to `process`: hardware that samples TLB misses, then load latency, then IBS, then the CPU
/// clock at `rate_hz` samples a second of CPU time. Hardware is tried on a child of our own first.
///
/// # Errors
/// The CPU clock's: EACCES without rights (another user's process, or `perf_event_paranoid`), or no such process.
pub fn choose(process: &Process, rate_hz: u32) -> Result<Chosen, KernelError> {
    let root = process.root();
    let rights = Rights::read(root);
    let candidates = cpu::read(root).map(|cpu| candidates(root, &cpu)).unwrap_or_default();
    let mut unavailable: BTreeMap<String, String> = candidates
        .skipped
        .into_iter()
        .map(|(name, reason)| (name.to_owned(), reason.to_string()))
        .collect();
    for hardware in candidates.sources {
        let opened =
            hardware.try_open(root, &rights).map_err(|reason| reason.to_string()).and_then(|_| {
                HardwareSampler::attach(process, hardware).map_err(|error| error.to_string())
            });
        match opened {
            Ok(source) => {
                return Ok(Chosen { source: Box::new(source), samples_time: false, unavailable });
            }
            Err(why) => _ = unavailable.insert(hardware.name.to_owned(), why),
        }
    }
    let source = Box::new(StallSampler::attach(process, rate_hz)?);
    Ok(Chosen { source, samples_time: true, unavailable })
}
