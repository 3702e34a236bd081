//! The running system, as the engine sees it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use hugepilot_kernel::{KernelError, Process, Root, Target, TargetState, clock, memory};
use hugepilot_policy::daemon::Key;
use hugepilot_profiler::{
    LoadReader, MAX_REGIONS, ProgressReader, WorkReader, read_memory, read_regions, read_sampled,
};
use hugepilot_record::{Pid, ProcessId, ProcessMemory, ProcessSnapshot, Promotion, Window};
use hugepilot_units::Nanos;

use super::known_mappings::KnownMappings;
use super::{NeededRegions, Scope, TuneWorld, World};
use crate::daemon::reserve::Reserve;
use crate::debloat::Stalls;
use crate::sampling::Sampling;
use crate::trial_guard::TrialGuard;
use crate::tune::{Event, is_alive, lives, open};

/// Time between two drains of the sample rings.
const DRAIN_EVERY: Nanos = Nanos::millis(50);
/// Time between two events of progress.
const SAY_EVERY: Nanos = Nanos::seconds(1);
/// Acts between two drains during promotions: the rings must not overflow.
const ACTS_PER_DRAIN: usize = 64;

/// A process in view, as it is since it last started a program.
struct Opened {
    process: Rc<Process>,
    /// Its mappings with their sizes, as last read.
    sizes: KnownMappings,
}

impl Opened {
    fn new(process: Rc<Process>) -> Self {
        Self { process, sizes: KnownMappings::default() }
    }
}

/// Rest after a compaction, as a multiple of its time.
const COMPACTION_REST: u64 = 20;

/// The running system: a process and those that it starts, or several processes.
pub struct Live<'a> {
    /// Samples of all processes.
    pub sampling: Sampling,
    /// Progress metric of the program.
    pub progress: Option<ProgressReader>,
    /// Work of each named process, as the kernel counts it.
    pub(crate) work: BTreeMap<Pid, WorkReader>,
    /// Load of the machine beside the named processes, if it is read.
    pub(crate) load: Option<LoadReader>,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// Whether the user interrupted.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Receives the events.
    pub say: &'a mut dyn FnMut(Event<'_>),
    /// Guard of the trials, if they have one.
    pub guard: Option<Arc<TrialGuard>>,
    /// Huge pages of the daemon that it frees for a region without one.
    pub(crate) reserve: Option<Rc<RefCell<Reserve>>>,
    /// Time from which memory may be compacted again, of all worlds of this process.
    pub(crate) compacts_from: Rc<Cell<Nanos>>,
    /// Processes that the user named, which stay the same if they start another program. If there
    /// is one, others are its descendants.
    named: BTreeMap<Pid, Rc<Process>>,
    opened: BTreeMap<Pid, Opened>,
    /// Processes whose memory was read, as they were then.
    known: BTreeMap<Pid, Rc<Process>>,
    /// Processes that cannot be read any more, with the error.
    unreadable: BTreeMap<Pid, KernelError>,
    /// Processes that started a program.
    restarted: Vec<Pid>,
    said: Nanos,
}

impl<'a> Live<'a> {
    /// Makes the world of the `named` processes, which `sampling` samples.
    pub fn new(
        named: Vec<Rc<Process>>,
        sampling: Sampling,
        tlb_entries: u32,
        progress: Option<ProgressReader>,
        interrupted: &'a dyn Fn() -> bool,
        say: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        let named: BTreeMap<Pid, Rc<Process>> =
            named.into_iter().map(|one| (one.id().pid, one)).collect();
        let opened = |one: &Rc<Process>| Opened::new(one.clone());
        let opened = named.iter().map(|(&pid, one)| (pid, opened(one))).collect();
        Self {
            sampling,
            progress,
            work: BTreeMap::new(),
            load: None,
            tlb_entries,
            interrupted,
            say,
            guard: None,
            reserve: None,
            compacts_from: Rc::default(),
            named,
            opened,
            known: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            restarted: Vec::new(),
            said: clock::monotonic(),
        }
    }

    /// Whether a process that the user named is left.
    pub fn is_any_alive(&self) -> bool {
        self.named.values().any(|one| is_alive(one))
    }

    /// Returns why process `pid`, one of several, cannot be read any more.
    pub fn unreadable(&self, pid: Pid) -> Option<&KernelError> {
        self.unreadable.get(&pid)
    }

    /// Returns the process `pid` whose memory was read last. It may have ended since.
    pub(crate) fn process(&self, pid: Pid) -> Option<Rc<Process>> {
        self.known.get(&pid).cloned()
    }

