//! Tuning of a program from its start to its end.

use hugepilot_manager::tune::{Event, Session, TuneOptions, open};
use hugepilot_profiler::ProgressReader;
use hugepilot_reports::tune::TuneReport;
use hugepilot_units::Nanos;

use crate::LaunchError;
use crate::program::LaunchedProgram;

/// Time between two checks whether the program has ended.
const STEP: Nanos = Nanos::millis(50);

/// Tunes a program from its start to its end, and returns its time as well, and a report on each
/// of its processes that was decided about, at least one. The first has the performance.
///
/// # Errors
/// If it cannot be started or sampled. If it ends before the first plan, a warning of the report
/// says so.
pub fn tune_launched(
    launched: &mut LaunchedProgram,
    options: TuneOptions,
    progress: Option<ProgressReader>,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<(Vec<TuneReport>, Nanos), LaunchError> {
    let process = vec![open(launched.pid())?];
    let mut session =
        Session::attach(process, Some(launched.name()), options, progress, interrupted, say)?;
    let begin = session.now();
    launched.release()?;
    while launched.ended().is_none() && !interrupted() {
        if let Err(error) = session.run_for(STEP) {
            // The program continues to its end without hugepilot.
            launched.wait(interrupted);
            launched.check_watched()?;
            return Err(error.into());
        }
    }
    if interrupted() {
        launched.stop();
    }
    launched.check_watched()?;
    let took = session.now() - begin;
    Ok((session.finish().reports(), took))
}
