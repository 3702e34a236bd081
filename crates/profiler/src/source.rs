//! Choice of a sampler: one trait over hardware and software.

use hugepilot_kernel::perf::hardware::candidates;
use hugepilot_kernel::rights::Rights;
use hugepilot_kernel::{KernelError, Process, Unsupported, cpu};
use hugepilot_record::{ProvenanceCounts, Sample};
use hugepilot_units::Nanos;

use crate::hardware::HardwareSampler;
use crate::stall::StallSampler;

/// A running sampler of one process, its threads and its children.
pub trait AddressSource {
    /// Its name in reports, such as `cpu-clock`.
    fn name(&self) -> &str;
    /// Waits at most `wait`, then passes each sample to `each`.
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample));
    /// Attaches to new threads. Call it about once a second.
    ///
    /// # Errors
    /// If the process ended.
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError>;
    /// Samples all threads of `processes` at `more_hz` samples per second more, until the next
    /// call; threads that start later, at the usual rate. Samplers of events have no rate.
    ///
    /// # Errors
    /// One of them cannot be sampled more; then all are sampled as before.
    fn boost(&mut self, _processes: &[&Process], _more_hz: u32) -> Result<(), KernelError> {
        Ok(())
    }
    /// Returns the samples by provenance, and the losses.
    fn counts(&self) -> ProvenanceCounts;
    /// Returns the processes that started another program since the last call: their known
    /// addresses are invalid.
    fn execs(&mut self) -> Vec<hugepilot_record::Pid>;
}

/// A sampler that cannot be used here.
#[derive(Debug)]
pub struct UnavailableSampler {
    /// Its name in reports.
    pub name: &'static str,
    /// The cause.
    pub cause: UnavailableCause,
}

/// Cause why a sampler cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnavailableCause {
    /// The processor, its hypervisor or the kernel does not support it.
    #[error(transparent)]
    Unsupported(Unsupported),
    /// Attaching to the target fails.
    #[error(transparent)]
    Attach(#[from] KernelError),
}

/// The best sampler that works here, and the better ones that do not.
pub struct SamplerChoice {
    /// The sampler, enabled.
    pub source: Box<dyn AddressSource>,
    /// Whether each sample represents the same time. If samples are page walks, their shares are
    /// not shares of time.
    pub samples_time: bool,
    /// Better samplers, each with its cause.
    pub unavailable: Vec<UnavailableSampler>,
}

/// Attaches the best sampler to `process`: hardware that samples TLB misses, then load latency,
/// then IBS, then the CPU clock at `rate_hz` samples per second of CPU time. Hardware is tried on a
/// child process first.
///
/// # Errors
/// That of the CPU clock: EACCES without permission (another user's process, or
/// `perf_event_paranoid`), or no such process.
///
/// ```no_run
/// use hugepilot_kernel::{Process, Root, Target};
/// use hugepilot_profiler::{Observation, choose};
/// use hugepilot_record::Pid;
/// use hugepilot_units::Nanos;
///
/// # fn main() -> Result<(), hugepilot_kernel::KernelError> {
/// let process = Process::open(&Root::live(), Pid(4711))?;
/// let mut chosen = choose(&process, 500)?;
/// let mut observation = Observation::new(process.sizes());
/// chosen.source.drain(Nanos::seconds(1), &mut |sample| observation.add(&sample));
/// if let Some(view) = observation.of(Pid(4711)) {
///     for heat in view.heat.regions(1536).iter().take(10) {
///         println!("{}: {} stalls", heat.region.range(process.sizes()), heat.scattered());
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub fn choose(process: &Process, rate_hz: u32) -> Result<SamplerChoice, KernelError> {
    let root = process.root();
    let rights = Rights::read(root);
    let candidates = cpu::read(root).map(|cpu| candidates(root, &cpu)).unwrap_or_default();
    let mut unavailable: Vec<_> = candidates
        .skipped
        .into_iter()
        .map(|(name, cause)| (name, UnavailableCause::Unsupported(cause)))
        .map(|(name, cause)| UnavailableSampler { name, cause })
        .collect();
    for hardware in candidates.sources {
        let opened = hardware
            .try_open(root, &rights)
            .map_err(UnavailableCause::Unsupported)
            .and_then(|_| Ok(HardwareSampler::attach(process, hardware)?));
        match opened {
            Ok(source) => {
                let source = Box::new(source);
                return Ok(SamplerChoice { source, samples_time: false, unavailable });
            }
            Err(cause) => unavailable.push(UnavailableSampler { name: hardware.name, cause }),
        }
    }
    let source = Box::new(StallSampler::attach(process, rate_hz)?);
    Ok(SamplerChoice { source, samples_time: true, unavailable })
}
