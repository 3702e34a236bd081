//! Stall-address sampler: finds the addresses on which a process stalls, without hardware counters.
//!
//! A timer interrupt arrives when the instruction at the head of the pipeline has finished. If the
//! processor stalls on memory, that is the stalled instruction. So the sampled IP is the
//! instruction right after it, and the sampled registers are its results: enough to recompute the
//! address that it used (see [`crate::code`]). Sun's dataspace profiling did this with clock
//! samples on SPARC (Itzkowitz et al., SC'03).

use hashbrown::HashMap;
use hugepilot_code::{NoAddress, Regs};
use hugepilot_kernel::perf::{Event, PerfSampler, Record, SamplerOptions};
use hugepilot_kernel::{KernelError, Process, Root, Target, Unsupported};
use hugepilot_record::{Pattern, Pid, Provenance, ProvenanceCounts, Sample, Tid};
use hugepilot_units::{Bytes, Nanos, VirtAddr};

use crate::codemap::CodeMap;
use crate::fetches::Fetches;
use crate::forks::Forks;
use crate::source::{AddressSource, AttachResults, Sampling};
use crate::streams::Streams;
use crate::tally::Tally;

/// Limit of processes with known code, if all are sampled. Above it, all code maps are dropped.
const MAX_PROCESSES: usize = 32;
/// Addresses that a process can map.
const USER_ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 56;

/// Samples a process, its threads and its children by the CPU clock, or a set of processes.
pub(crate) struct StallSampler {
    perf: PerfSampler,
    /// Further samples of some processes, for a while.
    boost: Option<PerfSampler>,
    resolver: Resolver,
}

/// Converts records to samples. Separate from the ring buffer, which lends its records.
struct Resolver {
    root: Root,
    codes: HashMap<Pid, CodeMap>,
    streams: Streams,
    fetches: HashMap<Pid, Fetches>,
    forks: Forks,
    tally: Tally,
    execs: Vec<Pid>,
    base: Bytes,
}

impl StallSampler {
    /// Attaches to all of `processes`, which share the ring buffers, and starts. Passes on the
    /// samples of the processes that `tally` wants. Returns a result for each; if only some can be
    /// attached for lack of descriptors, these are the first.
    ///
    /// # Errors
    /// [`KernelError::Read`] if the system does not list its CPUs; [`KernelError::NoProcess`]
    /// without processes.
    pub(crate) fn attach_all(
        processes: &[&Process],
        sampling: Sampling,
        tally: Tally,
    ) -> Result<(Self, AttachResults), KernelError> {
        let first = processes.first().ok_or(KernelError::NoProcess { pid: Pid(0) })?;
        let (mut perf, attached) = PerfSampler::attach_all(processes, options(sampling))?;
        perf.enable()?;
        let resolver = Resolver::new(first, tally);
        Ok((Self { perf, boost: None, resolver }, attached))
    }
}

fn options(sampling: Sampling) -> SamplerOptions {
    let mut event = Event::cpu_clock(period_of(sampling.rate_hz));
    event.format.callers = sampling.callers;
    SamplerOptions::new(event)
}

/// Replaces `callers` by those of a sample. In a function without a frame, the nearest caller is
/// known by the stack pointer only.
pub(crate) fn callers_of(record: &Record<'_>, is_frameless: bool, callers: &mut Vec<VirtAddr>) {
    callers.clear();
    if let Record::Sample { chain, stack_top, .. } = record {
        callers.extend(stack_top.filter(|top| is_frameless && USER_ADDRESSES.contains(&top.get())));
        callers.extend(chain.callers());
    }
}

/// Returns the time between samples: odd, so that it is in step with no loop of the program.
fn period_of(rate_hz: u32) -> Nanos {
    Nanos::new((1_000_000_000 / u64::from(rate_hz.max(1))) | 1)
}

