//! Text of policies and utility curves.

use std::fmt::Write;

use hugepilot_record::sim::{CostReport, PolicyRun, SimPolicyReport, SimUtilityReport};
use hugepilot_units::{PageSizes, Share};
use serde_json::Value;

use super::plot::{bar, bars};
use super::{
    candidates, counted, cpu, explain_input, input, notices, number, walk_bar, walk_percent,
};
use crate::json::JsonReport;
use crate::table::{Width, percent, table};

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

/// Prints the run of a policy beside those without huge pages and with huge pages only.
pub fn sim_policy_text(report: &SimPolicyReport, width: Width) -> String {
    let mut text = input(&report.input) + &cpu(&report.cpu);
    let SimPolicyReport { rounds, interval, .. } = report;
    let policy = &report.run.policy;
    let when = match policy.as_str() {
        "prefix" => "one whenever more memory is in use".to_owned(),
        _ => format!("at most one each {} accesses", number(*interval)),
    };
    let _ = writeln!(text, "decisions of policy {policy}: {rounds}, {when}");
    text.push_str(&budget(report));
    text.push_str(&notices::lines(&notices::of_policy(report)));
    let header = ["RUN", "WALKS", "WALK_%", "AVOIDED", "HUGE", "PROMOTED", "DEMOTED", "SPEEDUP"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend([&report.base, &report.run, &report.ideal].map(row));
    let _ = write!(text, "\n{}", table(rows, &[1, 2, 3, 4, 5, 6, 7], width));
    if report.run.giant_promotions > 0 {
        let regions = counted(report.run.giant_promotions, "region", "regions");
        let _ = writeln!(text, "{regions} of 1GiB promoted");
    }
    text.push_str(&cost(report.cost));
    let walks = [&report.base, &report.run, &report.ideal]
        .map(|run| walk_bar(&run.policy, run.counts.walk_ratio));
    text.push_str(&bars("walks per access", &walks));
    text.push_str(&processes(report, width));
    text.push_str(&candidates(&report.candidates, width));
    text
}

/// Line about the budget, with the huge pages that it allows.
fn budget(report: &SimPolicyReport) -> String {
    let (Some(ratio), Some(of)) = (report.run.budget_ratio, report.budget_of_bytes) else {
        return String::new();
    };
    let huge = PageSizes::X86_64.huge;
    let pages = Share::ratio(ratio).of(of).get() / huge.get();
    let pages = counted(pages, "huge page", "huge pages");
    format!("budget: {} of {of}: {pages} of {huge}\n", percent(ratio))
}

/// Table of the processes, if they are several.
#[allow(clippy::cast_precision_loss)]
fn processes(report: &SimPolicyReport, width: Width) -> String {
    if report.processes.len() < 2 {
        return String::new();
    }
    let header = ["PROCESS", "BASE_WALK_%", "WALK_%", "IDEAL_WALK_%", "HUGE", "REGIONS", "SOURCE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for one in &report.processes {
        let rate = |walks: u64| walk_percent(walks as f64 / (one.accesses as f64).max(1.0));
        let source = report.input.sources.get(usize::from(one.process));
        rows.push(vec![
            (one.process + 1).to_string(),
            rate(one.base_walks),
            rate(one.walks),
            rate(one.ideal_walks),
            number(one.huge_regions),
            number(one.regions),
            source.cloned().unwrap_or_default(),
        ]);
    }
    format!("\n{}", table(rows, &[1, 2, 3, 4, 5], width))
}

fn row(run: &PolicyRun) -> Vec<String> {
    vec![
        run.policy.clone(),
        number(run.counts.walks),
        walk_percent(run.counts.walk_ratio),
        percent(run.walks_avoided_ratio),
        percent(run.huge_ratio),
        number(run.promotions),
        number(run.demotions),
        format!("{:.3}x", run.speedup),
    ]
}

/// Line about the speedup: a model.
fn cost(cost: CostReport) -> String {
    let CostReport { access, visit, l2, reference } = cost;
    format!(
        "speedups by a model, not measured; cycles of an access {access}, of a visit of a page \
         {visit}, of an L2 TLB lookup {l2}, of a memory reference of a walk {reference}\n"
    )
}

/// Returns the walks without and with huge pages only.
pub(crate) fn walks_text(report: &SimUtilityReport) -> String {
    format!(
        "walks per access: {} % on base pages, {} % on huge pages ({:.3}x by the model)",
        walk_percent(report.base.counts.walk_ratio),
        walk_percent(report.ideal.counts.walk_ratio),
        report.ideal.speedup
    )
}

/// Whether a policy promoted a region in any of its runs.
pub(crate) fn has_promotions(report: &SimUtilityReport, policy: &str) -> bool {
    let mut runs = report.points.iter().flat_map(|point| &point.runs);
    runs.any(|run| run.policy == policy && run.promotions > 0)
}

/// Prints the share of avoided walks for each budget and policy, and a bar of each.
pub fn sim_utility_text(report: &SimUtilityReport, width: Width) -> String {
    let mut text = input(&report.input) + &cpu(&report.cpu);
    let _ = writeln!(text, "{}", walks_text(report));
    text.push_str(&notices::lines(&notices::of_utility(report)));
    let names: Vec<&str> = report
        .points
        .first()
        .map_or_else(Vec::new, |point| point.runs.iter().map(|run| run.policy.as_str()).collect());
    let mut header = vec!["BUDGET".to_owned()];
    for name in &names {
        let name = name.to_uppercase();
        header.push(format!("{name}_AVOIDED"));
        header.push(format!("{name}_SPEEDUP"));
    }
    let mut rows = vec![header];
    for point in &report.points {
        let mut row = vec![percent(point.budget_ratio)];
        for run in &point.runs {
            row.push(percent(run.walks_avoided_ratio));
            row.push(format!("{:.3}x", run.speedup));
        }
        rows.push(row);
    }
    let numbers: Vec<usize> = (0..=2 * names.len()).collect();
    let _ = write!(text, "\n{}", table(rows, &numbers, width));
    text.push_str(&cost(report.cost));
    text.push_str(&acts(report, &names, width));
    for name in names {
        text.push_str(&plot(report, name));
    }
    text
}

/// Table of the promotions and demotions of each policy.
fn acts(report: &SimUtilityReport, names: &[&str], width: Width) -> String {
    let title = |name: &&str| name.to_uppercase();
    let header = std::iter::once("BUDGET".to_owned()).chain(names.iter().map(title));
    let mut rows = vec![header.collect::<Vec<_>>()];
    for point in &report.points {
        let acts = |run: &PolicyRun| format!("{}/{}", run.promotions, run.demotions);
        let cells = point.runs.iter().map(acts);
        rows.push(std::iter::once(percent(point.budget_ratio)).chain(cells).collect());
    }
    let numbers: Vec<usize> = (0..=names.len()).collect();
    format!("\npromotions/demotions:\n{}", table(rows, &numbers, width))
}

/// Bars of a policy: the share of the walks that it avoids, by budget. The mark is what huge pages
/// for all memory avoid.
fn plot(report: &SimUtilityReport, name: &str) -> String {
    if !has_promotions(report, name) {
        return format!("\n{name} promoted no region\n");
    }
    let mut text = format!("\n{name}, walks avoided; | is huge pages only:\n");
    for point in &report.points {
        let Some(run) = point.runs.iter().find(|run| run.policy == name) else { continue };
        let bar = bar(run.walks_avoided_ratio, Some(report.ideal.walks_avoided_ratio));
        let _ = writeln!(text, "{:>7}  {bar}", percent(point.budget_ratio));
    }
    text
}
