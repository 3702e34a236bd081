//! Session: the tuning of a process and of the processes that it starts, or of several processes.

mod finish;
mod observe;
mod target;

use std::collections::BTreeMap;
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_policy::daemon::key_of;
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{Policy, ProcessState, TunePhase};
use hugepilot_profiler::ProgressReader;
use hugepilot_record::Stop;
use hugepilot_units::{Bytes, Nanos};

use target::SessionTarget;

use super::{Event, TuneOptions};
use crate::ManagerError;
use crate::engine::live::Live;
use crate::engine::{Engine, World};
use crate::fold::ProcessFold;
use crate::sampling::{NotSampled, SamplerKind, Sampling, SamplingOptions};

/// Values of the progress metric that are wanted before, and after, the promotions.
const METRIC_VALUES: usize = 5;

/// Tuning of a process and of the processes that it starts, or of several processes, which share
/// the limits.
pub struct Session<'a> {
    options: TuneOptions,
    engine: Engine<Live<'a>>,
    begun: Nanos,
    /// Start of the measurement after the promotions, once it is complete.
    measured: Option<Nanos>,
    /// Targets in the order given, those that are excluded too.
    targets: Vec<SessionTarget>,
}

impl<'a> Session<'a> {
    /// Attaches to running processes, which share the limits, without those that they start; to a
    /// single one with those, under the `name` of its program if that has not started yet. A
    /// running process is read first, so that a missing permission is an error before anything
    /// else, and is claimed unless this is a dry run. A process with an error is excluded.
    ///
    /// # Errors
    /// No process is left: the first [`ManagerError::Sample`]; [`ManagerError::Promote`] if its
    /// memory cannot be promoted, unless this is a dry run; [`ManagerError::Kernel`] if it may not
    /// be read, or if another run of hugepilot changes it.
    pub fn attach(
        processes: Vec<Process>,
        name: Option<&str>,
        options: TuneOptions,
        progress: Option<ProgressReader>,
        interrupted: &'a dyn Fn() -> bool,
        say: &'a mut dyn FnMut(Event<'_>),
    ) -> Result<Self, ManagerError> {
        let is_only = processes.len() == 1;
        let target = |process| SessionTarget::new(Rc::new(process), name, is_only);
        let mut targets: Vec<_> = processes.into_iter().map(target).collect();
        let (mut processes, mut claims, mut failure) = (Vec::new(), BTreeMap::new(), None);
        for target in &mut targets {
            match target.prepare(&options) {
                Ok(claim) => {
                    claims.extend(claim.map(|claim| (key_of(target.process.id()), claim)));
                    processes.push(target.process.clone());
                }
                Err(error) => {
                    target.exclude(&error, say);
                    failure.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failure.filter(|_| processes.is_empty()) {
            return Err(error);
        }
        let (sampling, not_sampled) = Sampling::start(
            &processes,
            SamplingOptions {
                sampler: SamplerKind::Best,
                with_children: is_only,
                rate_hz: options.rate_hz,
                boosted_hz: options.trial_rate_hz,
            },
        )?;
        for NotSampled { id, error: source } in not_sampled {
            let error = ManagerError::Sample { pid: id.pid, source };
            let target = targets.iter_mut().find(|target| target.process.id() == &id);
            target.into_iter().for_each(|target| target.exclude(&error, say));
            processes.retain(|one| one.id() != &id);
            claims.remove(&key_of(&id));
        }
        let sampled = || targets.iter().filter(|target| !target.is_excluded());
        for target in sampled() {
            say(Event::Attached {
                source: &sampling.name(),
                pid: target.process.id().pid,
                command: &target.facts.named.command,
                rates_hz: sampling
                    .samples_time()
                    .then_some((options.rate_hz, options.trial_rate_hz)),
            });
        }
        let goal = options.round_goal(name.is_some(), progress.is_some());
        let mut world =
            Live::new(processes, sampling, options.tlb_entries, progress, interrupted, say);
        world.guard.clone_from(&options.trial_guard);
        let mut engine = Engine::new(world, goal, options.guard, options.dry_run);
        engine.controller.claims = claims;
        // The limits are shares of the memory of all, also of one that is idle.
        for target in targets.iter().filter(|target| !is_only && !target.is_excluded()) {
            let resident = target.facts.first.map_or(Bytes::ZERO, |(resident, _)| resident);
            engine.note_resident(target.process.id(), resident);
        }
        let begun = engine.world.now();
        let mut session = Self { options, engine, begun, measured: None, targets };
        session.start_readers();
        Ok(session)
    }

    /// Time on the clock of the processes.
    pub fn now(&self) -> Nanos {
        self.engine.world.now()
    }

    /// Runs rounds until nothing more can change, the time is up, or the processes end.
    ///
    /// # Errors
    /// The only target cannot be read.
    pub fn run(&mut self) -> Result<(), ManagerError> {
        // However short the time is, there is a first decision. A process without samples for twice
        // the first observation is idle.
        let observe = self.options.goal.observe;
        // A wait for the progress metric is not part of the time.
        let begun = self.now();
        let first = begun + observe + observe;
        let end = begun + self.options.total;
        let last = end.max(first) + self.options.goal.trial_time;
        let may_be_idle = self.engine.goal().policy.needs_samples();
        while self.is_any_undecided() && !self.engine.world.is_over() {
            // A policy without samples has a first decision however late this process gets a CPU.
            let until = match may_be_idle || self.is_any_decided() {
                true => first,
                false => first.max(self.now() + observe),
            };
            if self.now() >= until {
                break;
            }
            if !self.round(until, last)? {
                // Nothing is left to do for the others; one of several may be idle, or start late.
                let soon = self.now() + self.options.goal.settle;
                self.engine.world.observe(soon.min(until));
            }
        }
        while self.is_any_decided() && self.round(end, end)? {}
        // A trial without a verdict would leave half of its regions huge for no reason.
        while self.engine.is_settling() && self.round(last, last)? {}
        self.abandon()
    }

    /// Whether a target has no decision yet. If there is time for the whole first observation, a
    /// decision to go on with that is none.
    fn is_any_undecided(&self) -> bool {
        let has_time = self.options.total >= self.options.goal.observe;
        let policy = &self.engine.goal().policy;
        let is_open = |shown: &ProcessFold| has_time && !is_judged(policy, &shown.state);
        let mut sampled = self.targets.iter().filter(|target| !target.is_excluded());
        sampled.any(|target| target.facts.fold.shown().is_none_or(is_open))
    }

    fn is_any_decided(&self) -> bool {
        self.targets.iter().any(|target| target.facts.fold.shown.is_some())
    }

    /// Runs rounds for `time`, and otherwise samples.
    ///
    /// # Errors
    /// The target cannot be read.
    pub fn run_for(&mut self, time: Nanos) -> Result<(), ManagerError> {
        let end = self.now() + time;
        // The program's end is the end of promotions.
        while self.round(end, Nanos::new(u64::MAX))? {}
        self.engine.world.observe(end);
        // A trial goes on in the next call.
        if self.engine.world.is_interrupted() { self.abandon() } else { Ok(()) }
    }

    /// Demotes what trials promoted that are still open: after an interruption, or without time for
    /// a verdict.
    fn abandon(&mut self) -> Result<(), ManagerError> {
        let Some(round) = self.engine.abandon()? else { return Ok(()) };
        self.note(&round);
        if self.engine.world.is_interrupted() {
            for target in self.targets.iter_mut().filter(|target| target.is_in(&round)) {
                target.facts.fold.stopped = Some(Stop::Interrupted);
            }
        }
        Ok(())
    }

    /// Runs one round. Returns whether there may be another one before `end`.
    fn round(&mut self, end: Nanos, acts_end: Nanos) -> Result<bool, ManagerError> {
        let Some(round) = self.engine.round(end, acts_end)? else { return Ok(false) };
        self.note(&round);
        let goes_on = |target: &SessionTarget| match target.facts.fold.stopped {
            // A process that it started has ended, or only a round ended early.
            None | Some(Stop::SlowCollapse | Stop::TargetExeced | Stop::TargetGone) => true,
            Some(_) => false,
        };
        Ok(self.targets.iter().any(goes_on) || !self.engine.is_done())
    }

    /// Replaces a target of whose processes several were decided about by these processes.
    fn divide(&mut self) {
        let has_progress = self.engine.world.progress.is_some();
        let targets = std::mem::take(&mut self.targets);
        self.targets = targets.into_iter().flat_map(|one| one.divided(has_progress)).collect();
    }

    /// Adds a round to its targets, and says it.
    fn note(&mut self, round: &Round) {
        let (state, goal) = (&self.engine.state().clone(), self.engine.goal());
        let (world, options) = (&self.engine.world, &self.options);
        for target in self.targets.iter_mut().filter(|target| target.is_in(round)) {
            target.note(round, state, goal, options.dry_run);
            if target.facts.with_children {
                target.note_parts(round, state, goal, options.dry_run, &|pid| world.process(pid));
            }
        }
        (self.engine.world.say)(Event::Round { round, state });
    }
}

/// Whether the first observation of a process led to a decision.
const fn is_judged(policy: &Policy, state: &ProcessState) -> bool {
    let has_phases = matches!(policy, Policy::Heat);
    !has_phases || !matches!(state.phase, TunePhase::Observing)
}

/// Converts the error of an excluded process to that of the kernel.
fn kernel_error(error: &ManagerError) -> Option<&KernelError> {
    match error {
        ManagerError::Kernel(error)
        | ManagerError::Promote(error)
        | ManagerError::Sample { source: error, .. } => Some(error),
        _ => None,
    }
}
