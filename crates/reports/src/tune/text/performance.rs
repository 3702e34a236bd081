//! Speed of the variants that were measured: table and bars in one unit, and what they prove.

use hugepilot_render::model::{Bar, Cell, Lines, Plot, Section, Table, Unit};
use hugepilot_stats::Spread;

use super::metric::found_metric;
use super::sentence::{all_huge, gain_share};
use crate::tune::{Measured, Performance, TuneReport};

/// A unit of performances.
struct Measure {
    /// Head of the column of medians.
    median: &'static str,
    /// Name of the values of the bars.
    name: &'static str,
    unit: Unit,
    /// The performance in this unit.
    of: fn(&Performance) -> Option<Spread>,
}

const MEASURES: [Measure; 4] = [
    Measure {
        median: "median metric",
        name: "progress metric",
        unit: Unit::Number,
        of: |one| one.progress,
    },
    Measure {
        median: "median ops per second",
        name: "operations per second",
        unit: Unit::PerSecond,
        of: |one| one.ops_per_second,
    },
    Measure {
        median: "median seconds",
        name: "run time",
        unit: Unit::Seconds,
        of: |one| one.seconds,
    },
    Measure {
        median: "median per CPU second",
        name: "work per CPU second",
        unit: Unit::PerSecond,
        of: |one| one.work_per_cpu_second,
    },
];

/// The variants in the unit that most of them have, and their bars; empty without any.
pub(super) fn performance(report: &TuneReport) -> [Section; 2] {
    let Measured { baseline, tuned, all_huge: huge, .. } = report.measured;
    let variants = [
        ("baseline", baseline, Some(1.0)),
        ("tuned", tuned, report.measured.speedup),
        ("all huge", huge, report.measured.all_huge_speedup),
    ];
    let count = |one: &Measure| {
        variants.iter().filter(|variant| variant.1.as_ref().and_then(one.of).is_some()).count()
    };
    let table_section = Section::new("Performance", "");
    let bar_section = Section::detail("Medians of the performance", "");
    let most = MEASURES.iter().filter(|one| count(one) > 0).rev().max_by_key(|&one| count(one));
    let Some(measure) = most else { return [table_section, bar_section] };
    let columns = ["run", measure.median, "min", "max", "speedup"];
    let mut table = Table::new("", columns);
    let mut bars = Vec::new();
    for (name, performance, speedup) in variants {
        let Some(spread) = performance.as_ref().and_then(measure.of) else { continue };
        let cell = |value| Cell::of(Some(value), measure.unit, "");
        let Spread { median, min, max } = spread;
        let speedup = Cell::of(speedup, Unit::Number, "not measured");
        table.row(vec![name.into(), cell(median), cell(min), cell(max), speedup]);
        bars.push(Bar { range: Some((min, max)), ..Bar::new(name, Some(median)) });
    }
    let mut text: String = [all_huge(report), gain_share(report)].into_iter().flatten().collect();
    text.extend(report.measured.metric.and_then(found_metric));
    let plot = Plot::bars("", measure.name, measure.unit, bars);
    [table_section.with(table).with_all(Lines::of(&text)), bar_section.with(plot)]
}
