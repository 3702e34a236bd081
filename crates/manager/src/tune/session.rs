//! One tuning of one process and of what it starts: what was seen, what was done, what is left of the budget.

mod report;
mod spaces;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Claim, KernelError, Process, Target, Unsupported};
use hugepilot_policy::{HeatPolicy, Policy, PredictionInput, predict, sampled_speedup};
use hugepilot_profiler::{Observation, SamplerChoice, choose};
use hugepilot_record::tune::{Activity, Prediction, TuneReport};
use hugepilot_record::{Budget, Journal, Pid, Plan, ProcessId, ProvenanceCounts, Snapshot, Stop};
use hugepilot_units::{Bytes, HugePages, Nanos};

use report::{count, empty_report, share};
use spaces::{AddressSpaces, SpaceState};

use super::options::{Event, TuneOptions};
use super::{is_alive, open};
use crate::ManagerError;
use crate::act::promote;
use crate::progress::ProgressReader;
use crate::snapshot::snapshot;

/// The rings are emptied this often.
const DRAIN_EVERY: Nanos = Nanos::millis(50);
/// Threads that came since are looked for this often.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);
/// Regions promoted before looking at the heat again.
const REGIONS_PER_ROUND: usize = 1024;
/// After a slow collapse we rest so many times as long as it took: the kernel, or the host of a virtual machine, is busy
/// finding memory, and should get nine tenths of the time for everybody else.
const REST: u64 = 10;
/// Rounds that may end for one slow collapse before we give up.
const MAX_SLOW_ROUNDS: u32 = 20;
/// Figures wanted on each side of the promotions.
const FIGURES: usize = 5;

/// A tuning under way.
pub struct Session<'a> {
    options: TuneOptions,
    process: Process,
    /// Held from the beginning where a running process was attached to.
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
    /// How long to look before the next round.
    pause: Nanos,
    report: TuneReport,
    /// Cgroup with a memory limit of the target that is invisible from here.
    hidden_limit: Option<String>,
    /// Share of all samples that the target had.
    share: f64,
}

impl<'a> Session<'a> {
    /// Attaches to `process` and starts sampling. `name` is what to call a program that has not begun yet. A process that runs
    /// is looked at first, so that a missing right shows before anything else is done, and claimed if it may be changed.
    ///
    /// # Errors
    /// [`ManagerError::Sample`]; [`ManagerError::Promote`] if its memory may not be promoted, unless
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
            look_first(&process, &options, &mut report)?;
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

    /// How it was asked to tune.
    pub const fn options(&self) -> &TuneOptions {
        &self.options
    }
    /// How long to look before the next round.
    pub const fn pause(&self) -> Nanos {
        self.pause
    }
    /// Whether no later round can do anything.
    pub fn is_over(&self) -> bool {
        let planned = self.options.dry_run && !self.report.selected.is_empty();
        let may_go_on = match self.report.stopped {
            None | Some(Stop::SlowCollapse | Stop::TargetExeced) => true,
            // One that it started has ended.
            Some(Stop::TargetGone) => is_alive(&self.process),
            Some(_) => false,
        };
        planned || !may_go_on
    }
    /// The clock.
    pub fn now(&self) -> Nanos {
        self.process.now()
    }

    /// Looks for `time`, or until interrupted, or until the target is gone.
    pub fn observe(&mut self, time: Nanos) {
        self.observe_while(time, &mut || true);
    }

    /// The same, as long as `wanted`.
    pub fn observe_while(&mut self, time: Nanos, wanted: &mut dyn FnMut() -> bool) {
        let end = self.now() + time;
        while self.now() < end && wanted() && !(self.interrupted)() && is_alive(&self.process) {
            self.drain(DRAIN_EVERY.min(end - self.now()));
        }
    }

    /// The first look, longer when the program's figures are wanted and none have come.
    ///
    /// # Errors
    /// [`ManagerError::Ended`] when the target ended meanwhile.
    pub fn observe_first(&mut self) -> Result<(), ManagerError> {
        self.observe(self.options.observe);
        let end = self.now() + self.options.progress_wait;
        while self.figures(Nanos::ZERO, self.now()).is_some_and(|found| found.len() < 2)
            && self.now() < end
        {
            if (self.interrupted)() || !is_alive(&self.process) {
                break;
            }
            let found = self.figures(Nanos::ZERO, self.now()).unwrap_or_default().len();
            (self.say)(Event::AwaitingFigures { found, after: false });
            self.drain(DRAIN_EVERY);
        }
        if is_alive(&self.process) {
            return Ok(());
        }
        let what = format!("process {} ({})", self.process.id().pid, self.process.id().command);
        Err(ManagerError::Ended { what, status: None })
    }

