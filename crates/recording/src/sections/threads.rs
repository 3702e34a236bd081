//! Section of the threads of a process.

use std::cmp::Reverse;

use hugepilot_record::{MetricScope, Tid};
use hugepilot_render::model::{Cell, Chart, Plot, Section, Table, TimeLine, TimePlot, Unit};
use hugepilot_stats::median;

use super::marks;
use super::process::{MAX_LINES, MAX_POINTS, rounded};
use crate::measures::{Measure, measures};
use crate::timeline::{ProcessTrack, Timeline, metrics};
use crate::track::Track;

/// Measures with a plot, each with the title.
const PLOTS: [(&str, &str); 3] = [
    ("thread_cpu_time_ratio", "CPU use by thread"),
    ("ipc", "Instructions per cycle by thread"),
    ("dtlb_walks_per_1000_instructions", "Page walks per 1000 instructions by thread"),
];
/// Events of the table at most.
const MAX_EVENTS: usize = 12;

/// A thread with its measures.
struct Thread {
    tid: Tid,
    name: String,
    track: Track,
    measures: Vec<Measure>,
}

impl Thread {
    /// The thread, in slices that a plot has room for.
    fn of(timeline: &Timeline, tid: Tid, (name, track): &(String, Track)) -> Self {
        let longest = timeline.duration / MAX_POINTS as f64;
        let track = match track.slots() {
            // It has no columns; its measures are those of no slice.
            [] => timeline.no_thread.clone(),
            _ if longest > timeline.head.every.as_seconds() => track.resliced(longest),
            _ => track.clone(),
        };
        let measures = measures(&timeline.head, MetricScope::Thread, &track);
        Self { tid, name: name.clone(), track, measures }
    }

    fn title(&self) -> String {
        if self.name.is_empty() {
            return format!("thread {}", self.tid.0);
        }
        format!("{} ({})", self.name, self.tid.0)
    }

    fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }

    /// Sum of its CPU use over the slices, in thousandths, to order threads by.
    #[allow(clippy::cast_possible_truncation)]
    fn cpu(&self) -> i64 {
        let values = self.measure(PLOTS[0].0).map_or(&[][..], |measure| &measure.values);
        (values.iter().filter(|value| value.is_finite()).sum::<f64>() * 1e3) as i64
    }
}

/// Plots of the threads with the most CPU time or stall samples, and tables of all.
pub(super) fn section(timeline: &Timeline, process: &ProcessTrack, title: String) -> Section {
    let threads = process.threads.iter().map(|(&tid, of)| Thread::of(timeline, tid, of));
    let threads: Vec<Thread> = threads.collect();
    // A thread has no ratio of events that it has no values of.
    let Some(fullest) = threads.iter().max_by_key(|thread| thread.measures.len()) else {
        return Section::default();
    };
    let mut busiest: Vec<&Thread> = threads.iter().collect();
    busiest.sort_by_key(|thread| Reverse(thread.cpu()));
    busiest.truncate(MAX_LINES);
    busiest.sort_by_key(|thread| thread.tid);
    let plots = PLOTS.iter().filter_map(|(name, title)| plot(timeline, &busiest, name, title));
    let section = Section::new(title, "").with_all(stalls(timeline, process)).with_all(plots);
    // The recorder reads the others from files.
    let own = metrics(&timeline.head, MetricScope::Thread);
    let is_event: Vec<bool> = own.map(|metric| !metric.source.starts_with("/proc/")).collect();
    let (mut files, mut events) = (Vec::new(), Vec::new());
    for (at, measure) in fullest.measures.iter().enumerate() {
        let is_event = is_event.get(at).copied();
        if is_event == Some(false) { &mut files } else { &mut events }
            .push((is_event.is_some(), measure.name.clone()));
    }
    // Ratios first.
    events.sort_by_key(|(is_plain, _)| *is_plain);
    events.truncate(MAX_EVENTS);
    let names = |of: Vec<(bool, String)>| of.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    let section = section.with(medians("Medians of each thread", &threads, &names(files)));
    let events = medians("Medians of the events of each thread", &threads, &names(events));
    section.with_all((events.columns.len() > 2).then_some(events))
}

/// Table of the medians of measures.
fn medians(title: &str, threads: &[Thread], names: &[String]) -> Table {
    let mut table = Table::new(title, ["thread", "tid"]);
    table.columns.extend(names.iter().cloned());
    for thread in threads {
        let mut row: Vec<Cell> = vec![thread.name.clone().into(), thread.tid.0.to_string().into()];
        row.extend(names.iter().map(|name| {
            let missing = "no slice has a value";
            let Some(measure) = thread.measure(name) else {
                return Cell::of(None, Unit::Number, missing);
            };
            let values = measure.values.iter().copied().filter(|value| value.is_finite());
            let missing = measure.missing.as_deref().unwrap_or(missing);
            Cell::of(median(values), measure.unit, missing)
        }));
        table.row(row);
    }
    table
}

/// A measure of several threads over time; `None` if fewer have it.
fn plot(timeline: &Timeline, threads: &[&Thread], name: &str, title: &str) -> Option<Plot> {
    let with = threads.iter().filter_map(|thread| {
        let measure = thread.measure(name).filter(|measure| !measure.values.is_empty())?;
        Some((thread, measure))
    });
    let with: Vec<_> = with.collect();
    let mut times: Vec<f64> =
        with.iter().flat_map(|(thread, _)| thread.track.slots()).map(|slot| slot.end).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let line = |(thread, measure): &(&&Thread, &Measure)| {
        let mut values = vec![None; times.len()];
        for (slot, value) in thread.track.slots().iter().zip(&measure.values) {
            let at = times.partition_point(|time| *time < slot.end);
            values[at] = Some(rounded(*value)).filter(|value| value.is_finite());
        }
        TimeLine { name: thread.title(), values }
    };
    let lines: Vec<TimeLine> = with.iter().map(line).collect();
    let (_, first) = with.first().filter(|_| lines.len() > 1)?;
    let text = "The threads with the most CPU time.".to_owned();
    let times_seconds = times.iter().copied().map(rounded).collect();
    let chart = time_chart(timeline, first.unit, times_seconds, lines);
    Some(Plot { title: title.to_owned(), text, chart })
}

fn time_chart(timeline: &Timeline, unit: Unit, times: Vec<f64>, lines: Vec<TimeLine>) -> Chart {
    let (times_seconds, marks) = (times, marks(timeline));
    Chart::Time(TimePlot { unit, stacked: false, times_seconds, lines, marks })
}

/// Share of stalls of each thread over time; `None` for a process with one thread.
fn stalls(timeline: &Timeline, process: &ProcessTrack) -> Option<Plot> {
    let (times, shares) = process.thread_stalls.shares(MAX_LINES);
    let name = |tid: Tid| match process.threads.get(&tid) {
        Some((name, _)) if !name.is_empty() => format!("{name} ({})", tid.0),
        _ => format!("thread {}", tid.0),
    };
    let line = |(tid, values)| TimeLine { name: name(tid), values };
    let lines: Vec<TimeLine> = shares.into_iter().map(line).collect();
    (!lines.is_empty()).then(|| Plot {
        title: "Stall share by thread".to_owned(),
        text: "Samples at scattered accesses as a share of all samples of the thread, of the \
               threads with the most samples."
            .to_owned(),
        chart: time_chart(timeline, Unit::Ratio, times, lines),
    })
}
