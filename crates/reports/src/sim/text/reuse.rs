//! Document of page reuse.

use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{
    Cell, Chart, Curve, Document, Plot, Report, Scatter, ScatterGroup, Section, Table, Unit,
};
use hugepilot_render::table::percent;
use serde_json::Value;

use super::{SHOWN, begun, explain_input, mapping_name, more_mappings};
use crate::sim::{
    DistanceBucket, KindOfReuse, KindShare, MappingReuse, PageCell, ReuseLevel, SimReuseReport,
};

/// Least mean time distances of the columns of the histogram, powers of two.
const FROM: [u64; 6] = [1, 64, 1024, 16_384, 262_144, 4_194_304];
/// Mappings in the histogram, and with a group of their own in the scatter plot.
const MOST_USED: usize = 5;
/// Entries of the miss-ratio curve in the table.
const ENTRIES: [u64; 7] = [16, 64, 256, 1024, 1536, 4096, 16384];
/// Binary logarithm of the distance that divides kinds of pages: 1024.
const BORDER: f64 = 10.0;

impl JsonReport for SimReuseReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_input(json, &self.input);
    }
}

impl Document for SimReuseReport {
    fn document(&self) -> Report {
        let mut all = begun("Page reuse", &self.input, None, Vec::new());
        if self.sampled_ratio < 1.0 {
            all.summary.push(format!(
                "Stack distances of {} of the pages; counts are estimates.",
                percent(self.sampled_ratio)
            ));
        }
        let text = "Misses of a fully associative TLB with LRU replacement, by its entries.";
        let plot = level_plot(self, "Miss ratio", ["entries of the TLB", "misses"], |level| {
            level.curve.iter().map(|one| ((one.entries as f64).log2(), one.miss_ratio)).collect()
        });
        all.add(Section::new("Misses", text).with(misses(&self.levels)).with_plot(plot));
        all.add(kinds(self));
        let text = "Distinct pages between two uses of a page, up to the next power of two. \
                    Distance 0, the page used last, has no place here.";
        let plot = level_plot(self, "", ["pages since the last use", "accesses"], |level| {
            let powers = by_power(level);
            let all = (powers.iter().sum::<f64>() + level.first_uses).max(1.0);
            // Those with distance 0 are below the axis of powers.
            let others = powers.iter().enumerate().skip(1);
            others.map(|(at, count)| ((at - 1) as f64, count / all)).collect()
        });
        all.add(Section::new("Stack distances", text).with_plot(plot));
        if !self.distances.is_empty() {
            let text = "Base pages by the mean number of accesses between two uses.";
            all.add(Section::new("Time distances", text).with(distances(self)));
        }
        let text = "Mean number of accesses between two uses of a page (right), and of its 2 MiB \
                    region (up). A huge page pays for pages at the lower right: used again late, \
                    their region soon. Pages used once have no place here.";
        let plot = Plot::new("", scatter(self));
        if plot.absence().is_none() {
            all.add(Section::new("Pages and regions", text).with(plot));
        }
        all
    }
}

/// Cells of pages that were used again, by the powers of two of their distances.
fn powers_of(cells: &[PageCell]) -> impl Iterator<Item = (f64, f64, u64)> {
    cells.iter().filter_map(|cell| {
        let power = |distance: Option<u64>| distance.and_then(u64::checked_ilog2).map(f64::from);
        Some((power(cell.distance)?, power(cell.region_distance)?, cell.pages))
    })
}

/// Accesses by the powers of two of their stack distances, after those with distance 0.
fn by_power(level: &ReuseLevel) -> Vec<f64> {
    let mut powers: Vec<f64> = Vec::new();
    for bucket in &level.histogram {
        let at = bucket.distance.checked_ilog2().map_or(0, |power| power as usize + 1);
        powers.resize(powers.len().max(at + 1), 0.0);
        powers[at] += bucket.accesses;
    }
    powers
}

/// Curves of each page size over powers of two.
fn level_plot(
    report: &SimReuseReport,
    title: &str,
    [x, y]: [&str; 2],
    points: impl Fn(&ReuseLevel) -> Vec<(f64, f64)>,
) -> Plot {
    let name = |level: &ReuseLevel| format!("{} pages", level.page_bytes);
    let curve = |level| Curve { name: name(level), points: points(level) };
    let curves = report.levels.iter().map(curve).collect();
    Plot::curves(title, (x, Unit::Log2), (y, Unit::Ratio), curves)
}

