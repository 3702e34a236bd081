//! Process that returns the regions of a trial to base pages if this one is killed.

mod journal; // file of open trials

use std::io::{self, Write};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_manager::trial_guard::{TrialGuard, open_trials};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub(crate) use journal::recover;
use journal::{StateJournal, report_returned};

use crate::tune::undo;

/// First argument of the process, which is not a command: users do not start it.
pub(crate) const ARGUMENT: &str = "guard-trials";

/// Longest time that a killed process takes to end. A system call that allocates huge pages ends
/// first.
const LONGEST_END: Duration = Duration::from_secs(10);

/// Returns a guard that starts at the first trial. It and the journal are missed only after
/// SIGKILL, so their errors are ignored.
pub(crate) fn new() -> Arc<TrialGuard> {
    let (mut guard, mut journal) = (Guard::NotStarted, StateJournal::default());
    Arc::new(TrialGuard::new(move |line, is_any_open| {
        let _ = if is_any_open { journal.add(line) } else { journal.clear() };
        guard.send(line, start);
    }))
}

/// Pipe to the process.
enum Guard<W> {
    NotStarted,
    Started(W),
    /// Not started, or killed. No further try.
    Failed,
}

impl<W: Write> Guard<W> {
    fn send(&mut self, line: &[u8], start: impl FnOnce() -> io::Result<W>) {
        if matches!(self, Self::NotStarted) {
            *self = start().map_or(Self::Failed, Self::Started);
        }
        if let Self::Started(pipe) = self
            && pipe.write_all(line).and_then(|()| pipe.flush()).is_err()
        {
            *self = Self::Failed;
        }
    }
}

/// Starts the process in a group of its own, which Ctrl-C does not reach.
fn start() -> io::Result<ChildStdin> {
    let mut child = Command::new("/proc/self/exe")
        .arg(ARGUMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    child.stdin.take().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Runs as that process.
pub(crate) fn run() -> ExitCode {
    // A signal to both must not end the guard before the other one.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let parent = parent_id();
    let promotions = open_trials(io::stdin().lock());
    wait_for_end(parent);
    let report = undo::all(&promotions, false, 0, &|| false);
    report_returned(&report);
    // The other one's journal has the same regions, which are returned now.
    journal::recover();
    ExitCode::SUCCESS
}

/// Waits until process `parent` has ended. A process that is killed closes its files one after
/// another: the pipe may end while the process still holds its claim on the target.
fn wait_for_end(parent: u32) {
    let begin = Instant::now();
    while parent_id() == parent && begin.elapsed() < LONGEST_END {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_cannot_start_is_not_tried_again() {
        let mut tries = 0;
        let mut guard: Guard<Vec<u8>> = Guard::NotStarted;
        for _ in 0..2 {
            guard.send(b"a\n", || {
                tries += 1;
                Err(io::ErrorKind::NotFound.into())
            });
        }
        assert_eq!(tries, 1);
        let mut guard = Guard::NotStarted;
        guard.send(b"a\n", || Ok(Vec::new()));
        guard.send(b"b\n", || unreachable!("it runs"));
        assert!(matches!(guard, Guard::Started(lines) if lines == b"a\nb\n"));
    }
}
