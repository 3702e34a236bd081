//! Utility curves: Figure 5, bottom.

use anyhow::Result;
use hugepilot_record::sim::{PolicyRun, SimUtilityReport};
use serde::{Deserialize, Serialize};

use super::options::Kernel;
use super::record::Row;
use super::runner::{Bench, Ran, properties};
use super::table::{budget_titles, percent, share, walk_percent};

pub(super) const METHOD: &str = "\
Share of the page walks of base pages that each policy avoids, by the share of the footprint that
huge pages may have (Figure 5, bottom). The last column is the share at 4 % over that of huge pages
only (`ideal`); the paper's PCC reaches 69 to 77 % of the ideal performance there. `prefix` promotes
the property arrays from their start, in the order of vertices grouped by degree.";

/// Preset of the paper's machine, and that of a current one.
const PRESETS: [&str; 2] = ["haswell", "zen5"];
const POLICIES: &str = "pcc,hawkeye,heat,linux";
const BUDGETS: &str = "1%,2%,4%,8%,16%,32%,64%";
/// Budget at which policies are compared.
const COMPARED: f64 = 0.04;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    pub(super) order: String,
    pub(super) preset: String,
    pub(super) accesses: u64,
    /// Walks per access on base pages.
    pub(super) base_ratio: f64,
    /// Walks per access on huge pages only.
    pub(super) ideal_ratio: f64,
    /// Share of the walks that huge pages avoid.
    pub(super) ideal_avoided_ratio: f64,
    pub(super) policy: String,
    /// Budgets, and the share of the walks avoided with each.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    pub(super) fn head(&self) -> Vec<String> {
        let first = ["kernel", "order", "TLBs", "walks, base", "walks, ideal", "policy"];
        let budgets = budget_titles(&self.points);
        let last = ["of ideal at 4 %".to_owned()];
        first.into_iter().map(str::to_owned).chain(budgets).chain(last).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.kernel.clone(),
            self.order.clone(),
            self.preset.clone(),
            walk_percent(self.base_ratio),
            walk_percent(self.ideal_ratio),
            self.policy.clone(),
        ];
        cells.extend(self.points.iter().map(|point| percent(point.1)));
        cells.push(percent(of_ideal(&self.points, self.ideal_avoided_ratio)));
        cells
    }
}

/// Share of the ideal's avoided walks at [`COMPARED`].
pub(super) fn of_ideal(points: &[(f64, f64)], ideal: f64) -> f64 {
    let at = points.iter().find(|(budget, _)| (budget - COMPARED).abs() < 1e-9);
    at.map_or(f64::NAN, |&(_, avoided)| share(avoided, ideal))
}

/// Policies of a report, each with its budgets and the share of the walks avoided.
pub(super) fn curves(report: &SimUtilityReport) -> Vec<(String, Vec<(f64, f64)>)> {
    let first = report.points.first();
    let policies = first.map_or(&[][..], |point| &point.runs).iter().map(|run| &run.policy);
    let curve = |policy: &String| {
        let of = |runs: &[PolicyRun]| {
            let run = runs.iter().find(|run| run.policy == *policy);
            run.map_or(f64::NAN, |run| run.walks_avoided_ratio)
        };
        let points = report.points.iter().map(|point| (point.budget_ratio, of(&point.runs)));
        (policy.clone(), points.collect())
    };
    policies.map(curve).collect()
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for &kernel in &bench.options.kernels {
        for order in ["original", "dbg"] {
            for preset in PRESETS {
                let ran = simulate(bench, kernel, order, preset)?;
                add(bench, kernel, order, preset, &ran)?;
            }
        }
    }
    Ok(())
}

fn simulate(
    bench: &Bench<'_>,
    kernel: Kernel,
    order: &str,
    preset: &str,
) -> Result<Ran<SimUtilityReport>> {
    let (mut policies, mut more) = (POLICIES.to_owned(), String::new());
    if order != "original" {
        policies += ",prefix";
        more = format!(" --reorder {order}");
        properties(kernel).iter().for_each(|name| more += &format!(" --prefix {name}"));
    }
    let (graph, interval) = (bench.graph(kernel.name()), bench.interval());
    let flags = format!(
        "utility {graph}{more} --preset {preset} --policies {policies} --budgets {BUDGETS} \
         {interval}"
    );
    bench.sim(&flags, &[])
}

fn add(
    bench: &Bench<'_>,
    kernel: Kernel,
    order: &str,
    preset: &str,
    Ran { report, command }: &Ran<SimUtilityReport>,
) -> Result<()> {
    for (policy, points) in curves(report) {
        let line = Line {
            kernel: kernel.name().to_owned(),
            order: order.to_owned(),
            preset: preset.to_owned(),
            accesses: report.input.accesses,
            base_ratio: report.base.counts.walk_ratio,
            ideal_ratio: report.ideal.counts.walk_ratio,
            ideal_avoided_ratio: report.ideal.walks_avoided_ratio,
            policy,
            points,
        };
        bench.add(command, Row::Utility(line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hugepilot_record::sim::UtilityPoint;

    use super::*;

    #[test]
    fn a_curve_has_the_share_of_each_budget() {
        let run = |policy: &str, walks_avoided_ratio| PolicyRun {
            policy: policy.to_owned(),
            walks_avoided_ratio,
            ..PolicyRun::default()
        };
        let point = |budget_ratio, pcc, linux| UtilityPoint {
            budget_ratio,
            runs: vec![run("pcc", pcc), run("linux", linux)],
        };
        let points = vec![point(0.01, 0.2, 0.1), point(0.04, 0.6, 0.3)];
        let report = SimUtilityReport { points, ..SimUtilityReport::default() };
        let all = curves(&report);
        assert_eq!(all[0], ("pcc".to_owned(), vec![(0.01, 0.2), (0.04, 0.6)]));
        assert_eq!(all[1].1, [(0.01, 0.1), (0.04, 0.3)]);
        assert!((of_ideal(&all[0].1, 0.8) - 0.75).abs() < 1e-9);
        assert!(of_ideal(&all[0].1[..1], 0.8).is_nan());
        assert!(curves(&SimUtilityReport::default()).is_empty());
    }
}
