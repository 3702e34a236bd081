//! Session: the tuning of one process and of the processes that it starts.

mod observe;
mod report;
mod spaces;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Claim, KernelError, Process, Target, Unsupported};
use hugepilot_policy::{HeatPolicy, Policy, PredictionInput, predict};
use hugepilot_profiler::{Observation, SamplerChoice, choose};
use hugepilot_record::tune::{Prediction, TuneReport};
use hugepilot_record::{Budget, Journal, Pid, Plan, ProcessId, ProvenanceCounts, Snapshot, Stop};
use hugepilot_units::{Bytes, HugePages, Nanos};

use report::{empty_report, share};
use spaces::{AddressSpaces, SpaceState};

use super::options::{Event, TuneOptions};
use super::{check_pagemap, is_alive, open};
use crate::ManagerError;
use crate::act::promote;
use crate::progress::ProgressReader;
use crate::snapshot::snapshot;

/// Most regions that one round promotes.
const REGIONS_PER_ROUND: usize = 1024;
/// Pause after a slow collapse, in multiples of its duration. The kernel, or the host of a virtual
/// machine, is looking for memory, and nine tenths of the time remain for other work.
const REST: u64 = 10;
/// Rounds with a slow collapse after which the tune ends.
const MAX_SLOW_ROUNDS: u32 = 20;
/// Values of the progress metric that are wanted before, and after, the promotions.
const METRIC_VALUES: usize = 5;

