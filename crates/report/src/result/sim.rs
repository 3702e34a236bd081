//! Reports of the JSON of `sim`.

use hugepilot_record::sim::{
    Candidate, MappingReuse, PolicyRun, ReuseLevel, SimInput, SimMachine, SimPolicyReport,
    SimReuseReport, SimTlbReport, SimUtilityReport,
};

use super::plot;
use crate::model::{
    Bar, Bars, Cell, Chart, Curve, Curves, Notice, Plot, Report, Scatter, ScatterGroup, Section,
    Table, Unit,
};
use crate::sim::{by_power, has_promotions, mapping_name, notices, powers_of, walks_text};

/// Mappings in a scatter plot that have a group of their own.
const GROUPS: usize = 5;
/// Rows of a table that may be long.
const MAX_ROWS: usize = 20;
/// Binary logarithm of the distance that divides kinds of pages: 1024.
const BORDER: f64 = 10.0;

fn count(value: u64) -> Cell {
    Cell::of(Some(value as f64), Unit::Count, "")
}

/// Report with its warnings: those about the accesses, and `more`.
fn report_of(input: &SimInput, more: Vec<Notice>, title: String) -> Report {
    let mut all = Report::new(title);
    all.summary.push(format!("Simulated accesses of {}.", input.sources.join(", ")));
    let warnings = notices::of_input(input).into_iter().chain(more);
    all.add(Section::new("Warnings", "").with_all(warnings));
    all
}

pub(super) fn tlb(report: &SimTlbReport, name: &str) -> Report {
    let columns = ["pages", "L1 misses", "walks", "walks per access", "references of walks"];
    let mut table = Table::new("Page sizes", columns);
    for machine in &report.machines {
        let counts = &machine.counts;
        table.row(vec![
            machine.page_bytes.to_string().into(),
            count(counts.l1_misses),
            count(counts.walks),
            Cell::of(Some(counts.walk_ratio), Unit::Ratio, ""),
            count(counts.walk_references),
        ]);
    }
    let bar =
        |machine: &SimMachine| (format!("{} pages", machine.page_bytes), machine.counts.walk_ratio);
    let bars = walk_bars(report.machines.iter().map(bar));
    let smallest = report.machines.first();
    let candidates = smallest.map_or(&[][..], |machine| &machine.candidates);
    let mut all = report_of(&report.input, Vec::new(), format!("TLB misses of {name}"));
    let text = format!("All memory on pages of one size, by the TLBs of {}.", report.cpu.cpu);
    let plot = plot("Page walks by page size", bars);
    all.add(Section::new("TLB misses", text).with(plot).with(table));
    if let Some(machine) = smallest.filter(|machine| !machine.per_mapping.is_empty()) {
        all.add(mappings(machine));
    }
    all.add(of_candidates(candidates));
    all
}

/// Bars of walks per access.
fn walk_bars(bars: impl Iterator<Item = (String, f64)>) -> Chart {
    let bar = |(name, value)| Bar { name, value: Some(value), range: None };
    let (name, unit) = ("walks per access".to_owned(), Unit::Ratio);
    Chart::Bars(Bars { name, unit, bars: bars.map(bar).collect() })
}

/// Section of the walks of each mapping.
fn mappings(machine: &SimMachine) -> Section {
    let columns = ["mapping", "in use", "accesses", "walks", "walks per access"];
    let mut table = Table::new("Mappings", columns);
    for one in machine.per_mapping.iter().take(MAX_ROWS) {
        table.row(vec![
            mapping_name(one.process, &one.mapping, one.ordinal).into(),
            Cell::of(Some(one.touched_bytes.get() as f64), Unit::Bytes, ""),
            count(one.counts.accesses),
            count(one.counts.walks),
            Cell::of(Some(one.counts.walk_ratio), Unit::Ratio, ""),
        ]);
    }
    let text = format!("Walks by mapping, on {} pages.", machine.page_bytes);
    Section::new("Mappings", text).with(table)
}

