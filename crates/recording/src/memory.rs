//! Memory of a process by page kind over time.

use std::collections::BTreeSet;

use hugepilot_record::MetricKind;
use hugepilot_render::model::{Cell, Unit};

use super::timeline::{ProcessTrack, Timeline, column};
use super::track::{Slot, Track};

/// Resident memory over time: base, THP and hugetlb bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Memory {
    track: Track,
    /// Whether the total is known at each slice, not only where the kinds were read.
    is_continuous: bool,
    peak: f64,
}

impl Memory {
    /// Returns the memory by the metrics, which have the total at each slice and the huge part
    /// about ten times a second; without them, by the mappings, which are read seldom.
    pub(crate) fn of(timeline: &Timeline, process: &ProcessTrack) -> Self {
        let metrics = of_metrics(timeline, process);
        let is_continuous = metrics.is_some();
        let track = metrics.unwrap_or_else(|| of_mappings(timeline, process));
        // The total may be known where the kinds are not.
        let totals = timeline.values(process, "rss").map(|(_, bytes)| bytes);
        let mut memory = Self { track, is_continuous, peak: totals.fold(0.0, f64::max) };
        let sums = (0..memory.track.slots().len()).map(|at| memory.bytes(at).iter().sum());
        memory.peak = sums.fold(memory.peak, f64::max);
        if memory.peak == 0.0 {
            // A program that ended within a slice. The peak of others may be from before the
            // recording.
            let peaks = timeline.values(process, "rss_peak").map(|(_, bytes)| bytes);
            memory.peak = peaks.fold(0.0, f64::max);
        }
        memory
    }

    /// Base, THP and hugetlb bytes; of steps at most `most` points, because a mean of neighbours
    /// would turn them into slopes.
    pub(crate) fn drawn(&self, most: usize) -> Track {
        if self.is_continuous { self.track.clone() } else { steps(&self.track, most) }
    }

    /// Whether the total is known at each slice.
    pub(crate) const fn is_continuous(&self) -> bool {
        self.is_continuous
    }

    fn bytes(&self, at: usize) -> [f64; 3] {
        [0, 1, 2].map(|column| self.track.column(column)[at])
    }

    /// Most resident bytes.
    pub(crate) const fn peak(&self) -> f64 {
        self.peak
    }

    /// Most bytes on huge pages at a time; `None` if no pages were read.
    pub(crate) fn peak_huge(&self) -> Option<f64> {
        let slots = (0..self.track.slots().len()).map(|at| self.bytes(at));
        let read = slots.filter(|bytes| bytes.iter().sum::<f64>() > 0.0);
        read.map(|[_, thp, hugetlb]| thp + hugetlb).reduce(f64::max)
    }

    /// Cells of the most resident bytes and the most on huge pages.
    pub(crate) fn peaks(&self) -> [Cell; 2] {
        let peak = Some(self.peak()).filter(|peak| *peak > 0.0);
        [peak, self.peak_huge()].map(|bytes| Cell::of(bytes, Unit::Bytes, "no pages were read"))
    }

    /// Share of the resident bytes on huge pages at a time.
    pub(crate) fn huge_ratio(&self, seconds: f64) -> Option<f64> {
        let read = self.track.slots().partition_point(|slot| slot.end <= seconds);
        // A process that ends has no memory for a moment.
        let mut known = (0..read).rev().map(|at| self.bytes(at));
        let [base, thp, hugetlb] = known.find(|bytes| bytes.iter().sum::<f64>() > 0.0)?;
        Some((thp + hugetlb) / (base + thp + hugetlb))
    }
}

/// Resident bytes of each slice, with the huge bytes that were read last.
fn of_metrics(timeline: &Timeline, process: &ProcessTrack) -> Option<Track> {
    let values = |name| Some(process.track.column(column(&timeline.head, name)?));
    let (rss, thp, hugetlb) = (values("rss")?, values("thp")?, values("hugetlb"));
    if !thp.iter().any(|value| value.is_finite()) {
        return None;
    }
    // Pages from before the window hold in it.
    let at_first = |kind: usize| process.pages.column(kind).first().copied().unwrap_or(0.0);
    let (mut huge, mut pool) = (at_first(1), at_first(2));
    let mut track = Track::new(vec![MetricKind::Gauge; 3]);
    for (at, slot) in process.track.slots().iter().enumerate() {
        huge = if thp[at].is_finite() { thp[at] } else { huge };
        pool = hugetlb.map(|read| read[at]).filter(|read| read.is_finite()).unwrap_or(pool);
        if rss[at].is_finite() {
            // The process may have freed huge pages since they were read.
            let now = huge.min(rss[at]);
            track.push(*slot, &[Some(rss[at] - now), Some(now), Some(pool)]);
        }
    }
    Some(track)
}