/// Tuning of one process and of the processes that it starts.
pub struct Session<'a> {
    options: TuneOptions,
    process: Process,
    /// Claim of a process that ran before; claims of others are in `spaces`.
    claim: Option<Claim>,
    chosen: SamplerChoice,
    counters: Result<Counters, Unsupported>,
    counted: CounterReading,
    observation: Observation,
    spaces: AddressSpaces,
    progress: Option<ProgressReader>,
    interrupted: &'a dyn Fn() -> bool,
    say: &'a mut dyn FnMut(Event<'_>),
    begun: Nanos,
    rescanned: Nanos,
    first_act: Option<Nanos>,
    last_act: Option<Nanos>,
    slow_rounds: u32,
    idle_rounds: u32,
    /// Sampling time before the next round.
    pause: Nanos,
    report: TuneReport,
    /// Cgroup with a memory limit of the target that is invisible from here.
    hidden_limit: Option<String>,
    /// Share of the target in all samples.
    share: f64,
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
        let now = process.now();
        if let Some(name) = name {
            name.clone_into(&mut report.target.command);
        }
        Ok(Self {
            observation: Observation::new(process.sizes()),
            spaces: AddressSpaces::default(),
            options,
            process,
            claim,
            chosen,
            counted: counters
                .as_ref()
                .ok()
                .and_then(|counters| counters.read().ok())
                .unwrap_or_default(),
            counters,
            progress,
            interrupted,
            say,
            begun: now,
            rescanned: now,
            first_act: None,
            last_act: None,
            slow_rounds: 0,
            idle_rounds: 0,
            pause: Nanos::ZERO,
            report,
            hidden_limit: None,
            share: 1.0,
        })
    }

    /// Options of this tune.
    pub const fn options(&self) -> &TuneOptions {
        &self.options
    }
    /// Sampling time before the next round.
    pub const fn pause(&self) -> Nanos {
        self.pause
    }
    /// Whether no later round can do anything.
    pub fn is_over(&self) -> bool {
        let planned = self.options.dry_run && !self.report.selected.is_empty();
        let may_go_on = match self.report.stopped {
            None | Some(Stop::SlowCollapse | Stop::TargetExeced) => true,
            // A process that it started has ended.
            Some(Stop::TargetGone) => is_alive(&self.process),
            Some(_) => false,
        };
        planned || !may_go_on
    }
    /// Time on the clock of the process.
    pub fn now(&self) -> Nanos {
        self.process.now()
    }

    /// Plans and acts once. Returns whether another round can find more.
    ///
    /// # Errors
    /// The target cannot be read.
    pub fn round(&mut self) -> Result<bool, ManagerError> {
        self.pause = self.options.round;
        let Some((pid, part)) = self.observation.busiest() else { return Ok(self.idle()) };
        self.share = part;
        let target = match self.target(pid) {
            Ok(target) => target,
            Err(ManagerError::Kernel(error))
                if !error.is_gone() && !matches!(error, KernelError::NoMemory { .. }) =>
            {
                return Err(error.into());
            }
            Err(_) => return Ok(self.ended(pid)),
        };
        let Some(view) = self.observation.of(pid) else { return Ok(self.idle()) };
        let mut seen = match snapshot(&target, view, self.options.tlb_entries) {
            Ok(seen) => seen,
            Err(error) if error.is_gone() || !is_alive(&target) => return Ok(self.ended(pid)),
            Err(error) => return Err(error.into()),
        };
        let hot = seen.heat.iter().filter(|heat| heat.scattered() > 0).count() as u64;
        let hot = HugePages::new(hot).bytes(seen.sizes);
        let (counts, samples) = (view.counts, share(view));
        self.spaces.retain(|pid| self.observation.of(pid).is_some());
        let tuned = self.spaces.of(target.id());
        tuned.note_before(huge_bytes(&seen), samples);
        seen.heat.retain(|heat| tuned.may_pick(heat.region, seen.pages.get(&heat.region)));
        let plan = plan(tuned, &seen, counts.total(), &self.options);
        let prediction = self.predict(&plan, hot, &counts);
        let tuned = self.spaces.of(target.id());
        if !tuned.acted {
            tuned.predicted = prediction;
        }
        let worth_it = tuned.acted
            || prediction.is_none_or(|expected| expected.median >= 1.0 + self.options.min_gain);
        let acts = worth_it && !plan.picks.is_empty() && !self.options.dry_run;
        // A tuned process matters more in the report than one that was only read since.
        if acts || tuned.acted || self.first_act.is_none() {
            self.note_plan(&target, &seen, &plan);
        }
        (self.say)(Event::Planned { plan: &plan, prediction });
        if self.options.dry_run {
            self.note_selected(&target, &plan, None);
            return Ok(false);
        }
        if !acts {
            return Ok(self.idle());
        }
        match self.take_claim(&target) {
            Ok(()) => {}
            // A process that the target started.
            Err(KernelError::Claimed { .. }) => {
                self.report.stopped = Some(Stop::InUse);
                return Ok(self.idle());
            }
            Err(error) if error.is_gone() => return Ok(self.ended(pid)),
            Err(error) => return Err(error.into()),
        }
        let journal = self.act(&target, &plan);
        Ok(self.goes_on(pid, &journal))
    }

    /// Claims `target`, so that no other run of hugepilot changes it.
    fn take_claim(&mut self, target: &Process) -> Result<(), KernelError> {
        // An exec changes the name.
        let same = |id: &ProcessId| (id.pid, id.start_ticks);
        if self.claim.is_some() && same(target.id()) == same(self.process.id()) {
            return Ok(());
        }
        let tuned = self.spaces.of(target.id());
        if tuned.claim.is_none() {
            tuned.claim = Some(target.claim()?);
        }
        Ok(())
    }

    /// Drops an ended process, so that the next busiest one can be tuned.
    fn ended(&mut self, pid: Pid) -> bool {
        self.forget(pid);
        self.idle()
    }

    fn forget(&mut self, pid: Pid) {
        self.observation.forget(pid);
        self.spaces.retain(|other| other != pid);
    }

    /// Opens the busiest process: the target, or one that it started.
    fn target(&self, pid: Pid) -> Result<Process, ManagerError> {
        let opened = open(pid)?;
        // If the pid belongs to another process now, the samples are not about that one.
        let same = pid != self.process.id().pid
            || opened.id().start_ticks == self.process.id().start_ticks;
        if same {
            Ok(opened)
        } else {
            Err(ManagerError::Ended { what: format!("process {pid}"), status: None })
        }
    }

    fn predict(&self, plan: &Plan, hot: Bytes, counts: &ProvenanceCounts) -> Option<Prediction> {
        if !self.chosen.samples_time {
            return None;
        }
        #[allow(clippy::cast_precision_loss)]
        let chased_ratio = counts.next as f64 / counts.addressed().max(1) as f64;
        let expected = PredictionInput {
            heat_ratio: plan.heat_ratio(),
            samples: counts.total(),
            hot,
            chased_ratio,
        };
        predict(expected, &self.options.calibration)
    }

    fn act(&mut self, target: &Process, plan: &Plan) -> Journal {
        let begun = target.now();
        let (mut done, all) = (0, plan.picks.len());
        let (say, source, observation) =
            (&mut self.say, &mut self.chosen.source, &mut self.observation);
        let journal =
            promote(target, &plan.picks, &self.options.guard, self.interrupted, &mut |_| {
                done += 1;
                say(Event::Acted { done, all });
                // The rings must not overflow meanwhile.
                if done % 64 == 0 {
                    source.drain(Nanos::ZERO, &mut |sample| observation.add(&sample));
                }
            });
        let ended = target.now();
        if !journal.acts.is_empty() {
            self.first_act.get_or_insert(begun);
            self.last_act = Some(ended);
        }
        // Values from the time of the promotions are neither before nor after.
        if let Some(progress) = &mut self.progress {
            progress.poll(ended);
        }
        self.note_selected(target, plan, Some(&journal));
        self.note_journal(target, &journal);
        journal
    }

    fn goes_on(&mut self, pid: Pid, journal: &Journal) -> bool {
        self.report.stopped = journal.stopped;
        match journal.stopped {
            Some(Stop::SlowCollapse) => {
                self.slow_rounds += 1;
                let took = journal.acts.last().map_or(Nanos::ZERO, |act| act.took);
                self.pause = self.pause.min(Nanos::new(took.get().saturating_mul(REST)));
                self.slow_rounds < MAX_SLOW_ROUNDS && self.has_time()
            }
            Some(Stop::TargetExeced | Stop::TargetGone) => {
                self.forget(pid);
                self.has_time()
            }
            None => self.has_time(),
            Some(_) => false,
        }
    }

    /// Ends a round without promotions. Two of them end the tune, unless regions were promoted
    /// before: such a program can allocate hot memory at any time.
    fn idle(&mut self) -> bool {
        self.idle_rounds += 1;
        (self.idle_rounds < 2 || self.first_act.is_some()) && self.has_time()
    }

    fn has_time(&self) -> bool {
        let alive = is_alive(&self.process);
        alive && !(self.interrupted)() && self.now() + self.pause < self.begun + self.options.total
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
    report.budget_bytes = Some(options.budget.of(resident));
    (report.huge_bytes_before, report.huge_bytes_after) = (Some(huge), Some(huge));
    Ok(())
}

fn plan(tuned: &SpaceState, seen: &Snapshot, samples: u64, options: &TuneOptions) -> Plan {
    let budget = tuned.left_of(options.budget.of(seen.resident()), huge_bytes(seen));
    let budget = Budget { huge: budget, regions: REGIONS_PER_ROUND };
    let proven = tuned.verified() > 0;
    HeatPolicy { limits: options.guard.limits, proven, ..HeatPolicy::new(samples) }
        .plan(seen, budget)
}

fn huge_bytes(seen: &Snapshot) -> Bytes {
    seen.mappings.iter().map(|mapping| mapping.huge).sum()
}
