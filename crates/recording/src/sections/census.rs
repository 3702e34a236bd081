//! Section of the censuses of a recording.

use std::cmp::Reverse;

use hugepilot_render::model::{Bar, Cell, Curve, Plot, Section, Table, Unit};

use super::process::{MAX_LINES, rounded};
use super::{Timeline, more_rows};
use crate::census::{MappingBloat, ProcessCensus};

/// Mappings of the plot at most, and of the table.
const MAX_BARS: usize = 12;
const MAX_ROWS: usize = 100;

/// Bloat by mapping in the last census of each process, and how much of each huge page it is.
pub(super) fn section(timeline: &Timeline) -> Section {
    let is_shown = |pid| timeline.window.pid.is_none_or(|wanted| wanted == pid);
    let all = timeline.rounds.census.values().filter(|census| is_shown(census.id.pid));
    let mut all: Vec<&ProcessCensus> = all.collect();
    all.sort_by_key(|census| Reverse(census.huge_pages));
    let is_alone = all.len() == 1;
    let of = |census: &&ProcessCensus| {
        let process = timeline.processes.iter().rfind(|one| one.pid == census.id.pid);
        let ranges = process.map(|process| process.areas.ranges()).unwrap_or_default();
        let title = title(census);
        let is_split = census.is_split;
        let mappings = census.by_mapping(&ranges).into_iter();
        mappings.map(move |one| (title.clone(), is_split, one)).collect::<Vec<_>>()
    };
    let mut mappings: Vec<(String, bool, MappingBloat)> = all.iter().flat_map(of).collect();
    mappings.sort_by_key(|(.., one)| Reverse(one.bloat_bytes));
    if mappings.is_empty() {
        return Section::default();
    }
    let text = "Of each process the last census. Bloat is memory on huge pages that holds only \
                zeros.";
    let section = Section::new("Census of huge pages", text);
    let section = section.with(bars(&mappings, is_alone)).with(table(&mappings));
    section.with_all(more_rows(mappings.len(), MAX_ROWS)).with(density(&all)).with(read(&all))
}

fn title(census: &ProcessCensus) -> String {
    format!("{} (pid {})", census.id.command, census.id.pid)
}

fn bytes(value: u64) -> f64 {
    value as f64
}

/// `is_alone`: whether there is one process, which needs no name.
fn bars(mappings: &[(String, bool, MappingBloat)], is_alone: bool) -> Plot {
    let mut bars = Vec::new();
    for (process, is_split, one) in mappings.iter().take(MAX_BARS) {
        let mut bar = |when: &str, value: u64| {
            let of = if is_alone { String::new() } else { format!(", {process}") };
            bars.push(Bar::new(format!("{}{of}{when}", one.name), Some(bytes(value))));
        };
        if *is_split {
            bar(", before", one.bloat_bytes);
            bar(", after", one.bloat_bytes.saturating_sub(one.freed_bytes));
        } else {
            bar("", one.bloat_bytes);
        }
    }
    Plot::bars("Bloat by mapping", "bloat", Unit::Bytes, bars)
}

fn table(mappings: &[(String, bool, MappingBloat)]) -> Table {
    let columns = ["process", "mapping", "bloated huge pages", "bloat", "freed"];
    let mut table = Table::new("Mappings, the most bloat first", columns);
    for (process, is_split, one) in mappings.iter().take(MAX_ROWS) {
        let freed = Some(bytes(one.freed_bytes)).filter(|_| *is_split);
        table.row(vec![
            process.clone().into(),
            one.name.clone().into(),
            Cell::count(one.huge_pages),
            Cell::of(Some(bytes(one.bloat_bytes)), Unit::Bytes, ""),
            Cell::of(freed, Unit::Bytes, "a dry run"),
        ]);
    }
    table
}

/// Distribution of the zero-filled share of the huge pages of each process.
fn density(all: &[&ProcessCensus]) -> Plot {
    let curve = |census: &&ProcessCensus| Curve {
        name: title(census),
        points: census.density().into_iter().map(|(x, y)| (rounded(x), rounded(y))).collect(),
    };
    let curves = all.iter().take(MAX_LINES).map(curve).collect();
    let (x, y) =
        (("zero-filled share of a huge page", Unit::Ratio), "huge pages with at most that");
    let text = "Pages at the right are mostly zeros: a split frees most of them.".to_owned();
    Plot { text, ..Plot::distributions("Bloat of each huge page", x, y, curves) }
}

/// Huge pages of each process, and how many of them were read.
fn read(all: &[&ProcessCensus]) -> Table {
    let mut table = Table::new("Huge pages by process", ["process", "huge pages", "read"]);
    for census in all.iter().take(MAX_ROWS) {
        let count = Cell::count;
        table.row(vec![title(census).into(), count(census.huge_pages), count(census.read_pages)]);
    }
    table
}