    fn drain(&mut self, wait: Nanos) {
        let observation = &mut self.observation;
        self.chosen.source.drain(wait, &mut |sample| observation.add(&sample));
        for pid in self.chosen.source.execs() {
            self.forget(pid);
        }
        let now = self.now();
        if now > self.rescanned + RESCAN_EVERY {
            self.rescanned = now;
            let _ = self.chosen.source.rescan(&self.process);
            (self.say)(Event::Observing { samples: self.chosen.source.counts().total() });
        }
        if let Some(progress) = &mut self.progress {
            progress.poll(now);
        }
    }

    /// Plans and acts once. Returns whether another round may find more.
    ///
    /// # Errors
    /// When the target may not be looked at.
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
        tuned.look(huge_bytes(&seen), samples);
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
        // Who was tuned matters more than who was only looked at since.
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
            // One that the target started.
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

    /// From now on no other run of hugepilot changes `target`.
    fn take_claim(&mut self, target: &Process) -> Result<(), KernelError> {
        // Its name changes when it starts another program.
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

    /// A process has ended, and must not stand in the way of the next busiest.
    fn ended(&mut self, pid: Pid) -> bool {
        self.forget(pid);
        self.idle()
    }

    fn forget(&mut self, pid: Pid) {
        self.observation.forget(pid);
        self.spaces.retain(|other| other != pid);
    }

    /// The busiest process: the one attached to, or one that it started.
    fn target(&self, pid: Pid) -> Result<Process, ManagerError> {
        let opened = open(pid)?;
        // Should the number have been given away since, the samples are not about this process.
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
                // The rings must not overflow while we act.
                if done % 64 == 0 {
                    source.drain(Nanos::ZERO, &mut |sample| observation.add(&sample));
                }
            });
        let ended = target.now();
        if !journal.acts.is_empty() {
            self.first_act.get_or_insert(begun);
            self.last_act = Some(ended);
        }
        // Figures of the time we acted in are neither before nor after.
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

    /// A round that found nothing to do. Two are enough to say that there is nothing; a program that gained before may
    /// allocate its next hot memory at any moment.
    fn idle(&mut self) -> bool {
        self.idle_rounds += 1;
        (self.idle_rounds < 2 || self.first_act.is_some()) && self.has_time()
    }

    fn has_time(&self) -> bool {
        let alive = is_alive(&self.process);
        alive && !(self.interrupted)() && self.now() + self.pause < self.begun + self.options.total
    }

    /// Measures once more, after the last promotion: stalls, and the program's figures.
    pub fn look_again(&mut self) {
        let Some(settled) = self.last_act.filter(|_| !self.options.dry_run) else { return };
        let pid = self.report.target.pid;
        if let Ok(counters) = &self.counters {
            count(counters, &mut self.counted, &mut Activity::default());
        }
        self.drain(Nanos::ZERO);
        let planned_on =
            std::mem::replace(&mut self.observation, Observation::new(self.process.sizes()));
        self.observe(self.options.observe);
        let seen = std::mem::replace(&mut self.observation, planned_on);
        if let Some(after) = seen.of(pid).map(share) {
            let mut activity = Activity { stall_ratio: after.ratio(), ..Activity::default() };
            if let Ok(counters) = &self.counters {
                count(counters, &mut self.counted, &mut activity);
            }
            self.report.after = Some(activity);
            let target = self.target(pid).ok().filter(|_| self.chosen.samples_time);
            let tuned = target.and_then(|target| self.spaces.known(target.id()));
            self.report.sampled_speedup =
                tuned.and_then(|tuned| sampled_speedup(tuned.untouched, after));
        }
        // The first figure after settling spans the promotions.
        let end = self.now() + self.options.progress_wait;
        while self.figures(settled, self.now()).is_some_and(|found| found.len() <= FIGURES)
            && self.now() < end
        {
            if (self.interrupted)() || !is_alive(&self.process) {
                break;
            }
            let found = self.figures(settled, self.now()).unwrap_or_default().len();
            (self.say)(Event::AwaitingFigures { found, after: true });
            self.drain(DRAIN_EVERY);
        }
    }
}

/// Takes down how much memory `process` has, and tries whether its page map can be read.
fn look_first(
    process: &Process,
    options: &TuneOptions,
    report: &mut TuneReport,
) -> Result<(), KernelError> {
    let mappings = process.mappings()?;
    if let Some(mapping) = mappings.iter().find(|mapping| mapping.resident > Bytes::ZERO) {
        process.region_pages(process.sizes().region_of(mapping.range.start))?;
    }
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
