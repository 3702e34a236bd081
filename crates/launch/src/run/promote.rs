//! Promotion of all memory of a running program, repeated as it grows.

use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, usage};
use hugepilot_manager::tune::{open, promote_where};
use hugepilot_policy::Guard;
use hugepilot_record::{Pid, Stop};

use crate::effect::PromotionObstacle;

/// Time until the first promotion: a program that runs for a second has huge pages for most of it.
const FIRST: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(250);
/// Pause after a promotion, as a multiple of its time.
const REST: u32 = 4;

/// Promoter of one program and its descendants.
pub(super) struct Promoter {
    next: Instant,
    promoted: bool,
    stopped: Option<Stop>,
}

impl Promoter {
    pub(super) fn new() -> Self {
        Self { next: Instant::now() + FIRST, promoted: false, stopped: None }
    }

    /// Time of the next promotion.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Promotes all memory of `pid` and its descendants.
    pub(super) fn promote(&mut self, pid: Pid, interrupted: &dyn Fn() -> bool) {
        let begun = Instant::now();
        let opened = usage::family(&Root::live(), pid)
            .into_iter()
            .filter_map(|pid| Some((pid, open(pid).ok()?)));
        let opened: Vec<_> = opened.collect();
        // The kernel may reuse a pid before it is opened. An opened process is a descendant if its
        // pid still is.
        let family = usage::family(&Root::live(), pid);
        for (_, process) in opened.iter().filter(|(pid, _)| family.contains(pid)) {
            // A process may end at any time; that is not an obstacle.
            let guard = Guard::default();
            let Ok(journal) = promote_where(process, &|_| true, &guard, interrupted) else {
                continue;
            };
            self.promoted |= journal.verified() > 0;
            self.stopped = match journal.stopped {
                None | Some(Stop::Interrupted | Stop::TargetGone | Stop::TargetExeced) => {
                    self.stopped
                }
                stop => stop,
            };
        }
        self.next = Instant::now() + PAUSE.max(begun.elapsed() * REST);
    }

    /// Returns what stopped promotion, if nothing was promoted.
    pub(super) fn obstacle(&self) -> Option<PromotionObstacle> {
        self.stopped.filter(|_| !self.promoted).map(PromotionObstacle::Stopped)
    }
}
