//! Recordings of commands with metrics and rounds, on one axis of time.

use hugepilot_record::{Pid, ProcessId, ProvenanceCounts};
use hugepilot_recording::{
    End, Head, Line, MappingPages, PageSlice, RecordedProcess, RecordingLimits, RecordingReader,
    RecordingWriter, Slice, Timeline, Window, recording_report,
};
use hugepilot_render::model::{Block, Cell, Chart, Mark, Quantity, Report, Table, TimePlot};
use hugepilot_render::{Width, back_end, json};
use hugepilot_units::{AddrRange, Bytes, Nanos, VirtAddr};

use crate::commands::JOURNAL;
use crate::example;

/// Process of the journal, whose rounds promoted 5 regions at 3 s and 6 at 3.506 s.
const PID: Pid = Pid(2_147_483_647);
const MIB: u64 = 1 << 20;

fn head() -> Head {
    Head {
        started: Nanos::seconds(100),
        sampler: Some("rounds of the tune".to_owned()),
        ..example::head()
    }
}

/// A second has ten slices; its CPU use rises with the first promotion.
fn slice(time: Nanos) -> Line {
    let is_promoted = time > Nanos::seconds(103);
    let cpu = if is_promoted { 8e7 } else { 5e7 };
    let values = vec![Some(cpu), Some(3.0), Some((24 * MIB) as f64), None, None, None];
    let length = Nanos::millis(100);
    Line::Slice(Slice { time, length, pid: Some(PID), tid: None, values, groups: Vec::new() })
}

fn pages(time: Nanos, thp_bytes: u64) -> Line {
    let start = VirtAddr::new(0x200_0000_0000);
    let mappings = vec![MappingPages {
        range: AddrRange::at(start, Bytes::mib(64)),
        name: "[anon]".to_owned(),
        resident_bytes: 24 * MIB,
        thp_bytes,
        hugetlb_bytes: 0,
    }];
    Line::Pages(PageSlice { time, pid: PID, mappings })
}

/// Eight seconds of metrics, with the rounds where a tune writes them: each after its end.
fn lines() -> Vec<Line> {
    let mut rounds = JOURNAL.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut round = || Line::Journal(rounds.next().expect("a header and six rounds"));
    let id = ProcessId { pid: PID, start_ticks: 1, command: "simulated".to_owned() };
    let mut lines = vec![
        round(),
        Line::Process(RecordedProcess { time: Nanos::seconds(100), id, threads: Vec::new() }),
    ];
    for at in 1..=80 {
        let time = Nanos::seconds(100) + Nanos::millis(at * 100);
        lines.push(slice(time));
        match at {
            1 => lines.push(pages(time, 0)),
            31 => lines.extend([pages(time, 10 * MIB), round()]),
            36 => lines.extend([pages(time, 22 * MIB), round(), round(), round(), round()]),
            68 => lines.push(round()),
            _ => {}
        }
    }
    let samples = ProvenanceCounts::default();
    let (time, own_cpu) = (Nanos::seconds(108), Nanos::millis(40));
    lines.push(Line::End(End { time, exit: None, samples, own_cpu, ..End::default() }));
    lines
}

fn report(window: Window) -> Report {
    let mut timeline = Timeline::new(head(), window);
    lines().into_iter().for_each(|line| timeline.add(line));
    recording_report(&timeline, "tune.rec")
}

fn whole() -> Report {
    report(Window::default())
}

fn table(report: &Report, title: &str) -> Option<Table> {
    let mut blocks = report.sections.iter().flat_map(|section| &section.blocks);
    blocks.find_map(|block| match block {
        Block::Table(table) if table.title == title => Some(table.clone()),
        _ => None,
    })
}

fn plots(report: &Report) -> Vec<(String, TimePlot)> {
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let plots = blocks.filter_map(|block| match block {
        Block::Plot(plot) => match &plot.chart {
            Chart::Time(chart) => Some((plot.title.clone(), chart.clone())),
            _ => None,
        },
        _ => None,
    });
    plots.collect()
}

fn numbers(table: &Table, column: &str) -> Vec<f64> {
    let at = table.columns.iter().position(|name| name == column).unwrap();
    let number = |row: &Vec<Cell>| match row[at] {
        Cell::Quantity(Quantity { value, .. }) => (value * 1e4).round() / 1e4,
        _ => f64::NAN,
    };
    table.rows.iter().map(number).collect()
}

const BETWEEN: &str = "Phases between rounds that changed pages";

#[test]
fn a_phase_before_and_after_each_promotion_has_the_metrics() {
    let table = table(&whole(), BETWEEN).expect("phases");
    let names: Vec<&Cell> = table.rows.iter().map(|row| &row[0]).collect();
    let expected = ["(before the first change)", "5 promoted", "6 promoted"].map(Cell::from);
    assert_eq!(names, expected.each_ref());
    assert_eq!(numbers(&table, "from"), [0.0, 3.0, 3.506]);
    assert_eq!(numbers(&table, "took"), [3.0, 0.506, 4.494]);
    assert_eq!(numbers(&table, "CPU use"), [0.5, 0.8, 0.8]);
    assert_eq!(numbers(&table, "huge share"), [0.0, 0.4167, 0.9167]);
    assert_eq!(numbers(&table, "faults"), [90.0, 15.0, 135.0]);
    let stalls = numbers(&table, "stall share");
    assert!(stalls.iter().all(|share| *share > 0.8), "those of the rounds: {stalls:?}");
}

