//! Numbers of a tune as a table, for the formats that other programs read.

use hugepilot_record::Prediction;
use hugepilot_render::model::{Cell, Section, Table, Unit};

use crate::tune::{Gain, GainSource, TuneReport};

pub(super) fn facts(report: &TuneReport) -> Section {
    let TuneReport { plan, acts, forecast, .. } = report;
    let mut table = Table::new("", ["fact", "value"]);
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
    Section::detail("Result", "").with(table)
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
