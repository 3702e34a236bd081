//! Events of a schedule, and the plan of a dry run.

use std::fmt::Write;

use hugepilot_record::SkipReason;
use hugepilot_record::schedule::FoundBy;
use hugepilot_record::tune::{PlannedEvent, ScheduleReport};

use super::counts;
use crate::table::{Width, table};

/// Lines of a plan that the text shows.
const SHOWN: usize = 20;

/// The counts of the events; in a dry run, also the plan.
pub(super) fn schedule(report: &ScheduleReport, width: Width) -> String {
    let mut text = plan(&report.planned, width);
    let named = [&report.source, &report.policy].map(String::as_str);
    let by = named.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    let by = if by.is_empty() { by } else { format!(" ({by})") };
    let _ = writeln!(
        text,
        "\nschedule{by}: {} of {} events were due",
        report.due_events, report.events
    );
    let ends = [
        ("promoted", report.promoted_events),
        ("demoted", report.demoted_events),
        ("superseded", report.superseded_events),
        ("failed", report.failed_events),
        ("pending", report.pending_events),
    ];
    text.push_str(&counts("events", ends.into_iter()));
    let found = [
        ("by ordinal", report.found_by_ordinal),
        ("by size", report.found_by_size),
        ("not at all", report.not_found),
    ];
    text.push_str(&counts("mappings found", found.into_iter()));
    let of = |reasons: &hugepilot_record::Skips| -> Vec<(SkipReason, u64)> {
        reasons.iter().map(|(&reason, &count)| (reason, count)).collect()
    };
    text.push_str(&counts("events skipped", of(&report.skipped).into_iter()));
    text.push_str(&counts("events waiting", of(&report.waiting).into_iter()));
    text
}

/// Rows of the plan: adjacent regions of the same time, action and result are one.
fn plan(planned: &[PlannedEvent], width: Width) -> String {
    if planned.is_empty() {
        return String::new();
    }
    let mut runs: Vec<(&PlannedEvent, u64)> = Vec::new();
    for event in planned {
        match runs.last_mut() {
            Some((first, regions)) if follows(first, *regions, event) => *regions += 1,
            _ => runs.push((event, 1)),
        }
    }
    let header = ["SECONDS", "ACTION", "INDEX", "REGIONS", "START", "FOUND_BY", "SKIP", "MAPPING"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(runs.iter().take(SHOWN).map(|&(first, regions)| row(first, regions)));
    let mut text = format!("\nplan:\n{}", table(rows, &[0, 2, 3], width));
    if let Some(more) = runs.len().checked_sub(SHOWN).filter(|&more| more > 0) {
        let _ = writeln!(text, "{more} more rows (--json has all events)");
    }
    text
}

/// Whether `event` is the next region of the run of `regions` that begins with `first`.
fn follows(first: &PlannedEvent, regions: u64, event: &PlannedEvent) -> bool {
    let facts = |one: &PlannedEvent| {
        (one.action, one.mapping.clone(), one.start.is_some(), one.found_by, one.skip)
    };
    let is_at_once = (first.seconds - event.seconds).abs() < 0.001;
    is_at_once && first.index + regions == event.index && facts(first) == facts(event)
}

fn row(first: &PlannedEvent, regions: u64) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let found_by = first.found_by.map(|by| match by {
        FoundBy::Ordinal => "ordinal".to_owned(),
        FoundBy::Size => "size".to_owned(),
    });
    vec![
        format!("{:.3}", first.seconds),
        first.action.to_string(),
        first.index.to_string(),
        regions.to_string(),
        or_none(first.start.map(|start| start.to_string())),
        or_none(found_by),
        or_none(first.skip.map(|reason| reason.to_string())),
        first.mapping.name.clone(),
    ]
}
