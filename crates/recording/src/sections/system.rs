//! Sections of the system.

use hugepilot_record::{Metric, MetricKind, MetricScope, Unit as Raw};
use hugepilot_render::model::{Cell, Report, Section, Table, Unit};
use hugepilot_stats::Distribution;
use hugepilot_units::Nanos;

use super::process::{time_plots, zero_notice};
use super::signature;
use crate::measures::{Measure, measures};
use crate::timeline::{Timeline, metrics};

/// Units of plots over time, in their order.
const UNITS: [Unit; 6] =
    [Unit::Ratio, Unit::PerSecond, Unit::BytesPerSecond, Unit::Bytes, Unit::Number, Unit::Count];

/// Adds the metrics of the system over time, and their signature.
pub(super) fn sections(timeline: &Timeline, report: &mut Report) {
    let measures = measures(&timeline.head, MetricScope::System, &timeline.system);
    let table = table(timeline, &measures);
    if table.rows.is_empty() {
        return;
    }
    let all: Vec<&Measure> = measures.iter().collect();
    let plots = time_plots(timeline, &timeline.system, &all, &UNITS);
    let section = Section::new("System", "").with_all(plots).with(table);
    report.add(section.with_all(zero_notice(&measures)));
    if timeline.head.every > Nanos::ZERO {
        let every = timeline.head.every.as_seconds();
        let is_each = |one: &Measure| every >= signature::COARSE || is_fine(timeline, one);
        let shown = measures.into_iter().filter(|one| !one.is_zero());
        let (each, fewer): (Vec<_>, Vec<_>) = shown.partition(is_each);
        let title = "Signature of the system".to_owned();
        report.add(signature::section(title, every, &each, &fewer));
    }
}

/// Whether most values of a measure are of slices shorter than [`signature::COARSE`]: the recorder
/// reads events at each slice, and files at most ten times a second.
fn is_fine(timeline: &Timeline, measure: &Measure) -> bool {
    let slots = timeline.system.slots().iter().zip(&measure.values);
    let (mut short, mut all) = (0, 0);
    for (slot, _) in slots.filter(|(_, value)| value.is_finite()) {
        all += 1;
        short += usize::from(slot.length < 0.75 * signature::COARSE);
    }
    2 * short > all
}

/// Sums of the counters, and the range of each measure. One that is 0 throughout is in a notice.
fn table(timeline: &Timeline, measures: &[Measure]) -> Table {
    let columns = ["measure", "total", "mean", "min", "max"];
    let mut table = Table::new("Metrics of the system over the recording", columns);
    // Measures begin with those of the metrics.
    let counters = metrics(&timeline.head, MetricScope::System).enumerate();
    let mut totals: Vec<Option<Cell>> =
        counters.map(|(column, metric)| total(timeline, column, metric)).collect();
    totals.resize(measures.len(), None);
    for (measure, total) in measures.iter().zip(totals) {
        let values = Distribution::of(measure.values.iter().copied());
        let Some(values) = values.filter(|_| !measure.is_zero()) else { continue };
        let of = |value| Cell::of(Some(value), measure.unit, "");
        table.row(vec![
            measure.name.clone().into(),
            total.unwrap_or_else(|| Cell::of(None, Unit::Count, "only counters have a total")),
            of(values.burstiness().mean),
            of(values.quantile(0.0)),
            of(values.quantile(1.0)),
        ]);
    }
    table
}

/// Sum of a counter.
fn total(timeline: &Timeline, column: usize, metric: &Metric) -> Option<Cell> {
    let (unit, factor) = match metric.unit {
        Raw::Bytes => (Unit::Bytes, 1.0),
        Raw::Nanoseconds => (Unit::Seconds, 1e-9),
        Raw::Ratio => (Unit::Number, 1.0),
        Raw::Count | Raw::Cycles => (Unit::Count, 1.0),
    };
    let values = timeline.system.column(column).iter().filter(|value| value.is_finite());
    let sum = values.sum::<f64>() * factor;
    (metric.kind == MetricKind::Counter).then(|| Cell::of(Some(sum), unit, ""))
}