impl AddressSource for StallSampler {
    fn name(&self) -> &str {
        "cpu-clock"
    }
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample)) {
        self.drain_callers(wait, &mut |sample, _| each(sample));
    }
    fn drain_callers(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample, &[VirtAddr])) {
        let Self { perf, boost, resolver } = self;
        let mut callers = Vec::new();
        let mut take = |record: Record<'_>| {
            if let Some((sample, is_frameless)) = resolver.resolve(&record) {
                callers_of(&record, is_frameless, &mut callers);
                each(sample, &callers);
            }
        };
        perf.drain(wait, &mut take);
        if let Some(boost) = boost {
            boost.drain(Nanos::ZERO, &mut take);
        }
    }
    fn boost(&mut self, processes: &[&Process], more_hz: u32) -> Vec<Pid> {
        self.boost = None;
        if processes.is_empty() || more_hz == 0 {
            return Vec::new();
        }
        // A child process has the usual rate until it is boosted itself.
        let sampling = Sampling { rate_hz: more_hz, with_children: false, callers: false };
        let more = SamplerOptions { with_children: false, ..options(sampling) };
        let Ok((mut boost, attached)) = PerfSampler::attach_all(processes, more) else {
            return Vec::new();
        };
        // The last descriptors are for `/proc`.
        let is_short =
            |error: &KernelError| matches!(error.unsupported(), Some(Unsupported::OpenFiles));
        if attached.iter().any(|one| one.as_ref().is_err_and(is_short)) {
            return Vec::new();
        }
        if boost.enable().is_err() {
            return Vec::new();
        }
        self.boost = Some(boost);
        let boosted = processes.iter().zip(attached).filter(|(_, attached)| attached.is_ok());
        boosted.map(|(process, _)| process.id().pid).collect()
    }
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError> {
        self.perf.rescan(process)
    }
    fn counts(&self) -> ProvenanceCounts {
        self.resolver.tally.all()
    }
    fn counts_of(&self, pid: Pid) -> Option<ProvenanceCounts> {
        self.resolver.tally.of(pid)
    }
    fn forks_of(&self, pid: Pid) -> u64 {
        self.resolver.forks.of(pid)
    }
    fn execs(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.resolver.execs)
    }
}

impl Resolver {
    fn new(process: &Process, tally: Tally) -> Self {
        Self {
            root: process.root().clone(),
            codes: HashMap::new(),
            streams: Streams::new(process.sizes().base),
            fetches: HashMap::new(),
            forks: Forks::default(),
            base: process.sizes().base,
            tally,
            execs: Vec::new(),
        }
    }

    /// Returns the sample, and whether it is in a function without a frame.
    fn resolve(&mut self, record: &Record<'_>) -> Option<(Sample, bool)> {
        match *record {
            Record::Exec(pid) => self.forks.exec(pid),
            Record::Fork { pid, parent, .. } if self.tally.wants(parent) => {
                self.forks.fork(pid, parent);
            }
            _ => {}
        }
        match *record {
            Record::Sample { pid, .. } | Record::Exec(pid) if !self.tally.wants(pid) => {}
            Record::Sample { ip, pid, tid, time, registers, .. } => {
                let registers = registers.map(|regs| Regs::new(ip.get(), regs.0));
                return Some(self.sample(ip, pid, tid, time, registers));
            }
            Record::Lost(count) => self.tally.lose(count),
            Record::Throttled => self.tally.throttle(),
            Record::Exec(pid) => {
                self.codes.remove(&pid);
                self.fetches.remove(&pid);
                self.execs.push(pid);
            }
            Record::Mapped(pid) => {
                if let Some(code) = self.codes.get_mut(&pid) {
                    code.invalidate();
                }
            }
            Record::Fork { .. } | Record::Other => {}
        }
        None
    }

    fn sample(
        &mut self,
        ip: VirtAddr,
        pid: Pid,
        tid: Tid,
        time: Nanos,
        registers: Option<Regs>,
    ) -> (Sample, bool) {
        let mut sample = Sample {
            time,
            pid,
            tid,
            ip,
            address: None,
            provenance: Provenance::None,
            pattern: Pattern::Scattered,
            stack: registers.and_then(|regs| regs.get(iced_x86::Register::RSP)).map(VirtAddr::new),
        };
        // Code other than 64-bit code has no registers that the decoder knows.
        let (mut no_address, mut is_frameless) = (Some(NoAddress::UnknownCode), false);
        if let (Some(registers), Some(code)) = (registers, self.code(pid)) {
            let recipe = code.recipe(ip, time);
            is_frameless = recipe.frameless;
            no_address = recipe.no_address;
            sample.ip = VirtAddr::new(recipe.accessing_ip);
            sample.address =
                recipe.address(&registers).filter(|a| USER_ADDRESSES.contains(&a.get()));
            let is_fetch =
                recipe.may_fetch && self.fetches.entry(pid).or_default().add(ip, self.base);
            if is_fetch {
                (sample.ip, sample.address, sample.provenance) = (ip, Some(ip), Provenance::Fetch);
            } else if let Some(address) = sample.address {
                sample.provenance = recipe.provenance;
                sample.pattern =
                    self.streams.classify(pid, tid, sample.ip, address, time, recipe.stride);
            }
        }
        self.tally.count(pid, sample.provenance, no_address);
        (sample, is_frameless)
    }

    fn code(&mut self, pid: Pid) -> Option<&mut CodeMap> {
        if !self.codes.contains_key(&pid) {
            // A set of processes is already bounded by the caller.
            if !self.tally.is_bounded() && self.codes.len() >= MAX_PROCESSES {
                self.codes.clear();
                self.fetches.clear();
            }
            self.codes.insert(pid, CodeMap::new(&self.root, pid));
        }
        self.codes.get_mut(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_odd_and_close() {
        assert_eq!(period_of(500).get(), 2_000_001);
        assert_eq!(period_of(0).get(), 1_000_000_001);
    }
}
