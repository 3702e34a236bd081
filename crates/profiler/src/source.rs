//! Choice of a sampler: one trait over hardware and software.

use hugepilot_kernel::perf::hardware::candidates;
use hugepilot_kernel::rights::Rights;
use hugepilot_kernel::{KernelError, Process, Target, Unsupported, cpu};
use hugepilot_record::{Pid, ProvenanceCounts, Sample};
use hugepilot_units::{Nanos, VirtAddr};

use crate::hardware::HardwareSampler;
use crate::stall::StallSampler;
use crate::tally::Tally;

/// Result of attaching to each process, in order.
pub type AttachResults = Vec<Result<(), KernelError>>;

/// A running sampler: of one process, its threads and its children, or of several processes.
pub trait AddressSource {
    /// Its name in reports, such as `cpu-clock`.
    fn name(&self) -> &str;
    /// Waits at most `wait`, then passes each sample to `each`.
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample));
    /// Passes each sample with the return addresses of its callers, the nearest first; none if
    /// stacks are not walked, see [`Sampling::callers`].
    fn drain_callers(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample, &[VirtAddr])) {
        self.drain(wait, &mut |sample| each(sample, &[]));
    }
    /// Attaches to new threads of `process`, which it samples. Call it about once a second.
    ///
    /// # Errors
    /// If the process ended.
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError>;
    /// Samples all threads of `processes` at `more_hz` samples per second more, until the next
    /// call; threads that start later, at the usual rate. Returns those that are; the others are
    /// sampled as before. Samplers of events have no rate.
    fn boost(&mut self, _processes: &[&Process], _more_hz: u32) -> Vec<Pid> {
        Vec::new()
    }
    /// Returns the samples by provenance, and the losses.
    fn counts(&self) -> ProvenanceCounts;
    /// Returns the samples of one of several processes, with the losses of all, which share the
    /// rings; `None` if the sampler follows children.
    fn counts_of(&self, pid: Pid) -> Option<ProvenanceCounts>;
    /// Returns how often a process forked a child that has started no other program; 0 if the
    /// sampler does not see forks.
    fn forks_of(&self, _pid: Pid) -> u64 {
        0
    }
    /// Returns the processes that started another program since the last call: their known
    /// addresses are invalid.
    fn execs(&mut self) -> Vec<Pid>;
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

/// Settings of a sampler.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Samples per second of CPU time; samplers of events have no rate.
    pub rate_hz: u32,
    /// Whether the processes that a process starts are sampled, too.
    pub with_children: bool,
    /// Whether the kernel walks the stack of each sample by frame pointers.
    pub callers: bool,
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

impl SamplerChoice {
    /// Samples nothing.
    pub fn none() -> Self {
        Self { source: Box::new(NoSource), samples_time: false, unavailable: Vec::new() }
    }
}

/// Source without samples.
struct NoSource;

impl AddressSource for NoSource {
    fn name(&self) -> &str {
        "none"
    }
    fn drain(&mut self, wait: Nanos, _: &mut dyn FnMut(Sample)) {
        std::thread::sleep(wait.into());
    }
    fn rescan(&mut self, _: &Process) -> Result<(), KernelError> {
        Ok(())
    }
    fn counts(&self) -> ProvenanceCounts {
        ProvenanceCounts::default()
    }
    fn counts_of(&self, _: Pid) -> Option<ProvenanceCounts> {
        None
    }
    fn execs(&mut self) -> Vec<Pid> {
        Vec::new()
    }
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
    let sampling = Sampling { rate_hz, with_children: true, callers: false };
    let (chosen, attached) = choose_with(&[process], sampling)?;
    attached.into_iter().collect::<Result<(), KernelError>>()?;
    Ok(chosen)
}

/// Attaches the best sampler to all of `processes`, as [`choose`] does, without their children.
/// Returns a result for each, with the errors of [`choose`]; if only some can be attached for lack
/// of descriptors, these are the first.
///
/// # Errors
/// [`KernelError::Read`] if the system does not list its CPUs; [`KernelError::NoProcess`] without
/// processes.
pub fn choose_all(
    processes: &[&Process],
    rate_hz: u32,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    choose_with(processes, Sampling { rate_hz, with_children: false, callers: false })
}

