//! Controller of splits: census → plan → split and verify, until enough memory is free.
//!
//! The plan is that of [`hugepilot_policy::DebloatPolicy`]. A [`SplitRule`] has the rest: `debloat`
//! frees an amount once, the daemon frees until use is below the low watermark.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::daemon::{RegionHistory, key_of};
use hugepilot_policy::debloat::round::{SeenProcess, SplitOutcomes, SplitRound, SplitRow};
use hugepilot_policy::round::{ProcessOutcome, is_split};
use hugepilot_policy::{DebloatPolicy, DebloatView, Priority};
use hugepilot_profiler::{ProcessCensus, take_census};
use hugepilot_record::{Census, Mapping, Pid, ProcessId, SplitAct, SplitPlan, Stop};
use hugepilot_units::{Bytes, Nanos, Region, Share};

use super::{Controller, Engine, World};
use crate::ManagerError;
use crate::act::round::{ChangedProcess, Changes, PlannedAct, StopRule, carry_out};
use crate::debloat::stalls::Stalls;

/// End of a time without end.
pub(crate) const END: Nanos = Nanos::new(u64::MAX);

/// Rule of a round of splits: how it observes and takes the census, and when its acts end.
pub(crate) trait SplitRule: StopRule<SplitProcess, Error = ManagerError> {
    /// Samples until `end`, or less. Returns whether the samples count.
    fn observe(&mut self, world: &mut dyn World, end: Nanos) -> bool {
        world.observe(end);
        true
    }
    /// Returns the policy, once the observation is over.
    fn policy(&self) -> DebloatPolicy;
    /// Is called before each huge page of a process is read; may wait. Returns whether to go on.
    ///
    /// # Errors
    /// Memory use cannot be read.
    fn may_read(&mut self, pid: Pid, done: u64, all: u64) -> Result<bool, ManagerError>;
    /// Receives a process that cannot be read, maybe because it has ended.
    ///
    /// # Errors
    /// The round requires this process.
    fn exclude(
        &mut self,
        id: &ProcessId,
        has_ended: bool,
        error: KernelError,
    ) -> Result<(), ManagerError>;
    /// Receives the census, which is complete unless [`SplitRule::may_read`] ended it. Returns
    /// whether a plan follows.
    ///
    /// # Errors
    /// The round requires a process that is missing.
    fn surveyed(
        &mut self,
        processes: &mut [SplitProcess],
        is_complete: bool,
    ) -> Result<bool, ManagerError>;
    /// Receives the plan. Returns the memory to free.
    ///
    /// # Errors
    /// Memory use cannot be read.
    fn planned(&mut self, survey: &Survey, plan: &SplitPlan) -> Result<Bytes, ManagerError>;
}

/// Process to debloat, before its census.
#[derive(Clone, Debug)]
pub(crate) struct SplitTarget {
    pub(crate) id: ProcessId,
    pub(crate) priority: Priority,
    /// Weight, if shares go by weight.
    pub(crate) weight: f64,
}

/// Extent of a round of splits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Time to sample before the census.
    pub(crate) observe: Nanos,
    /// Share of the huge pages that the census reads. Less than all gives an estimate.
    pub(crate) part: Share,
    /// Whether each split is only said to free what the census found.
    pub(crate) dry_run: bool,
}

/// Controller of one round of splits.
pub(crate) struct Splitting<P> {
    pub(crate) rule: P,
    targets: Vec<SplitTarget>,
    extent: Extent,
    /// Time of the census; `None` after it.
    due: Option<Nanos>,
    /// Whether the samples count.
    is_sampled: bool,
}

impl<W: World, P: SplitRule> Engine<W, Splitting<P>> {
    /// Makes an engine that splits once.
    pub(crate) fn splitting(world: W, targets: Vec<SplitTarget>, extent: Extent, rule: P) -> Self {
        let due = Some(world.now() + extent.observe);
        let controller = Splitting { rule, targets, extent, due, is_sampled: true };
        Self { world, controller }
    }
}

