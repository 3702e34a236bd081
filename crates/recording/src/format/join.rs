//! Join of recordings of the same program, each with other events.
//!
//! A processor has few counters. Instead of multiplexing them, a program can run once for each set
//! of events. Values of the same time since the begin of a phase, or of the runs, are joined, so
//! the result holds as far as the runs are alike.

use std::collections::HashMap;

use hugepilot_record::{GroupTime, Metric, MetricKind, MetricScope, Pid, Tid};
use hugepilot_units::Nanos;

use super::{Head, Line, Phase, Slice};

/// Cause why recordings cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No recording was given.
    #[error("no recording to join")]
    Empty,
    /// Slices have another length.
    #[error("recording {number} has slices of {found}, the first has slices of {first}")]
    OtherInterval {
        /// Recording, from 1.
        number: usize,
        /// Length of its slices.
        found: Nanos,
        /// Length of the slices of the first recording.
        first: Nanos,
    },
}

/// Spread of run times above which the result has a warning, as a share of the shortest.
pub const ALIKE: f64 = 0.05;

/// Joins the metrics of `recordings`: by time since the begin of a phase if all have the same
/// phases, otherwise by time since their start. The increase of a counter of a later run is split
/// among the slices of the first by time. All other lines are those of the first. The source of a
/// metric names its run. Processes, and threads of a process, correspond in the order in which they
/// appear.
///
/// # Errors
/// [`JoinError`].
pub fn join(recordings: &[(Head, Vec<Line>)]) -> Result<(Head, Vec<Line>), JoinError> {
    let [(first, lines), others @ ..] = recordings else { return Err(JoinError::Empty) };
    for (i, (head, _)) in others.iter().enumerate() {
        if head.every != first.every {
            let (number, found) = (i + 2, head.every);
            return Err(JoinError::OtherInterval { number, found, first: first.every });
        }
    }
    let mut runs: Vec<Run<'_>> =
        recordings.iter().map(|(head, lines)| Run::new(head, lines)).collect();
    let by_phase = has_same_phases(&runs);
    runs.iter_mut().zip(recordings).for_each(|(run, (_, lines))| run.index(lines, by_phase));
    let columns = columns(&runs);
    let mut head = first.clone();
    head.metrics = columns.iter().map(|column| column.metric.clone()).collect();
    let mut joined = Vec::with_capacity(lines.len() + 1);
    joined.extend(warning(&columns, recordings.len(), by_phase).map(Line::Warning));
    joined.extend(other_times(&runs).map(Line::Warning));
    joined.extend(lines.iter().map(|line| match line {
        Line::Slice(slice) => Line::Slice(joined_slice(&runs, &columns, slice)),
        line => line.clone(),
    }));
    Ok((head, joined))
}

/// Metric of the result, and the run that counted it.
struct Column {
    metric: Metric,
    run: usize,
    /// Place in the values of its scope.
    place: usize,
    /// Places, in the first run, of the metrics that its run reads at the same times. A process has
    /// slices of several lengths, each with other metrics.
    beside: Vec<usize>,
}

impl Column {
    /// Whether a slice of the first run has the metrics that are read at the same times as this.
    fn belongs_to(&self, slice: &Slice) -> bool {
        let has = |&at: &usize| slice.values.get(at).is_some_and(Option::is_some);
        self.beside.is_empty() || self.beside.iter().any(has)
    }
}

/// Slices of a run that belong together: process and thread by order of appearance, and the phase.
type Key = (Option<usize>, Option<usize>, usize);

/// Begin and end of a slice, in nanoseconds since the begin of its phase.
#[derive(Clone, Copy)]
struct Span {
    begin: i128,
    end: i128,
}

impl Span {
    fn length(self) -> i128 {
        self.end - self.begin
    }

    fn overlap(self, other: Self) -> i128 {
        (self.end.min(other.end) - self.begin.max(other.begin)).max(0)
    }
}

struct Run<'a> {
    head: &'a Head,
    /// Slices of each key, in order of their ends.
    slices: HashMap<Key, Vec<(Span, &'a Slice)>>,
    /// Longest slice.
    longest: i128,
    processes: Vec<Pid>,
    threads: Vec<(Pid, Tid)>,
    phases: Vec<&'a Phase>,
    /// Whether slices count from the begin of their phase.
    by_phase: bool,
    groups: u32,
    /// Time from the start to the last line.
    length: Nanos,
}

