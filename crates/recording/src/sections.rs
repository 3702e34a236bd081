//! Report of a recording.

mod census;
mod memory;
mod method;
mod phases;
mod process;
mod results;
mod signature;
mod system;
mod threads;
mod verdict;

pub(crate) use process::zero_notice;
pub(super) use signature::COARSE;

use hugepilot_record::{Metric, MetricScope};
use hugepilot_render::model::{Cell, Mark, Notice, Report, Section, Table, Unit};
use hugepilot_render::table::counted;

use super::measures::{Measure, measures, stall_measures};
use super::memory::Memory;
use super::multiplexing;
use super::timeline::{ProcessTrack, Timeline, Window, metrics};
use crate::text::unseen_cause;
use crate::{TreeUse, causes};

/// Processes with a section of their own at most.
const MAX_SECTIONS: usize = 12;

/// A report of a recording. `name` is its file.
pub fn recording_report(timeline: &Timeline, name: &str) -> Report {
    let order = order(timeline);
    let title = match order[..] {
        [only] => format!("Memory of {}", timeline.processes[only].title()),
        [] => format!("Recording {name}"),
        _ => format!("Memory of {} processes", order.len()),
    };
    let (results, not_shown) = results::results(timeline, name);
    let title = match (&order[..], &results[..]) {
        ([], [only]) => only.title.clone(),
        _ => title,
    };
    let mut report = Report::new(title);
    if let (Some(main), true, false) = (order.first(), results.is_empty(), timeline.is_simulated())
    {
        report.summary.push(verdict::verdict(timeline, &timeline.processes[*main]));
    }
    report.add(results::rounds(timeline));
    for result in results {
        report.summary.extend(result.summary);
        report.sections.extend(result.sections);
    }
    report.summary.extend(summary(timeline, &order));
    report.add(census::section(timeline));
    report.add(results::trials(timeline));
    report.add(results::log(timeline));
    let mut warnings = method::warnings(timeline).with_all(multiplexing::warning(timeline));
    for cause in not_shown {
        let help = "print it: zcat FILE | jq .report";
        let text = format!("a result is not shown: {cause}");
        warnings.blocks.push(Notice::note(text).help(help).into());
    }
    if warnings.blocks.len() <= 3 {
        report.add(warnings.clone());
    }
    if order.len() > 1 || unseen(timeline).is_some_and(TreeUse::is_much_unseen) {
        report.add(Section::new("Processes", "").with(overview(timeline, &order)));
    }
    for &index in order.iter().take(MAX_SECTIONS) {
        process::sections(timeline, &timeline.processes[index], &mut report, order.len() > 1);
    }
    system::sections(timeline, &mut report);
    if warnings.blocks.len() > 3 {
        report.add(warnings);
    }
    method::add(timeline, name, &mut report);
    report
}

/// All measures of a process: those of its metrics and those of its stall samples.
pub(crate) fn all_measures(timeline: &Timeline, process: &ProcessTrack) -> Vec<Measure> {
    let mut all = stall_measures(&process.stalls, timeline.head.sampler_missing.as_deref());
    all.extend(measures(&timeline.head, MetricScope::Process, &process.track));
    all
}

/// The process with the most stall samples.
pub(crate) fn main_process(timeline: &Timeline) -> Option<&ProcessTrack> {
    order(timeline).first().map(|&index| &timeline.processes[index])
}

/// Indices of the processes: the most stall samples first, then the most memory.
fn order(timeline: &Timeline) -> Vec<usize> {
    let mut order: Vec<usize> = (0..timeline.processes.len()).collect();
    let key = |process| (scattered(process), Memory::of(timeline, process).peak());
    let keys: Vec<(f64, f64)> = timeline.processes.iter().map(key).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (keys[a], keys[b]);
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    order
}

/// Stall samples at scattered accesses.
fn scattered(process: &ProcessTrack) -> f64 {
    process.stalls.column(2).iter().filter(|value| value.is_finite()).sum()
}

/// Share of the samples at scattered accesses.
fn stall_ratio(process: &ProcessTrack) -> Option<f64> {
    let all: f64 = process.stalls.column(0).iter().filter(|value| value.is_finite()).sum();
    (all > 0.0).then(|| scattered(process) / all)
}

