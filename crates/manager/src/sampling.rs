//! Sampling of any number of processes at once, by one sampler with shared ring buffers.

use std::cmp::Reverse;
use std::rc::Rc;

use hugepilot_kernel::proc::resident;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_profiler::{
    AddressSource, AttachResults, Observation, SamplerChoice, UnavailableSampler, choose,
    choose_all, clock_all, clock_beside,
};
use hugepilot_record::{Pid, ProcessId, ProvenanceCounts};
use hugepilot_units::{Nanos, PageSizes};

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

impl SamplingOptions {
    /// Samples processes without their children by the CPU clock, at one rate.
    pub(crate) const fn clock(rate_hz: u32) -> Self {
        let (sampler, boosted_hz) = (SamplerKind::Clock, rate_hz);
        Self { sampler, with_children: false, rate_hz, boosted_hz }
    }
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
    /// The CPU clock beside a hardware sampler, so that shares of time are known there, too.
    clock: Option<Box<dyn AddressSource>>,
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
        let mut clock = None;
        if !chosen.samples_time {
            let all: Vec<&Process> = sampled.iter().map(|process| &**process).collect();
            let with_children = options.with_children && all.len() == 1;
            // Without the clock, there is no trial.
            clock = clock_beside(&all, with_children, options.rate_hz).ok();
        }
        Ok((Self::of(sampled, options, chosen, clock), not_sampled))
    }

    /// Samples nothing.
    pub(crate) fn none() -> Self {
        Self::of(Vec::new(), SamplingOptions::clock(1), SamplerChoice::none(), None)
    }

    fn of(
        processes: Vec<Rc<Process>>,
        options: SamplingOptions,
        chosen: SamplerChoice,
        clock: Option<Box<dyn AddressSource>>,
    ) -> Self {
        let (sizes, rescanned) = match processes.first() {
            Some(process) => (process.sizes(), process.now()),
            None => (PageSizes::X86_64, Nanos::ZERO),
        };
        let mut observation = Observation::new(sizes).with_tables(processes.len());
        observation.drained_until(rescanned);
        let samples_time = chosen.samples_time || clock.is_some();
        observation.set_period(samples_time.then(|| period(options.rate_hz)));
        let boosted = Vec::new();
        Self { options, processes, chosen, clock, observation, boosted, rescanned }
    }

    /// Returns the sampler of time; the only one, if that is not known to sample time.
    fn timed(&self) -> &dyn AddressSource {
        self.clock.as_deref().unwrap_or(&*self.chosen.source)
    }

    /// Waits at most `wait` for samples, takes them, and attaches to new threads from time to time.
    /// Returns the processes that started another program since the last call: their samples are
    /// dropped, because their addresses are void.
    pub fn drain(&mut self, wait: Nanos) -> Vec<Pid> {
        let observation = &mut self.observation;
        match &mut self.clock {
            Some(clock) => {
                clock.drain(wait, &mut |sample| observation.add(&sample));
                let walks = &mut self.chosen.source;
                walks.drain(Nanos::ZERO, &mut |sample| observation.add_walk(&sample));
            }
            None => self.chosen.source.drain(wait, &mut |sample| observation.add(&sample)),
        }
        let now = hugepilot_kernel::clock::monotonic();
        self.observation.drained_until(now);
        let mut execs = self.chosen.source.execs();
        execs.extend(self.clock.iter_mut().flat_map(|clock| clock.execs()));
        execs.sort_unstable();
        execs.dedup();
        for &pid in &execs {
            self.observation.forget(pid);
        }
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            for process in &self.processes {
                // A process that ended has no new threads.
                let _ = self.chosen.source.rescan(process);
                if let Some(clock) = &mut self.clock {
                    let _ = clock.rescan(process);
                }
            }
        }
        execs
    }

    /// Samples `processes` at the boosted rate, until the next call.
    pub fn boost(&mut self, processes: &[Rc<Process>]) {
        let more_hz = self.options.boosted_hz.saturating_sub(self.options.rate_hz);
        let wanted: Vec<Pid> = processes.iter().map(|process| process.id().pid).collect();
        if self.boosted == wanted || more_hz == 0 || !self.samples_time() {
            return;
        }
        self.boosted = wanted;
        let processes: Vec<&Process> = processes.iter().map(|process| &**process).collect();
        // Without further samples, a trial only takes longer.
        let timed = self.clock.as_mut().unwrap_or(&mut self.chosen.source);
        let boosted = timed.boost(&processes, more_hz);
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

    /// Returns the name of the sampler, or of both.
    pub fn name(&self) -> String {
        let beside = self.clock.iter().map(|clock| clock.name());
        std::iter::once(self.chosen.source.name()).chain(beside).collect::<Vec<_>>().join(" and ")
    }

    /// Whether there are samples that each represent the same time.
    pub const fn samples_time(&self) -> bool {
        self.chosen.samples_time || self.clock.is_some()
    }

    /// Returns the better samplers that cannot be used here.
    pub fn unavailable(&self) -> &[UnavailableSampler] {
        &self.chosen.unavailable
    }

    /// Returns the samples of all processes by provenance, and the losses; samples of time if there
    /// are such.
    pub fn counts(&self) -> ProvenanceCounts {
        self.timed().counts()
    }

    /// Returns how often a process forked a child that has started no other program.
    pub fn forks_of(&self, pid: Pid) -> u64 {
        self.timed().forks_of(pid)
    }

    /// Returns the samples of one of the processes, with the losses of all; `None` if children are
    /// sampled, too.
    pub fn counts_of(&self, pid: Pid) -> Option<ProvenanceCounts> {
        self.timed().counts_of(pid)
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

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use hugepilot_kernel::Root;
    use hugepilot_record::{Pattern, Provenance, Sample, Tid};
    use hugepilot_units::VirtAddr;

    use super::*;

    /// Sampler of which the samples are known.
    struct Scripted {
        name: &'static str,
        samples: Vec<Sample>,
        boosted_hz: Rc<Cell<u32>>,
        execs: Vec<Pid>,
    }

    impl AddressSource for Scripted {
        fn name(&self) -> &str {
            self.name
        }
        fn drain(&mut self, _: Nanos, each: &mut dyn FnMut(Sample)) {
            self.samples.drain(..).for_each(each);
        }
        fn rescan(&mut self, _: &Process) -> Result<(), KernelError> {
            Ok(())
        }
        fn boost(&mut self, processes: &[&Process], more_hz: u32) -> Vec<Pid> {
            self.boosted_hz.set(more_hz);
            processes.iter().map(|process| process.id().pid).collect()
        }
        fn counts(&self) -> ProvenanceCounts {
            ProvenanceCounts::default()
        }
        fn counts_of(&self, _: Pid) -> Option<ProvenanceCounts> {
            None
        }
        fn execs(&mut self) -> Vec<Pid> {
            std::mem::take(&mut self.execs)
        }
    }

    const OPTIONS: SamplingOptions = SamplingOptions {
        sampler: SamplerKind::Best,
        with_children: false,
        rate_hz: 500,
        boosted_hz: 2000,
    };

    /// Sampling of this process by hardware with two samples of region 3, and by a clock, if there
    /// is one, with a sample of region 4.
    pub(crate) fn sampling(with_clock: bool) -> (Sampling, [Rc<Cell<u32>>; 2]) {
        let pid = Pid(i32::try_from(std::process::id()).unwrap());
        let process = Rc::new(Process::open(&Root::live(), pid).unwrap());
        let sample = |region: u64| Sample {
            time: process.now() + Nanos::seconds(1),
            pid,
            tid: Tid(pid.0),
            ip: VirtAddr::new(0x40_1000),
            address: Some(VirtAddr::new(region << 21)),
            provenance: Provenance::Exact,
            pattern: Pattern::Scattered,
            stack: None,
        };
        let rates = [Rc::new(Cell::new(0)), Rc::new(Cell::new(0))];
        let scripted = |name, samples, rate: &Rc<Cell<u32>>| {
            let boosted_hz = Rc::clone(rate);
            let execs = Vec::new();
            Box::new(Scripted { name, samples, boosted_hz, execs }) as Box<dyn AddressSource>
        };
        let source = scripted("pebs", vec![sample(3), sample(3)], &rates[0]);
        let clock = with_clock.then(|| scripted("cpu-clock", vec![sample(4)], &rates[1]));
        let chosen = SamplerChoice { source, samples_time: false, unavailable: Vec::new() };
        let mut sampling = Sampling::of(vec![Rc::clone(&process)], OPTIONS, chosen, clock);
        sampling.drain(Nanos::ZERO);
        sampling.boost(&[process]);
        (sampling, rates)
    }

    /// Sampling of a process that started a program, which the next drain reports.
    pub(crate) fn sampling_of_restarted(process: Rc<Process>) -> Sampling {
        let (boosted_hz, execs) = (Rc::default(), vec![process.id().pid]);
        let source = Box::new(Scripted { name: "pebs", samples: Vec::new(), boosted_hz, execs });
        let chosen = SamplerChoice { source, samples_time: false, unavailable: Vec::new() };
        Sampling::of(vec![process], OPTIONS, chosen, None)
    }

    #[test]
    fn beside_hardware_the_clock_gives_the_shares_of_time() {
        let (sampling, rates) = sampling(true);
        assert!(sampling.samples_time());
        assert_eq!(sampling.name(), "pebs and cpu-clock");
        let view = sampling.observation().pids()[0];
        let view = sampling.observation().of(view).unwrap();
        let stalls: Vec<u64> = view.window.stalls.keys().map(|region| region.get()).collect();
        assert_eq!((view.window.samples, stalls), (1, vec![4]));
        assert_eq!(view.heat.regions(1536).len(), 2, "page walks heat their region");
        assert_eq!(rates.map(|rate| rate.get()), [0, 1500], "only the clock has a rate");
    }

    #[test]
    fn without_the_clock_all_is_counted_in_events() {
        let (sampling, rates) = sampling(false);
        assert!(!sampling.samples_time());
        let view = sampling.observation().of(sampling.observation().pids()[0]).unwrap();
        assert_eq!((view.window.samples, view.window.cpu), (2, None));
        assert_eq!(rates.map(|rate| rate.get()), [0, 0]);
    }
}
