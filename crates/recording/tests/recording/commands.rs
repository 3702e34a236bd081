//! Recordings of commands: rounds, runs, reports.

use std::path::Path;

use hugepilot_policy::explain::{Explainer, Shown};
use hugepilot_policy::journal::{JournalLimits, JournalReader};
use hugepilot_record::{Pid, ProvenanceCounts};
use hugepilot_recording::{
    End, Head, Line, RecordedTrial, Timeline, TreeUse, Window, recording_report,
};
use hugepilot_render::model::{Block, Cell, Chart, Report};
use hugepilot_render::{Width, back_end};
use hugepilot_reports::tune::{SCHEMA, TuneReport};
use hugepilot_testkit::assert_golden;
use hugepilot_units::Nanos;
use serde_json::{Value, json};

use crate::example;

/// A journal of six rounds, from 103 s to 107 s.
pub(crate) const JOURNAL: &str = include_str!("../../../policy/testdata/journal.ndjson");

/// Head of a recording without metrics.
fn head() -> Head {
    Head {
        command: ["hugepilot", "tune", "--record", "x.rec"].map(str::to_owned).to_vec(),
        started: Nanos::seconds(100),
        every: Nanos::ZERO,
        metrics: Vec::new(),
        sampler: None,
        ..example::head()
    }
}

fn end() -> Line {
    let samples = ProvenanceCounts::default();
    Line::End(End {
        time: Nanos::seconds(108),
        exit: None,
        samples,
        own_cpu: Nanos::millis(40),
        ..End::default()
    })
}

fn timeline(window: Window, lines: impl IntoIterator<Item = Line>) -> Timeline {
    let mut timeline = Timeline::new(head(), window);
    lines.into_iter().for_each(|line| timeline.add(line));
    timeline
}

fn journal() -> impl Iterator<Item = Line> {
    JOURNAL.lines().map(|line| Line::Journal(serde_json::from_str(line).unwrap()))
}

fn trial(number: u64, name: &str) -> Line {
    let took = Nanos::millis(100 * number);
    let (time, result) = (Nanos::seconds(100 + number), Value::Null);
    Line::Trial(RecordedTrial { time, name: name.to_owned(), number, took, result })
}

fn tables(report: &Report, title: &str) -> usize {
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    blocks.filter(|block| matches!(block, Block::Table(table) if table.title == title)).count()
}

#[test]
fn rounds_of_a_tune_are_shown_on_the_heat_map_and_in_a_table() {
    let report =
        recording_report(&timeline(Window::default(), journal().chain([end()])), "tune.rec");
    assert_golden(
        Path::new("testdata/report/rounds.txt"),
        &back_end::text(&report, Width::columns(100)),
    );
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let map = blocks.into_iter().find_map(|block| match block {
        Block::Plot(plot) => match &plot.chart {
            Chart::HeatMap(map) => Some(map),
            _ => None,
        },
        _ => None,
    });
    let map = map.expect("a heat map");
    let marks: Vec<_> = map.marks.iter().map(|mark| &*mark.name).collect();
    assert_eq!(marks, ["5 promoted", "6 promoted"]);
    // Windows overlap: each sample counts once.
    let heat: u64 = map.cells.iter().map(|cell| u64::from(cell.2)).sum();
    assert_eq!(heat, 10_801 + 905 + 10_122);
    assert!(map.cells.iter().any(|cell| cell.3 > 0), "cells on huge pages");
    assert!(back_end::html(&report).contains("5 promoted"));
}

#[test]
fn the_rounds_of_a_recorded_tune_precede_its_report() {
    let tuned = TuneReport { schema: SCHEMA.to_owned(), ..TuneReport::default() };
    let tuned = Line::Report(serde_json::to_value(tuned).unwrap());
    let timeline = timeline(Window::default(), journal().chain([tuned]));
    let report = recording_report(&timeline, "tune.rec");
    let titles: Vec<_> = report.sections.iter().map(|section| &*section.title).take(2).collect();
    assert!(
        matches!(titles[..], ["Rounds", second] if second.starts_with("Tune of ")),
        "{titles:?}"
    );
}

#[test]
fn a_missing_sampler_is_a_note() {
    let head = Head { sampler_missing: Some("a cause".to_owned()), ..Head::default() };
    let report = recording_report(&Timeline::new(head, Window::default()), "x.rec");
    let text = back_end::text(&report, Width::columns(100));
    assert!(text.contains("note: no stall samples over time: a cause"), "{text}");
}

#[test]
fn a_journal_alone_is_shown_as_the_journal_of_a_recording() {
    let heat = |timeline: &Timeline| {
        let report = recording_report(timeline, "tune");
        let text = back_end::text(&report, Width::columns(100));
        assert!(!text.contains("1970") && !text.contains("no end"), "{text}");
        let sections = text.split("\n\n").map(str::to_owned);
        let of_heat = sections.filter(|part| part.contains("[heap]") || part.contains("[anon]"));
        (tables(&report, "Rounds, a row for each process"), of_heat.collect::<Vec<_>>())
    };
    assert!(Timeline::is_journal(JOURNAL));
    let whole = Timeline::of_journal(JOURNAL, Window::default()).unwrap();
    let (rounds, parts) = heat(&whole);
    assert_eq!(rounds, 1);
    let (_, expected) = heat(&timeline(Window::default(), journal().chain([end()])));
    assert_eq!((parts.len(), &parts[1..]), (4, &expected[1..]));
    let mut cut = Timeline::of_journal(&JOURNAL[..JOURNAL.len() - 9], Window::default()).unwrap();
    assert!(cut.warnings.pop().unwrap().ends_with("bytes was cut"), "{:?}", cut.warnings);
    let damaged = JOURNAL.replacen('\n', "\nx\n", 1);
    let error = Timeline::of_journal(&damaged, Window::default()).unwrap_err();
    assert!(error.to_string().starts_with("line 2 is damaged"), "{error}");
}

