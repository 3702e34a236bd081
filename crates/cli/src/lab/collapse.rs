//! `hugepilot lab collapse`: promotion of all memory of a process.

use hugepilot_kernel::{Unsupported, rights};
use hugepilot_manager::ManagerError;
use hugepilot_manager::tune::promote_all;
use hugepilot_policy::{Guard, Limits};
use hugepilot_record::Stop;
use hugepilot_report::counted;
use hugepilot_units::Share;

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::finish;
use crate::target::open;

/// Promotes all memory of process `pid`, however empty its regions are.
pub(super) fn run(pid: i32) -> anyhow::Result<Exit> {
    let limits = Limits { min_resident: Share::ratio(0.0), ..Limits::default() };
    let guard = Guard { limits, ..Guard::default() };
    let process = open(pid).map_err(ManagerError::Kernel).map_err(as_root)?;
    let interrupt = Interrupt::listen()?;
    let journal = promote_all(&process, &guard, &|| interrupt.is_asked()).map_err(as_root)?;
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
