//! `tune`: observe → plan → act → look again, for a while, and then the proof.

mod no_verdict;
mod options;
mod session;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::{Process, Target};
use hugepilot_policy::{AllPolicy, Policy, mapping_skip};
use hugepilot_record::tune::TuneReport;
use hugepilot_record::{Budget, Journal, Pid, Snapshot, Stop};
use hugepilot_units::{Bytes, Nanos};

pub use options::{Event, TuneOptions};
pub use session::Session;

use crate::ManagerError;
use crate::act::{Guard, promote};
use crate::progress::ProgressReader;

/// Tunes a running process: for [`TuneOptions::total`], or until there is nothing more to do, or until `interrupted`.
///
/// # Errors
/// When the process cannot be sampled or looked at, or another run of hugepilot changes it. A process that ends after the first
/// look is no error: the report is complete as far as it goes, and says so.
pub fn tune_attached(
    process: Process,
    options: TuneOptions,
    progress: Option<ProgressReader>,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<TuneReport, ManagerError> {
    let mut session = Session::attach(process, None, options, progress, interrupted, say)?;
    session.observe_first()?;
    while session.round()? {
        session.observe(session.pause());
    }
    session.look_again();
    session.note_end();
    Ok(session.report())
}

/// Puts everything on huge pages that may be: the ideal to compare with. Slow collapses do not end it.
///
/// # Errors
/// When the process may not be looked at.
pub fn promote_all(
    process: &Process,
    guard: &Guard,
    interrupted: &dyn Fn() -> bool,
) -> Result<Journal, ManagerError> {
    let mappings = process.mappings()?;
    let mut pages = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| mapping_skip(mapping).is_none()) {
        for region in process.sizes().regions_inside(mapping.range) {
            if interrupted() {
                return Ok(Journal { stopped: Some(Stop::Interrupted), ..Journal::default() });
            }
            pages.insert(region, process.region_pages(region)?);
        }
    }
    let seen = Snapshot {
        sizes: process.sizes(),
        mappings,
        heat: Vec::new(),
        stacks: BTreeSet::new(),
        pages,
        thp_disabled: process.thp_disabled(),
        headroom: process.headroom()?,
    };
    let endless = Budget { huge: Bytes::MAX, regions: usize::MAX };
    let plan = AllPolicy { limits: guard.limits }.plan(&seen, endless);
    let patient = Guard { max_collapse: Nanos::seconds(5), ..*guard };
    Ok(promote(process, &plan.picks, &patient, interrupted, &mut |_| {}))
}

/// Opens a process of the running system.
///
/// # Errors
/// When there is none of that number, or it has no memory.
pub fn open(pid: Pid) -> Result<Process, ManagerError> {
    Ok(Process::open(&hugepilot_kernel::Root::live(), pid)?)
}

/// Whether `process` is still there, as far as can be told: what cannot be read is not gone.
fn is_alive(process: &Process) -> bool {
    !matches!(process.state(), Ok(hugepilot_kernel::TargetState::Gone))
}
