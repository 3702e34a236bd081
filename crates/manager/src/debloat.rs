//! `debloat`: look how hot, count what is empty → plan → split until enough is freed → look again.

pub(crate) mod census;
mod report;
pub(crate) mod stalls;
pub(crate) mod warnings;

use hugepilot_kernel::{KernelError, Process, Target, TargetState};
use hugepilot_policy::{Calibration, DebloatPolicy, DebloatView, Priority, predict_slowdown};
use hugepilot_record::debloat::DebloatReport;
use hugepilot_record::tune::Prediction;
use hugepilot_record::{Census, Errno, Pid, ProcessId, Split, SplitOutcome, SplitPlan};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use crate::ManagerError;
use crate::act::split::Splits;
use census::Found;
use hugepilot_kernel::ExcludedProcesses;
use stalls::{Seen, Stalls};

/// How to de-bloat.
#[derive(Clone, Debug)]
pub struct DebloatOptions {
    /// The order, and how processes share.
    pub policy: DebloatPolicy,
    /// How much to free: bytes, or a share of the bloat.
    pub amount: Amount,
    /// Plan, but change nothing.
    pub dry_run: bool,
    /// Part of the huge pages to read. Less than all is for an estimate, with `dry_run`.
    pub part: Share,
    /// How long to sample before; zero for not at all.
    pub observe: Nanos,
    /// Samples per second of each thread's CPU time.
    pub rate_hz: u32,
    /// Base pages that the TLB of this machine holds.
    pub tlb_entries: u32,
    /// What huge pages save on this machine; without it nothing is predicted.
    pub calibration: Calibration,
}

/// A process to take from, and how the user wants it treated.
#[derive(Debug)]
pub struct DebloatTarget {
    /// The process.
    pub process: Process,
    /// First, like others, or not at all.
    pub priority: Priority,
    /// Its weight, where shares go by weight.
    pub weight: f64,
    /// Whether it is one that the user named: then not to be allowed to look at it is an error.
    pub named: bool,
}

/// Whether `who` is the number of this process, or its name.
pub fn is_called(id: &ProcessId, who: &str) -> bool {
    id.command == who || id.pid.to_string() == who
}

/// How to treat this process, by numbers and names. Protection goes before preference.
pub fn priority(id: &ProcessId, protect: &[String], prefer: &[String]) -> Priority {
    let named = |list: &[String]| list.iter().any(|who| is_called(id, who));
    match () {
        () if named(protect) => Priority::Protected,
        () if named(prefer) => Priority::Preferred,
        () => Priority::Normal,
    }
}

/// What happens, for whoever shows progress.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Still sampling.
    Observing {
        /// Samples so far.
        samples: u64,
    },
    /// Huge pages are being read.
    Scanning {
        /// Of this process.
        pid: Pid,
        /// How many are done.
        done: u64,
        /// Of how many.
        all: u64,
    },
    /// A huge page was tried.
    Splitting {
        /// Freed so far.
        freed: Bytes,
        /// What is to be freed.
        wanted: Bytes,
    },
}

/// One process of a run, and all that is known of it.
struct DebloatProcess {
    target: DebloatTarget,
    /// `None` where nobody looked.
    stalls: Option<Stalls>,
    found: Found,
    splits: Splits,
}

/// Everything that a report is made of.
struct Run {
    options: DebloatOptions,
    members: Vec<DebloatProcess>,
    plan: SplitPlan,
    wanted: Bytes,
    split_time: Nanos,
    interrupted: bool,
    warnings: Vec<String>,
}

