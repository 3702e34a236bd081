//! Trial guard: returns the regions of a trial to base pages if hugepilot is killed during the
//! trial.
//!
//! A process that SIGKILL ends cannot act. So a second process, the guard, reads from a pipe which
//! regions a trial is about to promote, and when a trial has ended. The end of the pipe is the end
//! of hugepilot: the guard returns what is left. The same lines are in a journal as long as a trial
//! is open. If the guard is killed, too, as at the end of a container, the next start reads it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead};
use std::sync::{Mutex, PoisonError};

use hugepilot_record::{Pid, ProcessId, ProcessSnapshot, Promotion};
use serde::{Deserialize, Serialize};

use crate::undo::{Promoted, Promotions};

/// Longest message: about a megabyte for the largest trial.
const MAX_MESSAGE: u64 = 16 << 20;

/// Takes a line for the guard and the journal, and whether a trial is open after it.
type Announce = dyn FnMut(&[u8], bool) + Send;

/// Line on the pipe and in the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// A trial is about to promote these regions.
    Begins(Promoted),
    /// The regions of the trial of this process are kept, or on base pages.
    Ended(ProcessId),
}

/// Connection to the guard and the journal.
pub struct TrialGuard(Mutex<Connection>);

struct Connection {
    announce: Box<Announce>,
    /// Processes in a trial.
    trials: BTreeSet<(Pid, u64)>,
}

impl fmt::Debug for TrialGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrialGuard")
    }
}

impl TrialGuard {
    /// Makes a connection that `announce` keeps: it writes each line to the guard and the journal.
    pub fn new(announce: impl FnMut(&[u8], bool) + Send + 'static) -> Self {
        let announce = Box::new(announce);
        Self(Mutex::new(Connection { announce, trials: BTreeSet::new() }))
    }

    /// Announces the promotions of a trial, before the first of them. Only regions on base pages
    /// may be returned to them.
    pub(crate) fn begins(&self, seen: &ProcessSnapshot, promote: &[Promotion]) {
        let regions = promote.iter().map(|promotion| promotion.region);
        let regions = regions.filter(|&region| !seen.memory.is_huge(region)).collect();
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
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = message(&mut connection) else { return };
        let Ok(mut line) = serde_json::to_vec(&message) else { return };
        line.push(b'\n');
        let is_any_open = !connection.trials.is_empty();
        (connection.announce)(&line, is_any_open);
    }
}

/// Reads the pipe or the journal to its end. Returns the promotions of the trials that had not
/// ended.
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
