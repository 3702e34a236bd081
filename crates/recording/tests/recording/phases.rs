//! Tables of phases.

use hugepilot_recording::{Line, Phase, Timeline, Window, recording_report};
use hugepilot_render::model::{Block, Cell, Quantity, Report, Table};
use hugepilot_render::{Width, back_end};
use hugepilot_units::Nanos;

use crate::example;

/// The first table of phases whose title begins so.
fn table(report: &Report, title: &str) -> Table {
    let mut blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let found = blocks.find_map(|block| match block {
        Block::Table(table) if table.title.starts_with(title) => Some(table.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no table {title}"))
}

fn numbers(table: &Table, column: &str) -> Vec<f64> {
    let at = table.columns.iter().position(|name| name == column).unwrap();
    let number = |row: &Vec<Cell>| match row[at] {
        Cell::Quantity(Quantity { value, .. }) => value,
        _ => f64::NAN,
    };
    table.rows.iter().map(number).collect()
}

fn report(timeline: &Timeline) -> Report {
    recording_report(timeline, "solve.rec")
}

const NAMED: &str = "Phases that the recording names";

#[test]
fn a_slice_is_of_one_phase() {
    let report = report(&example::timeline(4, "solve", Window::default()));
    let [named, found] = [NAMED, "Phases by change points"].map(|title| table(&report, title));
    assert!(found.rows.len() > 1);
    let faults = |table| numbers(table, "faults").iter().sum::<f64>();
    assert_eq!(faults(&named), faults(&found));
}

#[test]
fn a_phase_is_cut_to_the_window() {
    let window = Window { from: Some(0.5), to: Some(2.0), pid: None };
    let named = table(&report(&example::timeline(4, "solve", window)), NAMED);
    assert_eq!(
        (numbers(&named, "from"), numbers(&named, "took")),
        (vec![0.5, 1.0], vec![0.5, 1.0])
    );
}

#[test]
fn a_phase_from_before_the_recording_begins_with_it() {
    let mut timeline = Timeline::new(example::head(), Window::default());
    let time = example::head().started - Nanos::millis(19);
    timeline.add(Line::Phase(Phase { time, name: "build".to_owned() }));
    example::lines(1, "solve").into_iter().skip(3).for_each(|line| timeline.add(line));
    let report = report(&timeline);
    assert_eq!(numbers(&table(&report, NAMED), "from")[0], 0.0);
    let text = back_end::text(&report, Width::columns(100));
    assert!(text.contains("build") && !text.contains("-19") && !text.contains("\u{2212}19"));
}

#[test]
fn a_phase_after_the_last_slice_takes_no_time() {
    let mut timeline = example::timeline(1, "solve", Window::default());
    let time = example::head().started + Nanos::seconds(3);
    timeline.add(Line::Phase(Phase { time, name: "over".to_owned() }));
    let named = table(&report(&timeline), NAMED);
    assert_eq!(numbers(&named, "took").last(), Some(&0.0));
}

#[test]
fn a_slice_without_values_does_not_count_for_cpu_use() {
    let mut lines = example::lines(1, "solve");
    let slices = lines.iter_mut().filter_map(|line| match line {
        Line::Slice(slice) if slice.pid.is_some() && slice.tid.is_none() => Some(slice),
        _ => None,
    });
    for (at, slice) in slices.enumerate() {
        slice.values[0] = (at / 2 % 2 == 0).then_some(5e7);
    }
    let mut timeline = Timeline::new(example::head(), Window::default());
    lines.into_iter().for_each(|line| timeline.add(line));
    let named = table(&report(&timeline), NAMED);
    assert!(numbers(&named, "CPU use").iter().all(|ratio| (ratio - 0.5).abs() < 1e-9), "{named:?}");
}

#[test]
fn phases_beyond_the_limit_of_a_table_are_counted() {
    let mut timeline = example::timeline(1, "solve", Window::default());
    for at in 1..=210 {
        let time = example::head().started + Nanos::millis(400 + at);
        timeline.add(Line::Phase(Phase { time, name: at.to_string() }));
    }
    let text = back_end::text(&report(&timeline), Width::UNLIMITED);
    assert!(text.contains("note: 12 further rows are not shown"), "{text}");
}
