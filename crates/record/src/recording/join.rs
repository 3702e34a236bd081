//! Join of recordings of the same program, each with other events.
//!
//! A processor has few counters. Instead of multiplexing them, a program can run once for each set
//! of events. Values of the same time since the begin of a phase, or of the runs, are joined, so
//! the result holds as far as the runs are alike.

use std::collections::HashMap;

use hugepilot_units::Nanos;

use super::{GroupTime, Head, Line, Metric, MetricKind, MetricScope, Phase, Slice};
use crate::{Pid, Tid};

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
/// phases, otherwise by time since their start. Counters of a slice of another length are scaled to
/// that of the first. All other lines are those of the first. The source of a metric names its run.
/// Processes, and threads of a process, correspond in the order in which they appear.
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
}

/// Slice of a run: process and thread by order of appearance, the phase, and the slices since its
/// begin.
type Key = (Option<usize>, Option<usize>, usize, u64);

struct Run<'a> {
    head: &'a Head,
    slices: HashMap<Key, &'a Slice>,
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
                let key = self.key(slice);
                self.slices.entry(key).or_insert(slice);
            }
        }
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

    fn key(&self, slice: &Slice) -> Key {
        let process = slice.pid.and_then(|pid| self.processes.iter().position(|&p| p == pid));
        let thread = slice.tid.zip(slice.pid).and_then(|(tid, pid)| {
            let mut of_process = self.threads.iter().filter(|&&(of, _)| of == pid);
            of_process.position(|&(_, other)| other == tid)
        });
        let every = self.head.every.get().max(1);
        // A slice that ends when a phase begins is of the phase before it.
        let is_begun = |phase: &&&Phase| self.by_phase && phase.time < slice.time;
        let phase = self.phases.iter().filter(is_begun).count();
        let begin = phase.checked_sub(1).map_or(self.head.started, |last| self.phases[last].time);
        let since = slice.time.get().saturating_sub(begin.get());
        (process, thread, phase, since.saturating_add(every / 2) / every)
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
            match columns.iter_mut().find(same) {
                Some(column) if column.metric.missing.is_some() && metric.missing.is_none() => {
                    *column = Column { metric, run, place };
                }
                Some(_) => {}
                None => columns.push(Column { metric, run, place }),
            }
        }
        groups = groups.saturating_add(of.groups);
    }
    columns
}

