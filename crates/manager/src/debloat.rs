//! Debloating: samples heat, takes the census, plans, splits until enough is freed, and verifies.

mod report;
pub(crate) mod stalls;
mod warnings;

use std::cell::RefCell;
use std::rc::Rc;

use hugepilot_kernel::{ExcludedProcesses, KernelError, Process, Root, Target};
use hugepilot_policy::debloat::round::SplitRound;
use hugepilot_policy::{Calibration, DebloatPolicy, Priority, predict_slowdown};
use hugepilot_record::{Census, Errno, Pid, Prediction, ProcessId, Split, SplitPlan};
use hugepilot_reports::debloat::{DebloatReport, DebloatWarning};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use crate::act::round::{DoneAct, PlannedAct, StopRule};
use crate::engine::Engine;
use crate::engine::live::Live;
use crate::engine::splits::{END, Extent, SplitProcess, SplitRule, SplitTarget, Splits, Survey};
use crate::sampling::{NotSampled, Sampling, SamplingOptions};
use crate::{ManagerError, tune};

pub use stalls::Stalls;

/// Options of one debloating.
#[derive(Clone, Debug)]
pub struct DebloatOptions {
    /// Order of huge pages, and how processes share.
    pub policy: DebloatPolicy,
    /// Memory to free: bytes, or a share of the bloat, beside all stranded memory.
    pub amount: Amount,
    /// Whether to plan only, and change nothing.
    pub dry_run: bool,
    /// Share of the huge pages to read. Less than all gives an estimate and requires `dry_run`.
    pub part: Share,
    /// Time to sample before the census; zero to sample nothing.
    pub observe: Nanos,
    /// Samples per second of CPU time per thread.
    pub rate_hz: u32,
    /// Base pages that the TLB holds.
    pub tlb_entries: u32,
    /// Costs measured on this machine. Without them no slowdown is predicted.
    pub calibration: Calibration,
}

/// A process to debloat, and its place in the order.
#[derive(Debug)]
pub struct DebloatTarget {
    /// The process.
    pub process: Rc<Process>,
    /// Preferred, normal or protected.
    pub priority: Priority,
    /// Weight, if shares go by weight.
    pub weight: f64,
    /// Whether the user named it, so that a failure to read it is an error.
    pub named: bool,
}

/// Whether `who` is the pid or the name of this process.
pub fn is_called(id: &ProcessId, who: &str) -> bool {
    id.command == who || id.pid.to_string() == who
}

/// Determines the priority of a process from lists of pids and names. Protection takes precedence.
pub fn priority(id: &ProcessId, protect: &[String], prefer: &[String]) -> Priority {
    let named = |list: &[String]| list.iter().any(|who| is_called(id, who));
    match () {
        () if named(protect) => Priority::Protected,
        () if named(prefer) => Priority::Preferred,
        () => Priority::Normal,
    }
}

/// Progress of a debloating.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Sampling is in progress.
    Observing {
        /// Samples taken.
        samples: u64,
    },
    /// Huge pages are being read.
    Scanning {
        /// The process.
        pid: Pid,
        /// Huge pages read.
        done: u64,
        /// Huge pages to read.
        all: u64,
    },
    /// A huge page was tried.
    Splitting {
        /// Bytes freed.
        freed: Bytes,
        /// Bytes to free.
        wanted: Bytes,
    },
    /// The round is over, or planned in a dry run.
    Round(&'a SplitRound),
}

/// All facts of which a report is made.
struct Run {
    options: DebloatOptions,
    /// Directory of `/proc` and `/sys`; `None` without processes.
    root: Option<Root>,
    splits: Splits,
    interrupted: bool,
    warnings: Vec<DebloatWarning>,
}

