//! Facts and document of `hugepilot lab report`: experiments, and what their runs say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{Bar, Cell, Document, Notice, Plot, Report, Section, Table, Unit};
use hugepilot_render::table::counted;
use hugepilot_stats::Spread;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the JSON.
pub const SCHEMA: &str = "hugepilot.lab-report/1";

/// Name and version of the JSON of `lab list`.
pub const LIST_SCHEMA: &str = "hugepilot.lab-list/1";

/// Experiments that can be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabList {
    /// [`LIST_SCHEMA`].
    pub schema: String,
    /// Experiments.
    pub experiments: Vec<ListedExperiment>,
}

/// Experiment that can be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedExperiment {
    /// Name.
    pub name: String,
    /// Claim.
    pub claim: String,
    /// Paper, section and figure of the claim.
    pub source: String,
    /// Minutes on 2 CPUs, by scale.
    pub minutes: BTreeMap<String, f64>,
}

impl JsonReport for LabList {}

impl Document for LabList {
    fn document(&self) -> Report {
        let mut all = Report::new("Experiments");
        let rows = self.experiments.iter().map(|one| {
            let minutes = one.minutes.iter().map(|(name, minutes)| format!("{name} {minutes}"));
            let minutes = minutes.collect::<Vec<_>>().join(", ");
            [&one.name, &minutes, &one.source, &one.claim].map(|text| text.clone().into())
        });
        let table = Table::of("", ["name", "minutes", "source", "claim"], rows);
        all.add(Section::new("Experiments", "").with(table));
        all
    }
}

/// Report on experiments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Machines of the runs, each in words.
    pub machines: Vec<String>,
    /// Versions of hugepilot that ran.
    pub versions: Vec<String>,
    /// Experiments.
    pub experiments: Vec<ExperimentReport>,
}

/// Report on an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentReport {
    /// Name.
    pub name: String,
    /// Claim.
    pub claim: String,
    /// Paper, section and figure of the claim.
    pub source: String,
    /// Scale of the runs.
    pub scale: String,
    /// Whether the claim was reproduced.
    pub verdict: ExperimentVerdict,
    /// Unit of the values: `seconds`, `per_second`, `speedup` or `count`.
    pub unit: String,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs with a value that a whole experiment has.
    pub due_runs: u64,
    /// Runs during which the hypervisor took 5 % of the CPU time or more.
    pub noisy_runs: u64,
    /// Time of the first run, in seconds since 1970, UTC.
    pub first_unix_seconds: Option<u64>,
    /// Time of the last run, likewise.
    pub last_unix_seconds: Option<u64>,
    /// Cells by panel and weather.
    pub cells: Vec<CellReport>,
    /// Bands by panel.
    pub bands: Vec<BandReport>,
    /// Runs without a value.
    pub failed: Vec<FailedRuns>,
}

/// Whether a claim was reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExperimentVerdict {
    /// All bands are met.
    Reproduced,
    /// Some bands are met.
    InPart,
    /// No band is met.
    NotReproduced,
    /// No band has a value.
    NotMeasured,
}

impl fmt::Display for ExperimentVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "reproduced in part",
            Self::NotReproduced => "not reproduced",
            Self::NotMeasured => "not measured",
        })
    }
}

/// Runs of a cell in one weather.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellReport {
    /// Panel; empty if there is one only.
    pub panel: String,
    /// Weather.
    pub weather: String,
    /// Cell.
    pub cell: String,
    /// Runs with a value.
    pub runs: u64,
    /// Values, in the unit of the experiment.
    pub value: Spread,
    /// Speedup over the first cell in the same weather and round; `None` for that cell.
    pub speedup: Option<Spread>,
    /// Speedup that the source published; `None` if it published none.
    pub published_speedup: Option<f64>,
    /// Medians of further values by name.
    pub also: BTreeMap<String, f64>,
}

/// A band in one panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BandReport {
    /// Panel; empty if there is one only.
    pub panel: String,
    /// Statement that holds within the band.
    pub claim: String,
    /// Whether the value is the share of a gain; else it is a speedup.
    pub is_share: bool,
    /// Whether the gain is below 2 %, of which no share is taken.
    pub is_gain_small: bool,
    /// Value; `None` if runs lack, or if the gain is small.
    pub value: Option<f64>,
    /// Least value.
    pub at_least: Option<f64>,
    /// Largest value.
    pub at_most: Option<f64>,
    /// Value that the source published.
    pub published: Option<f64>,
    /// Whether the value is in the band; `None` without a value.
    pub met: Option<bool>,
}

/// Runs that failed for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedRuns {
    /// Panel; empty if there is one only.
    pub panel: String,
    /// Weather.
    pub weather: String,
    /// Cell.
    pub cell: String,
    /// Cause.
    pub cause: String,
    /// Number of runs.
    pub runs: u64,
}

impl JsonReport for LabReport {}