/// Attaches the best sampler to all of `processes`, as [`choose`] does.
///
/// # Errors
/// As for [`choose_all`].
pub fn choose_with(
    processes: &[&Process],
    sampling: Sampling,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    let pids = pids(processes);
    let only = if sampling.with_children { None } else { Some(&pids[..]) };
    attach(processes, sampling, &|| Tally::new(only))
}

/// Attaches the CPU clock to all of `processes`, without their children, even if the hardware could
/// sample page walks.
///
/// # Errors
/// As for [`choose_all`].
pub fn clock_all(
    processes: &[&Process],
    rate_hz: u32,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    let sampling = Sampling { rate_hz, with_children: false, callers: false };
    attach_clock(processes, sampling, Tally::new(Some(&pids(processes))), Vec::new())
}

/// Attaches the CPU clock to processes that the hardware samples already: page walks are events,
/// and only samples of time give the share of a stall. `with_children`: also to the processes that
/// they start. If only some can be attached, these are the first.
///
/// # Errors
/// That of the first process, if none can be attached.
pub fn clock_beside(
    processes: &[&Process],
    with_children: bool,
    rate_hz: u32,
) -> Result<Box<dyn AddressSource>, KernelError> {
    let pids = pids(processes);
    let tally = Tally::new(if with_children { None } else { Some(&pids) });
    let sampling = Sampling { rate_hz, with_children, callers: false };
    let (source, mut attached) = StallSampler::attach_all(processes, sampling, tally)?;
    if attached.iter().all(Result::is_err) {
        attached.drain(..).collect::<Result<(), KernelError>>()?;
    }
    Ok(Box::new(source))
}

/// Tests whether `process` may be sampled, by attaching the CPU clock to it for a moment.
///
/// # Errors
/// That of [`choose`].
pub fn check_sampling(process: &Process) -> Result<(), KernelError> {
    clock_beside(&[process], false, 1).map(drop)
}

fn pids(processes: &[&Process]) -> Vec<Pid> {
    processes.iter().map(|process| process.id().pid).collect()
}

fn attach(
    processes: &[&Process],
    sampling: Sampling,
    tally: &dyn Fn() -> Tally,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    let first = processes.first().ok_or(KernelError::NoProcess { pid: Pid(0) })?;
    let root = first.root();
    let rights = Rights::read(root);
    let candidates = cpu::read(root).map(|cpu| candidates(root, &cpu)).unwrap_or_default();
    let mut unavailable: Vec<_> = candidates
        .skipped
        .into_iter()
        .map(|(name, cause)| (name, UnavailableCause::Unsupported(cause)))
        .map(|(name, cause)| UnavailableSampler { name, cause })
        .collect();
    for mut hardware in candidates.sources {
        hardware.event.format.callers = sampling.callers;
        let opened = hardware
            .try_open(root, &rights)
            .map_err(UnavailableCause::Unsupported)
            .and_then(|_| attached_some(HardwareSampler::attach_all(processes, hardware, tally())));
        match opened {
            Ok((source, attached)) => {
                let source = Box::new(source);
                let chosen = SamplerChoice { source, samples_time: false, unavailable };
                return Ok((chosen, attached));
            }
            Err(cause) => unavailable.push(UnavailableSampler { name: hardware.name, cause }),
        }
    }
    attach_clock(processes, sampling, tally(), unavailable)
}

/// Returns what attached to at least one process, otherwise the first error.
fn attached_some<T>(
    opened: Result<(T, AttachResults), KernelError>,
) -> Result<(T, AttachResults), UnavailableCause> {
    let (source, mut attached) = opened?;
    if attached.iter().all(Result::is_err) {
        attached.drain(..).collect::<Result<(), KernelError>>()?;
    }
    Ok((source, attached))
}

fn attach_clock(
    processes: &[&Process],
    sampling: Sampling,
    tally: Tally,
    unavailable: Vec<UnavailableSampler>,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    let (source, attached) = StallSampler::attach_all(processes, sampling, tally)?;
    let source = Box::new(source);
    Ok((SamplerChoice { source, samples_time: true, unavailable }, attached))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_without_samples_waits_too() {
        let (begun, wait) = (std::time::Instant::now(), Nanos::millis(20));
        SamplerChoice::none().source.drain(wait, &mut |sample| panic!("{sample:?}"));
        assert!(begun.elapsed() >= wait.into(), "it spins");
    }
}
