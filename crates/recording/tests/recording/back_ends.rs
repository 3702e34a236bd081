//! Expected output of each back end, of one small report that has every kind of block.

use std::path::Path;

use hugepilot_render::model::{
    Area, Bar, Bars, Block, Cell, Chart, Curve, Curves, Flame, FlameNode, HeatCell, HeatMap,
    HeatRow, Mark, Notice, Plot, Quantity, Report, Scatter, ScatterGroup, Section, Table, TimeLine,
    TimePlot, Unit,
};
use hugepilot_render::{Width, back_end, json};
use hugepilot_testkit::assert_golden;

const MIB: f64 = 1048576.0;

/// Text that each format must escape.
const ODD: &str = r#"a <b> & "c" | d, e\f"#;

fn plot(title: &str, chart: Chart) -> Block {
    let text = "What the plot shows.".to_owned();
    Block::Plot(Plot { title: title.to_owned(), text, chart })
}

fn marks() -> Vec<Mark> {
    [(1.0, "begin"), (2.5, ODD)]
        .map(|(time_seconds, name)| Mark { time_seconds, name: name.to_owned() })
        .into()
}

fn table() -> Table {
    let units = [
        (Unit::Count, 12_345.0),
        (Unit::PerSecond, 1.5e6),
        (Unit::Bytes, 3.0 * MIB),
        (Unit::BytesPerSecond, 2e9),
        (Unit::Seconds, 0.0015),
        (Unit::UnixSeconds, 1.5e9),
        (Unit::Ratio, 0.255),
        (Unit::Number, -1.25),
        (Unit::Log2, 10.0),
    ];
    let mut table = Table::new("", ["unit", "value"]);
    for (unit, value) in units {
        let value = Cell::Quantity(Quantity { value, unit });
        table.row(vec![format!("{unit:?}").into(), value]);
    }
    table.row(vec![ODD.into(), Cell::of(None, Unit::Bytes, "no counter")]);
    table
}

fn lines() -> [Block; 2] {
    let line = |name: &str, values: [Option<f64>; 4]| TimeLine {
        name: name.to_owned(),
        values: values.into(),
    };
    let time = |stacked, unit| {
        let lines = vec![
            line("one", [Some(1.0), Some(2.0), None, Some(4.0)]),
            line(ODD, [Some(0.0), Some(3.0), Some(3.0), Some(0.5)]),
        ];
        let times_seconds = vec![0.0, 1.0, 2.0, 3.0];
        Chart::Time(TimePlot { unit, stacked, times_seconds, lines, marks: marks() })
    };
    [plot("Lines", time(false, Unit::Count)), plot("Stack", time(true, Unit::Bytes))]
}

fn axes() -> [Block; 3] {
    let name = |name: &str| name.to_owned();
    let curve =
        |name: &str, points: &[(f64, f64)]| Curve { name: name.to_owned(), points: points.into() };
    let curves = Curves {
        x_name: name("size"),
        x_unit: Unit::Log2,
        y_name: name("misses"),
        y_unit: Unit::Ratio,
        steps: true,
        curves: vec![
            curve("base", &[(10.0, 0.9), (12.0, 0.5), (14.0, 0.0)]),
            curve(ODD, &[(10.0, 0.3), (14.0, 0.1)]),
        ],
    };
    let scatter = Scatter {
        x_name: name("reuse"),
        x_unit: Unit::Seconds,
        y_name: name("stalls"),
        y_unit: Unit::Count,
        things: name("regions"),
        border: 2.0,
        groups: vec![ScatterGroup {
            name: name("hot"),
            points: vec![(0.5, 3.0, 7), (2.5, 1.0, 1)],
        }],
    };
    let bars = Bars {
        name: name("function"),
        unit: Unit::Ratio,
        bars: vec![
            Bar { name: name("main"), value: Some(0.75), range: Some((0.7, 0.8)) },
            Bar { name: name(ODD), value: None, range: None },
        ],
    };
    [
        plot("Curves", Chart::Curves(curves)),
        plot("Scatter", Chart::Scatter(scatter)),
        plot("Bars", Chart::Bars(bars)),
    ]
}

fn addresses() -> [Block; 3] {
    const START: u64 = 0x7f00_0000_0000;
    const HUGE: u64 = 2 << 20;
    let map = HeatMap {
        edges_seconds: vec![0.0, 1.0, 2.0, 3.0],
        areas: vec![
            Area { name: "[heap]".to_owned(), start: START, end: START + 2 * HUGE },
            Area { name: ODD.to_owned(), start: START + 8 * HUGE, end: START + 9 * HUGE },
        ],
        rows: vec![
            HeatRow { area: 0, start: START, end: START + HUGE },
            HeatRow { area: 0, start: START + HUGE, end: START + 2 * HUGE },
            HeatRow { area: 1, start: START + 8 * HUGE, end: START + 9 * HUGE },
        ],
        cells: vec![HeatCell(0, 0, 9, 0), HeatCell(1, 1, 5, 5), HeatCell(2, 2, 1, 0)],
        marks: marks(),
    };
    let node = |name: &str, parent, samples| FlameNode { name: name.to_owned(), parent, samples };
    let nodes = vec![node("main", None, 10), node(ODD, Some(0), 7), node("wait", Some(0), 3)];
    let none = Flame { nodes: Vec::new() };
    [
        plot("Heat", Chart::HeatMap(map)),
        plot("Stacks", Chart::Flame(Flame { nodes })),
        plot("No stacks", Chart::Flame(none)),
    ]
}

fn report() -> Report {
    let mut report = Report::new("Every kind of block");
    report.summary = vec!["The verdict.".to_owned(), ODD.to_owned()];
    let notices = [
        Notice::warning(format!("a warning: {ODD}")).help("what to do\nor that"),
        Notice::note("a note"),
    ];
    report.add(Section::new("Values", "Numbers with units.").with_all(notices).with(table()));
    report.add(Section::new("Time", "").with_all(lines()));
    report.add(Section::new("Axes", "").with_all(axes()));
    report.add(Section::new("Addresses", "").with_all(addresses()));
    report
}

#[test]
fn each_back_end_prints_every_kind_of_block() {
    let golden = |end: &str, got: &str| {
        assert_golden(Path::new("testdata/report").join(format!("blocks.{end}")), got);
    };
    let report = report();
    golden("txt", &back_end::text(&report, Width::columns(100)));
    golden("md.txt", &back_end::markdown(&report));
    golden("csv", &back_end::csv(&report));
    golden("om", &back_end::openmetrics(&report));
    golden("json", &json(&report));
    golden("svg", &back_end::svg(&report));
    let html = back_end::html(&report);
    // The script and the style are files of their own.
    let (body, script) = (html.find("<body>").unwrap(), html.find("<script>").unwrap());
    golden("html.txt", &html[body..script]);
}
