//! Debloating: samples heat, takes the census, plans, splits until enough is freed, and verifies.

pub(crate) mod census;
mod report;
pub(crate) mod stalls;
mod warnings;

use std::rc::Rc;

use hugepilot_kernel::{ExcludedProcesses, KernelError, Process, Root, Target, TargetState, clock};
use hugepilot_policy::debloat::round::SplitRound;
use hugepilot_policy::{Calibration, DebloatPolicy, Priority, predict_slowdown};
use hugepilot_record::debloat::{DebloatReport, DebloatWarning};
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Census, Errno, Pid, ProcessId, Split, SplitPlan};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use crate::ManagerError;
use crate::act::round::{DoneAct, PlannedAct, StopRule};
use crate::engine::splits::{Extent, Pace, SplitProcess, Survey, Unread, survey};
use stalls::StallSamples;

pub use stalls::Stalls;

/// Options of one debloating.
#[derive(Clone, Debug)]
pub struct DebloatOptions {
    /// Order of huge pages, and how processes share.
    pub policy: DebloatPolicy,
    /// Memory to free: bytes, or a share of the bloat.
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
    survey: Survey,
    plan: SplitPlan,
    wanted: Bytes,
    split_time: Nanos,
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
    let mut warnings = Vec::new();
    if !options.dry_run {
        require_unclaimed(&targets)?;
    }
    let stalls = observe(&targets, &options, interrupted, progress, &mut warnings)?;
    let root = targets.first().map(|target| target.process.root().clone());
    let mut pace = Amounted::new(&targets, interrupted, progress);
    let survey = scan(targets, stalls, &options, &mut pace, &mut warnings)?;
    let time = clock::monotonic();
    let plan = survey.plan(&options.policy, time);
    // Protected processes do not count towards a share.
    let bloat = eligible(&survey).map(|one| one.census.estimate().0).sum();
    pace.wanted = options.amount.of(bloat);
    pace.is_interrupted = interrupted();
    let (wanted, split_time) = (pace.wanted, Nanos::ZERO);
    let mut run =
        Run { options, root, survey, plan, wanted, split_time, interrupted: false, warnings };
    if !run.options.dry_run {
        run.split(&mut pace)?;
    }
    run.interrupted = pace.is_interrupted;
    let report = run.report();
    let Run { options, survey, plan, .. } = run;
    let round = survey.into_round(time, wanted, plan, options.dry_run, report.stopped);
    progress(Event::Round(&round));
    Ok(report)
}

/// Processes that may free memory.
fn eligible(survey: &Survey) -> impl Iterator<Item = &SplitProcess> {
    survey.processes.iter().filter(|one| one.priority != Priority::Protected)
}

/// Frees an amount: the goal of one debloating.
struct Amounted<'a> {
    interrupted: &'a dyn Fn() -> bool,
    progress: &'a mut dyn FnMut(Event<'_>),
    /// Processes that the user named, so that a failure to read them is an error.
    named: Vec<ProcessId>,
    excluded: ExcludedProcesses,
    /// The error of a process that ended.
    gone: Option<KernelError>,
    is_interrupted: bool,
    freed: Bytes,
    wanted: Bytes,
}

impl<'a> Amounted<'a> {
    fn new(
        targets: &[DebloatTarget],
        interrupted: &'a dyn Fn() -> bool,
        progress: &'a mut dyn FnMut(Event<'_>),
    ) -> Self {
        let named = targets.iter().filter(|target| target.named);
        Self {
            interrupted,
            progress,
            named: named.map(|target| target.process.id().clone()).collect(),
            excluded: ExcludedProcesses::default(),
            gone: None,
            is_interrupted: false,
            freed: Bytes::ZERO,
            wanted: Bytes::ZERO,
        }
    }
}

impl Pace for Amounted<'_> {
    fn may_read(&mut self, pid: Pid, done: u64, all: u64) -> Result<bool, ManagerError> {
        (self.progress)(Event::Scanning { pid, done, all });
        Ok(!(self.interrupted)())
    }

    fn exclude(&mut self, target: &dyn Target, error: KernelError) -> Result<(), ManagerError> {
        if matches!(target.state(), Ok(TargetState::Gone)) {
            self.gone = Some(error);
        } else if self.named.contains(target.id()) {
            return Err(error.into());
        } else {
            self.excluded.add(error);
        }
        Ok(())
    }
}