fn summary(timeline: &Timeline, order: &[usize]) -> Vec<String> {
    let mut summary = Vec::new();
    let quantity = |value, unit| Cell::of(Some(value), unit, "").text();
    let every = quantity(timeline.head.every.as_seconds(), Unit::Seconds);
    let duration = quantity(timeline.duration, Unit::Seconds);
    if timeline.head.every.get() > 0 && timeline.duration == 0.0 {
        summary.push("Nothing is recorded: see the warnings.".to_owned());
    } else if timeline.head.every.get() > 0 {
        let span = timeline.end.as_ref().and_then(|end| end.span.as_ref());
        let span = span.map_or_else(String::new, |span| format!(", {span}"));
        summary.push(format!("{duration} recorded in slices of {every}{span}."));
    } else if timeline.duration > 0.0 {
        let simulated = if timeline.is_simulated() { " of simulated time" } else { "" };
        summary.push(format!("{duration}{simulated} recorded."));
    }
    if let Some(&first) = order.first() {
        let process = &timeline.processes[first];
        let ranges = process.areas.ranges();
        let huge = timeline.head.machine.huge_page_bytes.max(1);
        if let Some(ratio) = stall_ratio(process).filter(|_| !timeline.is_simulated()) {
            let hottest = process.heat.by_name(&ranges, huge).into_iter().next();
            let place = hottest.map(|(name, heat)| {
                let share = heat as f64 / process.heat.total() as f64;
                let share = quantity(share, Unit::Ratio);
                format!(", {share} of its heat in {name}")
            });
            summary.push(format!(
                "{} waited for scattered memory accesses in {} of its samples{}.",
                process.title(),
                quantity(ratio, Unit::Ratio),
                place.unwrap_or_default()
            ));
        }
        let memory = Memory::of(timeline, process);
        if let Some(huge) = memory.peak_huge() {
            summary.push(format!(
                "It had at most {} resident, and at most {} on huge pages.",
                quantity(memory.peak(), Unit::Bytes),
                quantity(huge, Unit::Bytes)
            ));
        }
    }
    summary.extend(missing(&timeline.head.metrics));
    summary
}

/// Says how many metrics are missing, with the first cause.
fn missing<'a>(metrics: &'a [Metric]) -> Option<String> {
    let metric = |metric: &'a Metric| Some((&*metric.name, metric.missing.as_deref()?));
    let causes = causes(metrics.iter().filter_map(metric));
    let &(cause, named) = causes.first()?;
    let all: usize = causes.iter().map(|(_, count)| count).sum();
    let others = match all - named {
        0 => String::new(),
        1 => " Another is missing for a cause that the section Metrics lists.".to_owned(),
        others => format!(" {others} more have other causes, which the section Metrics lists."),
    };
    let are = if named == 1 { "is" } else { "are" };
    Some(format!("{named} of {} metrics {are} missing: {cause}.{others}", metrics.len()))
}

/// Sums of a process: a column, the counters, its unit, and the factor to it.
const SUMS: [(&str, &[&str], Unit, f64); 4] = [
    ("CPU time", &["user_time", "system_time"], Unit::Seconds, 1e-9),
    ("page faults", &["minor_faults", "major_faults"], Unit::Count, 1.0),
    ("instructions", &["instructions"], Unit::Count, 1.0),
    ("context switches", &["voluntary_switches", "involuntary_switches"], Unit::Count, 1.0),
];

/// Use of the program and its descendants, if the report is about all of it.
fn unseen(timeline: &Timeline) -> Option<&TreeUse> {
    let tree = timeline.end.as_ref()?.tree.as_ref()?;
    (timeline.window == Window::default()).then_some(tree)
}

