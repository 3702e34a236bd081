//! Text of page reuse.

use std::fmt::Write;

use hugepilot_record::sim::{
    DistanceBucket, KindOfReuse, KindShare, PageCell, ReuseLevel, SimReuseReport,
};
use serde_json::Value;

use super::{SHOWN, explain_input, input, mapping_name, more, number, plot};
use crate::json::JsonReport;
use crate::table::{Width, percent, table};

/// Least mean time distances of the columns of the histogram in the text, powers of two.
const FROM: [u64; 6] = [1, 64, 1024, 16_384, 262_144, 4_194_304];
/// Mappings in the histogram.
const MOST_USED: usize = 5;
/// Entries of the miss-ratio curve in the text.
const ENTRIES: [u64; 7] = [16, 64, 256, 1024, 1536, 4096, 16384];

impl JsonReport for SimReuseReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_input(json, &self.input);
    }
}

/// Prints the miss ratios by page size, the kinds of pages by mapping, and plots of the distances.
pub fn sim_reuse_text(report: &SimReuseReport, width: Width) -> String {
    let mut text = input(&report.input);
    if report.sampled_ratio < 1.0 {
        let _ = writeln!(
            text,
            "stack distances of {} of the pages; counts are estimates",
            percent(report.sampled_ratio)
        );
    }
    let mut header = vec!["PAGES".to_owned(), "FIRST_USES".to_owned()];
    header.extend(ENTRIES.map(|entries| format!("MISS_%_{entries}")));
    let mut rows = vec![header];
    rows.extend(report.levels.iter().map(level));
    let numbers: Vec<usize> = (1..=ENTRIES.len() + 1).collect();
    let _ = write!(
        text,
        "\nmisses in percent of the accesses, by TLB entries (fully associative, LRU):\n{}",
        table(rows, &numbers, width)
    );
    let curve = |level: &ReuseLevel| {
        let ratios = level.curve.iter().map(|point| point.miss_ratio).collect();
        (format!("{} pages", level.page_bytes), ratios)
    };
    let curves: Vec<_> = report.levels.iter().map(curve).collect();
    text.push_str(&plot::curves("misses in percent of the accesses, by TLB entries", &curves));
    text.push_str(&histograms(&report.levels, width));
    text.push_str(&kinds(report, width));
    text.push_str(&distances(report, width));
    let title = "base pages by the mean number of accesses between two uses: of the page (right), \
                 of its 2MiB region (up)";
    text.push_str(&plot::grid(title, &powers_of(&report.page_cells)));
    text
}

/// Cells of pages that were used again, by the powers of two of their distances.
pub(crate) fn powers_of(cells: &[PageCell]) -> Vec<(u32, u32, u64)> {
    let powers = |cell: &PageCell| {
        let power = |distance: Option<u64>| distance.and_then(u64::checked_ilog2);
        Some((power(cell.distance)?, power(cell.region_distance)?, cell.pages))
    };
    cells.iter().filter_map(powers).collect()
}

/// Accesses by the powers of two of their stack distances, after those with distance 0.
pub(crate) fn by_power(level: &ReuseLevel) -> Vec<f64> {
    let mut powers: Vec<f64> = Vec::new();
    for bucket in &level.histogram {
        let at = bucket.distance.checked_ilog2().map_or(0, |power| power as usize + 1);
        powers.resize(powers.len().max(at + 1), 0.0);
        powers[at] += bucket.accesses;
    }
    powers
}

/// A sketch of the stack distances for each page size.
fn histograms(levels: &[ReuseLevel], width: Width) -> String {
    let mut rows = vec![["PAGES", "ACCESSES", "MOST"].map(str::to_owned).to_vec()];
    for level in levels {
        let powers = by_power(level);
        let most = level.histogram.iter().map(|one| one.distance).max().unwrap_or(0);
        rows.push(vec![level.page_bytes.to_string(), plot::sketch(&powers), number(most)]);
    }
    let rows = table(rows, &[2], width);
    format!(
        "\naccesses by stack distance: 0, 1, from 2, from 4, from 8, …; MOST is the largest, \
         rounded down by up to 3 %:\n{rows}"
    )
}