    /// Drains the sampler once, after at most `wait`.
    fn drain(&mut self, wait: Nanos) {
        for pid in self.sampling.drain(wait) {
            self.opened.remove(&pid);
            self.work.remove(&pid);
            self.restarted.push(pid);
        }
        let now = self.now();
        if now > self.said + SAY_EVERY {
            self.said = now;
            (self.say)(Event::Observing { samples: self.sampling.counts().total() });
        }
        if let Some(progress) = &mut self.progress {
            progress.poll(now);
        }
        self.work.values_mut().for_each(|work| work.poll(now));
        self.load.iter_mut().for_each(|load| load.poll(now));
    }

    /// Opens process `pid`: one that the user named, or one that it started.
    fn open(&mut self, pid: Pid) -> Result<&mut Opened, KernelError> {
        if !self.opened.get(&pid).is_some_and(|opened| is_alive(&opened.process)) {
            let process = open(pid).map_err(|error| match error {
                crate::ManagerError::Kernel(error) => error,
                _ => KernelError::NoProcess { pid },
            })?;
            // If the pid belongs to another process now, the samples are not about that one.
            let named = self.named.get(&pid).map(|one| one.id().start_ticks);
            if named.is_some_and(|start_ticks| start_ticks != process.id().start_ticks) {
                return Err(KernelError::NoProcess { pid });
            }
            self.opened.insert(pid, Opened::new(Rc::new(process)));
        }
        self.opened.get_mut(&pid).ok_or(KernelError::NoProcess { pid })
    }

    fn read(
        &mut self,
        pid: Pid,
        scope: Scope,
        needed: Option<NeededRegions<'_>>,
    ) -> Result<ProcessMemory, KernelError> {
        let opened = self.open(pid)?;
        let process = opened.process.clone();
        let selected = needed.map(|needed| opened.sizes.select(&process, needed)).transpose()?;
        let (view, tlb_entries) = (self.sampling.observation().of(pid), self.tlb_entries);
        let memory = match (selected, scope, view) {
            (Some((mappings, regions)), _, view) => {
                read_regions(&*process, mappings, &regions, view, tlb_entries)
            }
            (None, Scope::All, view) => read_memory(&*process, view, tlb_entries, MAX_REGIONS),
            (None, Scope::Sampled, Some(view)) => read_sampled(&*process, view, tlb_entries),
            (None, Scope::Sampled, None) => Err(KernelError::NoProcess { pid }),
        }?;
        // The sampler reports an exec only when the former memory is freed. What was read meanwhile
        // is of no program, and an end frees memory, too.
        match process.state()? {
            TargetState::Alive => Ok(memory),
            TargetState::Execed | TargetState::Gone => Err(KernelError::NoProcess { pid }),
        }
    }
}

impl World for Live<'_> {
    fn now(&self) -> Nanos {
        clock::monotonic()
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
        (self.interrupted)() || !self.is_any_alive()
    }

    fn is_interrupted(&self) -> bool {
        (self.interrupted)()
    }

    fn has_ended(&self, (pid, start_ticks): Key) -> bool {
        // A named process is known even if it started another program.
        let opened = self.opened.get(&pid).map(|opened| &opened.process);
        let mut known = opened.into_iter().chain(self.named.get(&pid));
        match known.find(|process| process.id().start_ticks == start_ticks) {
            Some(process) => !is_alive(process),
            None => !lives(&Root::live(), (pid, start_ticks)),
        }
    }

    fn restarted(&mut self) -> Vec<Pid> {
        std::mem::take(&mut self.restarted)
    }

    fn target(&mut self, pid: Pid) -> Result<Rc<dyn Target>, KernelError> {
        Ok(self.open(pid)?.process.clone())
    }

    fn end_sampling(&mut self, pids: &[Pid]) -> Vec<Option<Stalls>> {
        let sampling = std::mem::replace(&mut self.sampling, Sampling::none());
        let sampled: BTreeSet<Pid> =
            sampling.processes().iter().map(|process| process.id().pid).collect();
        let stalls = |pid| {
            let view = sampling.observation().of(pid);
            view.map_or_else(Stalls::default, |view| Stalls::of(view, self.tlb_entries))
        };
        pids.iter().map(|pid| sampled.contains(pid).then(|| stalls(*pid))).collect()
    }
}