/// The pages of the mappings up to the last reading.
fn of_mappings(timeline: &Timeline, process: &ProcessTrack) -> Track {
    let mut held = process.pages.clone();
    let Some(last) = held.slots().len().checked_sub(1) else { return held };
    let end = timeline.values(process, "thp").last().map(|(end, _)| end);
    if let Some(end) = end.filter(|end| *end > held.slots()[last].end) {
        held.push(Slot { end, length: 0.0 }, &values(&held, last));
    }
    held
}

/// Steps of at most `most` points: the values before a change hold until it.
fn steps(track: &Track, most: usize) -> Track {
    let mut held = Track::new(vec![MetricKind::Gauge; 3]);
    let mut before = None;
    for at in kept(track, most) {
        let (slot, now) = (track.slots()[at], values(track, at));
        if let Some(before) = before.replace(now).filter(|before| *before != now) {
            held.push(slot, &before);
        }
        held.push(slot, &now);
    }
    held
}

/// The readings of at most `most` points, of which a step has two: all, or else each change among
/// evenly spaced ones. Of too many changes, the extremes.
fn kept(track: &Track, most: usize) -> BTreeSet<usize> {
    let all = track.slots().len();
    if 2 * all <= most {
        return (0..all).collect();
    }
    let changes = (1..all).filter(|&at| values(track, at) != values(track, at - 1));
    let mut kept: BTreeSet<usize> = changes.collect();
    if 4 * kept.len() > most {
        return extremes(track, most);
    }
    // A sketch in text has a character for a number of points, not for a time.
    kept.extend((0..all).step_by(all.div_ceil((most / 2).max(2) - 1)).chain([all - 1]));
    kept
}

/// The first reading, and of each group the extremes, which a short peak is, and the last one.
fn extremes(track: &Track, most: usize) -> BTreeSet<usize> {
    let all = track.slots().len();
    let bytes = |kinds: &[usize], at| kinds.iter().map(|&kind| track.column(kind)[at]).sum::<f64>();
    // Five steps for each group.
    let size = all.div_ceil((most.saturating_sub(1) / 10).max(1));
    let of_group = |from: usize| {
        let group = from..(from + size).min(all);
        let last = group.end - 1;
        let ends = [&[0, 1, 2][..], &[1, 2][..]].map(|kinds| {
            let order = |a: usize, b: usize| bytes(kinds, a).total_cmp(&bytes(kinds, b));
            let least = group.clone().min_by(|&a, &b| order(a, b));
            [least, group.clone().min_by(|&a, &b| order(b, a))]
        });
        ends.into_iter().flatten().flatten().chain([last])
    };
    [0].into_iter().chain((0..all).step_by(size).flat_map(of_group)).collect()
}