/// Frees zero-filled pages of `targets`. A process that ends half-way is no error while others are left.
///
/// # Errors
/// [`KernelError::Claimed`] when another run of hugepilot changes a process that the user named.
/// When a process cannot be sampled (only where its heat decides), or its page map or memory may not be read: EACCES, EPERM;
/// [`KernelError::NoProcess`] when none is left.
pub fn debloat(
    targets: Vec<DebloatTarget>,
    options: DebloatOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event),
) -> Result<DebloatReport, ManagerError> {
    let mut warnings = Vec::new();
    if !options.dry_run {
        refuse_claimed(&targets)?;
    }
    let stalls = observe(&targets, &options, interrupted, say, &mut warnings)?;
    let members = scan(targets, stalls, &options, interrupted, say, &mut warnings)?;
    let views: Vec<DebloatView<'_>> = members.iter().map(DebloatProcess::view).collect();
    let mut plan = options.policy.plan(&views);
    if options.dry_run {
        plan.splits
            .iter_mut()
            .for_each(|split| *split = scaled(split, members[split.process].stand_for()));
    }
    // A share is of what may be taken.
    let giving = members.iter().filter(|member| member.target.priority != Priority::Protected);
    let bloat = giving.map(|member| member.found.census.estimate().0).sum();
    let mut run = Run {
        wanted: options.amount.of(bloat),
        plan,
        members,
        split_time: Nanos::ZERO,
        interrupted: interrupted(),
        warnings,
        options,
    };
    if !run.options.dry_run && !run.interrupted {
        run.act(interrupted, say);
    }
    Ok(run.report())
}

/// Looks early whether another run of hugepilot changes one that the user named. Others are left alone when their turn comes.
fn refuse_claimed(targets: &[DebloatTarget]) -> Result<(), KernelError> {
    let claims = targets.iter().filter(|target| target.named).map(|target| target.process.claim());
    match claims.filter_map(Result::err).find(|error| matches!(error, KernelError::Claimed { .. }))
    {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What sampling shows of each of `targets`; nothing for each where nobody looks.
fn observe(
    targets: &[DebloatTarget],
    options: &DebloatOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event),
    warnings: &mut Vec<String>,
) -> Result<Vec<Option<Stalls>>, ManagerError> {
    let nothing = || targets.iter().map(|_| None).collect();
    if options.observe == Nanos::ZERO {
        return Ok(nothing());
    }
    let processes: Vec<&Process> = targets.iter().map(|target| &target.process).collect();
    let mut each = |samples| {
        say(Event::Observing { samples });
        !interrupted()
    };
    match stalls::observe(
        &processes,
        options.observe,
        options.rate_hz,
        options.tlb_entries,
        &mut each,
    ) {
        Ok(Seen { stalls, refused }) => {
            let unseen = stalls.iter().filter(|stalls| stalls.is_none()).count();
            let of =
                |why| format!("{unseen} of {} processes were not sampled: {why}", stalls.len());
            warnings.extend(refused.map(|error| match error.errno() {
                Some(Errno::EMFILE) => {
                    of("there are more than can be, and they are the smallest".to_owned())
                }
                _ => of(error.to_string()),
            }));
            Ok(stalls)
        }
        // Only the order that is made of heat cannot do without.
        Err(error) if options.policy.order.needs_heat() => Err(error),
        Err(error) => {
            warnings.push(format!("no slow-down is predicted: {error}"));
            Ok(nothing())
        }
    }
}

/// Takes the census of each of `targets` that is still there. One that nobody named and that may not be looked at is left out.
fn scan(
    targets: Vec<DebloatTarget>,
    stalls: Vec<Option<Stalls>>,
    options: &DebloatOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event),
    warnings: &mut Vec<String>,
) -> Result<Vec<DebloatProcess>, ManagerError> {
    let exact = options.policy.needs_exact_census();
    let mut members = Vec::new();
    let (mut gone, mut left) = (None, ExcludedProcesses::default());
    for (target, stalls) in targets.into_iter().zip(stalls) {
        let pid = target.process.id().pid;
        let mut each = |done, all| {
            say(Event::Scanning { pid, done, all });
            !interrupted()
        };
        match census::take(&target.process, options.part, exact, &mut each) {
            Ok(found) => {
                members.push(DebloatProcess { target, stalls, found, splits: Splits::default() })
            }
            Err(error) if matches!(target.process.state(), Ok(TargetState::Gone)) => {
                gone = Some(error)
            }
            Err(error) if target.named => return Err(error.into()),
            Err(error) => left.add(error),
        }
    }
    warnings.extend(left.warning(members.len())?);
    match gone {
        Some(error) if members.is_empty() => Err(error.into()),
        _ => Ok(members),
    }
}

