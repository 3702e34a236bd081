//! A command of an experiment, with its output in memory.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, wait};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;

use crate::experiment::ExperimentError;
use crate::experiment::values::{Printed, objects};

/// Interval in which an interruption is noticed.
const TICK: Duration = Duration::from_millis(50);
/// Time for the end of a holder: it frees gigabytes.
const END: Duration = Duration::from_secs(60);

/// Command. It ends with this process, with all that it started.
pub(super) struct Command {
    child: StartedProgram,
    /// Its stdout and stderr.
    output: File,
    begun: Instant,
    /// Once it ended, its exit status, and the time until then.
    end: Option<(Option<i32>, Duration)>,
}

/// A command that ended.
pub(super) struct Ran {
    /// Exit status; `None` if a signal killed it or its time was over.
    pub(super) status: Option<i32>,
    /// Output and cost.
    pub(super) printed: Printed,
}

impl Ran {
    /// `missing`, with the exit status and the error that it printed.
    pub(super) fn cause(&self, missing: &str) -> String {
        let status = self.status.map_or("killed".to_owned(), |status| format!("status {status}"));
        let text = &self.printed.text;
        let objects = objects(text);
        let error = objects.iter().rev().find_map(|object| object["error"].as_str());
        let named = || text.lines().rev().find(|line| line.starts_with("hugepilot: "));
        let line = error.or_else(named).or_else(|| text.lines().last()).unwrap_or_default();
        format!("{missing} ({status}): {}", line.chars().take(300).collect::<String>())
    }
}

/// The sentence of a cause, which its JSON has beside its facts.
fn stated(cause: &Value) -> String {
    cause["text"].as_str().map_or_else(|| cause.to_string(), str::to_owned)
}

impl Command {
    /// Starts `program` with these arguments.
    pub(super) fn start(program: &Path, words: &[String]) -> io::Result<Self> {
        let nothing = File::open("/dev/null")?;
        let output = File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
        // Both streams append to one file.
        let fd = output.as_fd();
        let name = std::iter::once(program.as_os_str().to_owned());
        let arguments: Vec<OsString> = name.chain(words.iter().map(OsString::from)).collect();
        let environment: Vec<_> = std::env::vars_os().collect();
        let mut child = StartedProgram::bound(&Program {
            standard: [Some(nothing.as_fd()), Some(fd), Some(fd)],
            own_group: true,
            ..Program::inheriting(program, &arguments, &environment)
        })?;
        child.release()?;
        Ok(Self { child, output, begun: Instant::now(), end: None })
    }

    /// The output so far.
    pub(super) fn text(&self) -> String {
        let length = self.output.metadata().map_or(0, |data| data.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.output.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `seen` has something; `None` if `timeout` was over before.
    pub(super) fn until<T>(
        &mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
        mut seen: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, ExperimentError> {
        let begun = Instant::now();
        loop {
            if let Some(seen) = seen(self) {
                return Ok(Some(seen));
            }
            if interrupted() {
                return Err(ExperimentError::Interrupted);
            }
            if begun.elapsed() > timeout {
                return Ok(None);
            }
            wait::readable(&[self.child.as_fd()], TICK);
        }
    }

    /// Waits for its end.
    pub(super) fn output(
        mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Ran, ExperimentError> {
        let ended = self.until(timeout, interrupted, Self::ended);
        if let Ok(Some(status)) = ended {
            self.child.end_rest();
            return Ok(self.ran(status));
        }
        let ran = self.ran(None);
        self.end();
        ended.map(|_| ran)
    }

    fn ran(&self, status: Option<i32>) -> Ran {
        let time = self.end.map_or_else(|| self.begun.elapsed(), |(_, time)| time);
        let peak = self.child.last_use().map(|last| last.usage.peak_resident);
        let peak_bytes = peak.map_or(0.0, |peak| peak.as_f64());
        let seconds = time.as_secs_f64();
        Ran { status, printed: Printed { text: self.text(), seconds, peak_bytes, acted: 0..0 } }
    }

    /// Waits for the first JSON object that it prints, while it goes on; or returns why it ended
    /// without one.
    pub(super) fn first_object(
        &mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Value, String>, ExperimentError> {
        self.first(timeout, interrupted, |text| {
            let object = objects(text).into_iter().next()?;
            Some(match &object["shortfall"] {
                Value::Null => Ok(object),
                shortfall => Err(stated(shortfall)),
            })
        })
    }

    /// Waits for its line `ready PID`, while it goes on, and returns the pid; or why it ended
    /// without one.
    pub(super) fn ready_pid(
        &mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<String, String>, ExperimentError> {
        self.first(timeout, interrupted, |text| {
            let (lines, _) = text.rsplit_once('\n')?;
            let pid = lines.lines().find_map(|line| line.strip_prefix("ready "))?;
            Some(Ok(pid.split_whitespace().next()?.to_owned()))
        })
    }

    /// Waits until its output has something.
    fn first<T>(
        &mut self,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
        found: impl Fn(&str) -> Option<Result<T, String>>,
    ) -> Result<Result<T, String>, ExperimentError> {
        let seen = |command: &mut Self| {
            let cause = command.lost();
            cause.map_or_else(|| found(&command.text()), |cause| Some(Err(cause)))
        };
        let seen = self.until(timeout, interrupted, seen)?;
        Ok(seen.unwrap_or_else(|| Err("its time was over".to_owned())))
    }

    /// Why a holder holds no longer; `None` if it does.
    pub(super) fn lost(&mut self) -> Option<String> {
        let status = self.ended()?;
        Some(self.ran(status).cause("it ended"))
    }

    /// The exit status, if it ended; of an end by a signal, `None` within.
    pub(super) fn ended(&mut self) -> Option<Option<i32>> {
        // The child is reaped once.
        if self.end.is_none() {
            let status = match self.child.changed() {
                Ok(Some((Change::Exited(status), _))) => Some(status),
                Ok(Some((Change::Killed(_), _))) | Err(_) => None,
                Ok(_) => return None,
            };
            self.end = Some((status, self.begun.elapsed()));
        }
        self.end.map(|(status, _)| status)
    }

    /// Requests its end, and waits for it.
    pub(super) fn end(mut self) {
        self.child.ask_to_end();
        let _ = self.until(END, &|| false, Self::ended);
        self.child.end_rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_is_stated_as_its_sentence() {
        let json = r#"{"shortfall":{"code":"unsteady","text":"others take the memory"}}"#;
        let words = ["-c".to_owned(), format!("echo '{json}'; sleep 60")];
        let mut command = Command::start(Path::new("/bin/sh"), &words).unwrap();
        let object = command.first_object(Duration::from_secs(60), &|| false).unwrap();
        command.end();
        assert_eq!(object, Err("others take the memory".to_owned()));
    }
}