impl Document for LabReport {
    fn document(&self) -> Report {
        let mut all = Report::new("Experiments");
        for one in &self.experiments {
            all.summary.push(format!("{}: {}.", one.name, sentence(one)));
            all.add(bands(one));
            all.add(cells(one));
            all.add(speedups(one));
            all.add(noise(one));
        }
        let runs = self.experiments.iter().map(|one| {
            let ExperimentReport { name, scale, due_runs, .. } = one;
            format!("{name}, scale {scale}: {} of {due_runs} with a value", good_runs(one))
        });
        let runs: Vec<String> = runs.collect();
        let facts = [("machine", &self.machines), ("version", &self.versions), ("runs", &runs)];
        let rows = facts.into_iter().flat_map(|(name, values)| {
            values.iter().map(move |value| [Cell::from(name), Cell::from(value.clone())])
        });
        let table = Table::of("", ["fact", "value"], rows);
        all.add(Section::new("Circumstances", "").with(table));
        all
    }
}

/// The verdict with the bands that were missed.
fn sentence(one: &ExperimentReport) -> String {
    let missed = one.bands.iter().filter(|band| band.met != Some(true)).map(|band| {
        let limit = |word, limit: Option<f64>| limit.map(|limit| format!("{word} {limit:.2}"));
        let limits = [limit("at least", band.at_least), limit("at most", band.at_most)];
        let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let value = match band.value {
            Some(value) => format!("{value:.3}, not {limits}"),
            None if band.is_gain_small => "the whole gain is below 2 %".to_owned(),
            None => "runs lack".to_owned(),
        };
        let panel = if band.panel.is_empty() { "" } else { " in " };
        format!("\u{201c}{}\u{201d}{panel}{}: {value}", band.claim, band.panel)
    });
    let missed: Vec<String> = missed.collect();
    let because = if missed.is_empty() { "" } else { ": " };
    let lacking = one.due_runs.saturating_sub(good_runs(one));
    let lacking = if lacking == 0 {
        String::new()
    } else {
        format!("; {lacking} of {} lack", counted(one.due_runs, "run", "runs"))
    };
    format!("{}{because}{}{lacking}", one.verdict, missed.join("; "))
}

/// Runs with a value.
fn good_runs(one: &ExperimentReport) -> u64 {
    one.runs.saturating_sub(one.failed.iter().map(|failed| failed.runs).sum())
}

fn bands(one: &ExperimentReport) -> Section {
    let limit = |value| Cell::of(value, Unit::Number, "no limit");
    let rows = one.bands.iter().map(|band| {
        [
            band.panel.clone().into(),
            band.claim.clone().into(),
            Cell::of(band.value, Unit::Number, "not measured"),
            limit(band.at_least),
            limit(band.at_most),
            Cell::of(band.published, Unit::Number, "not published"),
            match band.met {
                Some(true) => "yes".into(),
                Some(false) => "no".into(),
                None => Cell::of(None, Unit::Number, "not measured"),
            },
        ]
    });
    let columns = ["panel", "claim", "value", "at least", "at most", "published", "met"];
    let claim = one.claim.trim_end_matches('.');
    let text = format!("{claim} ({}, scale {}).", one.source, one.scale);
    let section = Section::new(format!("{}: bands", one.name), text);
    if one.bands.is_empty() { section } else { section.with(Table::of("", columns, rows)) }
}

fn cells(one: &ExperimentReport) -> Section {
    let unit = match &*one.unit {
        "seconds" => Unit::Seconds,
        "per_second" => Unit::PerSecond,
        _ => Unit::Number,
    };
    let also: BTreeSet<&String> = one.cells.iter().flat_map(|cell| cell.also.keys()).collect();
    let columns = ["panel", "weather", "cell", "runs", "median", "min", "max", "speedup", "low"];
    let columns = columns.into_iter().chain(["high", "published"]).map(str::to_owned);
    let columns = columns.chain(also.iter().map(|&name| name.clone())).collect();
    let number = |value, missing| Cell::of(value, Unit::Number, missing);
    let mut table = Table { title: String::new(), columns, rows: Vec::new() };
    for cell in &one.cells {
        let value = |value| Cell::of(Some(value), unit, "");
        let speedup = |part: fn(Spread) -> f64| number(cell.speedup.map(part), "the base");
        let mut row = vec![
            cell.panel.clone().into(),
            cell.weather.clone().into(),
            cell.cell.clone().into(),
            Cell::count(cell.runs),
            value(cell.value.median),
            value(cell.value.min),
            value(cell.value.max),
            speedup(|spread| spread.median),
            speedup(|spread| spread.min),
            speedup(|spread| spread.max),
            number(cell.published_speedup, "not published"),
        ];
        row.extend(also.iter().map(|&name| {
            let unit = if name.ends_with("bytes") { Unit::Bytes } else { Unit::Number };
            Cell::of(cell.also.get(name).copied(), unit, "not measured")
        }));
        table.row(row);
    }
    let section = Section::new(format!("{}: cells", one.name), "");
    if one.cells.is_empty() { section } else { section.with(table) }
}