/// The row of what no process has.
fn unseen_row(tree: &TreeUse, titles: &[String]) -> Vec<Cell> {
    let cell = |title: &String| match title.as_str() {
        "process" => "children not seen".into(),
        "pid" => "–".into(),
        "CPU time" => Cell::of(Some(tree.unseen_cpu_seconds), Unit::Seconds, ""),
        "page faults" => Cell::of(Some(tree.unseen_faults as f64), Unit::Count, ""),
        "context switches" => {
            let switches = tree.unseen_context_switches.map(|count| count as f64);
            let missing = "they are known only at the end of a program that hugepilot started";
            Cell::of(switches, Unit::Count, missing)
        }
        _ => Cell::of(None, Unit::Count, &unseen_cause(tree)),
    };
    titles.iter().map(cell).collect()
}

fn overview(timeline: &Timeline, order: &[usize]) -> Table {
    let columns = ["process", "pid", "stall share", "peak memory", "most on huge pages"];
    let mut table = Table::new("Processes, the most stall samples first", columns);
    let counted = |name: &&str| {
        let mut all = metrics(&timeline.head, MetricScope::Process);
        all.any(|metric| metric.name == **name && metric.missing.is_none())
    };
    let sums: Vec<_> = SUMS.iter().filter(|(_, names, ..)| names.iter().any(counted)).collect();
    let titles = sums.iter().map(|(title, ..)| (*title).to_owned());
    table.columns.splice(2..2, titles);
    for process in order.iter().map(|&at| &timeline.processes[at]) {
        let no_samples = timeline.head.sampler_missing.as_deref().unwrap_or("no samples");
        let mut row: Vec<Cell> = vec![process.name.clone().into(), process.pid.to_string().into()];
        row.extend(sums.iter().map(|&&(_, names, unit, factor)| {
            let parts = names.iter().filter_map(|name| timeline.sum(process, name));
            let sum = parts.reduce(|a, b| a + b).map(|sum| sum * factor);
            Cell::of(sum, unit, "no slice has a value")
        }));
        row.push(Cell::of(stall_ratio(process), Unit::Ratio, no_samples));
        row.extend(Memory::of(timeline, process).peaks());
        table.row(row);
    }
    if let Some(tree) = unseen(timeline) {
        table.row(unseen_row(tree, &table.columns.clone()));
    }
    table
}

/// A notice of the rows of a table beyond its limit, if there are any.
fn more_rows(rows: usize, limit: usize) -> Option<Notice> {
    let more = rows.saturating_sub(limit);
    let rows = counted(more as u64, "further row is", "further rows are");
    (more > 0).then(|| Notice::note(format!("{rows} not shown")))
}

/// Phases that the recording names, and rounds that changed pages, as marks of a plot, in order of
/// time.
fn marks(timeline: &Timeline) -> Vec<Mark> {
    let rounds = timeline.rounds.rows.iter().filter_map(|row| {
        Some(Mark { time_seconds: timeline.seconds(row.time), name: row.change()? })
    });
    let mark = |phase: &crate::Phase| Mark {
        time_seconds: timeline.seconds(phase.time),
        name: phase.name.clone(),
    };
    let mut marks: Vec<Mark> = timeline.phases.iter().map(mark).chain(rounds).collect();
    marks.sort_by(|a, b| a.time_seconds.total_cmp(&b.time_seconds));
    marks.truncate(100);
    marks
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{MetricKind, Unit};

    use super::*;

    #[test]
    fn one_metric_with_another_cause_is_one() {
        let metric = |name: &str, cause: &str| Metric {
            name: name.to_owned(),
            unit: Unit::Count,
            kind: MetricKind::Counter,
            scope: MetricScope::Process,
            source: String::new(),
            description: String::new(),
            group: None,
            missing: Some(cause.to_owned()),
        };
        let mut metrics = vec![metric("a", "x"), metric("b", "x"), metric("c", "y")];
        let first = "2 of 3 metrics are missing: x.";
        let sentence =
            format!("{first} Another is missing for a cause that the section Metrics lists.");
        assert_eq!(missing(&metrics), Some(sentence));
        metrics[1].missing = Some("z".to_owned());
        let first = "1 of 3 metrics is missing: x.";
        let rest = "which the section Metrics lists.";
        let sentence = format!("{first} 2 more have other causes, {rest}");
        assert_eq!(missing(&metrics), Some(sentence));
    }
}
