//! Where addressed samples come from: one trait over hardware and software.

use std::collections::BTreeMap;

use hugepilot_kernel::{KernelError, Process};
use hugepilot_record::{ProvenanceCounts, Sample};
use hugepilot_units::Nanos;

use crate::StallSampler;

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
    /// Better sources and what is missing for them.
    pub unavailable: BTreeMap<String, String>,
}

/// Attaches the best source to `process`: hardware that samples TLB misses, then load latency, then IBS, then the CPU
/// clock at `rate_hz` samples a second of CPU time.
///
/// # Errors
/// The CPU clock's: EACCES without rights (another user's process, or `perf_event_paranoid`), or no such process.
pub fn choose(process: &Process, rate_hz: u32) -> Result<Chosen, KernelError> {
    let unavailable = BTreeMap::new();
    let source = Box::new(StallSampler::attach(process, rate_hz)?);
    Ok(Chosen { source, unavailable })
}
