//! Expected reports of a recording, as text. `back_ends.rs` has the other back ends.

use std::path::Path;

use hugepilot_recording::{
    Line, RecordingLimits, RecordingReader, Slice, Timeline, Window, comparison_report, profile,
    recording_report, signatures_section,
};
use hugepilot_render::model::{Block, Chart, Report, TimePlot};
use hugepilot_render::{Width, back_end};
use hugepilot_testkit::assert_golden;

use crate::example;

fn golden(name: &str, got: &str) {
    assert_golden(Path::new("testdata/report").join(name), got);
}

fn short() -> Timeline {
    example::timeline(4, "solve", Window::default())
}

fn report() -> Report {
    recording_report(&short(), "solve.recording")
}

#[test]
fn text_is_as_expected() {
    golden("recording.txt", &back_end::text(&report(), Width::columns(100)));
}

#[test]
fn the_legend_of_the_map_is_where_it_is_drawn() {
    let legend = "Orange lines mark cells";
    let report = report();
    for drawn in [back_end::html(&report), back_end::svg(&report)] {
        assert!(drawn.contains(legend));
    }
    for written in [back_end::text(&report, Width::columns(100)), back_end::markdown(&report)] {
        assert!(!written.contains("Orange"));
    }
}

fn time_plot<'a>(report: &'a Report, title: &str) -> &'a TimePlot {
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let charts = blocks.filter_map(|block| match block {
        Block::Plot(plot) if plot.title == title => Some(&plot.chart),
        _ => None,
    });
    let mut plots =
        charts.filter_map(|chart| if let Chart::Time(plot) = chart { Some(plot) } else { None });
    plots.next().unwrap_or_else(|| panic!("no plot {title}"))
}

#[test]
fn a_part_has_the_pages_and_the_names_of_mappings_from_before_it() {
    let window = Window { from: Some(3.45), to: Some(3.85), pid: None };
    let report = recording_report(&example::timeline(4, "solve", window), "solve.recording");
    let pages = time_plot(&report, "Resident memory");
    assert_eq!(pages.times_seconds, [3.5, 3.6, 3.7, 3.8]);
    assert!(pages.lines[1].values.iter().all(|value| *value > Some(0.0)), "{:?}", pages.lines);
    let text = back_end::text(&report, Width::columns(100));
    assert!(text.contains("/data/solve.graph") && !text.contains("[unknown mapping]"), "{text}");
}

#[test]
fn folded_stacks_are_as_expected() {
    golden("recording.folded", &profile::folded(&short()));
}

#[test]
fn the_table_of_processes_has_the_sums_of_each() {
    let mut head = example::head();
    head.metrics.iter_mut().for_each(|metric| metric.missing = None);
    let mut timeline = Timeline::new(head, Window::default());
    for mut line in example::lines(4, "solve") {
        if let Line::Slice(Slice { pid: Some(pid), tid: None, values, .. }) = &mut line {
            values[5] = Some(f64::from(pid.0));
        }
        timeline.add(line);
    }
    let text = back_end::text(&recording_report(&timeline, "a.rec"), Width::UNLIMITED);
    let row = |begin: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(begin)).expect(begin);
        line.split_whitespace().collect()
    };
    assert!(text.contains("CPU time  page faults  instructions  stall share"), "{text}");
    // In 40 slices.
    assert_eq!(row("logger ")[1..5], ["4720", "0.12s", "40", "188,800"]);
    assert_eq!(row("solve  ")[4], "188,440");
}

#[test]
fn signatures_of_several_recordings_are_side_by_side() {
    let (first, other) = (short(), example::timeline(3, "solve", Window::default()));
    let alone = signatures_section(&[("a.rec", &first)]);
    assert!(alone.blocks.is_empty(), "there is nothing beside it");
    let mut report = Report::new("Two recordings");
    report.begin_with(signatures_section(&[("a.rec", &first), ("b.rec", &other)]));
    golden("signatures.txt", &back_end::text(&report, Width::columns(120)));
}

#[test]
fn a_comparison_is_as_expected() {
    let other = example::timeline(3, "solve", Window::default());
    let report = comparison_report(&short(), &other, ["a.recording", "b.recording"]);
    golden("comparison.txt", &back_end::text(&report, Width::columns(100)));
}

#[test]
fn a_minute_of_html_is_small_and_the_file_reads_back() {
    let file = example::file(60, "solve");
    let mut reader = RecordingReader::new(&file[..], RecordingLimits::default()).unwrap();
    let mut timeline = Timeline::new(reader.head().clone(), Window::default());
    reader.by_ref().for_each(|line| timeline.add(line.unwrap()));
    let report = recording_report(&timeline, "solve.recording");
    let direct = example::timeline(60, "solve", Window::default());
    assert_eq!(report, recording_report(&direct, "solve.recording"));
    let html = back_end::html(&report);
    assert!(html.len() < 1 << 20, "{}", html.len());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(folder.join("solve.recording"), &file).unwrap();
    std::fs::write(folder.join("report.html"), html).unwrap();
}
