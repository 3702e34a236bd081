//! Ballast: the process that makes memory short.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::{Pid, setpriority_process};

use super::probe::Group;
use super::program::share_of;
use super::record::Ballast;
use super::timeline::{BALLAST, CEILING};
use super::tools::Tools;

/// Nice value of the ballast.
const PRIORITY: i32 = -10;

/// Ballast of all shortages so far.
#[derive(Default)]
pub(super) struct Ballasts {
    past: Vec<Ballast>,
    current: Option<Current>,
}

/// Lines of a ballast: time and bytes of each step, and the seconds that it waited.
#[derive(Debug, Default, PartialEq)]
struct Steps {
    held: Vec<(f64, u64)>,
    waited_seconds: f64,
}

impl Steps {
    /// Adds a line that arrived at `now`.
    fn add(&mut self, now: f64, line: &str) {
        let mut words = line.split_whitespace();
        let Some("held") = words.next() else { return };
        let bytes = words.next().and_then(|word| word.parse().ok());
        let waited = words.next().and_then(|word| word.parse().ok());
        let Some((bytes, waited)) = bytes.zip(waited) else { return };
        self.waited_seconds = waited;
        if self.held.last().is_none_or(|step| step.1 != bytes) {
            self.held.push((now, bytes));
        }
    }
}

/// Running ballast. Killed on drop.
struct Current {
    child: Child,
    wanted_bytes: u64,
    from: f64,
    steps: Arc<Mutex<Steps>>,
    reader: Option<JoinHandle<()>>,
}

impl Ballasts {
    /// Starts to take memory. Times count from `epoch`.
    pub(super) fn start(&mut self, tools: &Tools<'_>, group: &Group, epoch: Instant) -> Result<()> {
        let (wanted, ceiling) = (share_of(tools.limit, BALLAST), share_of(tools.limit, CEILING));
        let mut command = tools.command("mix-ballast", 1);
        command.arg(&group.usage).args([ceiling.get().to_string(), wanted.get().to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        // The programs beside it must not decide how fast it grows.
        setpriority_process(Some(Pid::from_child(&child)), PRIORITY)?;
        let steps = Arc::new(Mutex::new(Steps::default()));
        let lines = Arc::clone(&steps);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let now = epoch.elapsed().as_secs_f64();
                lines.lock().unwrap_or_else(PoisonError::into_inner).add(now, &line);
            }
        });
        let from = epoch.elapsed().as_secs_f64();
        let reader = Some(reader);
        self.current = Some(Current { child, wanted_bytes: wanted.get(), from, steps, reader });
        Ok(())
    }

    /// Frees the memory. `now`: seconds since the epoch.
    pub(super) fn stop(&mut self, now: f64) {
        self.past.extend(self.current.take().map(|current| current.end(now)));
    }

    /// All shortages, with times from `origin` on.
    pub(super) fn take(&mut self, origin: f64) -> Vec<Ballast> {
        let mut past = std::mem::take(&mut self.past);
        for one in &mut past {
            one.from -= origin;
            one.to -= origin;
            one.held.iter_mut().for_each(|step| step.0 -= origin);
        }
        past
    }
}

impl Current {
    fn end(mut self, now: f64) -> Ballast {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
        let steps = std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner));
        Ballast {
            wanted_bytes: self.wanted_bytes,
            from: self.from,
            to: now,
            held: steps.held,
            waited_seconds: steps.waited_seconds,
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_kept_with_the_last_waiting_time() {
        let mut steps = Steps::default();
        for (now, line) in [(1.0, "held 16 0.00"), (2.0, "held 16 0.06"), (3.0, "held 32 0.06")] {
            steps.add(now, line);
        }
        steps.add(4.0, "helo 48 9");
        assert_eq!(steps, Steps { held: vec![(1.0, 16), (3.0, 32)], waited_seconds: 0.06 });
    }
}
