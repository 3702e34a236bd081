//! Sampler whose addresses come from the processor, without decoding.

use hugepilot_kernel::perf::hardware::HardwareSource;
use hugepilot_kernel::perf::{PerfSampler, Record, SamplerOptions};
use hugepilot_kernel::{KernelError, Process};
use hugepilot_record::{Pid, ProvenanceCounts, Sample};
use hugepilot_units::{Nanos, VirtAddr};

use crate::source::{AddressSource, AttachResults};
use crate::stall::callers_of;
use crate::tally::Tally;

/// Samples page walks of a process, its threads and its children, or of a set of processes.
pub(crate) struct HardwareSampler {
    perf: PerfSampler,
    source: HardwareSource,
    tally: Tally,
    execs: Vec<Pid>,
}

impl HardwareSampler {
    /// Attaches to all of `processes`, as
    /// [`StallSampler::attach_all`](crate::stall::StallSampler::attach_all) does.
    pub(crate) fn attach_all(
        processes: &[&Process],
        source: HardwareSource,
        tally: Tally,
    ) -> Result<(Self, AttachResults), KernelError> {
        let options = SamplerOptions::new(source.event);
        let (mut perf, attached) = PerfSampler::attach_all(processes, options)?;
        perf.enable()?;
        Ok((Self { perf, source, tally, execs: Vec::new() }, attached))
    }
}

impl AddressSource for HardwareSampler {
    fn name(&self) -> &str {
        self.source.name
    }
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample)) {
        self.drain_callers(wait, &mut |sample, _| each(sample));
    }
    fn drain_callers(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample, &[VirtAddr])) {
        let Self { perf, source, tally, execs } = self;
        let mut callers = Vec::new();
        perf.drain(wait, |record| match record {
            Record::Lost(lost) => tally.lose(lost),
            Record::Throttled => tally.throttle(),
            Record::Exec(pid) if tally.wants(pid) => execs.push(pid),
            // Accesses that the TLB served are not page walks; they do not count.
            record => {
                if let Some(sample) = source.sample(&record).filter(|one| tally.wants(one.pid)) {
                    tally.count(sample.pid, sample.provenance, None);
                    callers_of(&record, false, &mut callers);
                    each(sample, &callers);
                }
            }
        });
    }
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError> {
        self.perf.rescan(process)
    }
    fn counts(&self) -> ProvenanceCounts {
        self.tally.all()
    }
    fn counts_of(&self, pid: Pid) -> Option<ProvenanceCounts> {
        self.tally.of(pid)
    }
    fn execs(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.execs)
    }
}
