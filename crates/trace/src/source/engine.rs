//! A program under an engine: its start, its end, and checks before.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, file, find_program};
use hugepilot_record::{Ending, Pid};

use crate::TraceError;

/// Program to trace.
pub(super) struct Traced {
    path: PathBuf,
    command: Vec<OsString>,
}

impl Traced {
    /// Finds and checks the program.
    ///
    /// # Errors
    /// [`TraceError::Start`]: ENOENT, EACCES; [`TraceError::NotTraceable`].
    pub(super) fn new(command: &[OsString]) -> Result<Self, TraceError> {
        let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        let cannot = |source| TraceError::start(name, source);
        let path = find_program(name).map_err(cannot)?;
        if let Some(what) = not_traceable(&path).map_err(cannot)? {
            return Err(TraceError::NotTraceable { path, what });
        }
        Ok(Self { path, command: command.to_vec() })
    }

    /// Starts `engine` with `arguments`, the program and its arguments. It and its descendants end
    /// with hugepilot.
    pub(super) fn start(
        &self,
        engine: &Path,
        arguments: &[OsString],
    ) -> Result<Running, TraceError> {
        let own = self.command.get(1..).unwrap_or_default();
        let arguments: Vec<OsString> = [engine.as_os_str().to_owned()]
            .into_iter()
            .chain(arguments.iter().cloned())
            .chain([self.path.clone().into_os_string()])
            .chain(own.iter().cloned())
            .collect();
        let environment: Vec<_> = std::env::vars_os().collect();
        let start = || {
            // Stdout is for the report.
            let stderr = io::stderr();
            let mut child = StartedProgram::bound(&Program {
                standard: [None, Some(stderr.as_fd()), None],
                ..Program::inheriting(engine, &arguments, &environment)
            })?;
            child.release()?;
            Ok(child)
        };
        let child = start().map_err(|source| TraceError::start(engine.as_os_str(), source))?;
        let engine = engine.as_os_str().to_owned();
        Ok(Running { child, ending: None, is_unwatched: false, engine })
    }

    /// Name of the program for its arguments.
    pub(super) fn name(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), OsString::as_os_str)
    }
}

/// Finds a program that an engine needs.
pub(super) fn required(
    program: &'static str,
    package: &'static str,
) -> Result<PathBuf, TraceError> {
    find_program(OsStr::new(program)).map_err(|_| TraceError::Missing { program, package })
}

/// Returns the kind of a file that is not a 64-bit ELF file for x86-64.
fn not_traceable(path: &Path) -> io::Result<Option<&'static str>> {
    let mut head = Vec::new();
    file::open(path)?.take(20).read_to_end(&mut head)?;
    Ok(match head.as_slice() {
        // Class 2, machine 62.
        [0x7f, b'E', b'L', b'F', 2, .., 62, 0] if head.len() == 20 => None,
        [0x7f, b'E', b'L', b'F', ..] => Some("a program for another machine"),
        [b'#', b'!', ..] => Some("a script"),
        _ => Some("not a program"),
    })
}

/// Program that runs under an engine.
pub(super) struct Running {
    child: StartedProgram,
    ending: Option<Ending>,
    /// Whether its watcher was killed, so that its end is not known.
    is_unwatched: bool,
    engine: OsString,
}

impl Running {
    pub(super) const fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Returns how it ended; `None` if it has not.
    pub(super) fn ended(&mut self) -> Option<Ending> {
        while self.ending.is_none() {
            match self.child.changed() {
                Ok(Some((Change::Exited(status), _))) => self.ending = Some(Ending::Exited(status)),
                Ok(Some((Change::Killed(signal), _))) => self.ending = Some(Ending::Killed(signal)),
                Ok(Some((Change::Stopped | Change::Continued, _))) => {}
                Ok(None) => break,
                Err(_) => {
                    self.is_unwatched = true;
                    self.ending = Some(Ending::Killed(9));
                }
            }
        }
        self.ending
    }

    /// Ends it with SIGTERM, after a second with SIGKILL, and ends the processes that it left.
    ///
    /// # Errors
    /// [`TraceError::Unwatched`].
    pub(super) fn stop(&mut self) -> Result<Option<Ending>, TraceError> {
        if self.ended().is_none() {
            self.child.ask_to_end();
        }
        let deadline = Instant::now() + Duration::from_secs(3);
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child.end_rest();
        let engine = || self.engine.to_string_lossy().into_owned();
        match self.is_unwatched {
            true => Err(TraceError::Unwatched { engine: engine() }),
            false => Ok(self.ending),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_for_this_machine_are_traceable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".to_vec();
        let what = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            not_traceable(&path).unwrap()
        };
        assert_eq!(what(&elf), None);
        elf[4] = 1;
        assert_eq!(what(&elf), Some("a program for another machine"));
        assert_eq!(what(b"#!/bin/sh\n"), Some("a script"));
        assert_eq!(what(b""), Some("not a program"));
        assert!(matches!(Traced::new(&["/no/such".into()]), Err(TraceError::Start { .. })));
        let missing = required("no-such-program", "package");
        assert!(matches!(missing, Err(TraceError::Missing { package: "package", .. })));
    }
}
