//! Times in the JSON of `graph`.

use hugepilot_record::graph::Trial;
use hugepilot_stats::Spread;

use super::plot;
use crate::model::{Bar, Bars, Cell, Chart, Notice, Section, Table, Unit};

/// Trials of a table at most.
const MAX_TRIALS: usize = 500;

fn seconds(value: f64) -> Cell {
    Cell::of(Some(value), Unit::Seconds, "")
}

/// Table of the phases that have a time, in seconds.
pub(super) fn phases(named: &[(&str, Option<f64>)]) -> Table {
    let mut table = Table::new("Phases", ["phase", "time"]);
    for &(name, time) in named {
        if let Some(time) = time {
            table.row(vec![name.into(), seconds(time)]);
        }
    }
    table
}

/// Time of each run of a kernel.
pub(super) fn trials(trials: &[Trial]) -> Section {
    let all: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
    let Some(Spread { median, min, max }) = Spread::of(&all) else { return Section::default() };
    let mut table = Table::new("Trials", ["trial", "source vertex", "time"]);
    let mut bars = Vec::new();
    for (number, trial) in (1..).zip(trials.iter().take(MAX_TRIALS)) {
        // An ID, not a quantity.
        let source = trial.source.map_or_else(|| "none".to_owned(), |source| source.to_string());
        table.row(vec![format!("{number}").into(), source.into(), seconds(trial.seconds)]);
        bars.push(Bar { name: format!("{number}"), value: Some(trial.seconds), range: None });
    }
    let chart = Chart::Bars(Bars { name: "time".to_owned(), unit: Unit::Seconds, bars });
    let [median, min, max] = [median, min, max].map(|value| seconds(value).text());
    let text = format!(
        "Mapping, first touch and the kernel together: median {median}, min {min}, max {max}."
    );
    let more = trials.len().saturating_sub(MAX_TRIALS);
    let more = (more > 0).then(|| Notice::note(format!("{more} further trials are not shown")));
    Section::new("Trials", text).with(plot("Time by trial", chart)).with(table).with_all(more)
}
