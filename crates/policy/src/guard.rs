//! Guard of promotions: what ends a round, or pauses it, while it is carried out. That of splits is
//! [`SplitGuard`].

mod splits;

use hugepilot_record::{Act, ActOutcome, Errno, Stop};
use hugepilot_units::{Nanos, Region};

use crate::Limits;

pub use splits::SplitGuard;

/// Regions between two readings of the memory pressure, which changes within seconds.
const PRESSURE_EVERY: usize = 16;
/// Failures for lack of memory in a row after which no huge page is free.
const NO_HUGE_PAGES: usize = 3;
/// Rest after a slow collapse, as a multiple of its duration. The kernel, or the host of a virtual
/// machine, is busy, and nine tenths of the time remain for other work.
const REST: u64 = 10;
/// Longest rest after a slow collapse.
const MAX_REST: Nanos = Nanos::seconds(1);
/// Slow collapses of a process after which a round ends.
const MAX_SLOW: u32 = 20;

/// Limits that end a round of promotions.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Longest collapse. During a longer one, the kernel compacts or reclaims memory (as tcmalloc
    /// found).
    pub max_collapse: Nanos,
    /// Regions in a row with the same failure that end the round.
    pub max_failures: usize,
    /// Safety rules of the policy, which are checked again.
    pub limits: Limits,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_collapse: Nanos::millis(30), max_failures: 8, limits: Limits::default() }
    }
}

impl Guard {
    /// Whether the memory pressure is read before the promotion with this index.
    pub const fn reads_pressure(index: usize) -> bool {
        index.is_multiple_of(PRESSURE_EVERY)
    }

    /// Cause to stop after the last of `acts`; `None` if there is none. `has_pages`: whether a
    /// region has resident pages.
    pub fn stop_after(&self, acts: &[Act], has_pages: &dyn Fn(Region) -> bool) -> Option<Stop> {
        let last = acts.last()?;
        match last.outcome {
            ActOutcome::Failed(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => {
                return Some(Stop::NotPermitted);
            }
            ActOutcome::Failed(Errno::ESRCH) => return Some(Stop::TargetGone),
            ActOutcome::Failed(Errno::EBUSY) => return Some(Stop::CgroupFull),
            _ => {}
        }
        let slow = (last.took > self.max_collapse).then_some(Stop::SlowCollapse);
        self.repeated(acts, has_pages).or(slow)
    }

    /// Cause to stop after equal failures in a row; `None` if there is none.
    fn repeated(&self, acts: &[Act], has_pages: &dyn Fn(Region) -> bool) -> Option<Stop> {
        let last = acts.last()?;
        let same = acts.iter().rev().take_while(|act| act.outcome == last.outcome).count();
        match last.outcome {
            ActOutcome::Verified => None,
            // A hole fails in the same way, but a region with resident pages is not one.
            ActOutcome::Failed(Errno::ENOMEM)
                if same >= NO_HUGE_PAGES && has_pages(last.region) =>
            {
                Some(Stop::NoHugePages)
            }
            _ => (same >= self.max_failures).then_some(Stop::RepeatedFailure),
        }
    }

    /// Returns the rest after which a round goes on that `stop` interrupted, at the last act, which
    /// took `took`; `None` if the round ends. `slow` counts its slow collapses.
    pub fn rest(stop: Stop, took: Nanos, slow: u32) -> Option<Nanos> {
        let goes_on = stop == Stop::SlowCollapse && slow < MAX_SLOW;
        goes_on.then(|| Nanos::new(took.get().saturating_mul(REST)).min(MAX_REST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(outcome: ActOutcome, took: Nanos) -> Act {
        Act { region: Region::new(1), took, calls: 1, outcome }
    }

    #[test]
    fn failures_for_lack_of_memory_end_a_round_only_where_there_are_pages() {
        let guard = Guard::default();
        let failed = vec![act(ActOutcome::Failed(Errno::ENOMEM), Nanos::ZERO); 8];
        let after = |count, has_pages| guard.stop_after(&failed[..count], &|_| has_pages);
        assert_eq!([after(2, true), after(3, true)], [None, Some(Stop::NoHugePages)]);
        assert_eq!([after(7, false), after(8, false)], [None, Some(Stop::RepeatedFailure)]);
    }

    #[test]
    fn a_round_rests_after_each_of_twenty_slow_collapses() {
        let guard = Guard::default();
        let slow = |millis| act(ActOutcome::Verified, Nanos::millis(millis));
        let after = |millis| guard.stop_after(&[slow(millis)], &|_| true);
        assert_eq!([after(30), after(31)], [None, Some(Stop::SlowCollapse)]);
        let rest = |millis, slow| Guard::rest(Stop::SlowCollapse, Nanos::millis(millis), slow);
        assert_eq!(rest(40, 1), Some(Nanos::millis(400)));
        assert_eq!(rest(400, 19), Some(Nanos::seconds(1)));
        assert_eq!(rest(40, 20), None);
        assert_eq!(Guard::rest(Stop::NoHugePages, Nanos::ZERO, 0), None);
    }

    #[test]
    fn pressure_is_read_before_some_promotions() {
        let read: Vec<usize> = (0..40).filter(|&index| Guard::reads_pressure(index)).collect();
        assert_eq!(read, [0, 16, 32]);
    }
}