impl<W: World, P: SplitRule> Controller<W> for Splitting<P> {
    type Snapshot = Survey;
    type Decision = SplitPlan;
    type Round = Splits;
    type Error = ManagerError;

    fn due(engine: &mut Engine<W, Self>) -> Option<Nanos> {
        engine.controller.due
    }

    fn observe(engine: &mut Engine<W, Self>, end: Nanos) {
        let Engine { world, controller } = engine;
        controller.is_sampled = controller.rule.observe(world, end);
        // After an interruption, too, the report has what was read.
        controller.due = Some(world.now().min(end));
    }

    /// Takes the census of each process that still runs.
    fn snapshot(engine: &mut Engine<W, Self>) -> Result<Option<Survey>, ManagerError> {
        let Engine { world, controller } = engine;
        controller.due = None;
        let targets = std::mem::take(&mut controller.targets);
        let pids: Vec<Pid> = targets.iter().map(|target| target.id.pid).collect();
        let (restarted, stalls) = (world.restarted(), world.end_sampling(&pids));
        let (policy, mut processes) = (controller.rule.policy(), Vec::with_capacity(targets.len()));
        let (part, exact) = (controller.extent.part, policy.needs_exact_census());
        let mut is_complete = true;
        for (target, stalls) in targets.into_iter().zip(stalls) {
            let (id, mut goes_on) = (target.id.clone(), Ok(true));
            let mut each = |done, all| {
                goes_on = controller.rule.may_read(id.pid, done, all);
                matches!(goes_on, Ok(true))
            };
            // The new program has no samples, so its place in the order is not known.
            let read = if restarted.contains(&id.pid) {
                Err(KernelError::NoProcess { pid: id.pid })
            } else {
                SplitProcess::read(world, target, part, exact, &mut each)
            };
            is_complete = goes_on?;
            match read {
                Ok(mut process) => {
                    process.stalls = stalls.filter(|_| controller.is_sampled);
                    process.changes.dry_run = controller.extent.dry_run;
                    processes.push(process);
                }
                Err(error) => controller.rule.exclude(&id, world.has_ended(key_of(&id)), error)?,
            }
            if !is_complete {
                break;
            }
        }
        let is_planned = controller.rule.surveyed(&mut processes, is_complete)?;
        Ok(is_planned.then(|| Survey { time: world.now(), policy, processes }))
    }

    fn decide(&self, survey: &Survey) -> SplitPlan {
        let views: Vec<DebloatView<'_>> = survey.processes.iter().map(SplitProcess::view).collect();
        survey.policy.plan(&views, survey.time)
    }

    /// Splits in the order of the plan, across processes.
    fn act(
        Engine { world, controller }: &mut Engine<W, Self>,
        mut survey: Survey,
        plan: SplitPlan,
        _: Nanos,
    ) -> Result<Splits, ManagerError> {
        let wanted = controller.rule.planned(&survey, &plan)?;
        let begun = world.now();
        let acts = plan.splits.iter().map(|split| (split.process, PlannedAct::Split(split)));
        carry_out(acts, &mut survey.processes, &mut controller.rule)?;
        let (took, dry_run) = (world.now() - begun, controller.extent.dry_run);
        Ok(Splits { survey, plan, wanted, took, dry_run })
    }
}

/// Processes of a round after their census.
pub(crate) struct Survey {
    /// Time of the plan.
    pub(crate) time: Nanos,
    pub(crate) policy: DebloatPolicy,
    pub(crate) processes: Vec<SplitProcess>,
}

/// Process of a round: what is known of it, and what was done.
pub(crate) struct SplitProcess {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) priority: Priority,
    weight: f64,
    /// Its samples; `None` if it was not sampled.
    pub(crate) stalls: Option<Stalls>,
    pub(crate) census: Census,
    /// Its mappings before the splits.
    pub(crate) mappings: Vec<Mapping>,
    /// Earlier changes of its bloated regions.
    pub(crate) past: BTreeMap<Region, RegionHistory>,
    changes: Changes,
}

