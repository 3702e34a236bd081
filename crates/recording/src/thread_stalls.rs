//! Stall samples of threads over time, in bounded memory.

use std::collections::BTreeMap;

use hugepilot_record::Tid;

use super::track::Slot;
use crate::{HeatSlice, ThreadStalls};

/// Shortest slot: a busy thread has some hundred samples in it.
const SHORTEST: f64 = 0.5;
/// Slots at most. Beyond, neighbours are merged.
const MAX_SLOTS: usize = 400;
/// Threads of a process at most.
const MAX_THREADS: usize = 256;

/// Share of stalls of a thread in each slot; `None` without samples.
pub(crate) type ThreadShares = (Tid, Vec<Option<f64>>);

/// Stall samples of the threads of a process over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadStallTrack {
    /// Length of a slot in seconds; 0 before the first slice.
    length: f64,
    /// All and scattered samples of each slot.
    threads: BTreeMap<Tid, Vec<(u64, u64)>>,
}

impl ThreadStallTrack {
    /// Adds a slice. One without threads is of the first thread.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn add(&mut self, slot: Slot, heat: &HeatSlice) {
        if self.length <= 0.0 {
            // Slices are uneven: each slot must have one.
            self.length = SHORTEST.max(2.0 * slot.length);
        }
        let middle = (slot.end - slot.length / 2.0).max(0.0);
        while middle >= self.length * MAX_SLOTS as f64 {
            self.halve();
        }
        let at = (middle / self.length) as usize;
        let sum = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let first = [ThreadStalls(Tid(heat.pid.0), sum(heat.samples), sum(heat.scattered))];
        let threads = if heat.threads.is_empty() { &first[..] } else { &heat.threads };
        for &ThreadStalls(tid, samples, scattered) in threads {
            if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
                continue;
            }
            let slots = self.threads.entry(tid).or_default();
            if slots.len() <= at {
                slots.resize(at + 1, (0, 0));
            }
            slots[at].0 += u64::from(samples);
            slots[at].1 += u64::from(scattered.min(samples));
        }
    }

    /// Merges pairs of slots.
    fn halve(&mut self) {
        self.length *= 2.0;
        for slots in self.threads.values_mut() {
            let sum = |pair: &[(u64, u64)]| {
                pair.iter().fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
            };
            *slots = slots.chunks(2).map(sum).collect();
        }
    }

    /// Returns the end of each slot, and the shares of the `most` threads with the most samples, in
    /// order of ID. A single thread has none: its share is that of the process.
    pub(crate) fn shares(&self, most: usize) -> (Vec<f64>, Vec<ThreadShares>) {
        if self.threads.len() < 2 {
            return (Vec::new(), Vec::new());
        }
        let total = |slots: &[(u64, u64)]| slots.iter().map(|slot| slot.0).sum::<u64>();
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_key(|(_, slots)| std::cmp::Reverse(total(slots)));
        threads.truncate(most);
        threads.sort_by_key(|(tid, _)| **tid);
        let count = threads.iter().map(|(_, slots)| slots.len()).max().unwrap_or(0);
        let ends = (1..=count).map(|number| number as f64 * self.length).collect();
        let share = |slot: Option<&(u64, u64)>| {
            let &(samples, scattered) = slot?;
            (samples > 0).then(|| scattered as f64 / samples as f64)
        };
        let shares = threads
            .into_iter()
            .map(|(tid, slots)| (*tid, (0..count).map(|at| share(slots.get(at))).collect()));
        (ends, shares.collect())
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_units::Nanos;

    use super::*;

    /// Adds a slice of 100 ms that ends at `end`, of process 7.
    fn add(track: &mut ThreadStallTrack, end: f64, threads: &[ThreadStalls]) {
        let heat = HeatSlice {
            time: Nanos::ZERO,
            length: Nanos::ZERO,
            pid: Pid(7),
            samples: 10,
            addressed: 9,
            scattered: 8,
            regions: Vec::new(),
            mappings: Vec::new(),
            threads: threads.to_vec(),
        };
        track.add(Slot { end, length: 0.1 }, &heat);
    }

    #[test]
    fn the_share_of_each_thread_is_of_its_own_samples() {
        let mut track = ThreadStallTrack::default();
        add(&mut track, 0.1, &[]);
        assert!(track.shares(9).1.is_empty(), "one thread");
        add(&mut track, 0.6, &[ThreadStalls(Tid(7), 4, 1), ThreadStalls(Tid(9), 5, 5)]);
        add(&mut track, 0.7, &[ThreadStalls(Tid(9), 5, 0)]);
        let (ends, shares) = track.shares(9);
        assert_eq!(ends, [0.5, 1.0]);
        let wanted = [(Tid(7), vec![Some(0.8), Some(0.25)]), (Tid(9), vec![None, Some(0.5)])];
        assert_eq!(shares, wanted);
        assert_eq!(track.shares(1).1[0].0, Tid(7), "the most samples");
    }

    #[test]
    fn a_long_recording_has_longer_slots() {
        let mut track = ThreadStallTrack::default();
        for tenth in 1..=5000 {
            let both = [ThreadStalls(Tid(7), 1, 1), ThreadStalls(Tid(8), 2, 1)];
            add(&mut track, f64::from(tenth) / 10.0, &both);
        }
        let (ends, shares) = track.shares(9);
        assert_eq!((ends.len(), ends[0]), (250, 2.0));
        assert!(shares[1].1.iter().all(|share| *share == Some(0.5)));
        let samples = |tid| track.threads[&Tid(tid)].iter().map(|slot| slot.0).sum::<u64>();
        assert_eq!((samples(7), samples(8)), (5000, 10_000));
    }

    #[test]
    fn threads_are_bounded() {
        let mut track = ThreadStallTrack::default();
        for tid in 0..1000 {
            add(&mut track, 0.1, &[ThreadStalls(Tid(tid), 1, 1)]);
        }
        assert_eq!(track.threads.len(), MAX_THREADS);
    }
}