/// `split` and the others that it stands for.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(split: &Split, stands_for: f64) -> Split {
    let frees = Bytes::new((split.frees.as_f64() * stands_for) as u64);
    Split { frees, stalls: split.stalls * stands_for, ..*split }
}

impl DebloatProcess {
    /// Of how many huge pages each that was read is a sample: 1 where all were.
    #[allow(clippy::cast_precision_loss)]
    fn stand_for(&self) -> f64 {
        let Census { huge_pages, read_pages, .. } = self.found.census;
        (huge_pages as f64 / read_pages.max(1) as f64).max(1.0)
    }

    fn view(&self) -> DebloatView<'_> {
        DebloatView {
            census: &self.found.census,
            stalls: self.stalls.as_ref().map(|stalls| &stalls.regions),
            priority: self.target.priority,
            weight: self.target.weight,
        }
    }
}

impl Run {
    fn act(&mut self, interrupted: &dyn Fn() -> bool, say: &mut dyn FnMut(Event)) {
        let Some(clock) = self.members.first() else { return };
        let begun = clock.target.process.now();
        let (mut freed, wanted) = (Bytes::ZERO, self.wanted);
        for planned in &self.plan.splits {
            self.interrupted = interrupted();
            if freed >= wanted || self.interrupted {
                break;
            }
            let DebloatProcess { target, splits, .. } = &mut self.members[planned.process];
            if let Some(SplitOutcome::Freed(bytes)) = splits.split(&target.process, planned) {
                freed += bytes;
            }
            say(Event::Splitting { freed, wanted });
        }
        self.split_time = self.members[0].target.process.now() - begun;
    }

    /// By what factor all processes together should become slower by these splits; `None` without any, or where nobody
    /// looked.
    fn slowdown(&self, splits: &[&Split]) -> Option<Prediction> {
        let all: Vec<&Stalls> =
            self.members.iter().filter_map(|member| member.stalls.as_ref()).collect();
        if splits.is_empty() || all.is_empty() {
            return None;
        }
        let lost = splits.iter().map(|split| split.stalls).sum();
        let huge = self.members.first()?.found.census.sizes.huge;
        predict_slowdown(stalls::expected(&all, lost, huge), &self.options.calibration)
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::Root;
    use hugepilot_policy::Order;
    use hugepilot_units::{Region, VirtAddr};

    use super::*;

    /// Process 7 can be looked at, and 8 cannot.
    fn target(root: &Root, pid: i32, named: bool) -> DebloatTarget {
        let process = Process::open(root, Pid(pid)).unwrap();
        DebloatTarget { process, priority: Priority::Normal, weight: 1.0, named }
    }

    fn scanned(targets: Vec<DebloatTarget>) -> Result<(usize, Vec<String>), ManagerError> {
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
        let members = scan(targets, stalls, &options, &|| false, &mut |_| {}, &mut warnings)?;
        Ok((members.len(), warnings))
    }

    #[test]
    fn one_that_may_not_be_looked_at_stops_nobody_unless_it_was_named() {
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
        let (members, warnings) =
            scanned(vec![target(&root, 8, false), target(&root, 7, false)]).unwrap();
        assert_eq!((members, warnings.len()), (1, 1));
        assert!(
            warnings[0].contains("1 of 2 processes") && warnings[0].contains("proc/8/smaps"),
            "{warnings:?}"
        );
        assert!(scanned(vec![target(&root, 8, false)]).is_err(), "nobody is left");
        assert!(scanned(vec![target(&root, 7, false), target(&root, 8, true)]).is_err());
    }

    #[test]
    fn what_is_planned_of_a_sample_stands_for_all() {
        let (region, page) = (Region::new(1), VirtAddr::new(2 << 20));
        let split = Split { process: 0, region, page, frees: Bytes::mib(1), stalls: 0.5 };
        assert_eq!(scaled(&split, 1.0), split);
        assert_eq!(scaled(&split, 10.0), Split { frees: Bytes::mib(10), stalls: 5.0, ..split });
    }
}
