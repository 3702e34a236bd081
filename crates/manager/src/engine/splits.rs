//! Round of splits: census → plan → split and verify, until enough memory is free.
//!
//! The plan is that of [`hugepilot_policy::DebloatPolicy`], the acts are those of
//! [`crate::act::round`], as in a tune. A goal is a [`Pace`]: `debloat` frees an amount once, the
//! daemon frees until use is below the low watermark.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::daemon::RegionHistory;
use hugepilot_policy::debloat::round::{SeenProcess, SplitOutcomes, SplitRound};
use hugepilot_policy::round::{Outcome, is_split};
use hugepilot_policy::{DebloatPolicy, DebloatView, Priority};
use hugepilot_profiler::{ProcessCensus, take_census};
use hugepilot_record::{Census, Mapping, Pid, SplitAct, SplitPlan, Stop};
use hugepilot_units::{Bytes, Nanos, Region, Share};

use crate::ManagerError;
use crate::act::round::{ChangedProcess, Changes, PlannedAct, StopRule, carry_out};
use crate::debloat::stalls::Stalls;

/// Pace of a round of splits: that of its census, and the stop rule of its acts.
pub(crate) trait Pace: StopRule<SplitProcess, Error = ManagerError> {
    /// Is called before each huge page of a process is read; may wait. Returns whether to go on.
    ///
    /// # Errors
    /// Memory use cannot be read.
    fn may_read(&mut self, pid: Pid, done: u64, all: u64) -> Result<bool, ManagerError>;
    /// Receives a process that cannot be read. An error ends the round.
    ///
    /// # Errors
    /// The round requires this process.
    fn exclude(&mut self, target: &dyn Target, error: KernelError) -> Result<(), ManagerError>;
}

/// Process of a round: what is known of it, and what was done.
pub(crate) struct SplitProcess {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) priority: Priority,
    /// Weight, if shares go by weight.
    pub(crate) weight: f64,
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

/// Process before its census.
pub(crate) struct Unread {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) priority: Priority,
    pub(crate) weight: f64,
    pub(crate) stalls: Option<Stalls>,
}

/// Pages that the census reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Share of the huge pages. Less than all gives an estimate.
    pub(crate) part: Share,
    /// Whether each zero-filled page counts.
    pub(crate) exact: bool,
}

/// Census of processes.
pub(crate) struct Survey {
    pub(crate) processes: Vec<SplitProcess>,
    /// Whether `pace` let all be read.
    pub(crate) is_complete: bool,
}

/// Takes the census of each of `processes` that still runs.
///
/// # Errors
/// Those of `pace`.
pub(crate) fn survey(
    processes: Vec<Unread>,
    extent: Extent,
    pace: &mut dyn Pace,
) -> Result<Survey, ManagerError> {
    let mut survey = Survey { processes: Vec::with_capacity(processes.len()), is_complete: true };
    for Unread { target, priority, weight, stalls } in processes {
        let (pid, mut goes_on) = (target.id().pid, Ok(true));
        let mut each = |done, all| {
            goes_on = pace.may_read(pid, done, all);
            matches!(goes_on, Ok(true))
        };
        let scan = take_census(&*target, extent.part, extent.exact, &mut each);
        survey.is_complete = goes_on?;
        match scan {
            Ok(ProcessCensus { census, mappings }) => survey.processes.push(SplitProcess {
                target,
                priority,
                weight,
                stalls,
                census,
                mappings,
                past: BTreeMap::new(),
                changes: Changes::default(),
            }),
            Err(error) => pace.exclude(&*target, error)?,
        }
        if !survey.is_complete {
            break;
        }
    }
    Ok(survey)
}

impl Survey {
    /// Returns the plan of `policy` at `now`.
    pub(crate) fn plan(&self, policy: &DebloatPolicy, now: Nanos) -> SplitPlan {
        let views: Vec<DebloatView<'_>> = self.processes.iter().map(SplitProcess::view).collect();
        policy.plan(&views, now)
    }

    /// Splits in the order of `plan` while `pace` needs more. In a `dry_run`, each split is said to
    /// free what the census found.
    ///
    /// # Errors
    /// Those of `pace`.
    pub(crate) fn split(
        &mut self,
        plan: &SplitPlan,
        dry_run: bool,
        pace: &mut dyn Pace,
    ) -> Result<(), ManagerError> {
        self.processes.iter_mut().for_each(|process| process.changes.dry_run = dry_run);
        let acts = plan.splits.iter().map(|split| (split.process, PlannedAct::Split(split)));
        carry_out(acts, &mut self.processes, pace).map(drop)
    }

    /// Returns the round for a journal. `time`: of the plan.
    pub(crate) fn into_round(
        self,
        time: Nanos,
        wanted: Bytes,
        plan: SplitPlan,
        dry_run: bool,
        stopped: Option<Stop>,
    ) -> SplitRound {
        let (mut processes, mut outcomes) = (Vec::new(), Vec::new());
        for process in self.processes {
            let SplitProcess { priority, weight, stalls, census, past, changes, .. } = process;
            let stalls = stalls.map(|stalls| stalls.regions);
            processes.push(SeenProcess { census, stalls, priority, weight, past });
            if !dry_run {
                let Outcome { journal, demotions: acts, .. } = changes.outcome;
                outcomes.push(SplitOutcomes { acts, ended: journal.stopped });
            }
        }
        SplitRound { time, processes, wanted, plan, dry_run, outcomes, stopped }
    }
}

impl SplitProcess {
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
        self.changes.outcome.journal.stopped
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
