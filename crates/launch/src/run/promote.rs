//! Puts all memory of a running program on huge pages, again and again, as it grows.

use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, usage};
use hugepilot_record::{Outcome, Pid, Stop};

use hugepilot_manager::act::Guard;
use hugepilot_manager::tune::{open, promote_all};

/// The first time so soon: a program that runs for a second shall have huge pages for most of it.
const FIRST: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(250);
/// We rest so many times as long as it took.
const REST: u32 = 4;

/// When to promote next, and what kept us from it.
pub(super) struct Promoter {
    next: Instant,
    promoted: bool,
    refused: Option<String>,
}

impl Promoter {
    pub(super) fn new() -> Self {
        Self { next: Instant::now() + FIRST, promoted: false, refused: None }
    }

    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Promotes what `pid` and those it started have.
    pub(super) fn promote(&mut self, pid: Pid, interrupted: &dyn Fn() -> bool) {
        let begun = Instant::now();
        let held = usage::family(&Root::live(), pid)
            .into_iter()
            .filter_map(|pid| Some((pid, open(pid).ok()?)));
        let held: Vec<_> = held.collect();
        // Before it was opened, a number may have gone to a process of somebody else. One that we hold is of the family if its
        // number still is.
        let family = usage::family(&Root::live(), pid);
        for (_, process) in held.iter().filter(|(pid, _)| family.contains(pid)) {
            // It may end at any moment: that is no refusal.
            let Ok(journal) = promote_all(process, &Guard::default(), interrupted) else {
                continue;
            };
            self.promoted |= journal.acts.iter().any(|act| act.outcome == Outcome::Verified);
            self.refused = match journal.stopped {
                None | Some(Stop::Interrupted | Stop::TargetGone | Stop::TargetExeced) => {
                    self.refused.take()
                }
                Some(stop) => {
                    Some(format!("its memory was not put on huge pages from outside: {stop}"))
                }
            };
        }
        self.next = Instant::now() + PAUSE.max(begun.elapsed() * REST);
    }

    /// Why nothing was promoted, where that was not for want of anything to promote.
    pub(super) fn why_not(&self) -> Option<String> {
        self.refused.clone().filter(|_| !self.promoted)
    }
}
