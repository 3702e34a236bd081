//! `hugepilot lab collapse`: promotion of all memory of a process.

use hugepilot_kernel::{Process, Target, Unsupported, rights};
use hugepilot_manager::ManagerError;
use hugepilot_manager::tune::promote_where;
use hugepilot_policy::{Guard, Limits};
use hugepilot_record::Stop;
use hugepilot_render::counted;
use hugepilot_units::{AddrRange, Region, Share};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::finish;
use crate::target::open;

/// Promotes the memory of process `pid` in `ranges`, or all if there are none, however empty its
/// regions are.
pub(super) fn run(pid: i32, ranges: &[AddrRange]) -> anyhow::Result<Exit> {
    let limits = Limits { min_resident: Share::ratio(0.0), ..Limits::default() };
    let guard = Guard { limits, ..Guard::default() };
    let process = open(pid).map_err(ManagerError::Kernel).map_err(as_root)?;
    if !ranges.is_empty() {
        require_memory(&process, ranges)?;
    }
    // Another run may be comparing the pages of this process.
    let _claim = process.claim().map_err(ManagerError::Kernel).map_err(as_root)?;
    let interrupt = Interrupt::listen()?;
    let wanted = |region: Region| {
        let region = region.range(process.sizes());
        ranges.is_empty() || ranges.iter().any(|&range| overlaps(range, region))
    };
    let journal = promote_where(&process, &wanted, &guard, &|| interrupt.is_asked());
    let journal = journal.map_err(as_root)?;
    if journal.stopped == Some(Stop::NotPermitted) {
        let cause = format!("cannot promote memory of process {pid}: not permitted");
        return Err(ManagerError::Refused(root_required(cause)).into());
    }
    let stopped = journal.stopped.map_or_else(String::new, |stop| format!("; stopped: {stop}"));
    let (verified, attempted) = (journal.verified(), journal.attempted());
    let regions = counted(attempted, "region", "regions");
    finish(&format!("{verified} of {regions} verified on huge pages{stopped}\n"))?;
    Ok(if verified == attempted && journal.stopped.is_none() { Exit::Yes } else { Exit::No })
}

/// # Errors
/// The process has no mapping in one of `ranges`, or cannot be read.
fn require_memory(process: &Process, ranges: &[AddrRange]) -> anyhow::Result<()> {
    let mappings = process.mappings().map_err(ManagerError::Kernel).map_err(as_root)?;
    let is_free = |&&range: &&AddrRange| !mappings.iter().any(|one| overlaps(range, one.range));
    let Some(range) = ranges.iter().find(is_free) else { return Ok(()) };
    let pid = process.id().pid;
    let failure = Failure::new(format!("process {pid} has no memory at {range}"), Exit::Error);
    Err(failure.with_help([format!("/proc/{pid}/maps has its addresses")]).into())
}

fn overlaps(one: AddrRange, other: AddrRange) -> bool {
    !one.intersect(other).is_empty()
}

/// Replaces the help of a missing permission: `lab` drops the capabilities of the binary, so only
/// root helps.
fn as_root(error: ManagerError) -> ManagerError {
    match error {
        ManagerError::Kernel(error) if error.is_denied() => {
            ManagerError::Refused(root_required(error.to_string()))
        }
        error => error,
    }
}

fn root_required(error: String) -> Unsupported {
    Unsupported::LabRootRequired { error, advice: rights::fix_without_capabilities() }
}