impl TuneWorld for Live<'_> {
    fn in_view(&self, scope: Scope) -> Vec<Pid> {
        let mut pids = self.sampling.observation().pids();
        if scope == Scope::All {
            let named = self.named.iter().filter(|(_, one)| is_alive(one));
            pids.extend(named.map(|(&pid, _)| pid));
            pids.sort_unstable();
            pids.dedup();
        }
        pids.retain(|pid| !self.unreadable.contains_key(pid));
        pids
    }

    fn is_named(&self, pid: Pid) -> bool {
        self.named.contains_key(&pid)
    }

    fn window(&self, pid: Pid) -> Option<&Window> {
        self.sampling.observation().of(pid).map(|view| &view.window)
    }

    fn restart(&mut self, pid: Pid, from: Nanos) {
        self.sampling.observation_mut().restart(pid, from);
    }

    fn fade(&mut self, pid: Pid) {
        self.sampling.observation_mut().fade(pid);
    }

    fn forget(&mut self, pid: Pid) {
        self.sampling.observation_mut().forget(pid);
        self.opened.remove(&pid);
    }

    fn memory(
        &mut self,
        pid: Pid,
        scope: Scope,
        needed: Option<NeededRegions<'_>>,
    ) -> Result<ProcessMemory, KernelError> {
        let read = self.read(pid, scope, needed);
        if let (Ok(_), Some(opened)) = (&read, self.opened.get(&pid)) {
            self.known.insert(pid, opened.process.clone());
        }
        match read {
            // The others are tuned on.
            Err(error) if self.named.len() > 1 && !error.is_gone() => {
                self.unreadable.insert(pid, error);
                Err(KernelError::NoProcess { pid })
            }
            read => read,
        }
    }

    fn boost(&mut self, pids: &[Pid]) {
        let processes: Vec<Rc<Process>> =
            pids.iter().filter_map(|&pid| Some(self.open(pid).ok()?.process.clone())).collect();
        self.sampling.boost(&processes);
    }

    fn lacks_huge_pages(&mut self) -> bool {
        let now = self.now();
        self.reserve.as_ref().is_some_and(|reserve| reserve.borrow_mut().release(now))
    }

    fn may_compact(&self) -> bool {
        self.now() >= self.compacts_from.get() && memory::may_compact(&Root::live())
    }

    fn compact(&mut self) {
        let begun = self.now();
        // Without it, each collapse compacts, unless the kernel defers that after failures.
        let _ = memory::compact(&Root::live());
        let now = self.now();
        let rest = Nanos::new((now - begun).get().saturating_mul(COMPACTION_REST));
        self.compacts_from.set(now + rest);
    }

    fn trial_begins(&mut self, seen: &ProcessSnapshot, regions: &[Promotion]) {
        if let Some(guard) = &self.guard {
            guard.begins(seen, regions);
        }
    }

    fn trial_ended(&mut self, id: &ProcessId) {
        if let Some(guard) = &self.guard {
            guard.ended(id);
        }
    }

    fn acted(&mut self, pid: Pid, done: usize, all: usize) {
        (self.say)(Event::Acted { pid, done, all });
        if done.is_multiple_of(ACTS_PER_DRAIN) {
            self.drain(Nanos::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use hugepilot_policy::daemon::key_of;

    use super::*;
    use crate::sampling::tests::{sampling, sampling_of_restarted};

    #[test]
    fn a_process_that_started_a_program_and_then_ended_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Rc::new(open(Pid(child.id().cast_signed())).unwrap());
        let (id, mut say) = (process.id().clone(), |_: Event<'_>| {});
        let sampling = sampling_of_restarted(process.clone());
        let mut live = Live::new(vec![process], sampling, 1536, None, &|| false, &mut say);
        live.observe(live.now() + Nanos::millis(1));
        assert_eq!(live.restarted(), [id.pid]);
        assert!(!live.has_ended(key_of(&id)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(live.target(id.pid).is_err() && live.has_ended(key_of(&id)));
    }

    #[test]
    fn what_is_read_of_a_process_in_an_exec_is_of_no_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read _; exec sleep 60"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The shell itself is complete.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let process = Rc::new(open(Pid(child.id().cast_signed())).unwrap());
        let (pid, mut say) = (process.id().pid, |_: Event<'_>| {});
        let sampling = sampling_of_restarted(process.clone());
        let mut live = Live::new(vec![process.clone()], sampling, 1536, None, &|| false, &mut say);
        assert!(live.memory(pid, Scope::All, None).is_ok());
        drop(child.stdin.take());
        while process.state().unwrap() != TargetState::Execed {
            std::thread::yield_now();
        }
        assert!(live.memory(pid, Scope::All, None).unwrap_err().is_gone());
        assert_eq!(live.process(pid).unwrap().state().unwrap(), TargetState::Execed);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_ended_in_its_round_is_known_to_the_report() {
        let (sampling, _) = sampling(false);
        let (process, mut say) = (sampling.processes()[0].clone(), |_: Event<'_>| {});
        let (pid, named) = (process.id().pid, vec![process]);
        let mut live = Live::new(named, sampling, 1536, None, &|| false, &mut say);
        live.memory(pid, Scope::Sampled, None).unwrap();
        live.forget(pid);
        assert_eq!(live.process(pid).unwrap().id().pid, pid);
    }
}
