//! Events of a schedule, and the plan of a dry run.

use hugepilot_record::SkipReason;
use hugepilot_record::schedule::FoundBy;
use hugepilot_render::model::{Cell, Lines, Notice, Section, Table, Unit};
use hugepilot_render::table::counted;

use super::counts;
use crate::tune::{PlannedEvent, ScheduleReport};

/// Rows of a plan that the document shows.
const SHOWN: usize = 20;

/// The plan of a dry run, in which nothing was promoted, and the counts of the events.
pub(super) fn schedule(report: &ScheduleReport, dry_run: bool) -> [Section; 2] {
    let text = counts_of(report, dry_run);
    [plan(&report.planned), Section::new("Schedule", "").with_all(Lines::of(&text))]
}

fn counts_of(report: &ScheduleReport, dry_run: bool) -> String {
    let named = [&report.source, &report.policy].map(String::as_str);
    let by = named.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    let by = if by.is_empty() { by } else { format!(" ({by})") };
    let events = counted(report.events, "event was", "events were");
    let mut text = format!("schedule{by}: {} of {events} due\n", report.due_events);
    let [promoted, demoted] =
        if dry_run { ["would promote", "would demote"] } else { ["promoted", "demoted"] };
    let ends = [
        (promoted, report.promoted_events),
        (demoted, report.demoted_events),
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
fn plan(planned: &[PlannedEvent]) -> Section {
    let section = Section::new("Plan", "");
    if planned.is_empty() {
        return section;
    }
    let mut runs: Vec<(&PlannedEvent, u64)> = Vec::new();
    for event in planned {
        match runs.last_mut() {
            Some((first, regions)) if follows(first, *regions, event) => *regions += 1,
            _ => runs.push((event, 1)),
        }
    }
    let columns = ["seconds", "action", "index", "regions", "start", "found by", "skip", "mapping"];
    let rows = runs.iter().take(SHOWN).map(|&(first, regions)| row(first, regions));
    section.with(Table::of("", columns, rows)).with_all(Notice::of_omitted(
        runs.len(),
        SHOWN,
        "row",
        "rows",
    ))
}

/// Whether `event` is the next region of the run of `regions` that begins with `first`.
fn follows(first: &PlannedEvent, regions: u64, event: &PlannedEvent) -> bool {
    let facts = |one: &PlannedEvent| {
        (one.action, one.mapping.clone(), one.start.is_some(), one.found_by, one.skip)
    };
    let is_at_once = (first.seconds - event.seconds).abs() < 0.001;
    is_at_once && first.index + regions == event.index && facts(first) == facts(event)
}

fn row(first: &PlannedEvent, regions: u64) -> [Cell; 8] {
    let or_none = |text: Option<String>, none: &str| {
        text.map_or_else(|| Cell::of(None, Unit::Number, none), Cell::from)
    };
    let found_by = first.found_by.map(|by| match by {
        FoundBy::Ordinal => "ordinal".to_owned(),
        FoundBy::Size => "size".to_owned(),
    });
    [
        format!("{:.3}", first.seconds).into(),
        first.action.to_string().into(),
        Cell::count(first.index),
        Cell::count(regions),
        or_none(first.start.map(|start| start.to_string()), "not found"),
        or_none(found_by, "not found"),
        or_none(first.skip.map(|reason| reason.to_string()), "not skipped"),
        first.mapping.name.clone().into(),
    ]
}

#[cfg(test)]
mod tests {
    use hugepilot_record::schedule::{ScheduleAction, ScheduledMapping};
    use hugepilot_render::Width;
    use hugepilot_units::{Bytes, VirtAddr};

    use super::*;
    use crate::tune::TuneReport;
    use crate::tune::text::tests::stopped;
    use crate::tune::text::tune_text;

    fn planned(seconds: f64, index: u64, skip: Option<SkipReason>) -> PlannedEvent {
        let mapping =
            ScheduledMapping { name: "[anon]".to_owned(), ordinal: 3, bytes: Bytes::gib(1) };
        PlannedEvent {
            seconds,
            action: ScheduleAction::Promote,
            mapping,
            index,
            start: Some(VirtAddr::new(0x7f00_0000_0000 + (index << 21))),
            found_by: Some(FoundBy::Size),
            skip,
        }
    }

    #[test]
    fn events_are_counted_by_their_ends_and_reasons() {
        let report = ScheduleReport {
            source: "sim pcc".to_owned(),
            policy: "pcc".to_owned(),
            events: 130,
            due_events: 125,
            promoted_events: 120,
            superseded_events: 1,
            skipped: [(SkipReason::AlreadyHuge, 1)].into(),
            waiting: [(SkipReason::TooFewResident, 3)].into(),
            found_by_ordinal: 100,
            found_by_size: 24,
            ..ScheduleReport::default()
        };
        assert_eq!(
            counts_of(&report, false),
            "schedule (sim pcc, pcc): 125 of 130 events were due\n\
             events: promoted 120, superseded 1\n\
             mappings found: by ordinal 100, by size 24\n\
             events skipped: already_huge 1\n\
             events waiting: too_few_resident 3\n"
        );
        let text = counts_of(&ScheduleReport { demoted_events: 2, ..report }, true);
        assert!(text.contains("\nevents: would promote 120, would demote 2, "), "{text}");
    }

    #[test]
    fn adjacent_regions_of_a_plan_are_one_row() {
        let wait = Some(SkipReason::TooFewResident);
        let plan = vec![
            planned(0.5, 7, None),
            planned(0.5, 8, None),
            planned(0.5, 9, wait),
            planned(2.0, 10, wait),
        ];
        let schedule = ScheduleReport { planned: plan, ..ScheduleReport::default() };
        let text = tune_text(
            &TuneReport { schedule: Some(schedule), ..stopped() },
            Width::UNLIMITED,
            false,
        );
        let rows = text.lines().skip_while(|line| !line.starts_with("SECONDS")).skip(1).take(3);
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
        let row = |row: &str| row.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rows[0], row("0.500 promote 7 2 0x7f0000e00000 size - [anon]"));
        assert_eq!(rows[1], row("0.500 promote 9 1 0x7f0001200000 size too_few_resident [anon]"));
        assert_eq!(rows[2], row("2.000 promote 10 1 0x7f0001400000 size too_few_resident [anon]"));
    }
}
