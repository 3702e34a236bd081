//! Session: the tuning of one process and of the processes that it starts.

mod observe;
mod report;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{KernelError, Process, Target, Unsupported};
use hugepilot_policy::round::Round;
use hugepilot_profiler::choose;
use hugepilot_record::Stop;
use hugepilot_record::tune::{Activity, TuneReport};
use hugepilot_units::Nanos;

use report::empty_report;
pub(crate) use report::trial_report;

use super::fold::Fold;
use super::{Event, TuneOptions, check_pagemap};
use crate::ManagerError;
use crate::engine::live::{Live, Sampling};
use crate::engine::{Engine, World};
use crate::progress::ProgressReader;

/// Values of the progress metric that are wanted before, and after, the promotions.
const METRIC_VALUES: usize = 5;

/// Tuning of one process and of the processes that it starts.
pub struct Session<'a> {
    options: TuneOptions,
    engine: Engine<Live<'a>>,
    counters: Result<Counters, Unsupported>,
    counted: CounterReading,
    begun: Nanos,
    fold: Fold,
    report: TuneReport,
    before: Activity,
    /// Cgroup with a memory limit of the target that is invisible from here.
    hidden_limit: Option<String>,
}

impl<'a> Session<'a> {
    /// Attaches to `process` and starts sampling. `name` is the name of a program that has not
    /// started yet. A running process is read first, so that a missing permission is an error
    /// before anything else, and is claimed unless this is a dry run.
    ///
    /// # Errors
    /// [`ManagerError::Sample`]; [`ManagerError::Promote`] if its memory cannot be promoted, unless
    /// this is a dry run; [`ManagerError::Kernel`] if it may not be read, or if another run of
    /// hugepilot changes it.
    pub fn attach(
        process: Process,
        name: Option<&str>,
        options: TuneOptions,
        progress: Option<ProgressReader>,
        interrupted: &'a dyn Fn() -> bool,
        say: &'a mut dyn FnMut(Event<'_>),
    ) -> Result<Self, ManagerError> {
        let mut report = empty_report(&process, &options);
        let mut claim = None;
        if name.is_none() {
            read_first(&process, &options, &mut report)?;
            claim = if options.dry_run { None } else { Some(process.claim()?) };
        }
        if !options.dry_run {
            process.check_promotable().map_err(ManagerError::Promote)?;
        }
        let id = process.id();
        let chosen = choose(&process, options.rate_hz)
            .map_err(|source| ManagerError::Sample { pid: id.pid, source })?;
        say(Event::Attached {
            source: chosen.source.name(),
            pid: id.pid,
            command: name.unwrap_or(&id.command),
            rate_hz: chosen.samples_time.then_some(options.rate_hz),
        });
        let counters = Counters::open(&process);
        if let Some(name) = name {
            name.clone_into(&mut report.target.command);
        }
        let begun = process.now();
        let goal = options.round_goal(name.is_some());
        let (rate_hz, trial_rate_hz) = (options.rate_hz, options.trial_rate_hz);
        let tlb_entries = options.tlb_entries;
        let sampling = Sampling { chosen, rate_hz, trial_rate_hz, tlb_entries };
        let world = Live::new(process, claim, sampling, progress, interrupted, say);
        Ok(Self {
            engine: Engine::new(world, goal, options.guard, options.dry_run),
            options,
            counted: counters
                .as_ref()
                .ok()
                .and_then(|counters| counters.read().ok())
                .unwrap_or_default(),
            counters,
            begun,
            fold: Fold::default(),
            report,
            before: Activity::default(),
            hidden_limit: None,
        })
    }

    /// Time on the clock of the process.
    pub fn now(&self) -> Nanos {
        self.engine.world.now()
    }

    /// Runs rounds until nothing more can change, the time is up, or the process ends.
    ///
    /// # Errors
    /// The target cannot be read.
    pub fn run(&mut self) -> Result<(), ManagerError> {
        // However short the time is, there is a first decision. A process without samples for twice
        // the first observation is idle.
        let observe = self.options.goal.observe;
        let first = self.begun + observe + observe;
        let end = self.begun + self.options.total;
        let last = end.max(first) + self.options.goal.trial_time;
        while self.fold.shown.is_none() && self.round(first, last)? {}
        while self.fold.shown.is_some() && self.round(end, end)? {}
        // A trial without a verdict would leave half of its regions huge for no reason.
        while self.engine.is_settling() && self.round(last, last)? {}
        self.abandon()
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
        self.abandon()
    }

    /// After an interruption, demotes what an open trial promoted.
    fn abandon(&mut self) -> Result<(), ManagerError> {
        if self.engine.world.is_interrupted()
            && let Some(round) = self.engine.abandon()?
        {
            self.note(&round);
            self.fold.stopped = Some(Stop::Interrupted);
        }
        Ok(())
    }

    /// Runs one round. Returns whether there may be another one before `end`.
    fn round(&mut self, end: Nanos, acts_end: Nanos) -> Result<bool, ManagerError> {
        let Some(round) = self.engine.round(end, acts_end)? else { return Ok(false) };
        self.note(&round);
        let goes_on = match self.fold.stopped {
            // A process that it started has ended, or only a round ended early.
            None | Some(Stop::SlowCollapse | Stop::TargetExeced | Stop::TargetGone) => true,
            Some(_) => !self.engine.is_done(),
        };
        Ok(goes_on)
    }

    /// Adds a round to the report, and says it.
    fn note(&mut self, round: &Round) {
        self.fold.add(round, self.engine.state(), self.options.dry_run);
        if let Some(target) = self.fold.shown()
            && let Ok(process) = super::open(target.id.pid)
        {
            self.hidden_limit = process.unseen_cgroup();
        }
        if self.fold.first_act.is_none()
            && let Ok(counters) = &self.counters
        {
            report::count(counters, &mut self.counted, &mut self.before);
        }
        let state = &self.engine.state().clone();
        (self.engine.world.say)(Event::Round { round, state });
    }
}

/// Notes the memory of `process`, and tests whether its pagemap can be read.
fn read_first(
    process: &Process,
    options: &TuneOptions,
    report: &mut TuneReport,
) -> Result<(), KernelError> {
    let mappings = process.mappings()?;
    check_pagemap(process, &mappings)?;
    let resident = mappings.iter().map(|mapping| mapping.resident).sum();
    let huge = mappings.iter().map(|mapping| mapping.huge).sum();
    report.footprint_bytes = Some(resident);
    report.budget_bytes = options.goal.budget.map(|budget| budget.of(resident));
    (report.huge_bytes_before, report.huge_bytes_after) = (Some(huge), Some(huge));
    Ok(())
}
