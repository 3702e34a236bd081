//! Reports of recordings with hardware counters, whose input is scripted.

use std::path::Path;

use hugepilot_record::{Metric, MetricScope, Tid};
use hugepilot_recording::{Line, Slice, Timeline, Window, comparison_report, recording_report};
use hugepilot_render::model::{Block, Cell, Chart, Curves, Quantity, Report, Table};
use hugepilot_render::{Width, back_end, json};
use hugepilot_testkit::assert_golden;
use hugepilot_units::Nanos;

use crate::scripted::{Example, IVY_BRIDGE_RATIOS, PID, ZEN_4_RATIOS};

fn blocks(report: &Report) -> impl Iterator<Item = &Block> {
    report.sections.iter().flat_map(|section| &section.blocks)
}

/// Rows of the tables with this begin of the title.
fn rows<'a>(report: &'a Report, title: &str) -> Vec<(&'a Table, &'a [Cell])> {
    let tables = blocks(report).filter_map(|block| match block {
        Block::Table(table) if table.title.starts_with(title) => Some(table),
        _ => None,
    });
    tables.flat_map(|table| table.rows.iter().map(move |row| (table, &row[..]))).collect()
}

/// Value of a column in the row of a metric.
fn number(report: &Report, title: &str, name: &str, column: &str) -> f64 {
    let rows = rows(report, title);
    let found = rows.iter().find(|(_, row)| row[0] == Cell::from(name));
    let (table, row) = found.unwrap_or_else(|| panic!("no {name}: {rows:?}"));
    let at = table.columns.iter().position(|one| one == column);
    match &row[at.unwrap_or_else(|| panic!("no {column}: {:?}", table.columns))] {
        Cell::Quantity(Quantity { value, .. }) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

fn plots(report: &Report) -> Vec<(&str, &Curves)> {
    let plots = blocks(report).filter_map(|block| match block {
        Block::Plot(plot) => match &plot.chart {
            Chart::Curves(curves) => Some((&*plot.title, curves)),
            _ => None,
        },
        _ => None,
    });
    plots.collect()
}

const SIGNATURE: &str = "Percentiles over slices of 100ms";

#[test]
fn ratios_are_those_computed_by_hand() {
    for (example, ratios) in
        [(Example::ivy_bridge(), IVY_BRIDGE_RATIOS), (Example::zen_4(), ZEN_4_RATIOS)]
    {
        let report = example.report();
        for &(name, load, search) in ratios {
            // Half of the slices have the smaller value.
            let found = ["p25", "p75"].map(|column| number(&report, SIGNATURE, name, column));
            for (found, wanted) in found.into_iter().zip([load.min(search), load.max(search)]) {
                assert!((found / wanted - 1.0).abs() < 1e-9, "{name}: {found}, not {wanted}");
            }
        }
    }
}

#[test]
fn each_metric_has_the_share_of_the_time_in_which_it_was_counted() {
    let report = Example::ivy_bridge().report();
    let counted = |title, name| number(&report, title, name, "counted");
    let metrics = [("cycles", 1.0), ("llc_loads", 0.25), ("lfb_occupied", 0.02), ("rss", 1.0)];
    for (name, share) in metrics {
        assert_eq!(counted("Metrics of the recording", name), share, "{name}");
    }
    // A ratio has the smallest share of its metrics.
    let measures = [("ipc", 1.0), ("dram_bound_ratio", 0.25), ("lfb_occupancy", 0.02)];
    for (name, share) in measures {
        assert_eq!(counted(SIGNATURE, name), share, "{name}");
    }
}

#[test]
fn too_little_time_is_a_warning_in_each_back_end() {
    let report = Example::ivy_bridge().report();
    let has = |text: &str, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "no {part} in {}", &text[..text.len().min(3000)]);
        }
    };
    let warning = "counted in less than 10.0 % of the time";
    let names = "lfb_occupied (2.0 %), l1d_loads (2.0 %), l1d_load_misses (2.0 %)";
    let line = "lfb_occupancy (counted 2.0 % of the time)";
    has(&back_end::text(&report, Width::UNLIMITED), &[warning, names, line, "  counted\n"]);
    has(&back_end::html(&report), &[warning, names, line, ">counted</th>"]);
    has(&json(&report), &[warning, names, line, "\"counted\""]);
    has(&back_end::csv(&report), &[warning, names, line, ",counted,0.02,ratio"]);
    // Markdown escapes the underscores.
    has(&back_end::markdown(&report), &[warning, "(2.0 %)", line, "| counted |"]);
    has(&back_end::openmetrics(&report), &["column=\"counted\"} 0.02"]);
    has(&back_end::svg(&report), &[line]);
}

#[test]
fn counters_for_all_events_need_no_column_and_no_warning() {
    let text = back_end::text(&Example::zen_4().report(), Width::UNLIMITED);
    assert!(!text.contains("  counted\n") && !text.contains("counted in less"), "{text}");
}