/// Speedups of each cell, ours beside the published ones.
fn speedups(one: &ExperimentReport) -> Section {
    let bars = one.cells.iter().flat_map(|cell| {
        let names = [&cell.panel, &cell.weather, &cell.cell].map(String::as_str);
        let name = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        let own = cell.speedup.map(|spread| Bar {
            range: Some((spread.min, spread.max)),
            ..Bar::new(name.clone(), Some(spread.median))
        });
        let published = cell.published_speedup;
        let published = published.map(|one| Bar::new(format!("{name} (published)"), Some(one)));
        own.into_iter().chain(published)
    });
    let bands = one.bands.iter().filter(|band| band.published.is_some()).flat_map(|band| {
        let name = match &*band.panel {
            "" => band.claim.clone(),
            panel => format!("{panel}: {}", band.claim),
        };
        [
            Bar::new(name.clone(), band.value),
            Bar::new(format!("{name} (published)"), band.published),
        ]
    });
    let beside = format!("{}: values of bands", one.name);
    Section::detail(format!("{}: speedups", one.name), "")
        .with_plot(Plot::bars("", "speedup", Unit::Number, bars))
        .with_plot(Plot::bars(&beside, "value", Unit::Number, bands))
}

fn noise(one: &ExperimentReport) -> Section {
    let failed = one.failed.iter().map(|failed| {
        let runs = counted(failed.runs, "run", "runs");
        let FailedRuns { panel, weather, cell, cause, .. } = failed;
        let place = [panel, weather, cell].map(String::as_str);
        let place = place.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
        Notice::warning(format!("{}: {runs} of {} failed: {cause}", one.name, place.join(", ")))
    });
    let noisy = (one.noisy_runs > 0).then(|| {
        Notice::warning(format!(
            "{}: during {} of {} the hypervisor took 5 % of the CPU time or more",
            one.name,
            one.noisy_runs,
            counted(one.runs, "run", "runs"),
        ))
    });
    Section::new(format!("{}: warnings", one.name), "").with_all(failed.chain(noisy))
}

#[cfg(test)]
mod tests {
    use hugepilot_render::model::{Block, Chart};
    use serde_json::{Value, json};

    use super::*;

    fn report() -> ExperimentReport {
        let cell = |name: &str, speedup: Value, published: Value| {
            json!({"panel": "bfs", "weather": "scarce", "cell": name, "runs": 3,
                "value": {"median": 2.0, "min": 1.5, "max": 2.5}, "speedup": speedup,
                "published_speedup": published, "also": {}})
        };
        let band = |claim: &str, published: Value| {
            json!({"panel": "", "claim": claim, "is_share": false, "is_gain_small": false,
                "value": 1.1, "at_least": 1.0, "published": published, "met": true})
        };
        let speedup = json!({"median": 1.4, "min": 1.2, "max": 1.5});
        serde_json::from_value(json!({
            "name": "order", "claim": "", "source": "", "scale": "small", "verdict": "reproduced",
            "unit": "seconds", "runs": 6, "due_runs": 8, "noisy_runs": 0,
            "cells": [cell("base", json!(null), json!(null)), cell("thp", speedup, json!(1.3))],
            "bands": [band("faster", json!(1.2)), band("alone", json!(null))],
            "failed": [{"panel": "", "weather": "", "cell": "", "cause": "killed", "runs": 1}],
        }))
        .unwrap()
    }

    #[test]
    fn published_values_stand_beside_ours_with_their_spread() {
        let bars = |block: &Block| match block {
            Block::Plot(Plot { chart: Chart::Bars(chart), .. }) => chart.bars.clone(),
            other => panic!("{other:?}"),
        };
        let plots: Vec<Vec<Bar>> = speedups(&report()).blocks.iter().map(bars).collect();
        let bar = |name: &str, value, range| Bar { range, ..Bar::new(name, Some(value)) };
        let [own, published] = ["bfs, scarce, thp", "bfs, scarce, thp (published)"];
        let cells = [bar(own, 1.4, Some((1.2, 1.5))), bar(published, 1.3, None)];
        let bands = [bar("faster", 1.1, None), bar("faster (published)", 1.2, None)];
        assert_eq!(plots, [cells, bands]);
    }

    #[test]
    fn failed_runs_are_missing() {
        assert_eq!(sentence(&report()), "reproduced; 3 of 8 runs lack");
        let all = LabReport { experiments: vec![report()], ..LabReport::default() };
        let facts = all.document().sections.pop().unwrap();
        let Block::Table(table) = &facts.blocks[0] else { panic!("{facts:?}") };
        let runs = ["runs", "order, scale small: 5 of 8 with a value"].map(Cell::from);
        assert_eq!(table.rows, [runs]);
    }
}
