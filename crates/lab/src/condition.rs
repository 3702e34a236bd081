//! Time during which a condition holds: until a request to end, or while a program runs.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use hugepilot_kernel::cgroup::OwnedCgroup;
use hugepilot_kernel::{Change, Program, StartedProgram, find_program, wait};
use hugepilot_record::Pid;

use crate::{LabError, Result};

/// Interval in which a condition is checked.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Something that is kept up. Dropping it undoes it.
pub trait Condition {
    /// Checks it once and corrects it. `program`: the one for which it is made; its own memory does
    /// not count as that of others. Returns at once, or after a correction.
    ///
    /// # Errors
    /// If it cannot be kept up.
    fn keep(&mut self, program: Option<Pid>) -> Result<()>;
}

/// Condition that needs no correction.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged;

impl Condition for Unchanged {
    fn keep(&mut self, _: Option<Pid>) -> Result<()> {
        Ok(())
    }
}

/// Keeps `condition` up while `command` runs, or, if it is empty, until `stopped`. Returns the exit
/// status of the program, 128 + n if signal n killed it; 0 without one. If `stopped`, the program
/// gets SIGTERM, and SIGKILL a second later. The program and its descendants also end with this
/// process.
///
/// # Errors
/// [`LabError::Program`] if it cannot be started; those of [`Condition::keep`], which end it, too.
pub fn keep_for(
    condition: &mut dyn Condition,
    command: &[OsString],
    stopped: &dyn Fn() -> bool,
) -> Result<i32> {
    if command.is_empty() {
        while !stopped() {
            condition.keep(None)?;
            std::thread::sleep(TICK);
        }
        return Ok(0);
    }
    run(condition, command, None, stopped)
}

/// Runs `command`, in `group` if there is one.
pub(crate) fn run(
    condition: &mut dyn Condition,
    command: &[OsString],
    group: Option<&OwnedCgroup>,
    stopped: &dyn Fn() -> bool,
) -> Result<i32> {
    let name = command.first().cloned().unwrap_or_default();
    let failed = |source| LabError::Program { program: name.display().to_string(), source };
    let path = find_program(&name).map_err(failed)?;
    let mut program = start(&path, command).map_err(failed)?;
    if let Some(group) = group {
        group.add(program.pid())?;
    }
    program.release().map_err(failed)?;
    let mut is_asked = false;
    loop {
        match program.changed().map_err(failed)? {
            Some((Change::Exited(status), _)) => break Ok(status),
            Some((Change::Killed(signal), _)) => break Ok(128 + signal),
            _ => {}
        }
        if stopped() && !is_asked {
            is_asked = true;
            program.ask_to_end();
        }
        condition.keep(Some(program.pid()))?;
        wait::readable(&[program.as_fd()], TICK);
    }
}

fn start(path: &Path, arguments: &[OsString]) -> std::io::Result<StartedProgram> {
    let environment: Vec<_> = std::env::vars_os().collect();
    StartedProgram::bound(&Program::inheriting(path, arguments, &environment))
}