#[test]
fn an_event_that_was_never_counted_has_a_cause() {
    let mut example = Example::ivy_bridge();
    example.running = &[200_000_000, 0];
    let mut timeline = Timeline::new(example.head.clone(), Window::default());
    let metrics = || example.head.metrics.iter().filter(|one| one.scope == MetricScope::Process);
    for slice in 1..=example.slices {
        let Line::Slice(mut line) = example.slice(slice, Some(PID)) else { unreachable!() };
        // The kernel has nothing to scale.
        for (value, metric) in line.values.iter_mut().zip(metrics()) {
            *value = value.filter(|_| metric.group.unwrap_or(0) == 0);
        }
        timeline.add(Line::Slice(line));
    }
    let text = back_end::text(&recording_report(&timeline, "bfs.rec"), Width::UNLIMITED);
    assert!(text.contains("llc_loads (0.0 %)") && text.contains(" more\nhelp: count"), "{text}");
    let report = comparison_report(&timeline, &Example::ivy_bridge().timeline(), ["a", "b"]);
    let rows = rows(&report, "first: a");
    let row = rows.iter().find(|(_, row)| row[0] == "llc_loads_per_second".into()).unwrap().1;
    let missing = "never counted: other events had the counters".to_owned();
    assert_eq!(row[1], Cell::Missing { missing });
}

#[test]
fn every_measure_with_a_value_has_a_curve_and_those_of_the_paper_are_first() {
    let report = Example::ivy_bridge().report();
    let plots = plots(&report);
    let names = |plot: &Curves| -> Vec<String> {
        plot.curves.iter().map(|curve| curve.name.clone()).collect()
    };
    assert_eq!(plots[0].0, "Signature at 100ms: stalls and bandwidth");
    let wanted = [
        "lfb_occupancy (counted 2.0 % of the time)",
        "ipc",
        "stall_cycles_ratio",
        "memory_bound_ratio",
        "dram_bound_ratio",
    ];
    assert_eq!(names(plots[0].1), wanted);
    let all: Vec<String> = plots.iter().flat_map(|(_, plot)| names(plot)).collect();
    for (_, row) in rows(&report, SIGNATURE) {
        let name = row[0].to_owned();
        let Cell::Text(name) = name else { panic!("{name:?}") };
        let has_curve = all.iter().any(|curve| curve.split(' ').next() == Some(&name));
        assert_eq!(has_curve, number(&report, SIGNATURE, &name, "peak") > 0.0, "{name}: {all:?}");
    }
    assert!(plots.iter().all(|(_, plot)| plot.curves.len() <= 7), "{plots:?}");
    assert!(plots.iter().any(|(_, plot)| names(plot) == ["dram_bytes_per_second"]), "{plots:?}");
    let has_pool = |plot| names(plot).iter().any(|name| name == "hugetlb_free_pages");
    let of_pool = plots.iter().find(|(_, plot)| has_pool(plot)).map(|(title, _)| *title);
    assert_eq!(of_pool, Some("Signature at 100ms: memory"), "a TLB is in the name, too");
}

#[test]
fn short_slices_have_percentiles_and_curves_at_both_lengths() {
    let mut example = Example::ivy_bridge();
    (example.slices, example.head.every) = (40, Nanos::millis(10));
    let report = example.report();
    let titles: Vec<&str> = plots(&report).iter().map(|(title, _)| *title).collect();
    for length in ["10ms", "100ms"] {
        let table = format!("Percentiles over slices of {length}");
        assert_eq!(number(&report, &table, "ipc", "p25"), 0.3);
        assert_eq!(number(&report, &table, "lfb_occupancy", "counted"), 0.02);
        let plot = format!("Signature at {length}: page walks");
        assert!(titles.iter().any(|title| title.starts_with(&plot)), "{titles:?}");
    }
}

