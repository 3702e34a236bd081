//! Command under test, with a time limit.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_testkit::{Victim, compiled};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::Run;
use super::marked::Mark;

/// Run of hugepilot in a process group. Killed on drop.
pub(super) struct Tool {
    child: Child,
    stdout: File,
    stderr: File,
    line: String,
    pub(super) mark: Mark,
}

impl Tool {
    /// Starts hugepilot with the words of `line`, then `more`. Its output goes to files, so it
    /// never waits for a reader.
    pub(super) fn start(run: &Run<'_>, line: &str, more: &[&str]) -> Result<Self> {
        let mark = run.mark();
        let (name, value) = mark.variable();
        let [stdout, stderr] = [tempfile::tempfile()?, tempfile::tempfile()?];
        let mut command = Command::new(run.hugepilot);
        command
            .args(line.split_whitespace())
            .args(more)
            .env(name, value)
            .stdin(Stdio::null())
            .process_group(0);
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let child = command.spawn().with_context(|| run.hugepilot.display().to_string())?;
        let line = format!("hugepilot {line} {}", more.join(" ")).trim_end().to_owned();
        Ok(Self { child, stdout, stderr, line, mark })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the process, or to its process group, as a terminal does.
    pub(super) fn signal(&self, signal: Signal, group: bool) {
        // Fails if it has ended.
        let _ = if group {
            kill_process_group(self.pid(), signal)
        } else {
            kill_process(self.pid(), signal)
        };
    }

    /// Whether it still runs.
    pub(super) fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end. If the user ends the test meanwhile, sends SIGINT.
    ///
    /// # Errors
    /// If it takes longer than `limit`, crashes by a signal, or panics.
    pub(super) fn wait(mut self, run: &Run<'_>, limit: Duration) -> Result<CommandResult> {
        let begun = Instant::now();
        let mut asked = false;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return self.done(status);
            }
            if run.is_interrupted() && !asked {
                asked = true;
                self.signal(Signal::INT, false);
            }
            if begun.elapsed() > limit {
                let said = self.said();
                bail!("{} did not end within {limit:?}\n{said}", self.line);
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn said(&mut self) -> String {
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            contents(&mut self.stdout),
            contents(&mut self.stderr)
        )
    }

    fn done(&mut self, status: ExitStatus) -> Result<CommandResult> {
        let (stdout, stderr) = (contents(&mut self.stdout), contents(&mut self.stderr));
        let done = CommandResult { status, stdout, stderr, line: self.line.clone() };
        let bad = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::ABORT, Signal::FPE];
        let crashed = bad.iter().any(|signal| status.signal() == Some(signal.as_raw()));
        ensure!(
            !crashed && !done.stderr.contains("panicked"),
            "hugepilot crashed: {}",
            done.evidence()
        );
        Ok(done)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns what a command wrote to `file` so far. It shares the position, and appends at the end.
pub(super) fn contents(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Exit status and output of a run.
pub(super) struct CommandResult {
    pub(super) status: ExitStatus,
    stdout: String,
    stderr: String,
    line: String,
}

impl CommandResult {
    /// Command, exit status and output, for an error.
    pub(super) fn evidence(&self) -> String {
        let Self { status, stdout, stderr, line } = self;
        format!("{line}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }

    /// Reports in JSON of exit status 0, 1 or 3, one for each process; none if SIGINT ended the run
    /// before.
    pub(super) fn reports(&self) -> Result<Vec<Value>> {
        let interrupted = self.status.signal() == Some(Signal::INT.as_raw());
        let answered = matches!(self.status.code(), Some(0 | 1 | 3)) || interrupted;
        ensure!(answered, "it failed: {}", self.evidence());
        let reports: Vec<Value> = serde_json::Deserializer::from_str(&self.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .with_context(|| format!("no JSON: {}", self.evidence()))?;
        ensure!(interrupted || !reports.is_empty(), "no report: {}", self.evidence());
        Ok(reports)
    }

    /// Output, if it is JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.stdout).ok()
    }
}

/// Starts a program in C as a target for hugepilot. Ctrl-C does not reach it; it ends with its
/// stdin. It keeps CPUs busy, so it runs at lower priority than hugepilot.
pub(super) fn target(words: &[&str]) -> Victim {
    spawn(Command::new("nice"), words)
}

/// The same, in a cgroup.
pub(super) fn target_in(group: &Cgroup, words: &[&str]) -> Victim {
    spawn(group.command(Path::new("nice")), words)
}

fn spawn(mut nice: Command, words: &[&str]) -> Victim {
    nice.args(["-n", "10"]).arg(compiled(Path::new(words[0]))).args(&words[1..]).process_group(0);
    Victim::spawn(nice)
}

/// Sum of a count over reports; 0 where it is `null` or missing.
pub(super) fn count(reports: &[Value], name: &str) -> u64 {
    reports.iter().filter_map(|report| report[name].as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_the_sum_over_the_reports_of_all_processes() {
        let result = |stdout: &str| CommandResult {
            status: ExitStatus::default(),
            stdout: stdout.to_owned(),
            stderr: String::new(),
            line: String::new(),
        };
        let reports = result("{\"pages\": 2}\n{\"pages\": 3}\n{\"pages\": null}\n").reports();
        assert_eq!(count(&reports.unwrap(), "pages"), 5);
        assert!(result("").reports().is_err() && result("{}\n{").reports().is_err());
    }
}
