//! The running system, as the engine sees it.

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{Claim, KernelError, Process, Target};
use hugepilot_profiler::{Observation, SamplerChoice};
use hugepilot_record::{Pid, ProcessMemory, Window};
use hugepilot_units::Nanos;

use super::{Scope, World};
use crate::progress::ProgressReader;
use crate::snapshot::{MAX_REGIONS, read_memory, read_sampled};
use crate::tune::{Event, is_alive, open};

/// Time between two drains of the sample rings.
const DRAIN_EVERY: Nanos = Nanos::millis(50);
/// Time between two searches for new threads.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);
/// Acts between two drains during promotions: the rings must not overflow.
const ACTS_PER_DRAIN: usize = 64;

/// A process in view.
struct Opened {
    process: Rc<Process>,
    /// Claim, from the first change on.
    claim: Option<Claim>,
}

/// The sampler of a tune, and its rates in samples per second of each thread's CPU time.
pub struct Sampling {
    /// The sampler, enabled.
    pub chosen: SamplerChoice,
    /// Usual rate.
    pub rate_hz: u32,
    /// Rate during a trial.
    pub trial_rate_hz: u32,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
}

/// The running system: a process, and those that it starts.
pub struct Live<'a> {
    /// The process that is tuned; others are its descendants.
    pub process: Process,
    /// Claim of a process that ran before the tune; claims of others are taken later.
    pub claim: Option<Claim>,
    /// The sampler.
    pub chosen: SamplerChoice,
    /// Samples of all processes.
    pub observation: Observation,
    /// Progress metric of the program.
    pub progress: Option<ProgressReader>,
    /// Samples per second of each thread's CPU time.
    pub rate_hz: u32,
    /// The same, during a trial.
    pub trial_rate_hz: u32,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// Whether the user interrupted.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Receives the events.
    pub say: &'a mut dyn FnMut(Event<'_>),
    opened: BTreeMap<Pid, Opened>,
    boosted: Vec<Pid>,
    /// Processes that started another program.
    restarted: Vec<Pid>,
    rescanned: Nanos,
}

impl<'a> Live<'a> {
    /// Makes the world of `process`, whose sampler runs already.
    pub fn new(
        process: Process,
        claim: Option<Claim>,
        sampling: Sampling,
        progress: Option<ProgressReader>,
        interrupted: &'a dyn Fn() -> bool,
        say: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        let Sampling { chosen, rate_hz, trial_rate_hz, tlb_entries } = sampling;
        let rescanned = process.now();
        let mut observation = Observation::new(process.sizes());
        observation.drained_until(rescanned);
        observation.set_period(chosen.samples_time.then(|| period(rate_hz)));
        Self {
            process,
            claim,
            chosen,
            observation,
            progress,
            rate_hz,
            trial_rate_hz,
            tlb_entries,
            interrupted,
            say,
            opened: BTreeMap::new(),
            boosted: Vec::new(),
            restarted: Vec::new(),
            rescanned,
        }
    }

    /// Drains the sampler once, after at most `wait`.
    pub fn drain(&mut self, wait: Nanos) {
        let observation = &mut self.observation;
        self.chosen.source.drain(wait, &mut |sample| observation.add(&sample));
        let now = self.process.now();
        self.observation.drained_until(now);
        for pid in self.chosen.source.execs() {
            self.observation.forget(pid);
            self.opened.remove(&pid);
            self.restarted.push(pid);
        }
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            let _ = self.chosen.source.rescan(&self.process);
            (self.say)(Event::Observing { samples: self.chosen.source.counts().total() });
        }
        if let Some(progress) = &mut self.progress {
            progress.poll(now);
        }
    }

    /// Opens process `pid`: the target, or one that it started.
    fn open(&mut self, pid: Pid) -> Result<&mut Opened, KernelError> {
        if !self.opened.get(&pid).is_some_and(|opened| is_alive(&opened.process)) {
            let process = open(pid).map_err(|error| match error {
                crate::ManagerError::Kernel(error) => error,
                _ => KernelError::NoProcess { pid },
            })?;
            // If the pid belongs to another process now, the samples are not about that one.
            let is_root = pid == self.process.id().pid;
            if is_root && process.id().start_ticks != self.process.id().start_ticks {
                return Err(KernelError::NoProcess { pid });
            }
            self.opened.insert(pid, Opened { process: Rc::new(process), claim: None });
        }
        self.opened.get_mut(&pid).ok_or(KernelError::NoProcess { pid })
    }
}