#[test]
fn metrics_of_the_system_have_a_table_a_signature_and_a_comparison() {
    let example = Example::ivy_bridge();
    let report = example.report();
    let of = |name, column| number(&report, "Metrics of the system", name, column);
    // In 4 slices each.
    assert_eq!(of("dram_accesses_per_second", "total"), 4.0 * 5e6 + 4.0 * 15e6);
    assert_eq!(of("thp_fault_alloc_per_second", "total"), 200.0);
    assert!((of("cpu_steal_time_ratio", "total") - 0.016).abs() < 1e-12);
    let pages = ["mean", "min", "max"].map(|column| of("hugetlb_free_pages", column));
    assert_eq!(pages, [8.0, 4.0, 12.0]);
    assert_eq!(number(&report, SIGNATURE, "hugetlb_free_pages", "p95"), 12.0);
    let text = back_end::text(&report, Width::UNLIMITED);
    assert!(text.contains("\nhugetlb_free_pages  ███"), "{text}");
    assert!(text.contains("note: 0 in every slice: thp_split_page_per_second\n"), "{text}");

    let zen = Example::zen_4().timeline();
    let report = comparison_report(&example.timeline(), &zen, ["a", "b"]);
    let ratio = number(&report, "first: a", "dram_bytes_per_second", "second / first");
    assert!((ratio - 2.56 / 3.2).abs() < 1e-9, "{ratio}");
    let text = back_end::text(&report, Width::UNLIMITED);
    for part in [
        "Medians and distributions of the system\n",
        "Distributions of the system that differ\n",
        "warning: first recording: counted in less than 10.0 % of the time",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Events each 10 ms and files each 100 ms, as the recorder reads them.
#[test]
fn the_signature_of_the_system_names_the_length_of_its_slices() {
    let mut example = Example::ivy_bridge();
    (example.head.every, example.slices) = (Nanos::millis(10), 40);
    let mut timeline = Timeline::new(example.head.clone(), Window::default());
    let of_system = example.head.metrics.iter().filter(|one| one.scope == MetricScope::System);
    let of_files: Vec<bool> = of_system.map(|one| one.group.is_none()).collect();
    let without = |slice: &Slice, files: bool| -> Vec<Option<f64>> {
        let values = slice.values.iter().zip(&of_files);
        values.map(|(value, &of_file)| value.filter(|_| of_file != files)).collect()
    };
    for number in 1..=example.slices {
        let Line::Slice(slice) = example.slice(number, None) else { panic!("no slice") };
        let events = Slice { values: without(&slice, true), ..slice.clone() };
        timeline.add(Line::Slice(events));
        if number.is_multiple_of(10) {
            let (length, values) = (Nanos::millis(100), without(&slice, false));
            timeline.add(Line::Slice(Slice { length, values, groups: Vec::new(), ..slice }));
        }
    }
    let report = recording_report(&timeline, "bfs.rec");
    let has = |every, name| {
        let rows = rows(&report, &format!("Percentiles over slices of {every};"));
        rows.iter().any(|(_, row)| row[0] == Cell::from(name))
    };
    let at_both = |name| (has("10ms", name), has("100ms", name));
    assert_eq!(at_both("dram_bytes_per_second"), (true, false));
    assert_eq!(at_both("hugetlb_free_pages"), (false, true));
}

#[test]
fn reports_with_counters_are_as_expected() {
    let golden = |name: &str, got: &str| {
        assert_golden(Path::new("testdata/report").join(name), got);
    };
    let zen = Example::zen_4();
    golden("zen-4.txt", &back_end::text(&zen.report(), Width::columns(100)));
    let intel = Example::ivy_bridge();
    let report = intel.report();
    golden("ivy-bridge.txt", &back_end::text(&report, Width::columns(100)));
    let html = back_end::html(&report);
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ivy-bridge.html"), html).unwrap();
    let compared = comparison_report(&intel.timeline(), &zen.timeline(), ["ivb.rec", "zen.rec"]);
    golden("pmu-comparison.txt", &back_end::text(&compared, Width::columns(100)));
}

#[test]
fn each_thread_has_the_ratios_of_its_own_events() {
    let mut example = Example::zen_4();
    let metrics = example.head.metrics.iter();
    let events = metrics.filter(|metric| matches!(&*metric.name, "cycles" | "instructions"));
    let of_threads = events.map(|metric| Metric {
        name: format!("thread_{}", metric.name),
        scope: MetricScope::Thread,
        ..metric.clone()
    });
    let of_threads: Vec<Metric> = of_threads.collect();
    let mut names: Vec<&str> = of_threads.iter().map(|metric| &*metric.name).collect();
    names.insert(0, "thread_cpu_time");
    let place = |name: &str| names.iter().position(|one| *one == name).unwrap();
    let (cpu, cycles, instructions) =
        (place("thread_cpu_time"), place("thread_cycles"), place("thread_instructions"));
    example.head.metrics.extend(of_threads.clone());
    let mut timeline = example.timeline();
    for slice in 1..=example.slices {
        for (tid, ipc) in [(PID.0, 0.5), (PID.0 + 1, 2.0)] {
            let Line::Slice(mut line) = example.slice(slice, Some(PID)) else { unreachable!() };
            line.tid = Some(Tid(tid));
            line.values = vec![None; 3];
            (line.values[cpu], line.values[cycles]) = (Some(5e7), Some(1e6));
            // Not counted before the thread was known.
            line.values[instructions] = (slice > 2).then_some(ipc * 1e6);
            timeline.add(Line::Slice(line));
        }
    }
    let report = recording_report(&timeline, "bfs.rec");
    let rows = rows(&report, "Medians of the events of each thread");
    let ipc = rows[0].0.columns.iter().position(|column| column == "ipc").unwrap();
    let value = |row: &[Cell]| match &row[ipc] {
        Cell::Quantity(Quantity { value, .. }) => *value,
        other => panic!("{other:?}"),
    };
    let found: Vec<f64> = rows.iter().map(|(_, row)| value(row)).collect();
    assert_eq!(found, [0.5, 2.0]);
    let plot = blocks(&report).find_map(|block| match block {
        Block::Plot(plot) if plot.title == "Instructions per cycle by thread" => Some(&plot.chart),
        _ => None,
    });
    let Some(Chart::Time(plot)) = plot else { panic!("no plot") };
    let values = |line: usize| plot.lines[line].values[1..4].to_vec();
    assert_eq!(values(1), [None, Some(2.0), Some(2.0)]);
    assert_eq!((values(0)[1], plot.times_seconds.len()), (Some(0.5), 8));
}