/// Frees zero-filled pages of `targets`. If a process ends early, the others are still debloated.
///
/// # Errors
/// [`KernelError::Claimed`] if another hugepilot process changes a process that the user named.
/// EACCES or EPERM if a process cannot be sampled (only if the order requires heat), or its pagemap
/// or memory cannot be read. [`KernelError::NoProcess`] if no process is left.
pub fn debloat(
    targets: Vec<DebloatTarget>,
    options: DebloatOptions,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Event<'_>),
) -> Result<DebloatReport, ManagerError> {
    if !options.dry_run {
        require_unclaimed(&targets)?;
    }
    let root = targets.first().map(|target| target.process.root().clone());
    let progress = RefCell::new(progress);
    let mut say = |event: tune::Event<'_>| {
        if let tune::Event::Observing { samples } = event {
            (progress.borrow_mut())(Event::Observing { samples });
        }
    };
    let mut amounted = Amounted::new(&targets, &options, interrupted, &progress);
    let processes: Vec<_> = targets.iter().map(|target| Rc::clone(&target.process)).collect();
    let (sampling, observe) = amounted.start_sampling(&processes)?;
    let world = Live::new(processes, sampling, options.tlb_entries, None, interrupted, &mut say);
    let extent = Extent { observe, part: options.part, dry_run: options.dry_run };
    let targets = targets.iter().map(DebloatTarget::to_split).collect();
    let mut engine = Engine::splitting(world, targets, extent, amounted);
    let splits = engine.round(END, END)?;
    let Amounted { is_interrupted: interrupted, warnings, .. } = engine.controller.rule;
    // A debloat always has a round.
    let splits = splits.ok_or(KernelError::NoProcess { pid: Pid(0) })?;
    let run = Run { options, root, splits, interrupted, warnings };
    let report = run.report();
    (progress.borrow_mut())(Event::Round(&run.splits.into_round(report.stopped)));
    Ok(report)
}

impl DebloatTarget {
    fn to_split(&self) -> SplitTarget {
        let id = self.process.id().clone();
        SplitTarget { id, priority: self.priority, weight: self.weight }
    }
}

/// Processes that may free memory.
fn eligible(survey: &Survey) -> impl Iterator<Item = &SplitProcess> {
    survey.processes.iter().filter(|one| one.priority != Priority::Protected)
}

/// Rule of one debloating: frees an amount.
struct Amounted<'a, 'p> {
    options: &'a DebloatOptions,
    interrupted: &'a dyn Fn() -> bool,
    progress: &'a RefCell<&'p mut dyn FnMut(Event<'_>)>,
    /// Processes that the user named, so that a failure to read them is an error.
    named: Vec<ProcessId>,
    excluded: ExcludedProcesses,
    /// The error of a process that ended.
    gone: Option<KernelError>,
    is_interrupted: bool,
    freed: Bytes,
    wanted: Bytes,
    warnings: Vec<DebloatWarning>,
}

impl<'a, 'p> Amounted<'a, 'p> {
    fn new(
        targets: &[DebloatTarget],
        options: &'a DebloatOptions,
        interrupted: &'a dyn Fn() -> bool,
        progress: &'a RefCell<&'p mut dyn FnMut(Event<'_>)>,
    ) -> Self {
        let named = targets.iter().filter(|target| target.named);
        Self {
            options,
            interrupted,
            progress,
            named: named.map(|target| target.process.id().clone()).collect(),
            excluded: ExcludedProcesses::default(),
            gone: None,
            is_interrupted: false,
            freed: Bytes::ZERO,
            wanted: Bytes::ZERO,
            warnings: Vec::new(),
        }
    }

    /// Starts to sample by the clock, unless the options disable that. Returns for how long, too.
    fn start_sampling(
        &mut self,
        processes: &[Rc<Process>],
    ) -> Result<(Sampling, Nanos), ManagerError> {
        let DebloatOptions { observe, rate_hz, policy, .. } = *self.options;
        if observe == Nanos::ZERO || processes.is_empty() {
            return Ok((Sampling::none(), Nanos::ZERO));
        }
        match Sampling::start(processes, SamplingOptions::clock(rate_hz)) {
            Ok((sampling, not_sampled)) => {
                self.warnings.extend(warning_of(&not_sampled, processes.len()));
                Ok((sampling, observe))
            }
            // Only the order by heat requires samples.
            Err(error) if policy.order.needs_heat() => Err(error),
            Err(error) => {
                self.warnings.push(DebloatWarning::NoPrediction { error: error.to_string() });
                Ok((Sampling::none(), Nanos::ZERO))
            }
        }
    }
}

/// Returns the warning about processes that are not sampled, of all `processes`.
fn warning_of(not_sampled: &[NotSampled], processes: usize) -> Option<DebloatWarning> {
    let error = &not_sampled.last()?.error;
    let (not_sampled, processes) = (not_sampled.len() as u64, processes as u64);
    Some(match error.errno() {
        Some(Errno::EMFILE) => DebloatWarning::TooManyToSample { not_sampled, processes },
        _ => DebloatWarning::NotSampled { not_sampled, processes, error: error.to_string() },
    })
}

impl SplitRule for Amounted<'_, '_> {
    fn policy(&self) -> DebloatPolicy {
        self.options.policy
    }

