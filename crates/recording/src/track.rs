//! Values over time, in bounded memory.

use hugepilot_record::MetricKind;

use super::multiplexing::GroupTimes;

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
    /// Seconds that each value covers, once slices were merged: not each slice has all metrics.
    spans: Option<Vec<Vec<f64>>>,
    /// Times of the groups of events.
    pub(crate) groups: GroupTimes,
    /// Slices of the recording in each slot, except the last.
    merged: usize,
    /// Slices of the recording in the last slot.
    filled: usize,
}

/// Value of a column of a slice, and the seconds that it covers.
type Spanned<'a> = &'a dyn Fn(usize) -> (f64, f64);

impl Track {
    /// A track without slices, with a column for each of `kinds`.
    pub(crate) fn new(kinds: Vec<MetricKind>) -> Self {
        let columns = vec![Vec::new(); kinds.len()];
        let (slots, groups) = (Vec::new(), GroupTimes::default());
        Self { kinds, slots, columns, spans: None, groups, merged: 1, filled: 0 }
    }

    /// Slices, in order of time.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Values of a column, one for each slice.
    pub fn column(&self, column: usize) -> &[f64] {
        &self.columns[column]
    }

    /// Seconds that a value covers; of a value that was not measured, any number.
    pub(crate) fn span(&self, column: usize, at: usize) -> f64 {
        self.spans.as_ref().map_or(self.slots[at].length, |spans| spans[column][at])
    }

    /// Slices of the recording in each slice of this track.
    pub const fn merged(&self) -> usize {
        self.merged
    }

    /// Adds a slice; values beyond the columns are ignored, missing ones are NaN.
    pub(crate) fn push(&mut self, slot: Slot, values: &[Option<f64>]) {
        let value = |at: usize| values.get(at).copied().flatten().unwrap_or(f64::NAN);
        self.add(slot, &|at| (value(at), slot.length));
        if self.slots.len() > MAX_SLICES {
            *self = self.halved();
        }
    }

    fn add(&mut self, slot: Slot, value: Spanned<'_>) {
        let is_new = self.filled == 0 || self.filled == self.merged;
        self.filled = if is_new { 1 } else { self.filled + 1 };
        if !is_new {
            return self.merge(slot, value);
        }
        self.slots.push(slot);
        for at in 0..self.columns.len() {
            let (value, span) = value(at);
            self.columns[at].push(value);
            if let Some(spans) = &mut self.spans {
                spans[at].push(span);
            }
        }
    }

    /// Merges a slice into the last one.
    fn merge(&mut self, slot: Slot, value: Spanned<'_>) {
        let Self { kinds, slots, columns, spans, .. } = self;
        let lengths = || slots.iter().map(|slot| slot.length).collect();
        let spans = spans.get_or_insert_with(|| columns.iter().map(|_| lengths()).collect());
        for at in 0..columns.len() {
            let (more, seconds) = value(at);
            let (Some(value), Some(span)) = (columns[at].last_mut(), spans[at].last_mut()) else {
                continue;
            };
            match kinds[at] {
                _ if more.is_nan() => continue,
                MetricKind::Counter if value.is_finite() => {
                    *value += more;
                    *span += seconds;
                }
                MetricKind::Counter | MetricKind::Gauge => (*value, *span) = (more, seconds),
            }
        }
        if let Some(last) = slots.last_mut() {
            last.end = slot.end;
            last.length += slot.length;
        }
    }

    /// The track with pairs of slices merged.
    fn halved(&self) -> Self {
        let mut half = Self::new(self.kinds.clone());
        half.groups = self.groups.clone();
        half.merged = 2;
        (0..self.slots.len()).for_each(|at| self.copy_into(&mut half, at));
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
        track.groups = self.groups.clone();
        // A slot is as long as its time; its values can cover more or less than that.
        track.spans = Some(vec![Vec::new(); self.columns.len()]);
        let (mut begin, mut next) = (0.0, 0);
        for slices in self.slots.chunk_by(|a, b| a.end == b.end) {
            let end = slices[0].end;
            // Some slices are 100 times as long as others, and begin in slots before.
            let own = end - slices.iter().map(|slice| slice.length).fold(f64::INFINITY, f64::min);
            let before = track.slots.last().map(|last| last.end);
            // Slices are never exactly as long as asked. Rounds are written late: time can go back.
            let is_over = |before: f64| before.max(own) - begin >= 0.95 * length || end < begin;
            if before.is_none_or(is_over) {
                let before = before.unwrap_or_default();
                begin = if (own..end).contains(&before) { before } else { own };
                track.filled = 0;
            }
            for _ in slices {
                self.copy_into(&mut track, next);
                next += 1;
            }
            if let Some(last) = track.slots.last_mut() {
                last.length = end - begin;
            }
        }
        track.merged = self.merged;
        track
    }

