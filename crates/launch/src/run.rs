//! Run of a program on chosen pages.

pub(crate) mod environment;
mod follow;
mod library;
pub(crate) mod pool;
mod program;
mod promote;
pub(crate) mod setup;
mod watch;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use hugepilot_kernel::{
    ReceivedSignal, Root, Signals, StartedProgram, ending_signals, proc, wait, was_ignored,
};
use hugepilot_record::Mode;
use hugepilot_reports::run::{RunReport, SCHEMA};
use hugepilot_units::Bytes;

use crate::{LaunchError, effect, pool_warning, reach_warning};
pub(crate) use follow::{FollowedRun, follow};
use setup::Setup;

/// Page mode of a run, and its resources.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Page mode.
    pub mode: Mode,
    /// Library to preload instead of the installed one.
    pub library: Option<PathBuf>,
    /// Free memory in the mode's hugetlb pool during the run.
    pub pool: Option<Bytes>,
}

/// Control over a running program.
#[derive(Clone, Copy, Default)]
pub(crate) struct Control<'a> {
    /// Signals to forward. Without them, the program and its descendants end with hugepilot.
    pub(crate) signals: Option<&'a Signals>,
    /// Returns whether the program shall end; called at least ten times a second.
    pub(crate) interrupted: Option<&'a dyn Fn() -> bool>,
    /// Standard streams of the program; `None` for those of hugepilot.
    pub(crate) standard: [Option<BorrowedFd<'a>>; 3],
}

impl Control<'_> {
    /// Whether a signal is pending, or the program shall end.
    pub(crate) fn is_wanted(&self) -> bool {
        let pending = |signals: &Signals| wait::readable(&[signals.as_fd()], Duration::ZERO);
        self.signals.is_some_and(pending)
            || self.interrupted.is_some_and(|interrupted| interrupted())
    }
    /// Takes the signals that arrived before the program started.
    ///
    /// # Errors
    /// [`LaunchError::Signalled`] and [`LaunchError::Interrupted`] if no program shall start.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let ends = ending_signals();
        let arrived = std::iter::from_fn(|| self.signals?.next()).collect::<Vec<_>>();
        let ending = |arrived: &&ReceivedSignal| {
            ends.contains(&arrived.signal) && !was_ignored(arrived.signal)
        };
        match arrived.iter().find(ending) {
            Some(arrived) => Err(LaunchError::Signalled(arrived.signal)),
            None if self.interrupted.is_some_and(|interrupted| interrupted()) => {
                Err(LaunchError::Interrupted)
            }
            None => Ok(()),
        }
    }
}

/// Observer of a run besides the sampling of its memory.
pub(crate) trait Observer {
    /// Attaches to the program before its first instruction.
    fn attach(&mut self, child: &StartedProgram);
    /// Runs at least ten times a second.
    fn meanwhile(&mut self) {}
}

/// No observer.
impl Observer for () {
    fn attach(&mut self, _: &StartedProgram) {}
}

/// Runs `command` to its end, and forwards `signals` to it. For a process without a second thread.
/// Until the required files are read, signals keep their former effect.
///
/// # Errors
/// [`LaunchError::Start`]; [`LaunchError::Refused`] if the mode is unavailable;
/// [`LaunchError::EmptyPool`]; [`LaunchError::Signalled`] by a signal before the start; errors of
/// [`hugepilot_settings::SettingsGuard`] with a pool.
pub fn run(
    command: &[OsString],
    options: &RunOptions,
    signals: &[i32],
) -> Result<RunReport, LaunchError> {
    let root = Root::live();
    let mut setup = Setup::new(&root, command, options)?;
    let signals =
        Signals::take(signals).map_err(|source| LaunchError::start(&command[0], source))?;
    let control = Control { signals: Some(&signals), ..Control::default() };
    let (guard, mut warnings) = match options.pool {
        Some(bytes) => pool::raise(&root, &mut setup, bytes, control)?,
        None => (None, Vec::new()),
    };
    if let Some(page_bytes) = setup.obstacles.empty_pool.filter(|_| options.pool.is_some()) {
        return Err(LaunchError::EmptyPool { page_bytes, warnings });
    }
    let followed = follow(command, &setup, control, &mut ());
    warnings.extend(guard.map(pool::restore).unwrap_or_default());
    let FollowedRun { run, obstacles, .. } = followed?;
    warnings.extend(setup.environment.warnings);
    warnings.extend(pool_warning(options.mode, &run, &obstacles));
    warnings.extend(reach_warning(&run, &obstacles));
    Ok(RunReport {
        schema: SCHEMA.to_owned(),
        command: command.iter().map(|word| proc::printable(word.as_encoded_bytes())).collect(),
        mode: options.mode,
        environment: setup.environment.set,
        effect: effect(options.mode, &run, &obstacles),
        run,
        warnings,
    })
}
