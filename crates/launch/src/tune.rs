//! A program tuned from its start to its end.

use hugepilot_manager::progress::ProgressReader;
use hugepilot_manager::tune::{Event, Session, TuneOptions, open};
use hugepilot_record::tune::TuneReport;
use hugepilot_units::Nanos;

use crate::LaunchError;
use crate::program::Launched;

/// Tunes a program from its start to its end, and returns how long it ran besides.
///
/// # Errors
/// When it cannot be started or sampled. Should it end before the first plan, the report says so in its warnings.
pub fn tune_launched(
    launched: &mut Launched,
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
        // A program that has settled is looked at ever more rarely, at most every half minute.
        let more = match if session.is_over() { Ok(false) } else { session.round() } {
            Ok(more) => more,
            Err(error) => {
                // The program is the user's, and goes on to its end without us.
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
