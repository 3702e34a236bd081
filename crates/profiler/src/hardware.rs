//! Sampler whose addresses come from the processor, without decoding.

use hugepilot_kernel::perf::hardware::HardwareSource;
use hugepilot_kernel::perf::{PerfSampler, Record, SamplerOptions};
use hugepilot_kernel::{KernelError, Process};
use hugepilot_record::{Pid, ProvenanceCounts, Sample};
use hugepilot_units::Nanos;

use crate::source::AddressSource;

/// Samples page walks of a process, its threads and its children.
pub(crate) struct HardwareSampler {
    perf: PerfSampler,
    source: HardwareSource,
    counts: ProvenanceCounts,
    execs: Vec<Pid>,
}

impl HardwareSampler {
    pub(crate) fn attach(process: &Process, source: HardwareSource) -> Result<Self, KernelError> {
        let mut perf = PerfSampler::attach(
            process,
            SamplerOptions { event: source.event, per_thread: false },
        )?;
        perf.enable()?;
        Ok(Self { perf, source, counts: ProvenanceCounts::default(), execs: Vec::new() })
    }
}

impl AddressSource for HardwareSampler {
    fn name(&self) -> &str {
        self.source.name
    }
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample)) {
        let Self { perf, source, counts, execs } = self;
        perf.drain(wait, |record| match record {
            Record::Lost(lost) => counts.lost += lost,
            Record::Throttled => counts.throttled += 1,
            Record::Exec(pid) => execs.push(pid),
            // Accesses that the TLB served are not page walks; they do not count.
            record => {
                if let Some(sample) = source.sample(&record) {
                    counts.count(sample.provenance);
                    each(sample);
                }
            }
        });
    }
    fn rescan(&mut self, process: &Process) -> Result<(), KernelError> {
        self.perf.rescan(process)
    }
    fn counts(&self) -> ProvenanceCounts {
        self.counts
    }
    fn execs(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.execs)
    }
}
