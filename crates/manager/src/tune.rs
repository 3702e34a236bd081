//! Tuning of processes: rounds of the engine, then the facts, then the reports from these alone.

mod direction;
mod finished;
mod no_verdict;
mod options;
mod report;
mod session;
mod warnings;

use hugepilot_kernel::proc::parse_stat;
use hugepilot_kernel::{KernelError, Process, Root, Target};
use hugepilot_policy::daemon::Key;
use hugepilot_policy::tune::{Policy, State, TuneGoal};
use hugepilot_policy::{Guard, Limits};
use hugepilot_profiler::{ProgressReader, check_sampling, read_memory};
use hugepilot_record::{
    Attempts, Headroom, Mapping, Pid, Pressure, ProcessMemory, ProcessSnapshot, Promotion,
    Snapshot, Window,
};
use hugepilot_reports::tune::TuneReport;
use hugepilot_units::{Bytes, Nanos, Region, Share};

pub use direction::read_as_time;
pub use finished::Finished;
pub use options::{Event, TuneOptions};
pub(crate) use report::trial_report;
pub use session::Session;

use crate::ManagerError;
use crate::act::promote;

/// Tunes running processes, which share the limits, for [`TuneOptions::total`], until there is
/// nothing more to do, or until `interrupted`. Returns a report for each, in their order; of a
/// single one of whose processes several were decided about, for each of these. A process with an
/// error is excluded; its report says why.
///
/// # Errors
/// No process is left: the first one cannot be sampled or read, or another run of hugepilot changes
/// it. If it ends later, the report covers the time until then.
pub fn tune_all(
    processes: Vec<Process>,
    options: TuneOptions,
    progress: Option<ProgressReader>,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<TuneReport>, ManagerError> {
    let mut session = Session::attach(processes, None, options, progress, interrupted, say)?;
    session.await_first_metric()?;
    session.run()?;
    session.measure_after();
    Ok(session.finish().reports())
}

/// Promotes all eligible regions that are `wanted`, for comparison. Slow collapses do not end it.
///
/// # Errors
/// The process cannot be read.
pub fn promote_where(
    process: &Process,
    wanted: &dyn Fn(Region) -> bool,
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
) -> Result<Attempts, ManagerError> {
    let memory = read_memory(process, None, 0, usize::MAX)?;
    // The guard reads both again: headroom before each region.
    let (headroom, pressure) = (Headroom::UNLIMITED, Pressure::default());
    let memory = ProcessMemory { headroom, pressure, ..memory };
    let seen = ProcessSnapshot { id: process.id().clone(), window: Window::default(), memory };
    let promotions = promotions(seen, wanted, guard.limits);
    let patient = Guard { max_collapse: Nanos::seconds(5), ..*guard };
    Ok(promote(process, &promotions, &patient, interrupted, &mut |_| {}))
}

/// Promotions of the eligible regions that are `wanted`, without lazily freed memory. The others
/// take nothing of the limit on added memory.
fn promotions(
    mut seen: ProcessSnapshot,
    wanted: &dyn Fn(Region) -> bool,
    limits: Limits,
) -> Vec<Promotion> {
    seen.memory.pages.retain(|&region, pages| wanted(region) && pages.lazily_freed == 0);
    let goal = TuneGoal {
        policy: Policy::All,
        max_added: Some(Share::ALL),
        regions_per_round: usize::MAX,
        limits,
        ..TuneGoal::default()
    };
    let snapshot = Snapshot { processes: vec![seen], ..Snapshot::default() };
    let decided = goal.decide(&snapshot, &State::default()).processes;
    decided.into_iter().flat_map(|one| one.promote).collect()
}

/// Tests whether a tune of `process` may read its pagemap, sample it and, unless it is a dry run,
/// promote its memory.
///
/// # Errors
/// [`ManagerError::Kernel`] if it may not be read; [`ManagerError::Sample`];
/// [`ManagerError::Promote`] if its memory cannot be promoted.
pub fn check_permissions(process: &Process, dry_run: bool) -> Result<(), ManagerError> {
    check_pagemap(process, &process.mappings()?)?;
    let pid = process.id().pid;
    check_sampling(process).map_err(|source| ManagerError::Sample { pid, source })?;
    if dry_run { Ok(()) } else { process.check_promotable().map_err(ManagerError::Promote) }
}

/// Tests whether the pagemap of `process` can be read.
fn check_pagemap(process: &Process, mappings: &[Mapping]) -> Result<(), KernelError> {
    if let Some(mapping) = mappings.iter().find(|mapping| mapping.resident > Bytes::ZERO) {
        process.region_pages(process.sizes().region_of(mapping.range.start))?;
    }
    Ok(())
}

/// Opens a process of the running system.
///
/// # Errors
/// There is no such process, or it has no memory.
pub fn open(pid: Pid) -> Result<Process, ManagerError> {
    Ok(Process::open(&Root::live(), pid)?)
}

/// Whether the process of this pid and start time, 0 if unknown, has not ended. A process that
/// cannot be read, for lack of descriptors, counts as alive.
pub(crate) fn lives(root: &Root, (pid, start_ticks): Key) -> bool {
    let stat = match root.read(format!("proc/{pid}/stat")) {
        Ok(line) => parse_stat(&line),
        Err(error) => return !error.is_gone(),
    };
    stat.is_some_and(|stat| {
        !stat.is_zombie() && (stat.start_ticks == start_ticks || start_ticks == 0)
    })
}

/// Whether `process` has not ended. A process that cannot be read counts as alive.
pub(crate) fn is_alive(process: &Process) -> bool {
    !matches!(process.state(), Ok(hugepilot_kernel::TargetState::Gone))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{ProcessId, RegionPages};
    use hugepilot_units::{AddrRange, PageSizes};

    use super::*;

    #[test]
    fn unwanted_regions_take_nothing_of_the_limit_on_added_memory() {
        // A quarter of each region is resident, so all may add as much as a third of them needs.
        let sizes = PageSizes::X86_64;
        let pages = |number| {
            let region = Region::new(number);
            (region, RegionPages::on_base_pages(region, 128))
        };
        let range = AddrRange::at(Region::new(8).range(sizes).start, sizes.huge.times(4));
        let resident = sizes.huge;
        let memory = ProcessMemory {
            time: Nanos::ZERO,
            sizes,
            mappings: vec![Mapping { resident, ..Mapping::anonymous(range) }],
            heat: Vec::new(),
            stacks: Default::default(),
            pages: (8..12).map(pages).collect(),
            thp_disabled: false,
            untouched: Bytes::ZERO,
            headroom: Headroom::UNLIMITED,
            pressure: Pressure::default(),
        };
        let id = ProcessId { pid: Pid(7), start_ticks: 7, command: "db".into() };
        let seen = ProcessSnapshot { id, window: Window::default(), memory };
        let limits = Limits { min_resident: Share::ratio(0.0), ..Limits::default() };
        let wanted = |region| region == Region::new(11);
        let promoted = promotions(seen, &wanted, limits);
        assert_eq!(promoted.iter().map(|one| one.region).collect::<Vec<_>>(), [Region::new(11)]);
    }
}
