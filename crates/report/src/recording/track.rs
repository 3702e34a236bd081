//! Values over time, in bounded memory.

use hugepilot_record::recording::MetricKind;

/// Slices of a track at most. Beyond, neighbours are merged.
pub(crate) const MAX_SLICES: usize = 20_000;

/// Slice of time, in seconds since the start of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Its end.
    pub end: f64,
    /// Its length.
    pub length: f64,
}

/// Values over time: a column for each metric, NaN where none was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    kinds: Vec<MetricKind>,
    slots: Vec<Slot>,
    columns: Vec<Vec<f64>>,
    /// Slices of the recording in each slot, except the last.
    merged: usize,
    /// Slices of the recording in the last slot.
    filled: usize,
}

impl Track {
    /// A track without slices, with a column for each of `kinds`.
    pub(crate) fn new(kinds: Vec<MetricKind>) -> Self {
        let columns = vec![Vec::new(); kinds.len()];
        Self { kinds, slots: Vec::new(), columns, merged: 1, filled: 0 }
    }

    /// Slices, in order of time.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Values of a column, one for each slice.
    pub fn column(&self, column: usize) -> &[f64] {
        &self.columns[column]
    }

    /// Slices of the recording in each slice of this track.
    pub const fn merged(&self) -> usize {
        self.merged
    }

    /// Adds a slice; values beyond the columns are ignored, missing ones are NaN.
    pub(crate) fn push(&mut self, slot: Slot, values: &[Option<f64>]) {
        let value = |at: usize| values.get(at).copied().flatten().unwrap_or(f64::NAN);
        let first = self.slots.len().saturating_sub(1);
        for at in 0..self.columns.len() {
            self.columns[at].push(value(at));
        }
        self.slots.push(slot);
        if self.filled == 0 || self.filled == self.merged {
            self.filled = 1;
        } else {
            self.merge(first);
            self.filled += 1;
        }
        if self.slots.len() > MAX_SLICES {
            *self = self.halved();
        }
    }

    /// Merges the last slice into the one before, at `first`.
    fn merge(&mut self, first: usize) {
        let Some(last) = self.slots.pop() else { return };
        self.slots[first].end = last.end;
        self.slots[first].length += last.length;
        for (column, kind) in self.columns.iter_mut().zip(&self.kinds) {
            if let Some(value) = column.pop() {
                column[first] = joined(*kind, column[first], value);
            }
        }
    }

    /// The track with pairs of slices merged.
    fn halved(&self) -> Self {
        let mut half = Self::new(self.kinds.clone());
        half.merged = 2;
        for (at, slot) in self.slots.iter().enumerate() {
            let values: Vec<Option<f64>> =
                self.columns.iter().map(|column| Some(column[at])).collect();
            half.push(*slot, &values);
        }
        half.filled =
            if self.slots.len().is_multiple_of(2) { self.merged * 2 } else { self.filled };
        half.merged = self.merged * 2;
        half
    }

    /// The track with slices merged to at least `length` seconds.
    pub(crate) fn resliced(&self, length: f64) -> Self {
        let mut track = Self::new(self.kinds.clone());
        // No limit of their number: there are fewer than in this track.
        track.merged = usize::MAX;
        for (at, slot) in self.slots.iter().enumerate() {
            let values: Vec<Option<f64>> =
                self.columns.iter().map(|column| Some(column[at])).collect();
            // Slices are never exactly as long as asked.
            if track.slots.last().is_none_or(|last| last.length >= 0.95 * length) {
                track.filled = 0;
            }
            track.push(*slot, &values);
        }
        track.merged = self.merged;
        track
    }
}

/// Value of two neighbouring slices together. A counter that was not read in one of them is
/// unknown for both.
fn joined(kind: MetricKind, first: f64, second: f64) -> f64 {
    match kind {
        MetricKind::Counter => first + second,
        MetricKind::Gauge if second.is_nan() => first,
        MetricKind::Gauge => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [MetricKind; 2] = [MetricKind::Counter, MetricKind::Gauge];

    fn track(slices: usize) -> Track {
        let mut track = Track::new(KINDS.to_vec());
        for at in 1..=slices {
            let value = Some(at as f64);
            track.push(Slot { end: at as f64, length: 1.0 }, &[Some(1.0), value]);
        }
        track
    }

    #[test]
    fn long_recordings_keep_sums_ends_and_lengths() {
        for slices in [1, 7, MAX_SLICES, MAX_SLICES + 1, 2 * MAX_SLICES + 3, 5 * MAX_SLICES + 1] {
            let track = track(slices);
            assert!(track.slots().len() <= MAX_SLICES, "{slices}");
            assert!(track.slots().len() * 2 >= slices.min(MAX_SLICES), "{slices}");
            assert_eq!(track.column(0).iter().sum::<f64>(), slices as f64);
            let lengths: f64 = track.slots().iter().map(|slot| slot.length).sum();
            assert_eq!(lengths, slices as f64);
            for (slot, (count, gauge)) in
                track.slots().iter().zip(track.column(0).iter().zip(track.column(1)))
            {
                assert_eq!((slot.length, slot.end), (*count, *gauge), "{slices}");
                assert!(slot.length <= track.merged() as f64);
            }
        }
    }

    #[test]
    fn a_slice_that_was_not_read_makes_a_counter_unknown() {
        let mut track = Track::new(KINDS.to_vec());
        let slot = |end| Slot { end, length: 1.0 };
        track.push(slot(1.0), &[Some(3.0), Some(7.0)]);
        track.push(slot(2.0), &[None, None]);
        track.push(slot(3.0), &[Some(2.0)]);
        let merged = track.resliced(2.0);
        assert_eq!(merged.slots().len(), 2);
        assert!(merged.column(0)[0].is_nan());
        assert_eq!((merged.column(0)[1], merged.column(1)[0]), (2.0, 7.0));
        assert!(merged.column(1)[1].is_nan());
    }
}
