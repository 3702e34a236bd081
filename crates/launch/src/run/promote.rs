//! Promotion of all memory of a running program, repeated as it grows.

use std::time::{Duration, Instant};

use hugepilot_kernel::{Root, usage};
use hugepilot_manager::tune::{open, promote_where};
use hugepilot_policy::Guard;
use hugepilot_record::{Pid, Stop};

use crate::effect::{PromotionObstacle, Promotions};

/// Pause before the first promotion, and after one that found something to promote: the program
/// may have grown meanwhile. A program that runs for a second has huge pages for most of it.
const SOON: Duration = Duration::from_millis(50);
/// Shortest pause after one that found nothing.
const PAUSE: Duration = Duration::from_millis(250);
/// The same pause as a multiple of its time, in which it only read the memory of the program.
const REST: u32 = 4;

/// Promoter of one program and its descendants.
pub(super) struct Promoter {
    next: Instant,
    done: Promotions,
}

impl Promoter {
    pub(super) fn new() -> Self {
        Self { next: Instant::now() + SOON, done: Promotions::default() }
    }

    /// Time of the next promotion.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Promotes all memory of `pid` and its descendants.
    pub(super) fn promote(&mut self, pid: Pid, interrupted: &dyn Fn() -> bool) {
        let (begun, before) = (Instant::now(), self.done.regions);
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
            let Ok(attempts) = promote_where(process, &|_| true, &guard, interrupted) else {
                continue;
            };
            self.done.regions += attempts.verified();
            self.done.stopped = match attempts.stopped {
                None | Some(Stop::Interrupted | Stop::TargetGone | Stop::TargetExeced) => {
                    self.done.stopped
                }
                stop => stop,
            };
        }
        let took = begun.elapsed();
        self.done.time += took;
        self.next = Instant::now() + pause(took, self.done.regions > before);
    }

    /// Returns what was promoted so far.
    pub(super) const fn promotions(&self) -> Promotions {
        self.done
    }

    /// Returns what stopped promotion, if nothing was promoted.
    pub(super) fn obstacle(&self) -> Option<PromotionObstacle> {
        self.done.stopped.filter(|_| self.done.regions == 0).map(PromotionObstacle::Stopped)
    }
}

/// Pause after a promotion that took `took`, and may have found something.
fn pause(took: Duration, has_promoted: bool) -> Duration {
    if has_promoted { SOON } else { PAUSE.max(took * REST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_promotion_that_found_nothing_rests_for_a_multiple_of_its_time() {
        let seconds = Duration::from_secs;
        assert_eq!(pause(seconds(1), false), seconds(4));
        assert_eq!(pause(Duration::ZERO, false), PAUSE);
        assert_eq!(pause(seconds(1), true), SOON);
    }
}
