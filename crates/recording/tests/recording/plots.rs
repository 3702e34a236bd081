//! Plots over time of metrics that are read at times of their own.

use hugepilot_record::{Metric, MetricKind, MetricScope, Pid};
use hugepilot_recording::{Line, Slice, Timeline, Window, recording_report};
use hugepilot_render::back_end;
use hugepilot_render::model::{Block, Chart, Report, TimePlot};
use hugepilot_units::Nanos;

use crate::example;

/// A recording of 4 s in slices of 100 ms: faults at each slice, switches once a second in a slice
/// of their own.
fn report() -> Report {
    let mut head = example::head();
    let faults = Metric { name: "faults".to_owned(), missing: None, ..head.metrics[1].clone() };
    assert_eq!((faults.kind, faults.scope), (MetricKind::Counter, MetricScope::Process));
    head.metrics = vec![faults.clone(), Metric { name: "switches".to_owned(), ..faults }];
    let started = head.started;
    let mut timeline = Timeline::new(head, Window::default());
    let mut add = |tenths: u64, length: u64, values: [Option<f64>; 2]| {
        let time = started + Nanos::millis(100 * tenths);
        let (length, pid) = (Nanos::millis(100 * length), Some(Pid(7)));
        let values = values.to_vec();
        timeline.add(Line::Slice(Slice { time, length, pid, tid: None, values, groups: vec![] }));
    };
    for tenths in 1..=40 {
        add(tenths, 1, [Some(20.0), None]);
        if tenths % 10 == 0 {
            add(tenths, 10, [None, Some(150.0)]);
        }
    }
    recording_report(&timeline, "a.rec")
}

fn plots(report: &Report) -> Vec<(&str, &TimePlot)> {
    let blocks = report.sections.iter().flat_map(|section| &section.blocks);
    let plots = blocks.filter_map(|block| match block {
        Block::Plot(plot) => Some(plot),
        _ => None,
    });
    plots
        .filter_map(|plot| match &plot.chart {
            Chart::Time(chart) => Some((&*plot.title, chart)),
            _ => None,
        })
        .collect()
}

#[test]
fn lines_have_no_gaps_where_another_metric_was_read() {
    let report = report();
    let plots = plots(&report);
    let shapes: Vec<_> = plots.iter().map(|(title, plot)| (*title, plot.lines.len())).collect();
    assert_eq!(shapes, [("faults_per_second", 1), ("switches_per_second", 1)]);
    for ((title, plot), points) in plots.into_iter().zip([40, 4]) {
        assert_eq!(plot.times_seconds.len(), points, "{title}");
        assert!(plot.lines[0].values.iter().all(Option::is_some), "{title}: {:?}", plot.lines);
    }
}

#[test]
fn a_value_between_two_gaps_is_a_point() {
    let mut report = report();
    let plot =
        report.sections.iter_mut().flat_map(|section| &mut section.blocks).find_map(|block| {
            match block {
                Block::Plot(plot) if plot.title == "switches_per_second" => Some(plot),
                _ => None,
            }
        });
    let Some(Chart::Time(chart)) = plot.map(|plot| &mut plot.chart) else { panic!("no plot") };
    chart.lines[0].values = vec![None, Some(150.0), None, None];
    let svg = back_end::svg(&report);
    assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
}