impl<'a> Run<'a> {
    fn new(head: &'a Head, lines: &'a [Line]) -> Self {
        let groups = head.metrics.iter().filter_map(|metric| metric.group).max();
        let groups = groups.map_or(0, |last| last.saturating_add(1));
        let mut run = Self {
            head,
            slices: HashMap::new(),
            longest: 0,
            processes: Vec::new(),
            threads: Vec::new(),
            phases: Vec::new(),
            by_phase: false,
            groups,
            length: Nanos::ZERO,
        };
        for line in lines {
            match line {
                Line::Process(process) => run.see(Some(process.id.pid), None),
                Line::Slice(slice) => {
                    run.see(slice.pid, slice.tid);
                    run.length = run.length.max(slice.time - head.started);
                }
                Line::Phase(phase) => run.phases.push(phase),
                _ => {}
            }
        }
        run
    }

    fn index(&mut self, lines: &'a [Line], by_phase: bool) {
        self.by_phase = by_phase;
        for line in lines {
            if let Line::Slice(slice) = line {
                let (key, span) = self.place(slice);
                self.longest = self.longest.max(span.length());
                self.slices.entry(key).or_default().push((span, slice));
            }
        }
        self.slices.values_mut().for_each(|slices| slices.sort_by_key(|(span, _)| span.end));
    }

    /// Slices that overlap a span, with the part of them that does.
    fn overlapping(&self, key: Key, span: Span) -> impl Iterator<Item = (i128, Span, &'a Slice)> {
        let slices = self.slices.get(&key).map_or(&[][..], Vec::as_slice);
        let first = slices.partition_point(|(other, _)| other.end <= span.begin);
        let last = slices.partition_point(|(other, _)| other.end <= span.end + self.longest);
        let near = slices[first..last.max(first)].iter();
        near.map(move |&(other, slice)| (span.overlap(other), other, slice))
            .filter(|&(overlap, ..)| overlap > 0)
    }

    /// The slice whose end is the nearest, of those that overlap a span by half of it.
    fn nearest(&self, key: Key, span: Span, suits: impl Fn(&Slice) -> bool) -> Option<&'a Slice> {
        self.overlapping(key, span)
            .filter(|&(overlap, other, slice)| {
                2 * overlap >= span.length().min(other.length()) && suits(slice)
            })
            .min_by_key(|(_, other, _)| (other.end - span.end).abs())
            .map(|(.., slice)| slice)
    }

    /// The value of a metric in a span: of a counter, the increases of the slices that overlap it,
    /// each by the part that does; of a gauge, that of the nearest end. `None` if less than half of
    /// the span has values.
    #[allow(clippy::cast_precision_loss)]
    fn value(&self, key: Key, span: Span, column: &Column) -> Option<f64> {
        let read = |slice: &Slice| slice.values.get(column.place).copied().flatten();
        if column.metric.kind == MetricKind::Gauge {
            return read(self.nearest(key, span, |slice| read(slice).is_some())?);
        }
        let (mut sum, mut covered) = (0.0, 0);
        for (overlap, other, slice) in self.overlapping(key, span) {
            if let Some(value) = read(slice) {
                sum += value * overlap as f64 * (span.length() as f64 / other.length() as f64);
                covered += overlap;
            }
        }
        (2 * covered >= span.length()).then(|| sum / covered as f64)
    }

    /// Metrics of a scope, in the order of the values of its slices.
    fn metrics(&self, scope: MetricScope) -> impl Iterator<Item = &'a Metric> {
        self.head.metrics.iter().filter(move |metric| metric.scope == scope)
    }

    /// Names of the other metrics in the first slice that has a value of a metric.
    fn beside(&self, scope: MetricScope, place: usize) -> Vec<&'a str> {
        let has = |slice: &Slice, at: usize| slice.values.get(at).is_some_and(Option::is_some);
        let slices = self.slices.values().flatten().map(|&(_, slice)| slice);
        let slices = slices.filter(|slice| scope_of(slice) == scope && has(slice, place));
        let Some(slice) = slices.min_by_key(|slice| slice.time) else { return Vec::new() };
        let others = self.metrics(scope).enumerate();
        others
            .filter(|&(at, _)| at != place && has(slice, at))
            .map(|(_, metric)| &*metric.name)
            .collect()
    }

    fn see(&mut self, pid: Option<Pid>, tid: Option<Tid>) {
        let Some(pid) = pid else { return };
        if !self.processes.contains(&pid) {
            self.processes.push(pid);
        }
        if let Some(tid) = tid.filter(|&tid| !self.threads.contains(&(pid, tid))) {
            self.threads.push((pid, tid));
        }
    }

    fn place(&self, slice: &Slice) -> (Key, Span) {
        let process = slice.pid.and_then(|pid| self.processes.iter().position(|&p| p == pid));
        let thread = slice.tid.zip(slice.pid).and_then(|(tid, pid)| {
            let mut of_process = self.threads.iter().filter(|&&(of, _)| of == pid);
            of_process.position(|&(_, other)| other == tid)
        });
        // A slice that ends when a phase begins is of the phase before it.
        let is_begun = |phase: &&&Phase| self.by_phase && phase.time < slice.time;
        let phase = self.phases.iter().filter(is_begun).count();
        let begin = phase.checked_sub(1).map_or(self.head.started, |last| self.phases[last].time);
        let end = i128::from(slice.time.get()) - i128::from(begin.get());
        // A slice without a length has no counters, but states.
        let span = Span { begin: end - i128::from(slice.length.get().max(1)), end };
        ((process, thread, phase), span)
    }
}