fn values(track: &Track, at: usize) -> [Option<f64>; 3] {
    [0, 1, 2].map(|column| Some(track.column(column)[at]))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{Metric, MetricScope, Pid, Unit};
    use hugepilot_render::model::{Block, Chart, Plot};
    use hugepilot_units::{AddrRange, Nanos, VirtAddr};

    use super::super::recording_report;
    use super::super::timeline::Window;
    use super::*;
    use crate::{Head, Line, MappingPages, PageSlice, Slice};

    /// A recording with these gauges, seen from `from` seconds on.
    fn timeline(gauges: &[&str], from: Option<f64>, lines: Vec<Line>) -> Timeline {
        let metric = |name: &&str| Metric {
            name: (*name).to_owned(),
            unit: Unit::Bytes,
            kind: MetricKind::Gauge,
            scope: MetricScope::Process,
            source: String::new(),
            description: String::new(),
            group: None,
            missing: None,
        };
        let head = Head { metrics: gauges.iter().map(metric).collect(), ..Head::default() };
        let mut timeline = Timeline::new(head, Window { from, ..Window::default() });
        lines.into_iter().for_each(|line| timeline.add(line));
        timeline
    }

    fn slice(second: u64, values: &[Option<f64>]) -> Line {
        let (time, length) = (Nanos::seconds(second), Nanos::seconds(1));
        let (pid, values) = (Some(Pid(7)), values.to_vec());
        Line::Slice(Slice { time, length, pid, tid: None, values, groups: Vec::new() })
    }

    fn pages(second: u64, resident_bytes: u64, thp_bytes: u64) -> Line {
        let range = AddrRange::new(VirtAddr::new(0), VirtAddr::new(4096));
        let mapping = MappingPages {
            range,
            name: "[heap]".to_owned(),
            resident_bytes,
            thp_bytes,
            hugetlb_bytes: 0,
        };
        let (time, pid) = (Nanos::seconds(second), Pid(7));
        Line::Pages(PageSlice { time, pid, mappings: vec![mapping] })
    }

    fn memory(timeline: &Timeline) -> (Memory, Vec<(f64, [f64; 3])>) {
        let memory = Memory::of(timeline, &timeline.processes[0]);
        let slots = memory.track.slots().iter().enumerate();
        let points = slots.map(|(at, slot)| (slot.end, memory.bytes(at))).collect();
        (memory, points)
    }

    #[test]
    fn the_peak_before_the_recording_counts_only_of_a_program_without_another_value() {
        let peak = |rss| {
            let gauges = ["rss", "rss_peak", "thp"];
            let lines = vec![slice(1, &[rss, Some(7.0), None])];
            memory(&timeline(&gauges, None, lines)).0.peak()
        };
        assert_eq!([peak(None), peak(Some(3.0))], [7.0, 3.0]);
    }

    #[test]
    fn the_total_of_each_slice_is_split_by_the_last_read_of_huge_pages() {
        let lines = vec![
            slice(1, &[Some(8.0), Some(0.0), Some(2.0)]),
            slice(2, &[Some(10.0), None, None]),
            slice(3, &[Some(10.0), Some(6.0), None]),
            slice(4, &[Some(5.0), None, None]),
            slice(5, &[Some(0.0), None, Some(0.0)]),
        ];
        let (memory, points) = memory(&timeline(&["rss", "thp", "hugetlb"], None, lines));
        let expected = [[8.0, 0.0, 2.0], [10.0, 0.0, 2.0], [4.0, 6.0, 2.0], [0.0, 5.0, 2.0]];
        assert_eq!(points[..4].iter().map(|point| point.1).collect::<Vec<_>>(), expected);
        assert_eq!(points[4], (5.0, [0.0; 3]), "an ended process has no memory");
        assert_eq!((memory.huge_ratio(3.5), memory.huge_ratio(9.0)), (Some(8.0 / 12.0), Some(1.0)));
        assert!(memory.is_continuous() && memory.peak() == 12.0);
        assert_eq!(memory.peak_huge(), Some(8.0));
    }

    #[test]
    fn huge_pages_from_before_the_window_hold_in_it() {
        let lines = vec![
            pages(1, 8, 6),
            slice(2, &[Some(8.0), None]),
            slice(3, &[Some(9.0), None]),
            slice(4, &[Some(9.0), Some(1.0)]),
        ];
        let (_, points) = memory(&timeline(&["rss", "thp"], Some(2.0), lines));
        assert_eq!(points, [(3.0, [3.0, 6.0, 0.0]), (4.0, [8.0, 1.0, 0.0])]);
    }

    /// Times and THP bytes of the steps of 4,000 readings in at most 100 points.
    fn drawn(thp: fn(u64) -> u64) -> Vec<(f64, f64)> {
        let lines = (1..=4000).map(|second| pages(second, 8, thp(second))).collect();
        let drawn = memory(&timeline(&["faults"], None, lines)).0.drawn(100);
        let ends = drawn.slots().iter().map(|slot| slot.end);
        ends.zip(drawn.column(1).iter().copied()).collect()
    }

    #[test]
    fn steps_are_exact_in_any_number_of_readings() {
        let [a, b, c] = [1000.0, 1001.0, 4000.0];
        let peak = drawn(|second| if second == 1000 { 8 } else { 2 });
        assert!((40..=100).contains(&peak.len()), "of about even distances: {peak:?}");
        let changes = peak.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        assert!(changes.eq([[(a, 2.0), (a, 8.0)], [(b, 8.0), (b, 2.0)]]), "{peak:?}");
        assert_eq!((peak[0], peak[peak.len() - 1]), ((1.0, 2.0), (c, 2.0)));
    }

    #[test]
    fn a_peak_among_too_many_changes_is_drawn_at_its_time() {
        let points = drawn(|second| if second == 1000 { 8 } else { second % 2 });
        assert!((20..=100).contains(&points.len()), "{points:?}");
        assert!(points.contains(&(1000.0, 8.0)), "{points:?}");
        let (first, last) = (points[0], points[points.len() - 1]);
        assert_eq!((first, last), ((1.0, 1.0), (4000.0, 0.0)));
        let is_step = |pair: &[(f64, f64)]| pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1;
        assert!(points.windows(2).all(is_step), "{points:?}");
    }

    #[test]
    fn without_metrics_the_mappings_are_steps_up_to_the_last_read() {
        let lines = vec![pages(1, 8, 0), slice(2, &[None]), pages(3, 8, 6), pages(5, 8, 6)];
        let timeline = timeline(&["faults"], None, lines);
        let (memory, points) = memory(&timeline);
        let (old, new) = ([8.0, 0.0, 0.0], [2.0, 6.0, 0.0]);
        assert_eq!(points, [(1.0, old), (3.0, new), (5.0, new)]);
        assert!(!memory.is_continuous());
        let report = recording_report(&timeline, "a.rec");
        let mut blocks = report.sections.iter().flat_map(|section| &section.blocks);
        let chart = blocks.find_map(|block| match block {
            Block::Plot(Plot { title, chart: Chart::Time(chart), .. }) => {
                (title == "Resident memory").then_some(chart)
            }
            _ => None,
        });
        let chart = chart.unwrap();
        assert_eq!(chart.times_seconds, [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(chart.lines[1].values, [0.0, 0.0, 6.0, 6.0].map(Some));
    }
}