/// Section of the candidates at the end, highest frequency first; empty without one.
fn of_candidates(candidates: &[Candidate]) -> Section {
    let walked = || candidates.iter().filter(|one| one.frequency > 0);
    if walked().next().is_none() {
        return Section::default();
    }
    let points = (1..).zip(walked()).map(|(rank, one)| (f64::from(rank), one.frequency as f64));
    let curve = Curve { name: "frequency".to_owned(), points: points.collect() };
    let chart = Chart::Curves(Curves {
        x_name: "rank".to_owned(),
        x_unit: Unit::Count,
        y_name: "frequency".to_owned(),
        y_unit: Unit::Count,
        steps: true,
        curves: vec![curve],
    });
    let mut table = Table::new("Candidates at the end", ["mapping", "region", "frequency"]);
    for one in walked().take(MAX_ROWS) {
        let name = mapping_name(one.process, &one.mapping, one.ordinal);
        table.row(vec![name.into(), count(one.index), count(one.frequency)]);
    }
    let text = "Regions that could still be promoted at the end, by frequency.";
    Section::new("Candidates", text).with(plot("Frequency by rank", chart)).with(table)
}

pub(super) fn policy(report: &SimPolicyReport, name: &str) -> Report {
    let columns =
        ["run", "walks", "walks avoided", "on huge pages", "promotions", "demotions", "speedup"];
    let mut table = Table::new("Runs", columns);
    let runs = [&report.base, &report.run, &report.ideal];
    runs.iter().for_each(|run| table.row(run_row(run)));
    let bars = walk_bars(runs.iter().map(|run| (run.policy.clone(), run.counts.walk_ratio)));
    let title = format!("Policy {} on {name}", report.run.policy);
    let mut all = report_of(&report.input, notices::of_policy(report), title);
    let text = "The policy, beside base pages only and huge pages only. Speedups are those of the \
                cost model, not measured.";
    let plot = plot("Page walks", bars);
    all.add(Section::new("Simulated policy", text).with(plot).with(table));
    all.add(of_candidates(&report.candidates));
    all
}

fn run_row(run: &PolicyRun) -> Vec<Cell> {
    vec![
        run.policy.clone().into(),
        count(run.counts.walks),
        Cell::of(Some(run.walks_avoided_ratio), Unit::Ratio, ""),
        Cell::of(Some(run.huge_ratio), Unit::Ratio, ""),
        count(run.promotions),
        count(run.demotions),
        Cell::of(Some(run.speedup), Unit::Number, ""),
    ]
}

