//! Sampling of any number of processes at once, by one sampler with shared ring buffers.

use std::cmp::Reverse;
use std::rc::Rc;

use hugepilot_kernel::proc::resident;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_profiler::{
    AttachResults, Observation, SamplerChoice, UnavailableSampler, choose, choose_all, clock_all,
};
use hugepilot_record::{Pid, ProcessId, ProvenanceCounts};
use hugepilot_units::Nanos;

use crate::ManagerError;

/// Time between two searches for new threads.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Sampler, and its rates in samples per second of each thread's CPU time.
#[derive(Clone, Copy, Debug)]
pub struct SamplingOptions {
    /// Kind of sampler.
    pub sampler: SamplerKind,
    /// Whether the processes that a single process starts are sampled, too; not by the kind
    /// [`SamplerKind::Clock`].
    pub with_children: bool,
    /// Usual rate.
    pub rate_hz: u32,
    /// Rate of boosted processes.
    pub boosted_hz: u32,
}

/// Kind of sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// The best that works here.
    Best,
    /// The CPU clock, even if the hardware could sample page walks: memory on huge pages causes few
    /// walks, so its hottest regions would seem cold.
    Clock,
}

/// A process that cannot be sampled.
#[derive(Debug)]
pub struct NotSampled {
    /// The process.
    pub id: ProcessId,
    /// Cause: EACCES, EMFILE if there are too many, or that it ended.
    pub error: KernelError,
}

/// A running sampling. It ends on drop.
pub struct Sampling {
    options: SamplingOptions,
    /// Processes that are sampled, without those that they start.
    processes: Vec<Rc<Process>>,
    chosen: SamplerChoice,
    observation: Observation,
    boosted: Vec<Pid>,
    rescanned: Nanos,
}

impl Sampling {
    /// Starts to sample `processes`, and returns those that cannot be sampled. If there are too
    /// many, it samples the largest.
    ///
    /// # Errors
    /// [`ManagerError::Sample`] if none can be sampled.
    pub fn start(
        processes: &[Rc<Process>],
        options: SamplingOptions,
    ) -> Result<(Self, Vec<NotSampled>), ManagerError> {
        let mut largest = processes.to_vec();
        if largest.len() > 1 {
            // A process whose size cannot be read goes last, like one that ended.
            largest.sort_by_cached_key(|process| {
                Reverse(resident(process.root(), process.id().pid).ok().flatten())
            });
        }
        let Some(first) = largest.first().map(Rc::clone) else {
            return Err(KernelError::NoProcess { pid: Pid(0) }.into());
        };
        let failed =
            |process: &Process, source| ManagerError::Sample { pid: process.id().pid, source };
        let (chosen, attached) =
            attach(&largest, options).map_err(|error| failed(&first, error))?;
        let (mut sampled, mut not_sampled) = (Vec::new(), Vec::new());
        for (process, attached) in largest.into_iter().zip(attached) {
            match attached {
                Ok(()) => sampled.push(process),
                Err(error) => not_sampled.push(NotSampled { id: process.id().clone(), error }),
            }
        }
        if sampled.is_empty() {
            let NotSampled { id, error: source } = not_sampled.swap_remove(0);
            return Err(ManagerError::Sample { pid: id.pid, source });
        }
        let rescanned = first.now();
        let mut observation = Observation::new(first.sizes()).with_tables(sampled.len());
        observation.drained_until(rescanned);
        observation.set_period(chosen.samples_time.then(|| period(options.rate_hz)));
        let boosted = Vec::new();
        let processes = sampled;
        let sampling = Self { options, processes, chosen, observation, boosted, rescanned };
        Ok((sampling, not_sampled))
    }

    /// Waits at most `wait` for samples, takes them, and attaches to new threads from time to time.
    /// Returns the processes that started another program since the last call: their samples are
    /// dropped, because their addresses are void.
    pub fn drain(&mut self, wait: Nanos) -> Vec<Pid> {
        let observation = &mut self.observation;
        self.chosen.source.drain(wait, &mut |sample| observation.add(&sample));
        let now = hugepilot_kernel::clock::monotonic();
        self.observation.drained_until(now);
        let execs = self.chosen.source.execs();
        for &pid in &execs {
            self.observation.forget(pid);
        }
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            for process in &self.processes {
                // A process that ended has no new threads.
                let _ = self.chosen.source.rescan(process);
            }
        }
        execs
    }

    /// Samples `processes` at the boosted rate, until the next call.
    pub fn boost(&mut self, processes: &[Rc<Process>]) {
        let more_hz = self.options.boosted_hz.saturating_sub(self.options.rate_hz);
        let wanted: Vec<Pid> = processes.iter().map(|process| process.id().pid).collect();
        if self.boosted == wanted || more_hz == 0 || !self.chosen.samples_time {
            return;
        }
        self.boosted = wanted;
        let processes: Vec<&Process> = processes.iter().map(|process| &**process).collect();
        // Without further samples, a trial only takes longer.
        let boosted = self.chosen.source.boost(&processes, more_hz);
        self.observation.set_boosted(&boosted, period(self.options.boosted_hz));
    }

    /// Returns the processes that are sampled.
    pub fn processes(&self) -> &[Rc<Process>] {
        &self.processes
    }

    /// Returns the samples so far.
    pub const fn observation(&self) -> &Observation {
        &self.observation
    }

    /// Returns the samples so far, to restart or drop those of a process.
    pub const fn observation_mut(&mut self) -> &mut Observation {
        &mut self.observation
    }

    /// Returns the name of the sampler.
    pub fn name(&self) -> &str {
        self.chosen.source.name()
    }

    /// Whether each sample represents the same time.
    pub const fn samples_time(&self) -> bool {
        self.chosen.samples_time
    }

    /// Returns the better samplers that cannot be used here.
    pub fn unavailable(&self) -> &[UnavailableSampler] {
        &self.chosen.unavailable
    }

    /// Returns the samples of all processes by provenance, and the losses.
    pub fn counts(&self) -> ProvenanceCounts {
        self.chosen.source.counts()
    }

    /// Returns the samples of one of the processes, with the losses of all; `None` if children are
    /// sampled, too.
    pub fn counts_of(&self, pid: Pid) -> Option<ProvenanceCounts> {
        self.chosen.source.counts_of(pid)
    }
}

fn attach(
    processes: &[Rc<Process>],
    options: SamplingOptions,
) -> Result<(SamplerChoice, AttachResults), KernelError> {
    let all: Vec<&Process> = processes.iter().map(|process| &**process).collect();
    match (options.sampler, &all[..]) {
        (SamplerKind::Clock, all) => clock_all(all, options.rate_hz),
        (SamplerKind::Best, &[one]) if options.with_children => {
            Ok((choose(one, options.rate_hz)?, vec![Ok(())]))
        }
        (SamplerKind::Best, all) => choose_all(all, options.rate_hz),
    }
}

/// Time between two samples of a thread.
fn period(rate_hz: u32) -> Nanos {
    Nanos::new(1_000_000_000 / u64::from(rate_hz.max(1)))
}
