//! Guard of splits: what ends the splits of a process, and when its mappings are read again.

use hugepilot_record::{Errno, SplitOutcome, Stop};
use hugepilot_units::{Bytes, Nanos};

/// Splits in a row with the same outcome and nothing freed, after which a process is skipped.
const MAX_FUTILE: usize = 64;
/// Shortest time between two reads of the mappings. A program can lock or watch memory at any time.
const READ_EVERY: Nanos = Nanos::seconds(1);
/// Pause after a read of the mappings, in multiples of its duration. A read walks all page tables,
/// and blocks `mmap` of the program meanwhile.
const READ_REST: u64 = 20;

/// Guard of the splits of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SplitGuard {
    /// Last outcome, and how many in a row were the same.
    last: Option<SplitOutcome>,
    count: usize,
    /// Time of the next read of the mappings; `None` before the first.
    next_read: Option<Nanos>,
}

impl SplitGuard {
    /// Adds an outcome. Regions that had changed before their split do not count.
    pub fn note(&mut self, outcome: SplitOutcome) {
        if matches!(outcome, SplitOutcome::Skipped(_)) {
            return;
        }
        self.count = if self.last == Some(outcome) { self.count + 1 } else { 1 };
        self.last = Some(outcome);
    }

    /// Cause to skip the process from now on. A split that freed nothing is futile.
    pub fn stop(&self) -> Option<Stop> {
        match self.last? {
            SplitOutcome::Failed(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => {
                Some(Stop::NotPermitted)
            }
            SplitOutcome::Failed(Errno::ESRCH) => Some(Stop::TargetGone),
            SplitOutcome::Freed(bytes) if bytes > Bytes::ZERO => None,
            _ => (self.count >= MAX_FUTILE).then_some(Stop::RepeatedFailure),
        }
    }

    /// Whether the mappings are read before the next split.
    pub fn reads_mappings(&self, now: Nanos) -> bool {
        self.next_read.is_none_or(|next| now >= next)
    }

    /// Whether the mappings were read.
    pub const fn has_read(&self) -> bool {
        self.next_read.is_some()
    }

    /// Adds a read of the mappings.
    pub fn note_read(&mut self, begun: Nanos, ended: Nanos) {
        let rest = Nanos::new((ended - begun).get().saturating_mul(READ_REST));
        self.next_read = Some(ended + READ_EVERY.max(rest));
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::SkipReason;

    use super::*;

    #[test]
    fn a_process_that_gives_nothing_is_skipped() {
        let stop = |outcomes: &[SplitOutcome]| {
            let mut guard = SplitGuard::default();
            outcomes.iter().for_each(|&outcome| guard.note(outcome));
            guard.stop()
        };
        let freed = SplitOutcome::Freed(Bytes::kib(4));
        assert_eq!(stop(&[]), None);
        assert_eq!(stop(&[freed; 200]), None);
        assert_eq!(stop(&[freed, SplitOutcome::Failed(Errno::EPERM)]), Some(Stop::NotPermitted));
        assert_eq!(stop(&[SplitOutcome::Failed(Errno::ESRCH)]), Some(Stop::TargetGone));
        let mut futile = [SplitOutcome::StillHuge; MAX_FUTILE];
        assert_eq!(stop(&futile[1..]), None);
        assert_eq!(stop(&futile), Some(Stop::RepeatedFailure));
        futile[MAX_FUTILE / 2] = freed;
        assert_eq!(stop(&futile), None);
        let nothing = [SplitOutcome::Freed(Bytes::ZERO); MAX_FUTILE];
        assert_eq!(stop(&nothing), Some(Stop::RepeatedFailure), "a split that frees nothing");
        let changed = [SplitOutcome::Skipped(SkipReason::AlreadySplit); 1000];
        assert_eq!(stop(&changed), None, "memory that the program freed itself");
        let between = [SplitOutcome::StillHuge, changed[0]].repeat(MAX_FUTILE);
        assert_eq!(stop(&between), Some(Stop::RepeatedFailure));
    }

    #[test]
    fn mappings_are_read_each_second_and_rarely_if_that_takes_long() {
        let mut guard = SplitGuard::default();
        let second = Nanos::seconds(1);
        assert!(guard.reads_mappings(Nanos::ZERO) && !guard.has_read());
        guard.note_read(second, second + Nanos::millis(1));
        assert!(guard.has_read() && !guard.reads_mappings(Nanos::millis(2000)));
        assert!(guard.reads_mappings(Nanos::millis(2001)));
        guard.note_read(second, second + Nanos::millis(200));
        assert!(!guard.reads_mappings(Nanos::millis(5199)));
        assert!(guard.reads_mappings(Nanos::millis(5200)));
    }
}