/// First uses, misses by entries, and the largest stack distance, of each page size.
fn misses(levels: &[ReuseLevel]) -> Table {
    let mut table = Table::new("", ["pages", "first uses"]);
    table.columns.extend(ENTRIES.map(|entries| format!("miss {entries}")));
    table.columns.push("max distance".to_owned());
    for level in levels {
        let exact = || level.histogram.iter();
        let all = exact().map(|bucket| bucket.accesses).sum::<f64>() + level.first_uses;
        let ratio = |entries: u64| {
            let known = level.curve.iter().any(|point| point.entries <= entries);
            let far = exact().filter(|bucket| bucket.distance >= entries);
            let missed = far.map(|bucket| bucket.accesses).sum::<f64>() + level.first_uses;
            Cell::of(known.then(|| missed / all.max(1.0)), Unit::Ratio, "no curve")
        };
        let most = exact().map(|one| one.distance).max().unwrap_or(0);
        let first = [level.page_bytes.into(), Cell::count(level.first_uses as u64)];
        let row = first.into_iter().chain(ENTRIES.map(ratio)).chain([Cell::count(most)]);
        table.rows.push(row.collect());
    }
    table
}

/// Kinds of pages, of all memory and by mapping.
fn kinds(report: &SimReuseReport) -> Section {
    let columns = ["mapping", "pages", "TLB friendly", "HUB", "low reuse", "HUB accesses"];
    let of = |one: &MappingReuse| {
        kind_row(mapping_name(one.process, &one.mapping, one.ordinal), &one.kinds)
    };
    let rows = report.per_mapping.iter().take(SHOWN).map(of);
    let all = kind_row("all".into(), &report.kinds);
    let table = Table::of("", columns, std::iter::once(all).chain(rows));
    let text = "HUB is high-reuse TLB-sensitive (Manocha et al. 2023).";
    let section = Section::new("Kinds of base pages", text).with(table);
    section.with_all(more_mappings(report.per_mapping.len()))
}

fn kind_row(name: Cell, kinds: &[KindShare]) -> [Cell; 6] {
    let all: u64 = kinds.iter().map(|kind| kind.pages).sum();
    let accesses: u64 = kinds.iter().map(|kind| kind.accesses).sum();
    let share = |part: u64, whole: u64| Cell::ratio(part as f64 / whole.max(1) as f64);
    let of = |kind| kinds.iter().find(|one| one.kind == kind);
    let pages = |kind| share(of(kind).map_or(0, |one| one.pages), all);
    let [friendly, hub, low] =
        [KindOfReuse::TlbFriendly, KindOfReuse::Hub, KindOfReuse::LowReuse].map(pages);
    let hub_accesses = of(KindOfReuse::Hub).map_or(0, |one| one.accesses);
    [name, Cell::count(all), friendly, hub, low, share(hub_accesses, accesses)]
}

/// Histogram of the mean time distances of pages, of all memory and of the most used mappings.
fn distances(report: &SimReuseReport) -> Table {
    let mut table = Table::new("", ["mapping"]);
    table.columns.extend(FROM.map(|from| format!("from {from}")));
    table.columns.push("once".to_owned());
    table.rows.push(distance_row("all".into(), &report.distances));
    table.rows.extend(report.per_mapping.iter().take(MOST_USED).map(|one| {
        distance_row(mapping_name(one.process, &one.mapping, one.ordinal), &one.distances)
    }));
    table
}

fn distance_row(name: Cell, buckets: &[DistanceBucket]) -> Vec<Cell> {
    let all: u64 = buckets.iter().map(|bucket| bucket.pages).sum();
    let share = |is_of: &dyn Fn(Option<u64>) -> bool| {
        let of = buckets.iter().filter(|bucket| is_of(bucket.distance));
        let pages: u64 = of.map(|bucket| bucket.pages).sum();
        Cell::ratio(pages as f64 / all.max(1) as f64)
    };
    let mut row = vec![name];
    for (at, from) in FROM.into_iter().enumerate() {
        let until = FROM.get(at + 1).copied().unwrap_or(u64::MAX);
        row.push(share(&|distance| distance.is_some_and(|one| (from..until).contains(&one))));
    }
    row.push(share(&|distance| distance.is_none()));
    row
}

/// Base pages by their time distance and that of their region; the mappings used most are groups.
fn scatter(report: &SimReuseReport) -> Chart {
    let group = |one: &MappingReuse| ScatterGroup {
        name: mapping_name(one.process, &one.mapping, one.ordinal).text(),
        points: powers_of(&one.page_cells).collect(),
    };
    let (first, rest) = report.per_mapping.split_at(report.per_mapping.len().min(MOST_USED));
    let mut groups: Vec<_> = first.iter().map(group).collect();
    let points = rest.iter().flat_map(|one| powers_of(&one.page_cells)).collect();
    groups.push(ScatterGroup { name: "other mappings".to_owned(), points });
    groups.retain(|group| !group.points.is_empty());
    Chart::Scatter(Scatter {
        x_name: "accesses between two uses of a page".to_owned(),
        x_unit: Unit::Log2,
        y_name: "of its region".to_owned(),
        y_unit: Unit::Log2,
        things: "pages".to_owned(),
        border: BORDER,
        groups,
    })
}
