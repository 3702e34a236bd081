//! Stall samples of stacks over time, in bounded memory.

use std::collections::HashMap;

/// Events of a process at most. Beyond, neighbouring slices are merged until there is room: a merge
/// of slices without a common stack makes none. There are fewer stacks, so that one slice fits.
const MAX_EVENTS: usize = 1_000_000;

/// Samples of a stack in a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StackEvent {
    /// End of the slice, in seconds since the start of the recording.
    pub end: f64,
    /// Index of the stack.
    pub stack: usize,
    /// Samples.
    pub samples: u64,
}

/// Samples of stacks over time.
#[derive(Clone, Debug, PartialEq)]
pub struct StackEvents {
    all: Vec<StackEvent>,
    /// Slices of the recording in each slice, except the last.
    merged: usize,
    /// Slices of the recording in the last slice.
    filled: usize,
    /// End of the last slice.
    end: f64,
    /// First event of the last slice.
    first: usize,
    /// Event of each stack in the last slice.
    last: HashMap<usize, usize>,
}

impl Default for StackEvents {
    fn default() -> Self {
        let (all, last) = (Vec::new(), HashMap::new());
        Self { all, merged: 1, filled: 0, end: 0.0, first: 0, last }
    }
}

impl StackEvents {
    /// Events, in order of time.
    pub fn all(&self) -> &[StackEvent] {
        &self.all
    }

    /// Slices of the recording in each slice.
    pub const fn merged(&self) -> usize {
        self.merged
    }

    /// Begins a slice of the recording that ends at `end`.
    pub(crate) fn begin(&mut self, end: f64) {
        if self.filled == self.merged {
            self.filled = 0;
            self.first = self.all.len();
            self.last.clear();
        }
        self.filled += 1;
        self.end = end;
        self.all[self.first..].iter_mut().for_each(|event| event.end = end);
    }

    /// Adds samples to that slice.
    pub(crate) fn add(&mut self, stack: usize, samples: u64) {
        self.push(stack, samples);
        // One slice cannot be merged any more.
        while self.all.len() > MAX_EVENTS && self.first > 0 {
            *self = self.halved();
        }
    }

    /// Adds samples without a limit of the events.
    fn push(&mut self, stack: usize, samples: u64) {
        let next = self.all.len();
        let at = *self.last.entry(stack).or_insert(next);
        if at == next {
            self.all.push(StackEvent { end: self.end, stack, samples: 0 });
        }
        self.all[at].samples += samples;
    }

    /// The same with pairs of slices merged.
    fn halved(&self) -> Self {
        let mut half = Self { merged: 2, ..Self::default() };
        let mut end = None;
        for event in &self.all {
            if end.replace(event.end) != Some(event.end) {
                half.begin(event.end);
            }
            half.push(event.stack, event.samples);
        }
        let before = if half.filled == 2 { self.merged } else { 0 };
        half.filled = before + self.filled;
        half.merged = self.merged * 2;
        half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two stacks, one of them in each second slice.
    fn events(slices: usize) -> StackEvents {
        let mut events = StackEvents::default();
        for slice in 1..=slices {
            events.begin(slice as f64);
            events.add(0, 2);
            events.add(0, 1);
            if slice.is_multiple_of(2) {
                events.add(1, 1);
            }
        }
        events
    }

    #[test]
    fn long_recordings_keep_their_samples_and_ends() {
        let most = MAX_EVENTS / 3 * 2;
        for (slices, merged) in [(1, 1), (7, 1), (most, 1), (most + 4, 2), (3 * most, 4)] {
            let events = events(slices);
            assert_eq!(events.merged(), merged, "{slices}");
            assert!(events.all().len() <= MAX_EVENTS, "{slices}");
            let sum = |stack| {
                let own = events.all().iter().filter(|event| event.stack == stack);
                own.map(|event| event.samples).sum::<u64>()
            };
            assert_eq!([sum(0), sum(1)], [3 * slices as u64, slices as u64 / 2], "{slices}");
            let mut before = 0.0;
            for pair in events.all().chunk_by(|a, b| a.end == b.end) {
                let slices = pair[0].end - before;
                assert_eq!(pair[0].samples as f64, 3.0 * slices, "{pair:?}");
                assert!(slices <= merged as f64 && pair.len() <= 2, "{pair:?}");
                before = pair[0].end;
            }
            assert_eq!(before, slices as f64);
        }
    }

    /// Slices of `each` stacks; neighbours have none in common, as `sets` of them take turns.
    fn distinct(slices: usize, each: usize, sets: usize) -> StackEvents {
        let mut events = StackEvents::default();
        for slice in 0..slices {
            events.begin(slice as f64 + 1.0);
            (0..each).for_each(|stack| events.add(slice % sets * each + stack, 1));
        }
        events
    }

    #[test]
    fn slices_without_common_stacks_are_merged_until_there_is_room() {
        let each = MAX_EVENTS / 4 + 1;
        let mut events = distinct(4, each, 2);
        assert_eq!((events.merged(), events.all().len()), (4, 2 * each));
        assert!(events.all().iter().all(|event| (event.end, event.samples) == (4.0, 2)));
        events.begin(5.0);
        events.add(0, 1);
        let last = StackEvent { end: 5.0, stack: 0, samples: 1 };
        assert_eq!(events.all()[2 * each..], [last]);
    }

    #[test]
    fn more_stacks_than_events_are_one_slice() {
        let each = MAX_EVENTS / 3 + 1;
        let mut events = distinct(3, each, 3);
        assert_eq!((events.merged(), events.all().len()), (4, 3 * each));
        events.begin(4.0);
        assert!(events.all().iter().all(|event| (event.end, event.samples) == (4.0, 1)));
        events.begin(5.0);
        events.add(0, 1);
        assert_eq!((events.merged(), events.all().len()), (8, 3 * each));
        assert_eq!((events.all()[0].end, events.all()[0].samples), (5.0, 2));
    }
}
