//! Utility curves: Figure 5, bottom.

use anyhow::Result;
use hugepilot_reports::sim::{SimUtilityReport, UtilityPoint};
use serde::{Deserialize, Serialize};

use super::options::{Kernel, Order};
use super::record::Row;
use super::runner::{Bench, Made, Ran, properties};
use super::setting::{self, Case, Setting};
use super::table::{Acts, acts, budget_titles, rounded_all, walk_percent};

pub(super) const METHOD: &str = "\
Share of the page walks of base pages that each policy avoids, by the share of the footprint that
huge pages may have (Figure 5, bottom), with the promotions and demotions, and of huge pages only
(`ideal`). `prefix` promotes the
property arrays from their start, in the order of vertices grouped by degree.";

const BUDGETS: &str = "1%,2%,4%,8%,16%,32%,64%";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) accesses: u64,
    /// Walks per access on base pages.
    pub(super) base_ratio: f64,
    /// Share of the walks that huge pages only avoid.
    pub(super) ideal_avoided_ratio: f64,
    pub(super) points: Vec<Point>,
}

/// Run of a policy with a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) budget: f64,
    /// Share of the walks avoided.
    pub(super) avoided: f64,
    #[serde(flatten)]
    pub(super) acts: Acts,
}

impl Line {
    pub(super) fn head(&self) -> Vec<String> {
        let first = ["kernel"].into_iter().chain(setting::HEAD).chain(["walks, base"]);
        let budgets = budget_titles(self.points.iter().map(|point| point.budget));
        first.map(str::to_owned).chain(budgets).chain(["ideal".to_owned()]).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.kernel.clone()];
        cells.extend(self.setting.cells());
        cells.push(walk_percent(self.base_ratio));
        let avoided =
            |point: &Point| format!("{} {}", rounded_all([point.avoided]), acts([point.acts]));
        cells.extend(self.points.iter().map(avoided));
        cells.push(rounded_all([self.ideal_avoided_ratio]));
        cells
    }
}

/// Policies of a report, each with its runs by budget.
pub(super) fn curves(report: &SimUtilityReport) -> Vec<(String, Vec<Point>)> {
    let first = report.points.first();
    let policies = first.map_or(&[][..], |point| &point.runs).iter().map(|run| &run.policy);
    let curve = |policy: &String| {
        let of = |point: &UtilityPoint| {
            let run = point.runs.iter().find(|run| run.policy == *policy);
            Point {
                budget: point.budget_ratio,
                avoided: run.map_or(f64::NAN, |run| run.walks_avoided_ratio),
                acts: run.map_or_else(Acts::default, Acts::of),
            }
        };
        (policy.clone(), report.points.iter().map(of).collect())
    };
    policies.map(curve).collect()
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    bench.each(&Case::of_kernels(bench.options), |&(kernel, case)| run(bench, kernel, case))
}

fn run(bench: &Bench<'_>, kernel: Kernel, case: Case<'_>) -> Result<Vec<Made>> {
    let (mut policies, mut prefixes) =
        (bench.options.policies().join(",") + ",linux", String::new());
    if case.order == Order::Dbg {
        policies += ",prefix";
        properties(kernel).iter().for_each(|name| prefixes += &format!(" --prefix {name}"));
    }
    let (graph, interval) = (bench.graph(kernel.name(), case.order), bench.interval());
    let flags = format!(
        "utility {graph}{prefixes} --preset {} --policies {policies} --budgets {BUDGETS} \
         {interval}",
        case.preset
    );
    let Ran { report, command } = bench.sim::<SimUtilityReport>(&flags, &[])?;
    let row = |(policy, points): (String, _)| {
        let line = Line {
            kernel: kernel.name().to_owned(),
            setting: Setting::new(case, &policy),
            accesses: report.input.accesses,
            base_ratio: report.base.counts.walk_ratio,
            ideal_avoided_ratio: report.ideal.walks_avoided_ratio,
            points,
        };
        (command.clone(), Row::Utility(line))
    };
    Ok(curves(&report).into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use hugepilot_reports::sim::PolicyRun;

    use super::*;

    #[test]
    fn a_curve_has_the_share_of_each_budget() {
        let run = |policy: &str, walks_avoided_ratio| PolicyRun {
            policy: policy.to_owned(),
            walks_avoided_ratio,
            promotions: 7,
            demotions: 2,
            ..PolicyRun::default()
        };
        let point = |budget_ratio, pcc, linux| UtilityPoint {
            budget_ratio,
            runs: vec![run("pcc", pcc), run("linux", linux)],
        };
        let points = vec![point(0.01, 0.2, 0.1), point(0.04, 0.6, 0.3)];
        let report = SimUtilityReport { points, ..SimUtilityReport::default() };
        let all = curves(&report);
        let of = |at: usize| -> Vec<(f64, f64)> {
            all[at].1.iter().map(|point| (point.budget, point.avoided)).collect()
        };
        assert_eq!(all[0].0, "pcc");
        assert_eq!([of(0), of(1)], [[(0.01, 0.2), (0.04, 0.6)], [(0.01, 0.1), (0.04, 0.3)]]);
        assert_eq!(acts([all[1].1[0].acts]), "(7/2)");
        assert!(curves(&SimUtilityReport::default()).is_empty());
    }
}
