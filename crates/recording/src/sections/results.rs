//! Sections of the command that wrote a recording: its report, its runs, its rounds, its log.

use hugepilot_render::model::{Bar, Cell, Plot, Report, Section, Table, Unit};
use hugepilot_reports::daemon::DaemonLine;
use hugepilot_reports::{origin, value_report};
use serde_json::Value;

use super::{Timeline, more_rows};
use crate::RecordedTrial;

/// Rows of a table at most.
const MAX_ROWS: usize = 500;

/// Reports of the results in the recording, and why others are not shown.
pub(super) fn results(timeline: &Timeline, name: &str) -> (Vec<Report>, Vec<String>) {
    let (mut reports, mut causes) = (Vec::new(), Vec::new());
    for value in timeline.reports.iter().filter(|value| !is_event(value)) {
        match value_report(value, name) {
            Ok(report) => reports.push(report),
            Err(cause) => causes.push(cause),
        }
    }
    (reports, causes)
}

/// Also of an older daemon.
fn is_event(value: &Value) -> bool {
    value["schema"].as_str().is_some_and(|schema| schema.starts_with("hugepilot.daemon/"))
}

/// Time of each run or trial.
pub(super) fn trials(timeline: &Timeline) -> Section {
    let trials = || timeline.trials.iter().take(MAX_ROWS);
    let row = |trial: &RecordedTrial| {
        [
            Cell::seconds(timeline.seconds(trial.time)),
            trial.name.clone().into(),
            Cell::count(trial.number),
            Cell::seconds(trial.took.as_seconds()),
        ]
    };
    let columns = ["ended", "run", "number", "took"];
    let table = Table::of("Runs and trials", columns, trials().map(row));
    if table.rows.is_empty() {
        return Section::default();
    }
    let bars = trials().map(|trial| {
        Bar::new(format!("{} {}", trial.name, trial.number), Some(trial.took.as_seconds()))
    });
    let plot = Plot::bars("Time of each run", "time", Unit::Seconds, bars);
    let section = Section::new("Runs", "In the order in which they ended.").with(plot).with(table);
    section.with_all(more_rows(timeline.trials.len(), MAX_ROWS))
}

/// Table of the rounds.
pub(super) fn rounds(timeline: &Timeline) -> Section {
    let columns = [
        "decided",
        "ended",
        "process",
        "pid",
        "samples",
        "selected",
        "promoted",
        "demoted",
        "split",
        "freed",
        "ended early",
    ];
    let mut table = Table::new("Rounds, a row for each process", columns);
    let pid = timeline.window.pid;
    let rows = timeline.rounds.rows.iter().filter(|row| pid.is_none_or(|pid| pid == row.id.pid));
    let rows: Vec<_> = rows.collect();
    let count = Cell::count;
    for row in rows.iter().take(MAX_ROWS) {
        let samples = row.samples.map(|samples| samples as f64);
        let at = |time| Cell::seconds(timeline.seconds(time));
        table.row(vec![
            at(row.decided),
            at(row.time),
            row.id.command.clone().into(),
            row.id.pid.to_string().into(),
            Cell::of(samples, Unit::Count, "not sampled"),
            count(row.selected),
            count(row.promoted),
            count(row.demoted),
            count(row.split),
            row.freed.into(),
            row.stopped.clone().unwrap_or_default().into(),
        ]);
    }
    if table.rows.is_empty() {
        return Section::default();
    }
    let text = format!(
        "Regions that each round selected, and those that were verified on huge pages (promoted) \
         or base pages (demoted). Splits free zero-filled memory. Times are since the {}, as in \
         explain.",
        origin(timeline.origin())
    );
    let mut section = Section::new("Rounds", text);
    if timeline.is_simulated() {
        section.text.push_str(" Samples and heat of a simulation are the counts of its policy.");
    }
    section.with(table).with_all(more_rows(rows.len(), MAX_ROWS))
}

/// Log of the daemon.
pub(super) fn log(timeline: &Timeline) -> Section {
    let mut table = Table::new("Events", ["time", "event"]);
    let events = timeline.reports.iter().filter(|value| is_event(value));
    let events =
        events.filter_map(|value| serde_json::from_value::<DaemonLine>(value.clone()).ok());
    let events: Vec<DaemonLine> = events.collect();
    for line in events.iter().take(MAX_ROWS) {
        let seconds = line.unix_seconds - timeline.head.started_unix_seconds;
        let text = hugepilot_reports::daemon_text(line).trim_end().replace('\n', "; ");
        table.row(vec![Cell::seconds(seconds), text.into()]);
    }
    if table.rows.is_empty() {
        return Section::default();
    }
    let section = Section::new("Log of the daemon", "").with(table);
    section.with_all(more_rows(events.len(), MAX_ROWS))
}