#[test]
fn a_window_cuts_the_phases_between_rounds() {
    let part = Window { from: Some(2.0), to: Some(4.0), pid: None };
    let table = table(&report(part), BETWEEN).expect("phases");
    assert_eq!(numbers(&table, "from"), [2.0, 3.0, 3.506]);
    assert_eq!(numbers(&table, "took"), [1.0, 0.506, 0.494]);
}

#[test]
fn each_plot_over_time_has_the_rounds_as_marks_and_time_never_goes_back() {
    let plots = plots(&whole());
    let titles: Vec<&str> = plots.iter().map(|(title, _)| &**title).collect();
    for title in ["Resident memory", "Stall samples", "user_time_ratio", "minor_faults_per_second"]
    {
        assert!(titles.iter().any(|one| one.contains(title)), "{title}: {titles:?}");
    }
    for (title, plot) in &plots {
        let marks: Vec<&str> = plot.marks.iter().map(|Mark { name, .. }| &**name).collect();
        assert_eq!(marks, ["5 promoted", "6 promoted"], "{title}");
        assert!(plot.times_seconds.is_sorted(), "{title}: {:?}", plot.times_seconds);
    }
    let (_, memory) = plots.iter().find(|(title, _)| title == "Resident memory").unwrap();
    let thp: Vec<f64> = memory.lines[1].values.iter().flatten().copied().collect();
    assert!(thp.is_sorted(), "a round has older pages than the slices: {thp:?}");
}

#[test]
fn metrics_and_rounds_are_in_all_formats() {
    let report = whole();
    let has = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{part} in {}", &text[..text.len().min(2000)]);
        }
    };
    let both = ["Rounds, a row for each process", "user_time_ratio", BETWEEN, "5 promoted"];
    has(&back_end::text(&report, Width::columns(100)), &both);
    has(&back_end::markdown(&report), &both);
    has(&back_end::csv(&report), &both);
    has(&back_end::html(&report), &both);
    has(&json(&report), &both);
    has(&back_end::openmetrics(&report), &both);
    has(&back_end::svg(&report), &["5 promoted", "user_time_ratio"]);
}

#[test]
fn a_cut_recording_has_the_metrics_and_rounds_up_to_the_cut() {
    let mut writer = RecordingWriter::new(Vec::new(), head()).unwrap();
    for lines in lines().chunks(9) {
        lines.iter().for_each(|line| writer.add(line).unwrap());
        writer.flush().unwrap();
    }
    let file = writer.finish().unwrap();
    let mut rounds = 0;
    for cut in (1..file.len()).step_by(61) {
        let reader = RecordingReader::new(&file[..cut], RecordingLimits::default()).unwrap();
        let mut timeline = Timeline::new(reader.head().clone(), Window::default());
        reader.for_each(|line| timeline.add(line.unwrap()));
        let report = recording_report(&timeline, "cut.rec");
        let text = back_end::text(&report, Width::UNLIMITED);
        // A cut within the checksum of the last line, or the end of its block, takes nothing
        // from it.
        let has_end = timeline.end.is_some();
        assert_ne!(text.contains("the recording has no end"), has_end, "{cut}: {text}");
        assert!(!has_end || cut + 16 >= file.len(), "{cut} of {}", file.len());
        let more = table(&report, "Rounds, a row for each process").map_or(0, |it| it.rows.len());
        assert!(more >= rounds, "{cut}");
        rounds = more;
    }
    assert_eq!(rounds, 6);
}

#[test]
fn samples_of_rounds_are_not_those_of_slices() {
    let text = back_end::text(&whole(), Width::UNLIMITED);
    assert!(text.contains("rounds of the tune") && text.contains("in slices of 100ms"), "{text}");
    assert!(!text.contains("samples, exact address"), "{text}");
}

#[test]
fn rounds_have_the_time_of_their_decision_and_the_end_of_their_actions() {
    let mut timeline = Timeline::new(head(), Window::default());
    for mut line in lines() {
        if let Line::Journal(round) = &mut line
            && let Some(decided) = round["time"].as_u64()
        {
            round["rows"][0]["outcome"]["ended"] = (decided + 250_000_000).into();
        }
        timeline.add(line);
    }
    let report = recording_report(&timeline, "tune.rec");
    let rounds = table(&report, "Rounds, a row for each process").expect("rounds");
    let (decided, ended) = (numbers(&rounds, "decided"), numbers(&rounds, "ended"));
    assert_eq!((decided[0], ended[0]), (3.0, 3.25));
}

#[test]
fn the_map_shows_the_time_after_the_last_round_without_samples() {
    let report = whole();
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let maps = blocks.filter_map(|block| match block {
        Block::Plot(plot) => match &plot.chart {
            Chart::HeatMap(map) => Some(map),
            _ => None,
        },
        _ => None,
    });
    let edges: Vec<_> = maps.map(|map| map.edges_seconds.last().copied()).collect();
    assert_eq!(edges, [Some(8.0)]);
    let text = back_end::text(&report, Width::columns(100));
    assert!(text.contains("the samples end at") && text.contains("ends at 8s"), "{text}");
}