fn joined_slice(runs: &[Run<'_>], columns: &[Column], slice: &Slice) -> Slice {
    let scope = match (slice.pid, slice.tid) {
        (_, Some(_)) => MetricScope::Thread,
        (Some(_), None) => MetricScope::Process,
        (None, None) => MetricScope::System,
    };
    let key = runs.first().map(|run| run.key(slice));
    let same = |run: usize| match (run, key) {
        (0, _) => Some(slice),
        (run, Some(key)) => runs[run].slices.get(&key).copied(),
        (_, None) => None,
    };
    let of_scope = columns.iter().filter(|column| column.metric.scope == scope);
    let value = |column: &Column| {
        let other = same(column.run)?;
        let value = other.values.get(column.place).copied().flatten()?;
        // Slices of the same time differ in length, and readers show a counter as a rate.
        let is_rate = column.metric.kind == MetricKind::Counter && other.length > Nanos::ZERO;
        let longer = if is_rate { slice.length.ratio_of(other.length) } else { 1.0 };
        Some(value * longer)
    };
    let values = of_scope.map(value).collect();
    let groups = runs.iter().enumerate().flat_map(|(number, run)| {
        let times = same(number).map_or(&[][..], |slice| &slice.groups);
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
mod tests {
    use super::*;
    use crate::doctor::Cpu;
    use crate::recording::{Machine, SCHEMA, Unit};

    fn metric(name: &str, group: Option<u32>, missing: bool) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: Unit::Count,
            kind: MetricKind::Counter,
            scope: MetricScope::Process,
            source: String::new(),
            description: String::new(),
            group,
            missing: missing.then(|| "not in this run".to_owned()),
        }
    }

    fn head(started: u64, metrics: Vec<Metric>) -> Head {
        let cpu = Cpu {
            vendor: String::new(),
            model_name: String::new(),
            family: 0,
            model: 0,
            hypervisor: false,
        };
        Head {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            started_unix_seconds: 0.0,
            started: Nanos::millis(started),
            every: Nanos::millis(100),
            machine: Machine {
                cpu,
                cpus: 1,
                memory_bytes: 0,
                kernel: String::new(),
                thp: String::new(),
                base_page_bytes: 4096,
                huge_page_bytes: 2 << 20,
            },
            metrics,
            sampler: None,
            sampler_missing: None,
        }
    }

    fn slice(time: u64, pid: i32, values: &[Option<f64>], running_ns: u64) -> Line {
        Line::Slice(Slice {
            time: Nanos::millis(time),
            length: Nanos::millis(100),
            pid: Some(Pid(pid)),
            tid: None,
            values: values.to_vec(),
            groups: vec![GroupTime { enabled_ns: 100, running_ns }],
        })
    }

    fn slices(lines: &[Line]) -> Vec<&Slice> {
        let mut slices = Vec::new();
        for line in lines {
            if let Line::Slice(slice) = line {
                slices.push(slice);
            }
        }
        slices
    }

    #[test]
    fn values_of_the_same_time_since_the_start_are_joined() {
        let (a, b) = (Some(0), None);
        let first = head(
            1000,
            vec![metric("cycles", a, false), metric("walks", b, true), metric("faults", b, false)],
        );
        let second = head(
            5000,
            vec![metric("faults", b, false), metric("walks", a, false), metric("stalls", a, false)],
        );
        let first_lines = vec![
            slice(1100, 7, &[Some(1.0), None, Some(2.0)], 90),
            slice(1200, 7, &[Some(3.0), None, Some(4.0)], 90),
        ];
        // Each slice a little late; the second run ends before the first.
        let second_lines = vec![slice(5103, 9, &[Some(9.0), Some(5.0), Some(6.0)], 80)];
        let (head, lines) = join(&[(first, first_lines), (second, second_lines)]).unwrap();
        let names: Vec<&str> = head.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["cycles", "walks", "faults", "stalls"]);
        assert_eq!(head.metrics[1].missing, None);
        let groups: Vec<_> = head.metrics.iter().map(|metric| metric.group).collect();
        assert_eq!(groups, [Some(0), Some(1), None, Some(1)]);
        let joined = slices(&lines);
        assert_eq!(joined[0].values, [Some(1.0), Some(5.0), Some(2.0), Some(6.0)]);
        assert_eq!(joined[1].values, [Some(3.0), None, Some(4.0), None]);
        assert_eq!(joined[0].pid, Some(Pid(7)));
        let running: Vec<u64> = joined[0].groups.iter().map(|time| time.running_ns).collect();
        assert_eq!(running, [90, 80]);
        let Line::Warning(warning) = &lines[0] else { panic!("{:?}", lines[0]) };
        assert!(warning.contains("2 runs") && warning.contains("walks, stalls"), "{warning}");
        let Line::Warning(warning) = &lines[1] else { panic!("{:?}", lines[1]) };
        assert!(warning.starts_with("the runs took 0.10 to 0.20 s"), "{warning}");
        let sources: Vec<_> = head.metrics.iter().map(|metric| &metric.source[..]).collect();
        let [one, two] = ["; run 1 of 2", "; run 2 of 2"];
        assert_eq!(sources, [one, two, one, two]);
    }

    #[test]
    fn the_same_phases_are_joined_by_their_begins() {
        let phase = |time, name: &str| {
            Line::Phase(Phase { time: Nanos::millis(time), name: name.to_owned() })
        };
        let run = |name: &str, begin: u64, phases: [&str; 2]| {
            let value = |at: u64| Some((at / 100) as f64);
            let mut lines = vec![phase(5, phases[0]), phase(begin, phases[1])];
            lines.extend((1..=6).map(|at| slice(at * 100, 7, &[value(at * 100)], 0)));
            (head(0, vec![metric(name, None, false)]), lines)
        };
        let values = |runs: &[(Head, Vec<Line>)]| -> Vec<_> {
            let (_, lines) = join(runs).unwrap();
            slices(&lines).iter().map(|slice| slice.values[1]).collect()
        };
        let first = run("a", 210, ["load", "solve"]);
        // The second run loads for two slices more.
        let second = run("b", 410, ["load", "solve"]);
        let by_phase = [Some(1.0), Some(2.0), Some(5.0), Some(6.0), None, None];
        assert_eq!(values(&[first.clone(), second.clone()]), by_phase);
        let by_time: Vec<_> = (1..=6).map(|at| Some(f64::from(at))).collect();
        assert_eq!(values(&[first, run("b", 410, ["load", "other"])]), by_time);
    }

    #[test]
    fn a_counter_of_a_longer_slice_keeps_its_rate_and_a_gauge_its_value() {
        let gauge = Metric { kind: MetricKind::Gauge, ..metric("rss", None, false) };
        let second = head(0, vec![metric("faults", None, false), gauge]);
        let first = head(0, vec![metric("cycles", None, false)]);
        let mut longer = slice(100, 9, &[Some(40.0), Some(7.0)], 0);
        if let Line::Slice(slice) = &mut longer {
            slice.length = Nanos::millis(400);
        }
        let lines = vec![slice(100, 7, &[Some(1.0)], 0)];
        let (_, lines) = join(&[(first, lines), (second, vec![longer])]).unwrap();
        assert_eq!(slices(&lines)[0].values, [Some(1.0), Some(10.0), Some(7.0)]);
    }

    #[test]
    fn processes_correspond_in_the_order_in_which_they_appear() {
        let first = head(0, vec![metric("a", None, false)]);
        let second = head(0, vec![metric("b", None, false)]);
        let lines = vec![slice(100, 7, &[Some(1.0)], 0), slice(100, 8, &[Some(2.0)], 0)];
        let others = vec![slice(100, 30, &[Some(3.0)], 0), slice(100, 20, &[Some(4.0)], 0)];
        let (_, lines) = join(&[(first, lines), (second, others)]).unwrap();
        let values: Vec<_> = slices(&lines).iter().map(|slice| slice.values.clone()).collect();
        assert_eq!(values, [[Some(1.0), Some(3.0)], [Some(2.0), Some(4.0)]]);
    }

    #[test]
    fn one_recording_stays_as_it_is_and_others_need_its_interval() {
        let lines = vec![slice(100, 7, &[Some(1.0)], 50)];
        let first = head(0, vec![metric("a", Some(0), false)]);
        assert_eq!(join(&[(first.clone(), lines.clone())]), Ok((first.clone(), lines.clone())));
        assert_eq!(join(&[]), Err(JoinError::Empty));
        let other = Head { every: Nanos::millis(10), ..first.clone() };
        let error = join(&[(first, lines.clone()), (other, lines)]).unwrap_err();
        assert!(matches!(error, JoinError::OtherInterval { number: 2, .. }), "{error}");
    }
}
