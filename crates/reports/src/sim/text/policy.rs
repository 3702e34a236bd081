//! Documents of policies and utility curves.

use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{Cell, Curve, Document, Notice, Plot, Report, Section, Table, Unit};
use hugepilot_render::table::percent;
use hugepilot_units::{PageSizes, Share};
use serde_json::Value;

use super::{begun, candidates, counted, explain_input, notices, number, walk_bars};
use crate::sim::{
    CostReport, PolicyRun, ProcessRun, SimPolicyReport, SimUtilityReport, UtilityPoint,
};

impl JsonReport for SimPolicyReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_input(json, &self.input);
    }
}

impl JsonReport for SimUtilityReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_input(json, &self.input);
    }
}

impl Document for SimPolicyReport {
    fn document(&self) -> Report {
        let policy = &self.run.policy;
        let title = format!("Policy {policy}");
        let mut all = begun(&title, &self.input, Some(&self.cpu), notices::of_policy(self));
        let when = match policy.as_str() {
            "prefix" => "one whenever more memory is in use".to_owned(),
            _ => format!("at most one each {} accesses", number(self.interval)),
        };
        all.summary.push(format!("Decisions of policy {policy}: {}, {when}.", self.rounds));
        all.summary.extend(budget(self));
        let columns =
            ["run", "walks", "walk ratio", "avoided", "huge", "promoted", "demoted", "speedup"];
        let runs = [&self.base, &self.run, &self.ideal];
        let table = Table::of("", columns, runs.map(row));
        let giant = self.run.giant_promotions;
        let giant = (giant > 0).then(|| {
            let regions = counted(giant, "region", "regions");
            Notice::note(format!("{regions} of 1GiB promoted"))
        });
        let text = format!("Beside base pages only and huge pages only. {}", cost(self.cost));
        let bars = runs.iter().map(|run| (run.policy.clone(), run.counts.walk_ratio));
        let section = Section::new(title, text).with(table).with_all(giant);
        all.add(section.with(walk_bars(bars)));
        all.add(processes(self));
        all.add(candidates(&self.candidates));
        all
    }
}

/// The budget, with the huge pages that it allows.
fn budget(report: &SimPolicyReport) -> Option<String> {
    let (ratio, of) = report.run.budget_ratio.zip(report.budget_of_bytes)?;
    let huge = PageSizes::X86_64.huge;
    let pages = Share::ratio(ratio).of(of).get() / huge.get();
    let pages = counted(pages, "huge page", "huge pages");
    Some(format!("Budget: {} of {of}: {pages} of {huge}.", percent(ratio)))
}

/// The processes, if they are several.
fn processes(report: &SimPolicyReport) -> Section {
    if report.processes.len() < 2 {
        return Section::default();
    }
    let columns = [
        "process",
        "base walk ratio",
        "walk ratio",
        "ideal walk ratio",
        "huge",
        "regions",
        "source",
    ];
    let row = |one: &ProcessRun| {
        let rate = |walks: u64| Cell::ratio(walks as f64 / one.accesses.max(1) as f64);
        let source = report.input.sources.get(usize::from(one.process));
        [
            (one.process + 1).to_string().into(),
            rate(one.base_walks),
            rate(one.walks),
            rate(one.ideal_walks),
            Cell::count(one.huge_regions),
            Cell::count(one.regions),
            source.cloned().unwrap_or_default().into(),
        ]
    };
    let table = Table::of("", columns, report.processes.iter().map(row));
    Section::new("Processes", "").with(table)
}

fn row(run: &PolicyRun) -> [Cell; 8] {
    [
        run.policy.clone().into(),
        Cell::count(run.counts.walks),
        Cell::ratio(run.counts.walk_ratio),
        Cell::ratio(run.walks_avoided_ratio),
        Cell::ratio(run.huge_ratio),
        Cell::count(run.promotions),
        Cell::count(run.demotions),
        Cell::number(run.speedup),
    ]
}

/// The origin of the speedups: a model.
fn cost(cost: CostReport) -> String {
    let CostReport { access, visit, l2, reference } = cost;
    format!(
        "Speedups are by a model, not measured; cycles of an access {access}, of a visit of a page \
         {visit}, of an L2 TLB lookup {l2}, of a memory reference of a walk {reference}."
    )
}

impl Document for SimUtilityReport {
    fn document(&self) -> Report {
        let notices = notices::of_utility(self);
        let mut all = begun("Utility curves", &self.input, Some(&self.cpu), notices);
        let [base, ideal] = [&self.base, &self.ideal].map(|run| row(run)[2].text());
        let speedup = row(&self.ideal)[7].text();
        all.summary.push(format!(
            "Walks per access: {base} on base pages, {ideal} on huge pages ({speedup}x as fast by \
             the model)."
        ));
        let text = format!(
            "Share of the page walks of base pages that each policy avoids with its budget. {}",
            cost(self.cost)
        );
        let names = self.points.first().map_or(&[][..], |point| &point.runs).iter();
        let names: Vec<&str> = names.map(|run| &*run.policy).collect();
        let is_idle = |name: &&str| {
            let mut runs = self.points.iter().flat_map(|point| &point.runs);
            !runs.any(|run| run.policy == **name && run.promotions > 0)
        };
        let (idle, active): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_idle(name));
        let idle = (!idle.is_empty())
            .then(|| Notice::note(format!("no region is promoted by {}", idle.join(", "))));
        let section = Section::new("Utility", text).with(walks(self, &names)).with_all(idle);
        // Lines at 0 are not a plot.
        let plot = (!active.is_empty()).then(|| plot(self, &active));
        all.add(section.with_all(plot).with(acts(self, &names)));
        all
    }
}

/// A table with a row for each budget, and the cells of each policy.
fn by_budget<const CELLS: usize>(
    report: &SimUtilityReport,
    title: &str,
    names: &[&str],
    columns: [&str; CELLS],
    cells: impl Fn(&PolicyRun) -> [Cell; CELLS],
) -> Table {
    let mut table = Table::new(title, ["budget"]);
    let of = |name: &&str| columns.map(|column| format!("{name} {column}").trim_end().to_owned());
    table.columns.extend(names.iter().flat_map(of));
    let row = |point: &UtilityPoint| {
        let cells = point.runs.iter().flat_map(&cells);
        std::iter::once(Cell::ratio(point.budget_ratio)).chain(cells).collect()
    };
    table.rows = report.points.iter().map(row).collect();
    table
}

fn walks(report: &SimUtilityReport, names: &[&str]) -> Table {
    by_budget(report, "", names, ["avoided", "speedup"], |run| {
        [Cell::ratio(run.walks_avoided_ratio), Cell::number(run.speedup)]
    })
}

/// Promotions and demotions of each policy.
fn acts(report: &SimUtilityReport, names: &[&str]) -> Table {
    by_budget(report, "Promotions/demotions", names, [""], |run| {
        [format!("{}/{}", run.promotions, run.demotions).into()]
    })
}

fn plot(report: &SimUtilityReport, names: &[&str]) -> Plot {
    let curve = |name: &&str| {
        let point = |point: &UtilityPoint| {
            let run = point.runs.iter().find(|run| run.policy == **name)?;
            Some((point.budget_ratio, run.walks_avoided_ratio))
        };
        let points = report.points.iter().filter_map(point);
        let mut points: Vec<_> = std::iter::once((0.0, 0.0)).chain(points).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve { name: (*name).to_owned(), points }
    };
    let x = ("budget, as a share of the footprint", Unit::Ratio);
    let y = ("page walks avoided", Unit::Ratio);
    Plot::curves("Walks avoided", x, y, names.iter().map(curve).collect())
}
