//! Tuning of a program from its start to its end.

use hugepilot_manager::progress::ProgressReader;
use hugepilot_manager::tune::{Event, Session, TuneOptions, open};
use hugepilot_record::tune::TuneReport;
use hugepilot_units::Nanos;

use crate::LaunchError;
use crate::program::LaunchedProgram;

/// Tunes a program from its start to its end, and returns its time as well.
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
) -> Result<(TuneReport, Nanos), LaunchError> {
    let process = open(launched.pid())?;
    let mut session =
        Session::attach(process, Some(launched.name()), options, progress, interrupted, say)?;
    let begin = session.now();
    launched.release()?;
    session.observe_while(session.options().observe, &mut || launched.ended().is_none());
    let mut pause = session.options().round;
    while launched.ended().is_none() && !interrupted() {
        // Once nothing is left to promote, pauses double up to half a minute.
        let more = match if session.is_over() { Ok(false) } else { session.round() } {
            Ok(more) => more,
            Err(error) => {
                // The program continues to its end without hugepilot.
                launched.wait(interrupted);
                return Err(error.into());
            }
        };
        pause = if more { session.pause() } else { (pause + pause).min(Nanos::seconds(30)) };
        session.observe_while(pause, &mut || launched.ended().is_none());
    }
    if interrupted() {
        launched.stop();
    }
    let took = session.now() - begin;
    Ok((session.report(), took))
}
