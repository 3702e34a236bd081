//! Program that is recorded, from its start to its end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, Thp, find_program, wait};
use hugepilot_record::run::Ending;

use super::markers::{MARKERS, Markers};
use super::output::{LinePatterns, OutputCopy};
use crate::LaunchError;

/// Time between two checks whether the program ended, after the recording did.
const STEP: Duration = Duration::from_millis(50);
/// Time that a program has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// A program that is recorded. Killed on drop, with its descendants.
pub(super) struct RecordedProgram {
    pub(super) child: StartedProgram,
    pub(super) output: Option<OutputCopy>,
    /// `None` if the file cannot be created.
    pub(super) markers: Option<Markers>,
    /// Whether the recording waits for the first match.
    pub(super) is_waiting: bool,
    ended: Option<Ending>,
}

impl RecordedProgram {
    /// Starts the program, held.
    pub(super) fn start(
        command: &[OsString],
        stdout: OwnedFd,
        patterns: LinePatterns,
    ) -> Result<Self, LaunchError> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let cannot = |source| LaunchError::start(program, source);
        let path = find_program(program).map_err(cannot)?;
        let markers = Markers::new().ok();
        let mut environment: Vec<_> = std::env::vars_os().collect();
        environment.retain(|(name, _)| name != MARKERS);
        if let Some(markers) = &markers {
            environment.push((MARKERS.into(), markers.path().into()));
        }
        let is_waiting = patterns.from.is_some();
        // Without patterns, the program writes to the stream itself.
        let is_matched = is_waiting || patterns.phase.is_some();
        let (pipe, to) = if is_matched {
            let (output, end) = io::pipe().map_err(cannot)?;
            (Some((output, stdout)), OwnedFd::from(end))
        } else {
            (None, stdout)
        };
        let program = Program {
            path: &path,
            arguments: command,
            environment: &environment,
            thp: Thp::Inherit,
            standard: [None, Some(to.as_fd()), None],
            own_group: false,
        };
        let child = StartedProgram::bound(&program).map_err(cannot)?;
        let output = pipe.map(|(from, to)| OutputCopy::start(from, to, patterns));
        Ok(Self { child, output, markers, is_waiting, ended: None })
    }

    pub(super) fn release(&mut self, command: &[OsString]) -> Result<(), LaunchError> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        self.child.release().map_err(|source| LaunchError::start(program, source))
    }

    /// Whether it has ended. It is a zombie until [`Self::ended`].
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || wait::readable(&[self.child.as_fd()], Duration::ZERO)
    }

    /// Returns how it ended; `None` if it has not.
    fn ended(&mut self) -> Option<Ending> {
        while self.ended.is_none() {
            match self.child.changed() {
                Ok(Some((Change::Exited(status), _))) => self.ended = Some(Ending::Exited(status)),
                Ok(Some((Change::Killed(signal), _))) => self.ended = Some(Ending::Killed(signal)),
                Ok(Some((Change::Stopped | Change::Continued, _))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.ended
    }

    /// Waits for its end. If `interrupted`, ends it.
    pub(super) fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Ending {
        let mut deadline = None;
        loop {
            if let Some(ending) = self.ended() {
                return ending;
            }
            if interrupted() && deadline.is_none() {
                self.child.ask_to_end();
                deadline = Some(Instant::now() + GRACE);
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                // It was killed, and is in an uninterruptible sleep.
                return Ending::Killed(rustix::process::Signal::KILL.as_raw());
            }
            wait::readable(&[self.child.as_fd()], STEP);
        }
    }
}
