//! Stall samples by thread.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_record::{Pid, Tid};
use hugepilot_recording::ThreadStalls;

/// Threads of a slice: those with the most samples.
const MAX_THREADS: usize = 64;
/// Threads that are counted within a slice.
const MAX_COUNTED: usize = 4096;

/// Samples of the threads of a process since the last slice: all, and the scattered ones.
#[derive(Default)]
pub(super) struct ThreadStallCounts(BTreeMap<Tid, (u32, u32)>);

impl ThreadStallCounts {
    /// Counts a sample.
    pub(super) fn add(&mut self, tid: Tid, is_scattered: bool) {
        if self.0.len() >= MAX_COUNTED && !self.0.contains_key(&tid) {
            return;
        }
        let counts = self.0.entry(tid).or_default();
        counts.0 += 1;
        counts.1 += u32::from(is_scattered);
    }

    /// Returns the threads of a slice that ends, and forgets them; none if all samples are of the
    /// first thread.
    pub(super) fn take(&mut self, pid: Pid) -> Vec<ThreadStalls> {
        let counts = std::mem::take(&mut self.0);
        if counts.keys().all(|tid| tid.0 == pid.0) {
            return Vec::new();
        }
        let thread = |(tid, (samples, scattered))| ThreadStalls(tid, samples, scattered);
        let mut threads: Vec<ThreadStalls> = counts.into_iter().map(thread).collect();
        threads.sort_by_key(|thread| Reverse(thread.1));
        threads.truncate(MAX_THREADS);
        threads.sort_by_key(|thread| thread.0);
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_their_samples_once() {
        let mut counts = ThreadStallCounts::default();
        for (tid, is_scattered) in [(9, true), (7, false), (9, false), (9, true)] {
            counts.add(Tid(tid), is_scattered);
        }
        let wanted = [ThreadStalls(Tid(7), 1, 0), ThreadStalls(Tid(9), 3, 2)];
        assert_eq!(counts.take(Pid(7)), wanted);
        assert!(counts.take(Pid(7)).is_empty());
    }

    #[test]
    fn the_first_thread_alone_is_not_listed() {
        let mut counts = ThreadStallCounts::default();
        counts.add(Tid(7), true);
        assert!(counts.take(Pid(7)).is_empty());
        counts.add(Tid(8), true);
        assert_eq!(counts.take(Pid(7)), [ThreadStalls(Tid(8), 1, 1)]);
    }

    #[test]
    fn a_slice_has_the_threads_with_the_most_samples() {
        let mut counts = ThreadStallCounts::default();
        for tid in (1..).take(MAX_COUNTED + 1) {
            (0..if tid % 100 == 0 { 2 } else { 1 }).for_each(|_| counts.add(Tid(tid), true));
        }
        assert_eq!(counts.0.len(), MAX_COUNTED);
        let threads = counts.take(Pid(1));
        assert_eq!(threads.len(), MAX_THREADS);
        assert!(threads.is_sorted_by_key(|thread| thread.0));
        let twice: Vec<i32> =
            threads.iter().filter(|thread| thread.1 == 2).map(|thread| thread.0.0).collect();
        assert_eq!(twice, (1..=40).map(|number| 100 * number).collect::<Vec<_>>());
    }
}
