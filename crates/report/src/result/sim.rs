//! Reports of the JSON of `sim`.

use hugepilot_record::sim::{
    PolicyRun, SimInput, SimPolicyReport, SimReuseReport, SimTlbReport, SimUtilityReport,
};

use super::plot;
use crate::model::{
    Bar, Bars, Cell, Chart, Curve, Curves, Notice, Plot, Report, Section, Table, Unit,
};
use crate::sim::{has_promotions, notices, walks_text};

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
    let mut bars = Vec::new();
    for machine in &report.machines {
        let counts = &machine.counts;
        table.row(vec![
            machine.page_bytes.to_string().into(),
            count(counts.l1_misses),
            count(counts.walks),
            Cell::of(Some(counts.walk_ratio), Unit::Ratio, ""),
            count(counts.walk_references),
        ]);
        let name = format!("{} pages", machine.page_bytes);
        bars.push(Bar { name, value: Some(counts.walk_ratio), range: None });
    }
    let bars = Bars { name: "walks per access".to_owned(), unit: Unit::Ratio, bars };
    let mut all = report_of(&report.input, Vec::new(), format!("TLB misses of {name}"));
    let text = format!("All memory on pages of one size, by the TLBs of {}.", report.cpu.cpu);
    let plot = plot("Page walks by page size", Chart::Bars(bars));
    all.add(Section::new("TLB misses", text).with(plot).with(table));
    all
}

pub(super) fn policy(report: &SimPolicyReport, name: &str) -> Report {
    let columns =
        ["run", "walks", "walks avoided", "on huge pages", "promotions", "demotions", "speedup"];
    let mut table = Table::new("Runs", columns);
    let mut bars = Vec::new();
    for run in [&report.base, &report.run, &report.ideal] {
        table.row(run_row(run));
        let value = Some(run.walks_avoided_ratio);
        bars.push(Bar { name: run.policy.clone(), value, range: None });
    }
    let bars = Bars { name: "page walks avoided".to_owned(), unit: Unit::Ratio, bars };
    let plot = plot("Page walks avoided", Chart::Bars(bars));
    let title = format!("Policy {} on {name}", report.run.policy);
    let mut all = report_of(&report.input, notices::of_policy(report), title);
    let text = "The policy, beside base pages only and huge pages only. Speedups are those of the \
                cost model, not measured.";
    all.add(Section::new("Simulated policy", text).with(plot).with(table));
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
    let curves = report.levels.iter().map(|level| Curve {
        name: format!("{} pages", level.page_bytes),
        points: level.curve.iter().map(|one| (one.entries as f64, one.miss_ratio)).collect(),
    });
    let chart = Chart::Curves(Curves {
        x_name: "entries of the TLB".to_owned(),
        x_unit: Unit::Count,
        y_name: "misses".to_owned(),
        y_unit: Unit::Ratio,
        steps: false,
        curves: curves.collect(),
    });
    let mut table = Table::new("Kinds of pages", ["kind", "pages", "accesses"]);
    for share in &report.kinds {
        let kind = serde_json::to_value(share.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default().to_owned();
        table.row(vec![kind.into(), count(share.pages), count(share.accesses)]);
    }
    let mut all = report_of(&report.input, Vec::new(), format!("Page reuse of {name}"));
    let text = "Misses of a fully associative TLB with LRU replacement.";
    all.add(Section::new("Page reuse", text).with(plot("Miss ratio", chart)).with(table));
    all
}

pub(super) fn utility(report: &SimUtilityReport, name: &str) -> Report {
    let mut curves: Vec<Curve> = Vec::new();
    let columns = ["policy", "budget", "walks avoided", "speedup by the model", "promotions"];
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
                Cell::of(Some(run.promotions as f64), Unit::Count, ""),
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