pub(super) fn reuse(report: &SimReuseReport, name: &str) -> Report {
    let misses = level_curves(report, "entries of the TLB", "misses", |level| {
        level.curve.iter().map(|one| ((one.entries as f64).log2(), one.miss_ratio)).collect()
    });
    let distances = level_curves(report, "pages since the last use", "accesses", |level| {
        let powers = by_power(level);
        let all = (powers.iter().sum::<f64>() + level.first_uses).max(1.0);
        // Those with distance 0 are below the axis of powers.
        let others = powers.iter().enumerate().skip(1);
        others.map(|(at, count)| ((at - 1) as f64, count / all)).collect()
    });
    let mut table = Table::new("Kinds of pages", ["kind", "pages", "accesses"]);
    for share in &report.kinds {
        let kind = serde_json::to_value(share.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default().to_owned();
        table.row(vec![kind.into(), count(share.pages), count(share.accesses)]);
    }
    let mut all = report_of(&report.input, Vec::new(), format!("Page reuse of {name}"));
    let text = "Misses of a fully associative TLB with LRU replacement.";
    all.add(Section::new("Page reuse", text).with(plot("Miss ratio", misses)).with(table));
    let text = "Distinct pages between two uses of a page. Most accesses are to the page used \
                last: their distance is 0, which has no place here. A bucket ends at the next \
                power of two.";
    let plot_of_pages = plot("Stack distances", distances);
    all.add(Section::new("Stack distances", text).with(plot_of_pages));
    let text = "Mean number of accesses between two uses of a page, and of its 2 MiB region. A \
                huge page pays for pages at the lower right: used again late, their region soon. \
                Pages used once have no place here.";
    let plot = plot("Base pages by time distance", scatter(report));
    all.add(Section::new("Time distances", text).with(plot));
    all
}

/// Curves of each page size over powers of two.
fn level_curves(
    report: &SimReuseReport,
    x_name: &str,
    y_name: &str,
    points: impl Fn(&ReuseLevel) -> Vec<(f64, f64)>,
) -> Chart {
    let curve = |level: &ReuseLevel| Curve {
        name: format!("{} pages", level.page_bytes),
        points: points(level),
    };
    Chart::Curves(Curves {
        x_name: x_name.to_owned(),
        x_unit: Unit::Log2,
        y_name: y_name.to_owned(),
        y_unit: Unit::Ratio,
        steps: false,
        curves: report.levels.iter().map(curve).collect(),
    })
}

/// Base pages by their time distance and that of their region; the mappings used most are groups.
fn scatter(report: &SimReuseReport) -> Chart {
    let points = |powers: Vec<(u32, u32, u64)>| -> Vec<_> {
        powers.into_iter().map(|(x, y, pages)| (x.into(), y.into(), pages)).collect()
    };
    let group = |one: &MappingReuse| ScatterGroup {
        name: mapping_name(one.process, &one.mapping, one.ordinal),
        points: points(powers_of(&one.page_cells)),
    };
    let (first, rest) = report.per_mapping.split_at(report.per_mapping.len().min(GROUPS));
    let mut groups: Vec<_> = first.iter().map(group).collect();
    let others: Vec<_> = rest.iter().flat_map(|one| powers_of(&one.page_cells)).collect();
    groups.push(ScatterGroup { name: "other mappings".to_owned(), points: points(others) });
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

pub(super) fn utility(report: &SimUtilityReport, name: &str) -> Report {
    let mut curves: Vec<Curve> = Vec::new();
    let columns =
        ["policy", "budget", "walks avoided", "speedup by the model", "promotions", "demotions"];
    let mut table = Table::new("Runs", columns);
    for point in &report.points {
        for run in &point.runs {
            let known = curves.iter().position(|curve| curve.name == run.policy);
            let at = known.unwrap_or_else(|| {
                curves.push(Curve { name: run.policy.clone(), points: vec![(0.0, 0.0)] });
                curves.len() - 1
            });
            curves[at].points.push((point.budget_ratio, run.walks_avoided_ratio));
            table.row(vec![
                run.policy.clone().into(),
                Cell::of(Some(point.budget_ratio), Unit::Ratio, ""),
                Cell::of(Some(run.walks_avoided_ratio), Unit::Ratio, ""),
                Cell::of(Some(run.speedup), Unit::Number, ""),
                count(run.promotions),
                count(run.demotions),
            ]);
        }
    }
    // Lines at 0 are not a plot.
    let mut idle = String::new();
    if !curves.iter().any(|curve| has_promotions(report, &curve.name)) {
        "No policy promoted a region, so none avoided a walk.".clone_into(&mut idle);
        curves.clear();
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let chart = Chart::Curves(Curves {
        x_name: "budget, as a share of the footprint".to_owned(),
        x_unit: Unit::Ratio,
        y_name: "page walks avoided".to_owned(),
        y_unit: Unit::Ratio,
        steps: false,
        curves,
    });
    let title = format!("Utility curves of {name}");
    let mut all = report_of(&report.input, notices::of_utility(report), title);
    all.summary.push(format!("TLBs of {}; {}.", report.cpu.cpu, walks_text(report)));
    let text = "Share of the page walks of base pages that each policy avoids with its budget. \
                Speedups are those of the cost model, not measured.";
    let plot = Plot { text: idle, ..plot("Utility curves", chart) };
    all.add(Section::new("Utility", text).with(plot).with(table));
    all
}
