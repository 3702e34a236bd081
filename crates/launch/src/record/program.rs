//! Program that is recorded, from its start to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use hugepilot_alloc::MARKERS;
use hugepilot_record::Ending;

use super::markers::Markers;
use super::output::{LinePatterns, OutputCopy};
use crate::LaunchError;
use crate::program::{LaunchedProgram, cannot_start};

/// A program that is recorded. Killed on drop, with its descendants.
pub(super) struct RecordedProgram {
    pub(super) program: LaunchedProgram,
    pub(super) output: Option<OutputCopy>,
    /// `None` if the file cannot be created.
    pub(super) markers: Option<Markers>,
    /// Whether the recording waits for its begin.
    pub(super) is_waiting: bool,
    pub(super) patterns: LinePatterns,
}

impl RecordedProgram {
    /// Starts the program, held.
    pub(super) fn start(
        command: &[OsString],
        stdout: OwnedFd,
        patterns: LinePatterns,
    ) -> Result<Self, LaunchError> {
        let markers = Markers::new().ok();
        let mut environment: Vec<_> = std::env::vars_os().collect();
        environment.retain(|(name, _)| name != MARKERS);
        if let Some(markers) = &markers {
            environment.push((MARKERS.into(), markers.path().into()));
        }
        let is_waiting = patterns.waits();
        // Without patterns, the program writes to the stream itself.
        let (pipe, to) = if patterns.has_any() {
            let (output, end) = io::pipe().map_err(|source| cannot_start(command, source))?;
            (Some((output, stdout)), OwnedFd::from(end))
        } else {
            (None, stdout)
        };
        let program = LaunchedProgram::start_to(command, &environment, to.as_fd())?;
        let output = pipe.map(|(from, to)| OutputCopy::start(from, to, patterns.clone()));
        Ok(Self { program, output, markers, is_waiting, patterns })
    }

    /// Waits for its end, and returns it. If `interrupted`, ends it.
    pub(super) fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Option<Ending> {
        self.program.wait(interrupted);
        self.program.ended()
    }
}
