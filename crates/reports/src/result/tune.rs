//! Report of the JSON of `tune`.

use hugepilot_record::Prediction;
use hugepilot_render::model::{Bar, Cell, Notice, Plot, Report, Section, Table, Unit};

use crate::tune::text::{common_unit, verdict, verified};
use crate::tune::{Gain, GainSource, Measured, TuneReport};

/// Rows of the table of regions at most.
const MAX_REGIONS: usize = 10;

pub(super) fn tuned(report: &TuneReport, name: &str) -> Report {
    let mut all = Report::new(format!("Tune in {name}"));
    let (command, pid) = (&report.target.command, report.target.pid);
    let title = format!("{command} (pid {pid})");
    all.summary.push(format!("{title}: {}.", verdict(report)));
    let mut section = Section::new(format!("Tune of {title}"), "").with(facts(report));
    section.blocks.extend(performance(report).map(Into::into));
    let regions = regions(report);
    if !regions.rows.is_empty() {
        section.blocks.push(regions.into());
    }
    let more = Notice::of_omitted(report.plan.selected.len(), MAX_REGIONS, "region", "regions");
    section.blocks.extend(more.map(Into::into));
    all.add(section.with_all(Notice::warnings(&report.warnings)));
    all
}

fn facts(report: &TuneReport) -> Table {
    let TuneReport { plan, acts, forecast, .. } = report;
    let mut table = Table::new("Result", ["fact", "value"]);
    let mut fact = |name: &str, value: Cell| table.row(vec![name.into(), value]);
    let count = Cell::count;
    let bytes = |value: Option<hugepilot_units::Bytes>| {
        Cell::of(value.map(hugepilot_units::Bytes::as_f64), Unit::Bytes, "not measured")
    };
    fact("policy", report.policy.to_string().into());
    fact("dry run", if report.dry_run { "yes" } else { "no" }.into());
    fact("selected regions", count(plan.selected.len() as u64));
    fact("promoted regions", count(acts.verified_regions));
    fact("demoted regions", count(acts.demoted_regions));
    fact("promotions", count(acts.promotions));
    fact("demotions", count(acts.demotions));
    fact("regions that lost their huge page", count(acts.lost_regions));
    fact(
        "samples in selected regions",
        Cell::of(forecast.coverage_ratio, Unit::Ratio, "no samples"),
    );
    let trial = forecast.trial.as_ref();
    let ratio = trial.and_then(|trial| trial.ratio);
    fact("trial: stalls, promoted over not promoted", Cell::of(ratio, Unit::Number, "no trial"));
    fact("gain", known(report.gain().map(gain), "not known"));
    let eligible = |one: Prediction| format!("{:.2}x ({:.2}–{:.2})", one.median, one.low, one.high);
    if let Some(speedup) = report.eligible_gain() {
        fact("speedup of all eligible memory by the model", eligible(speedup).into());
    }
    fact("resident memory", bytes(plan.footprint_bytes));
    fact("on huge pages before", bytes(acts.huge_bytes_before));
    fact("on huge pages after", bytes(acts.huge_bytes_after));
    fact("time in promotion calls", Cell::seconds(acts.promotion_seconds));
    table
}

/// The gain with its source; of a trial its range, whose middle says little.
fn gain(gain: Gain) -> String {
    let Gain { source, speedup, low, high } = gain;
    match (source, low.zip(high)) {
        (GainSource::Trial, Some((low, high))) => format!("{low:.2}x to {high:.2}x by the trial"),
        (_, range) => {
            let by = if source == GainSource::Measured { ", measured" } else { " by the model" };
            let range =
                range.map_or_else(String::new, |(low, high)| format!(" ({low:.2}–{high:.2})"));
            format!("{speedup:.2}x{range}{by}")
        }
    }
}

/// A text, or the cause why there is none.
fn known(text: Option<String>, missing: &str) -> Cell {
    text.map_or_else(|| Cell::of(None, Unit::Number, missing), Cell::from)
}

/// Bars of the variants that were measured in the unit of most.
fn performance(report: &TuneReport) -> Option<Plot> {
    let Measured { baseline, tuned, all_huge, .. } = report.measured;
    let variants = [("baseline", baseline), ("tuned", tuned), ("all huge", all_huge)];
    let measured: Vec<_> = variants.iter().filter_map(|&(_, performance)| performance).collect();
    let (unit_name, value) = common_unit(&measured)?;
    let bars = variants.into_iter().filter_map(|(name, performance)| {
        let spread = value(&performance?)?;
        let range = Some((spread.min, spread.max));
        Some(Bar { range, ..Bar::new(name, Some(spread.median)) })
    });
    let (name, unit) = match unit_name {
        "SECONDS" => ("run time", Unit::Seconds),
        "OPS_PER_SECOND" => ("operations per second", Unit::PerSecond),
        "PER_CPU_SECOND" => ("work per CPU second", Unit::PerSecond),
        _ => ("progress metric", Unit::Number),
    };
    Some(Plot::bars("Performance", name, unit, bars))
}

fn regions(report: &TuneReport) -> Table {
    let columns = ["region", "mapping", "samples", "sampled pages", "verified"];
    let mut table = Table::new("Selected regions, the hottest first", columns);
    for region in report.plan.selected.iter().take(MAX_REGIONS) {
        table.row(vec![
            region.start.to_string().into(),
            region.mapping.clone().into(),
            Cell::ratio(region.heat_ratio),
            Cell::count(region.sampled_pages.into()),
            verified(region, "not tried").into(),
        ]);
    }
    table
}