impl StopRule<SplitProcess> for Amounted<'_> {
    type Error = ManagerError;

    fn may_act(&mut self, _: &PlannedAct<'_>) -> Result<bool, ManagerError> {
        self.is_interrupted = (self.interrupted)();
        Ok(self.freed < self.wanted && !self.is_interrupted)
    }

    fn acted(&mut self, _: &SplitProcess, done: &DoneAct<'_>) {
        if let DoneAct::Split(act) = done {
            self.freed += act.outcome.freed();
        }
        (self.progress)(Event::Splitting { freed: self.freed, wanted: self.wanted });
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

/// Samples each of `targets`; `None` for each if the options disable sampling.
fn observe(
    targets: &[DebloatTarget],
    options: &DebloatOptions,
    interrupted: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Event<'_>),
    warnings: &mut Vec<DebloatWarning>,
) -> Result<Vec<Option<Stalls>>, ManagerError> {
    let none = || targets.iter().map(|_| None).collect();
    if options.observe == Nanos::ZERO {
        return Ok(none());
    }
    let processes: Vec<Rc<Process>> =
        targets.iter().map(|target| Rc::clone(&target.process)).collect();
    let (rate_hz, tlb_entries) = (options.rate_hz, options.tlb_entries);
    let mut say = |samples| progress(Event::Observing { samples });
    match stalls::observe(&processes, options.observe, rate_hz, tlb_entries, interrupted, &mut say)
    {
        Ok(StallSamples { stalls, error }) => {
            warnings.extend(error.map(|error| not_sampled(&stalls, &error)));
            Ok(stalls)
        }
        // Only the order by heat requires samples.
        Err(error) if options.policy.order.needs_heat() => Err(error),
        Err(error) => {
            warnings.push(DebloatWarning::NoPrediction { error: error.to_string() });
            Ok(none())
        }
    }
}

fn not_sampled(stalls: &[Option<Stalls>], error: &KernelError) -> DebloatWarning {
    let not_sampled = stalls.iter().filter(|stalls| stalls.is_none()).count() as u64;
    let processes = stalls.len() as u64;
    match error.errno() {
        Some(Errno::EMFILE) => DebloatWarning::TooManyToSample { not_sampled, processes },
        _ => DebloatWarning::NotSampled { not_sampled, processes, error: error.to_string() },
    }
}

/// Takes the census of each of `targets` that still runs. Excludes a process that cannot be read,
/// unless the user named it.
fn scan(
    targets: Vec<DebloatTarget>,
    stalls: Vec<Option<Stalls>>,
    options: &DebloatOptions,
    pace: &mut Amounted<'_>,
    warnings: &mut Vec<DebloatWarning>,
) -> Result<Survey, ManagerError> {
    let unread = targets.into_iter().zip(stalls).map(|(target, stalls)| {
        let DebloatTarget { process, priority, weight, named: _ } = target;
        Unread { target: process, priority, weight, stalls }
    });
    let extent = Extent { part: options.part, exact: options.policy.needs_exact_census() };
    let survey = survey(unread.collect(), extent, pace)?;
    let excluded = std::mem::take(&mut pace.excluded).count(survey.processes.len())?;
    warnings.extend(excluded.map(DebloatWarning::Excluded));
    match pace.gone.take() {
        Some(error) if survey.processes.is_empty() => Err(error.into()),
        _ => Ok(survey),
    }
}

/// Scales `split` to all huge pages for which it stands.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(split: &Split, stands_for: f64) -> Split {
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
    fn split(&mut self, pace: &mut Amounted<'_>) -> Result<(), ManagerError> {
        let Some(first) = self.survey.processes.first() else { return Ok(()) };
        let timer = Rc::clone(&first.target);
        let begun = timer.now();
        self.survey.split(&self.plan, false, pace)?;
        self.split_time = timer.now() - begun;
        Ok(())
    }

    /// Predicts the slowdown of all processes together by `splits`; `None` without splits or
    /// samples.
    fn slowdown(&self, splits: &[&Split]) -> Option<Prediction> {
        let processes = &self.survey.processes;
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
        let (stalls, mut warnings) = (targets.iter().map(|_| None).collect(), Vec::new());
        let mut silent = |_: Event<'_>| {};
        let mut pace = Amounted::new(&targets, &|| false, &mut silent);
        let survey = scan(targets, stalls, &options, &mut pace, &mut warnings)?;
        Ok((survey.processes.len(), warnings))
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
        let split = Split { process: 0, region, page, frees: Bytes::mib(1), stalls: 0.5 };
        assert_eq!(scaled(&split, 1.0), split);
        assert_eq!(scaled(&split, 10.0), Split { frees: Bytes::mib(10), stalls: 5.0, ..split });
    }
}