impl ChangedProcess for SplitProcess {
    fn parts(&mut self) -> (&dyn Target, &mut Changes) {
        (&*self.target, &mut self.changes)
    }
}

/// Round of splits that is over.
pub(crate) struct Splits {
    pub(crate) survey: Survey,
    pub(crate) plan: SplitPlan,
    /// Memory to free.
    pub(crate) wanted: Bytes,
    /// Time of the acts.
    pub(crate) took: Nanos,
    dry_run: bool,
}

impl Splits {
    /// Returns the round for a journal.
    pub(crate) fn into_round(self, stopped: Option<Stop>) -> SplitRound {
        let Self { survey, plan, wanted, dry_run, .. } = self;
        let row = |process: SplitProcess| {
            let SplitProcess { priority, weight, stalls, census, past, changes, .. } = process;
            let stalls = stalls.map(|stalls| stalls.regions);
            let ProcessOutcome { attempts, demotions: acts, .. } = changes.outcome;
            SplitRow {
                seen: SeenProcess { census, stalls, priority, weight, past },
                outcome: SplitOutcomes { acts, ended: attempts.stopped },
            }
        };
        let rows = survey.processes.into_iter().map(row).collect();
        SplitRound { time: survey.time, rows, wanted, plan, dry_run, stopped }
    }
}

impl SplitProcess {
    /// Takes the census of a process.
    ///
    /// # Errors
    /// It cannot be read, or it ended or started another program.
    fn read(
        world: &mut dyn World,
        SplitTarget { id, priority, weight }: SplitTarget,
        part: Share,
        exact: bool,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self, KernelError> {
        let target = world.target(id.pid)?;
        if *target.id() != id {
            return Err(KernelError::NoProcess { pid: id.pid });
        }
        let ProcessCensus { census, mappings } = take_census(&*target, part, exact, each)?;
        let (stalls, past, changes) = (None, BTreeMap::new(), Changes::default());
        Ok(Self { target, priority, weight, stalls, census, mappings, past, changes })
    }

    fn view(&self) -> DebloatView<'_> {
        DebloatView {
            census: &self.census,
            stalls: self.stalls.as_ref().map(|stalls| &stalls.regions),
            priority: self.priority,
            weight: self.weight,
            past: Some(&self.past),
        }
    }

    /// Whether the program requested huge pages at one of `regions`.
    pub(crate) fn is_advised(&self, regions: impl IntoIterator<Item = Region>) -> bool {
        regions.into_iter().any(|region| {
            let start = region.range(self.census.sizes).start;
            let mapping = self.mappings.iter().find(|mapping| mapping.range.contains(start));
            mapping.is_some_and(|mapping| mapping.flags.has("hg"))
        })
    }

    /// Returns its splits in order.
    pub(crate) fn splits(&self) -> &[SplitAct] {
        &self.changes.outcome.demotions
    }

    /// Returns the cause why it was not split further.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.changes.outcome.attempts.stopped
    }

    /// Lists regions with a verified split.
    pub(crate) fn split_regions(&self) -> BTreeSet<Region> {
        self.splits().iter().filter(|act| is_split(act)).map(|act| act.region).collect()
    }

    /// Returns the memory that its splits freed, by the pagemap.
    pub(crate) fn freed(&self) -> Bytes {
        self.splits().iter().map(|act| act.outcome.freed()).sum()
    }

    /// Reads the mappings; `None` if the process ended or executed another program.
    pub(crate) fn mappings_now(&self) -> Option<Vec<Mapping>> {
        let mappings = self.target.mappings().ok()?;
        matches!(self.target.state(), Ok(TargetState::Alive)).then_some(mappings)
    }
}