/// Seconds of the decisions in the table of rounds, and the text before it.
fn decided(timeline: &Timeline) -> (Vec<f64>, String) {
    let report = recording_report(timeline, "tune");
    let section = report.sections.into_iter().find(|section| section.title == "Rounds").unwrap();
    let Block::Table(table) = &section.blocks[0] else { panic!("a table") };
    let seconds = table.rows.iter().map(|row| match row[0] {
        Cell::Quantity(quantity) => quantity.value,
        _ => panic!("a time"),
    });
    (seconds.collect(), section.text)
}

#[test]
fn times_count_from_the_origin_of_explain() {
    let explained = |started| {
        let mut reader = JournalReader::new(JOURNAL.as_bytes(), JournalLimits::default()).unwrap();
        let mut explainer = Explainer::new(Shown::default(), started);
        while let Some(round) = reader.next() {
            explainer.add(reader.goal(), &round.unwrap());
        }
        let rounds = explainer.finish(0).shown;
        rounds.iter().map(|round| round.seconds).collect::<Vec<_>>()
    };
    let alone = Timeline::of_journal(JOURNAL, Window::default()).unwrap();
    let recorded = timeline(Window::default(), journal());
    for (timeline, started, origin) in [
        (alone, None, "Times are since the first observation, as in explain."),
        (recorded, Some(head().started), "Times are since the start of the recording, as in"),
    ] {
        let (seconds, text) = decided(&timeline);
        assert!(text.contains(origin), "{text}");
        let explained = explained(started);
        assert!(seconds[0] > 0.0 && seconds.len() == explained.len());
        for (shown, explained) in seconds.iter().zip(&explained) {
            assert!((shown - explained).abs() < 1e-6, "{seconds:?} is not {explained:?}");
        }
    }
}

#[test]
fn only_the_chosen_process_has_rounds() {
    let window = Window { pid: Some(Pid(7)), ..Window::default() };
    let report = recording_report(&timeline(window, journal()), "tune.rec");
    assert_eq!(tables(&report, "Rounds, a row for each process"), 0);
}

#[test]
fn unseen_children_have_a_row_and_a_warning_or_neither() {
    let of_process = Window { pid: Some(Pid(4711)), ..Window::default() };
    let of_a_second = Window { to: Some(1.0), ..Window::default() };
    for (window, is_shown) in [(Window::default(), true), (of_process, false), (of_a_second, false)]
    {
        let mut timeline = example::timeline(2, "solve", window);
        let tree = TreeUse { faults: 10_000, unseen_faults: 9_000, ..TreeUse::default() };
        timeline.end.as_mut().unwrap().tree = Some(tree);
        let text = back_end::text(&recording_report(&timeline, "a.rec"), Width::columns(100));
        for part in ["children not seen  ", "warning: children not seen: "] {
            assert_eq!(text.contains(part), is_shown, "{part}: {text}");
        }
    }
}

#[test]
fn runs_and_the_report_of_a_command_are_shown() {
    let unknown = Line::Report(json!({"schema": "hugepilot.later/1"}));
    let lines = [trial(1, "base"), trial(2, "thp"), unknown, end()];
    let report = recording_report(&timeline(Window::default(), lines), "compare.rec");
    let text = back_end::text(&report, Width::columns(100));
    assert_golden(Path::new("testdata/report/runs.txt"), &text);
}

#[test]
fn the_log_of_the_daemon_is_a_table() {
    let log = include_str!("../../../reports/testdata/daemon.ndjson");
    let lines = log.lines().map(|line| Line::Report(serde_json::from_str(line).unwrap()));
    let report = recording_report(&timeline(Window::default(), lines.chain([end()])), "d.rec");
    assert_eq!(tables(&report, "Events"), 1);
    let text = back_end::text(&report, Width::columns(120));
    assert!(text.contains("started: use") && !text.contains("is not shown"), "{text}");
}

#[test]
fn a_damaged_round_is_a_warning() {
    let lines = [Line::Journal(json!({"number": 1})), end()];
    let report = recording_report(&timeline(Window::default(), lines), "x.rec");
    let text = back_end::text(&report, Width::columns(120));
    assert!(text.contains("a round is not shown: not a journal of hugepilot"), "{text}");
}

#[test]
fn reports_beyond_the_limit_are_counted() {
    let long = "x".repeat(40 << 20);
    let report = |name: &str| Line::Report(json!({"schema": name, "text": long}));
    let lines = [report("a/1"), report("b/1"), end()];
    let report = recording_report(&timeline(Window::default(), lines), "x.rec");
    let text = back_end::text(&report, Width::columns(120));
    assert!(text.contains("\"a/1\"") && !text.contains("\"b/1\""));
    assert!(text.contains("the report omits 1 line, beyond its limits"), "{text}");
}