    fn may_read(&mut self, pid: Pid, done: u64, all: u64) -> Result<bool, ManagerError> {
        (self.progress.borrow_mut())(Event::Scanning { pid, done, all });
        Ok(!(self.interrupted)())
    }

    fn exclude(
        &mut self,
        id: &ProcessId,
        has_ended: bool,
        error: KernelError,
    ) -> Result<(), ManagerError> {
        if has_ended {
            self.gone = Some(error);
        } else if self.named.contains(id) {
            return Err(error.into());
        } else {
            self.excluded.add(error);
        }
        Ok(())
    }

    /// After an interruption, the report has the plan for the part that was read.
    fn surveyed(&mut self, processes: &mut [SplitProcess], _: bool) -> Result<bool, ManagerError> {
        let excluded = std::mem::take(&mut self.excluded).count(processes.len())?;
        self.warnings.extend(excluded.map(DebloatWarning::Excluded));
        match self.gone.take() {
            Some(error) if processes.is_empty() => Err(error.into()),
            _ => Ok(true),
        }
    }

    fn planned(&mut self, survey: &Survey, _: &SplitPlan) -> Result<Bytes, ManagerError> {
        // Protected processes do not count towards a share.
        let bloat = eligible(survey).map(|one| one.census.estimate().0).sum();
        let stranded = eligible(survey).filter_map(|one| one.census.stranded_bytes()).sum();
        // A share is of the bloat. Stranded memory is free of cost, so all of it comes on top.
        let free: Bytes = match self.options.amount {
            Amount::Share(_) => stranded,
            Amount::Bytes(_) => Bytes::ZERO,
        };
        self.wanted = free + self.options.amount.of(bloat);
        self.is_interrupted = (self.interrupted)();
        Ok(self.wanted)
    }
}

impl StopRule<SplitProcess> for Amounted<'_, '_> {
    type Error = ManagerError;

    /// A dry run ends with the plan.
    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, ManagerError> {
        self.is_interrupted = (self.interrupted)();
        Ok(self.freed < self.wanted && !self.is_interrupted && !self.options.dry_run)
    }