/// Returns the metrics of all runs, each once, from the first run that has values of it. Groups of
/// later runs follow those of earlier ones.
fn columns(runs: &[Run<'_>]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut groups = 0_u32;
    for (run, of) in runs.iter().enumerate() {
        let mut places = HashMap::<MetricScope, usize>::new();
        for metric in &of.head.metrics {
            let next = places.entry(metric.scope).or_default();
            let place = *next;
            *next += 1;
            let mut metric = metric.clone();
            if runs.len() > 1 && metric.missing.is_none() {
                metric.source += &format!("; run {} of {}", run + 1, runs.len());
            }
            metric.group = metric.group.map(|group| group.saturating_add(groups));
            let same = |column: &&mut Column| {
                column.metric.name == metric.name && column.metric.scope == metric.scope
            };
            let known = columns.iter_mut().find(same);
            let (scope, is_counted) = (metric.scope, metric.missing.is_none());
            let column = || {
                let names = if run == 0 { Vec::new() } else { of.beside(scope, place) };
                let first = runs[0].metrics(scope).enumerate();
                let beside = first.filter(|(_, metric)| names.contains(&&*metric.name));
                Column { metric, run, place, beside: beside.map(|(at, _)| at).collect() }
            };
            match known {
                Some(known) if known.metric.missing.is_some() && is_counted => *known = column(),
                Some(_) => {}
                None => columns.push(column()),
            }
        }
        groups = groups.saturating_add(of.groups);
    }
    columns
}

fn joined_slice(runs: &[Run<'_>], columns: &[Column], slice: &Slice) -> Slice {
    let (key, span) = runs[0].place(slice);
    let of_scope = || columns.iter().filter(|column| column.metric.scope == scope_of(slice));
    let value = |column: &Column| match column.run {
        0 => slice.values.get(column.place).copied().flatten(),
        run if column.belongs_to(slice) => runs[run].value(key, span, column),
        _ => None,
    };
    let values = of_scope().map(value).collect();
    let groups = runs.iter().enumerate().flat_map(|(number, run)| {
        let is_counted = of_scope().any(|one| one.run == number && one.belongs_to(slice));
        let same = match number {
            0 => Some(slice),
            _ if is_counted => run.nearest(key, span, |slice| !slice.groups.is_empty()),
            _ => None,
        };
        let times = same.map_or(&[][..], |slice| &slice.groups);
        (0..run.groups as usize).map(|group| times.get(group).copied().unwrap_or_default())
    });
    let groups: Vec<GroupTime> = groups.collect();
    // A slice without counters stays one.
    let groups = if groups.iter().all(|time| *time == GroupTime::default()) {
        slice.groups.clone()
    } else {
        groups
    };
    Slice { values, groups, ..slice.clone() }
}

fn scope_of(slice: &Slice) -> MetricScope {
    match (slice.pid, slice.tid) {
        (_, Some(_)) => MetricScope::Thread,
        (Some(_), None) => MetricScope::Process,
        (None, None) => MetricScope::System,
    }
}

/// Whether all runs have the same phases.
fn has_same_phases(runs: &[Run<'_>]) -> bool {
    let names = |run: &Run<'_>| run.phases.iter().map(|phase| phase.name.clone()).collect();
    let all: Vec<Vec<String>> = runs.iter().map(names).collect();
    all.iter().all(|names| !names.is_empty() && *names == all[0])
}

/// Says which metrics are of another run than the rest.
fn warning(columns: &[Column], runs: usize, by_phase: bool) -> Option<String> {
    let others = columns.iter().filter(|column| column.run > 0);
    let names: Vec<&str> = others.map(|column| column.metric.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let begin = if by_phase { "the begin of each phase" } else { "their start" };
    Some(format!(
        "{runs} runs are joined by time since {begin}; {} are of later runs than the rest, so \
         ratios with them hold as far as the runs are alike",
        names.join(", ")
    ))
}

/// Says how much the times of the runs differ, if it is much.
fn other_times(runs: &[Run<'_>]) -> Option<String> {
    let times = || runs.iter().map(|run| run.length.as_seconds());
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    (most > least * (1.0 + ALIKE)).then(|| {
        format!(
            "the runs took {least:.2} to {most:.2} s; values of different runs are of different \
             work"
        )
    })
}

#[cfg(test)]
mod tests;
