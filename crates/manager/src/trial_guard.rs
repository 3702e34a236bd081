//! Trial guard: returns the regions of a trial to base pages if hugepilot is killed during the
//! trial.
//!
//! A process that SIGKILL ends cannot act. So a second process, the guard, reads from a pipe which
//! regions a trial is about to promote, and when a trial has ended. The end of the pipe is the end
//! of hugepilot: the guard returns what is left. A guard that cannot be started, or was killed
//! itself, is missed only then, so its errors are ignored.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::{Mutex, PoisonError};

use hugepilot_record::{Pid, ProcessId, ProcessSnapshot, Promotion};
use serde::{Deserialize, Serialize};

use crate::undo::{Promoted, Promotions};

/// Longest message: about a megabyte for the largest trial.
const MAX_MESSAGE: u64 = 16 << 20;

/// Starts a guard, and returns the pipe to it.
type Start = dyn Fn() -> io::Result<Box<dyn Write + Send>> + Send + Sync;

/// Line on the pipe.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// A trial is about to promote these regions.
    Begins(Promoted),
    /// The regions of the trial of this process are kept, or on base pages.
    Ended(ProcessId),
}

/// Connection to the guard. The first trial starts it.
pub struct TrialGuard {
    start: Box<Start>,
    state: Mutex<Connection>,
}

#[derive(Default)]
struct Connection {
    pipe: Option<Box<dyn Write + Send>>,
    has_failed: bool,
    /// Processes in a trial.
    trials: BTreeSet<(Pid, u64)>,
}

impl fmt::Debug for TrialGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrialGuard")
    }
}

impl TrialGuard {
    /// Makes a connection that `start` opens when a trial begins.
    pub fn new(
        start: impl Fn() -> io::Result<Box<dyn Write + Send>> + Send + Sync + 'static,
    ) -> Self {
        Self { start: Box::new(start), state: Mutex::default() }
    }

    /// Announces the promotions of a trial, before the first of them.
    pub(crate) fn begins(&self, seen: &ProcessSnapshot, promote: &[Promotion]) {
        let regions = promote.iter().map(|promotion| promotion.region).collect();
        let promoted = Promoted::of(seen, regions);
        self.with(|connection| {
            connection.trials.insert((seen.id.pid, seen.id.start_ticks));
            Some(Message::Begins(promoted))
        });
    }

    /// Announces that the process is not in a trial.
    pub(crate) fn ended(&self, id: &ProcessId) {
        self.with(|connection| {
            let was_open = connection.trials.remove(&(id.pid, id.start_ticks));
            was_open.then(|| Message::Ended(id.clone()))
        });
    }

    fn with(&self, message: impl FnOnce(&mut Connection) -> Option<Message>) {
        let mut connection = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = message(&mut connection).filter(|_| !connection.has_failed) else {
            return;
        };
        connection.has_failed = connection.send(&self.start, &message).is_err();
    }
}

impl Connection {
    fn send(&mut self, start: &Start, message: &Message) -> io::Result<()> {
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => none.insert(start()?),
        };
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        pipe.write_all(&line)?;
        pipe.flush()
    }
}

/// Reads the pipe to its end, and returns the promotions of the trials that had not ended.
pub fn open_trials(pipe: impl BufRead) -> Promotions {
    let mut promotions = Promotions::default();
    for message in messages(pipe) {
        match message {
            Message::Begins(promoted) => promotions.begin(promoted),
            Message::Ended(id) => promotions.forget(&id),
        }
    }
    promotions
}

/// Messages up to the end of the pipe, or to an incomplete one.
fn messages(mut pipe: impl BufRead) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        io::Read::take(&mut pipe, MAX_MESSAGE).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    })
}

#[cfg(test)]
mod tests;