    fn acted(&mut self, _: &SplitProcess, done: &DoneAct<'_>) {
        if let DoneAct::Split(act) = done {
            self.freed += act.outcome.freed();
        }
        (self.progress.borrow_mut())(Event::Splitting { freed: self.freed, wanted: self.wanted });
    }
}

/// Fails early if another hugepilot process changes a process that the user named. Other processes
/// are excluded when their first split fails.
fn require_unclaimed(targets: &[DebloatTarget]) -> Result<(), KernelError> {
    let claims = targets.iter().filter(|target| target.named).map(|target| target.process.claim());
    match claims.filter_map(Result::err).find(|error| matches!(error, KernelError::Claimed { .. }))
    {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Scales `split` to all huge pages for which it stands. All stranded memory was found.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(split: &Split, stands_for: f64) -> Split {
    if split.stranded {
        return *split;
    }
    let frees = Bytes::new((split.frees.as_f64() * stands_for) as u64);
    Split { frees, stalls: split.stalls * stands_for, ..*split }
}

/// Number of huge pages for which each read one stands: 1 for a full census.
#[allow(clippy::cast_precision_loss)]
fn stand_for(process: &SplitProcess) -> f64 {
    let Census { huge_pages, read_pages, .. } = process.census;
    (huge_pages as f64 / read_pages.max(1) as f64).max(1.0)
}

impl Run {
    /// Predicts the slowdown of all processes together by `splits`; `None` without splits or
    /// samples.
    fn slowdown(&self, splits: &[&Split]) -> Option<Prediction> {
        let processes = &self.splits.survey.processes;
        let all: Vec<&Stalls> = processes.iter().filter_map(|one| one.stalls.as_ref()).collect();
        if splits.is_empty() || all.is_empty() {
            return None;
        }
        let lost = splits.iter().map(|split| split.stalls).sum();
        let huge = processes.first()?.census.sizes.huge;
        predict_slowdown(stalls::expected(&all, lost, huge), &self.options.calibration)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_policy::Order;
    use hugepilot_units::{Region, VirtAddr};

    use super::*;

    /// Opens a process of which 7 can be read and 8 cannot.
    fn target(root: &Root, pid: i32, named: bool) -> DebloatTarget {
        let process = Rc::new(Process::open(root, Pid(pid)).unwrap());
        DebloatTarget { process, priority: Priority::Normal, weight: 1.0, named }
    }

    fn scanned(targets: Vec<DebloatTarget>) -> Result<(usize, Vec<DebloatWarning>), ManagerError> {
        let options = DebloatOptions {
            policy: DebloatPolicy::new(Order::Exact),
            amount: Amount::Share(Share::ALL),
            dry_run: true,
            part: Share::ALL,
            observe: Nanos::ZERO,
            rate_hz: 100,
            tlb_entries: 1536,
            calibration: Calibration::default(),
        };
        let report = debloat(targets, options, &|| false, &mut |_: Event<'_>| {})?;
        Ok((report.processes.len(), report.warnings))
    }

    #[test]
    fn an_unreadable_process_is_excluded_unless_the_user_named_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
        for pid in [7, 8] {
            file(&format!("proc/{pid}/stat"), &format!("{pid} (db) S {}", "1 ".repeat(49)));
        }
        file("proc/7/smaps", "");
        // Reading a directory fails.
        std::fs::create_dir_all(dir.path().join("proc/8/smaps")).unwrap();
        let root = Root::at(dir.path());
        let (processes, warnings) =
            scanned(vec![target(&root, 8, false), target(&root, 7, false)]).unwrap();
        let [DebloatWarning::Excluded(count)] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!((processes, count.excluded, count.processes), (1, 1, 2));
        assert!(count.first.error.contains("proc/8/smaps"), "{count:?}");
        assert!(scanned(vec![target(&root, 8, false)]).is_err(), "no process is left");
        assert!(scanned(vec![target(&root, 7, false), target(&root, 8, true)]).is_err());
    }

    #[test]
    fn a_planned_split_of_a_sample_stands_for_all() {
        let (region, page) = (Region::new(1), VirtAddr::new(2 << 20));
        let split =
            Split { process: 0, region, page, frees: Bytes::mib(1), stalls: 0.5, stranded: false };
        assert_eq!(scaled(&split, 1.0), split);
        assert_eq!(scaled(&split, 10.0), Split { frees: Bytes::mib(10), stalls: 5.0, ..split });
    }
}