fn level(level: &ReuseLevel) -> Vec<String> {
    let mut row = vec![level.page_bytes.to_string(), number(level.first_uses as u64)];
    row.extend(ENTRIES.map(|entries| {
        let at = level.curve.iter().rev().find(|point| point.entries <= entries);
        let exact = level.histogram.iter();
        let all: f64 = exact.clone().map(|bucket| bucket.accesses).sum::<f64>() + level.first_uses;
        let far = exact.filter(|bucket| bucket.distance >= entries);
        let missed: f64 = far.map(|bucket| bucket.accesses).sum::<f64>() + level.first_uses;
        at.map_or_else(|| "-".to_owned(), |_| format!("{:.3}", missed / all.max(1.0) * 100.0))
    }));
    row
}

/// Kinds of pages, of all memory and by mapping.
fn kinds(report: &SimReuseReport, width: Width) -> String {
    let header = ["MAPPING", "PAGES", "TLB_FRIENDLY_%", "HUB_%", "LOW_REUSE_%", "HUB_ACCESSES_%"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.push(row("all".to_owned(), &report.kinds));
    rows.extend(
        report
            .per_mapping
            .iter()
            .take(SHOWN)
            .map(|one| row(mapping_name(one.process, &one.mapping, one.ordinal), &one.kinds)),
    );
    let table = table(rows, &[1, 2, 3, 4, 5], width);
    format!(
        "\nkinds of base pages (HUB: high-reuse TLB-sensitive, Manocha et al. 2023):\n{table}{}",
        more(report.per_mapping.len())
    )
}

/// Histogram of the mean time distances of pages, of all memory and of the most used mappings.
fn distances(report: &SimReuseReport, width: Width) -> String {
    if report.distances.is_empty() {
        return String::new();
    }
    let mut header = vec!["MAPPING".to_owned()];
    header.extend(FROM.map(|from| format!("%_FROM_{from}")));
    header.push("%_ONCE".to_owned());
    let mut rows = vec![header, distance_row("all".to_owned(), &report.distances)];
    rows.extend(report.per_mapping.iter().take(MOST_USED).map(|one| {
        distance_row(mapping_name(one.process, &one.mapping, one.ordinal), &one.distances)
    }));
    let numbers: Vec<usize> = (1..=FROM.len() + 1).collect();
    format!(
        "\nbase pages in percent, by the mean number of accesses between two uses:\n{}",
        table(rows, &numbers, width)
    )
}

fn distance_row(name: String, buckets: &[DistanceBucket]) -> Vec<String> {
    let all: u64 = buckets.iter().map(|bucket| bucket.pages).sum();
    let share = |is_of: &dyn Fn(Option<u64>) -> bool| {
        let of = buckets.iter().filter(|bucket| is_of(bucket.distance));
        let pages: u64 = of.map(|bucket| bucket.pages).sum();
        format!("{:.1}", pages as f64 / all.max(1) as f64 * 100.0)
    };
    let mut row = vec![name];
    for (at, from) in FROM.into_iter().enumerate() {
        let until = FROM.get(at + 1).copied().unwrap_or(u64::MAX);
        row.push(share(&|distance| distance.is_some_and(|one| (from..until).contains(&one))));
    }
    row.push(share(&|distance| distance.is_none()));
    row
}

fn row(name: String, kinds: &[KindShare]) -> Vec<String> {
    let all: u64 = kinds.iter().map(|kind| kind.pages).sum();
    let accesses: u64 = kinds.iter().map(|kind| kind.accesses).sum();
    let of = |kind| kinds.iter().find(|one| one.kind == kind);
    let share = |part: u64, whole: u64| format!("{:.1}", part as f64 / whole.max(1) as f64 * 100.0);
    let pages = |kind| share(of(kind).map_or(0, |one| one.pages), all);
    let hub = of(KindOfReuse::Hub).map_or(0, |one| one.accesses);
    vec![
        name,
        number(all),
        pages(KindOfReuse::TlbFriendly),
        pages(KindOfReuse::Hub),
        pages(KindOfReuse::LowReuse),
        share(hub, accesses),
    ]
}