    /// Adds a slice to another track.
    fn copy_into(&self, track: &mut Self, at: usize) {
        track.add(self.slots[at], &|column| (self.columns[column][at], self.span(column, at)));
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
    fn a_merged_value_covers_the_slices_that_have_it() {
        let mut track = Track::new(KINDS.to_vec());
        let slot = |end, length| Slot { end, length };
        for at in 1..=10 {
            track.push(slot(f64::from(at), 1.0), &[Some(3.0), Some(f64::from(at))]);
            if at == 3 {
                // Threads have slices of their own.
                track.push(slot(3.0, 0.5), &[None, None]);
            }
        }
        track.push(slot(11.0, 1.0), &[None]);
        let merged = track.resliced(5.0);
        let ends: Vec<f64> = merged.slots().iter().map(|slot| slot.end).collect();
        assert_eq!(ends, [5.0, 10.0, 11.0]);
        assert_eq!((merged.column(0)[0], merged.span(0, 0)), (15.0, 5.0));
        assert_eq!((merged.column(0)[1], merged.span(0, 1)), (15.0, 5.0));
        assert_eq!((merged.column(1)[1], merged.column(1)[2].is_nan()), (10.0, true));
        assert!(merged.column(0)[2].is_nan());
    }

    /// 12 s in slices of 10 ms, busy in half of every 100 ms; `with_long`: and threads each second.
    fn half_busy(with_long: bool) -> Track {
        let mut track = Track::new(vec![MetricKind::Counter; 2]);
        for at in 1..=1200 {
            let end = f64::from(at) / 100.0;
            let busy = if (at - 1) % 10 < 5 { 0.01 } else { 0.0 };
            track.push(Slot { end, length: 0.01 }, &[Some(busy), None]);
            if with_long && at % 100 == 0 {
                track.push(Slot { end, length: 1.0 }, &[None, Some(5.0)]);
            }
        }
        track
    }

    #[test]
    fn long_slices_end_no_slot_early() {
        let [short, long] = [false, true].map(|with_long| half_busy(with_long).resliced(0.1));
        assert_eq!(long.slots(), short.slots());
        assert_eq!(long.slots().len(), 120);
        for (at, slot) in long.slots().iter().enumerate() {
            assert!((slot.length - 0.1).abs() < 1e-9, "{slot:?}");
            let share = long.column(0)[at] / long.span(0, at);
            assert!((share - 0.5).abs() < 1e-9, "{share} at {slot:?}");
        }
        let sums: Vec<f64> = long.column(1).iter().copied().filter(|sum| sum.is_finite()).collect();
        assert_eq!(sums, [5.0; 12]);
        assert!((long.span(1, 9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_gap_is_in_no_slot() {
        let mut track = Track::new(vec![MetricKind::Counter]);
        for at in (601..=605).chain(700..=719) {
            let end = f64::from(at) / 100.0;
            // The first line of a process is a long one.
            if at == 601 {
                track.push(Slot { end, length: 1.0 }, &[None]);
            }
            track.push(Slot { end, length: 0.01 }, &[Some(1.0)]);
        }
        let merged = track.resliced(0.1);
        let lengths: Vec<f64> =
            merged.slots().iter().map(|slot| (slot.length * 100.0).round()).collect();
        assert_eq!(lengths, [5.0, 10.0, 10.0]);
        assert_eq!(merged.column(0), [5.0, 10.0, 10.0]);
    }

    #[test]
    fn a_long_recording_has_the_rates_of_a_short_one() {
        let kinds = [MetricKind::Counter; 2].to_vec();
        let mut track = Track::new(kinds);
        for at in 1..=5 * MAX_SLICES {
            let end = at as f64 / 10.0;
            track.push(Slot { end, length: 0.1 }, &[Some(0.2), None]);
            if at.is_multiple_of(10) {
                track.push(Slot { end, length: 1.0 }, &[None, Some(5.0)]);
            }
        }
        assert_eq!(track.merged(), 8);
        for (column, rate) in [(0, 2.0), (1, 5.0)] {
            let values = track.column(column).iter().enumerate();
            let known: Vec<_> = values.filter(|(_, value)| value.is_finite()).collect();
            assert!(
                known
                    .iter()
                    .all(|&(at, value)| { (value / track.span(column, at) - rate).abs() < 1e-9 })
            );
            let sum: f64 = known.iter().map(|(_, value)| **value).sum();
            let all = rate * 5.0 * MAX_SLICES as f64 / 10.0;
            assert!((sum - all).abs() < 1e-3, "{sum} of {all}");
        }
    }
}