/// Time between two samples of a thread.
fn period(rate_hz: u32) -> Nanos {
    Nanos::new(1_000_000_000 / u64::from(rate_hz.max(1)))
}

impl World for Live<'_> {
    fn now(&self) -> Nanos {
        self.process.now()
    }

    fn observe(&mut self, end: Nanos) {
        loop {
            let now = self.now();
            if now >= end || self.is_over() {
                return;
            }
            self.drain(DRAIN_EVERY.min(end - now));
        }
    }

    fn is_over(&self) -> bool {
        (self.interrupted)() || !is_alive(&self.process)
    }

    fn is_interrupted(&self) -> bool {
        (self.interrupted)()
    }

    fn restarted(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.restarted)
    }

    fn in_view(&self, scope: Scope) -> Vec<Pid> {
        let (mut pids, root) = (self.observation.pids(), self.process.id().pid);
        if scope == Scope::All && !pids.contains(&root) {
            pids.push(root);
        }
        pids
    }

    fn window(&self, pid: Pid) -> Option<&Window> {
        self.observation.of(pid).map(|view| &view.window)
    }

    fn restart(&mut self, pid: Pid, from: Nanos) {
        self.observation.restart(pid, from);
    }

    fn fade(&mut self, pid: Pid) {
        self.observation.fade(pid);
    }

    fn forget(&mut self, pid: Pid) {
        self.observation.forget(pid);
        self.opened.remove(&pid);
    }

    fn target(&mut self, pid: Pid) -> Result<Rc<dyn Target>, KernelError> {
        Ok(self.open(pid)?.process.clone())
    }

    fn memory(&mut self, pid: Pid, scope: Scope) -> Result<ProcessMemory, KernelError> {
        let process = self.open(pid)?.process.clone();
        let view = self.observation.of(pid);
        match (scope, view) {
            (Scope::All, view) => read_memory(&*process, view, self.tlb_entries, MAX_REGIONS),
            (Scope::Sampled, Some(view)) => read_sampled(&*process, view, self.tlb_entries),
            (Scope::Sampled, None) => Err(KernelError::NoProcess { pid }),
        }
    }

    fn claim(&mut self, pid: Pid) -> Result<(), KernelError> {
        let is_root = pid == self.process.id().pid;
        if is_root && self.claim.is_some() {
            return Ok(());
        }
        let opened = self.open(pid)?;
        if opened.claim.is_none() {
            opened.claim = Some(opened.process.claim()?);
        }
        Ok(())
    }

    fn boost(&mut self, pids: &[Pid]) {
        let more_hz = self.trial_rate_hz.saturating_sub(self.rate_hz);
        if self.boosted == pids || more_hz == 0 || !self.chosen.samples_time {
            return;
        }
        pids.clone_into(&mut self.boosted);
        let processes: Vec<Rc<Process>> =
            pids.iter().filter_map(|&pid| Some(self.open(pid).ok()?.process.clone())).collect();
        let processes: Vec<&Process> = processes.iter().map(|process| &**process).collect();
        // Without further samples, a trial only takes longer.
        let boosted = self.chosen.source.boost(&processes, more_hz).is_ok();
        let rate = if boosted && !pids.is_empty() { self.trial_rate_hz } else { self.rate_hz };
        self.observation.set_period(Some(period(rate)));
    }

    fn acted(&mut self, done: usize, all: usize) {
        (self.say)(Event::Acted { done, all });
        if done.is_multiple_of(ACTS_PER_DRAIN) {
            self.drain(Nanos::ZERO);
        }
    }
}
