//! Application signature: the distribution of each measure over time.

use hugepilot_render::model::{Cell, Curve, Plot, Section, Table, Unit};
use hugepilot_stats::Distribution;

use super::process::{MAX_LINES, rounded};
use crate::measures::Measure;
use crate::multiplexing::with_counted;

/// Points of a distribution.
const CDF_POINTS: usize = 200;
/// Length of the slices to which shorter ones are merged, as in Figure 10 of the paper.
pub(in super::super) const COARSE: f64 = 0.1;

/// Kinds of measures in the order of their plots, with parts of their names. A measure is of the
/// first kind that fits.
const KINDS: [(&str, &[&str]); 5] = [
    ("page walks", &["dtlb", "stlb", "walk"]),
    ("stall cycles", &["stall", "lfb"]),
    ("caches and memory traffic", &["l1d", "l2", "llc", "dram"]),
    ("memory", &["thp", "huge", "rss", "anonymous", "swap", "fault", "memory", "compact", "pg"]),
    ("CPU use and others", &[""]),
];

/// Measures of Figure 10 of the paper, and those in place of them on other processors.
const FIGURE_10: [&str; 14] = [
    "dram_bytes_per_second",
    "memory_read_and_written_bytes_per_second",
    "dram_read_bytes_per_second",
    "dram_write_bytes_per_second",
    "memory_read_bytes_per_second",
    "memory_write_bytes_per_second",
    "dram_fill_bytes_per_second",
    "lfb_occupancy",
    "ipc",
    "stall_cycles_ratio",
    "memory_bound_ratio",
    "dram_bound_ratio",
    "backend_bound_memory_ratio",
    "stall_ratio",
];

/// Whether slices of this length are merged to [`COARSE`] ones, too.
pub(super) fn is_fine(every: f64) -> bool {
    every < COARSE / 2.0
}

/// Distributions of measures over slices of `every` seconds, and of `coarse` ones over those of
/// [`COARSE`] unless there are none.
pub(super) fn section(
    title: String,
    every: f64,
    measures: &[Measure],
    coarse: &[Measure],
) -> Section {
    let text = "The distribution of each measure over time (Eisenman et al., 2016, Figure 10). \
                The curves show each value as a share of the measure's own peak, the largest value \
                of a slice. A steep curve at the right is a steady measure; a curve that rises \
                early and ends late is a bursty one, whose mean misleads. The table has the values \
                themselves. Measures without a value are omitted.";
    let mut section = Section::new(title, text);
    for (every, measures) in [(every, measures), (COARSE, coarse)] {
        let every = Cell::seconds(every).text();
        section.blocks.extend(plots(measures, &every).into_iter().map(Into::into));
        let table = percentiles(measures, &every);
        if !table.rows.is_empty() {
            section.blocks.push(table.into());
        }
    }
    if section.blocks.is_empty() { Section::default() } else { section }
}

fn percentiles(measures: &[Measure], every: &str) -> Table {
    let columns =
        ["measure", "p5", "p25", "median", "p75", "p95", "peak", "peak / mean", "near peak"];
    let title = format!(
        "Percentiles over slices of {every}; near peak: share of the slices whose value is above \
         80 % of the peak"
    );
    let mut table = Table::new(title, columns);
    let mut shares = Vec::new();
    for measure in measures {
        let Some(values) = Distribution::of(measure.values.iter().copied()) else { continue };
        let at = |q| Cell::of(Some(values.quantile(q)), measure.unit, "");
        let bursts = values.burstiness();
        let mut row = vec![measure.name.clone().into()];
        row.extend([0.05, 0.25, 0.5, 0.75, 0.95, 1.0].map(at));
        row.push(Cell::of(bursts.peak_over_mean, Unit::Number, "all values are 0"));
        row.push(Cell::of(bursts.near_peak_ratio, Unit::Ratio, "all values are 0"));
        table.row(row);
        shares.push(measure.counted);
    }
    with_counted(table, &shares)
}

/// Plots of the distributions by kind, those of Figure 10 first.
fn plots(measures: &[Measure], every: &str) -> Vec<Plot> {
    let first = FIGURE_10.iter().filter_map(|name| measures.iter().find(|one| one.name == *name));
    let mut kinds = vec![("stalls and bandwidth", first.filter_map(curve).collect::<Vec<_>>())];
    kinds.extend(KINDS.iter().map(|&(name, _)| (name, Vec::new())));
    for measure in measures.iter().filter(|one| !FIGURE_10.contains(&&*one.name)) {
        let fits = |(_, parts): &(&str, &[&str])| parts.iter().any(|it| measure.name.contains(it));
        let kind = KINDS.iter().position(fits).map_or(KINDS.len(), |at| at + 1);
        kinds[kind].1.extend(curve(measure));
    }
    kinds.into_iter().flat_map(|(kind, curves)| parts(kind, curves, every)).collect()
}

/// The distribution of a measure as shares of its peak; `None` without a value above 0.
fn curve(measure: &Measure) -> Option<Curve> {
    // That of the samples describes the sampler, not the program.
    if measure.name == "addressed_samples_ratio" {
        return None;
    }
    let values = Distribution::of(measure.values.iter().copied())?;
    let peak = values.quantile(1.0);
    if peak <= 0.0 {
        return None;
    }
    let points = values.cdf(CDF_POINTS).into_iter();
    let mut points: Vec<(f64, f64)> =
        points.map(|(value, share)| (rounded(value / peak), rounded(share))).collect();
    points.insert(0, (points[0].0.min(0.0), 0.0));
    Some(Curve { name: measure.label(), points })
}

/// Plots of the curves of a kind, of similar numbers of them.
fn parts(kind: &str, mut curves: Vec<Curve>, every: &str) -> Vec<Plot> {
    let count = curves.len().div_ceil(MAX_LINES);
    let mut plots = Vec::with_capacity(count);
    for part in 1..=count {
        let rest = curves.split_off(curves.len().div_ceil(count + 1 - part));
        let part = if count > 1 { format!(", part {part}") } else { String::new() };
        let title = format!("Signature at {every}: {kind}{part}");
        let x = ("value, as a share of its peak", Unit::Ratio);
        let curves = std::mem::replace(&mut curves, rest);
        plots.push(Plot::distributions(&title, x, "share of the time at or below it", curves));
    }
    plots
}
