//! Threads of one process: Figure 8.

use anyhow::Result;
use hugepilot_reports::sim::SimUtilityReport;
use serde::{Deserialize, Serialize};

use super::options::Kernel;
use super::record::Row;
use super::runner::{Bench, Made, Ran};
use super::setting::{self, Case, Setting, Variant};
use super::table::{acts, budget_titles, rounded_all, walk_percent};
use super::utility::{Point, curves};

pub(super) const METHOD: &str = "\
Share of the page walks avoided with one / two threads (Figure 8), each with a core, its TLBs and
its candidate cache, by the share of the footprint that huge pages may have. `pcc` takes the highest
counts of all tables first, or the tables in turn (round-robin), which one table cannot. In
brackets: promotions and demotions.";

const BUDGETS: &str = "1%,4%,16%";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) curves: Vec<Curve>,
}

/// Share of the walks avoided by a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    pub(super) threads: u32,
    /// Walks per access on base pages.
    pub(super) base_ratio: f64,
    /// Share of the walks that huge pages only avoid.
    pub(super) ideal_avoided_ratio: f64,
    pub(super) points: Vec<Point>,
}

impl Line {
    /// Adds the curves of `other`, if it has the same kernel and setting.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let same = (&self.kernel, &self.setting) == (&other.kernel, &other.setting);
        if same {
            self.curves.extend(other.curves.iter().cloned());
        }
        same
    }

    fn points(&self) -> &[Point] {
        self.curves.first().map_or(&[], |curve| &curve.points)
    }

    /// A value of each number of threads.
    fn each(&self, value: impl Fn(&Curve) -> f64) -> [f64; 2] {
        [1, 2].map(|threads| {
            let curve = self.curves.iter().find(|curve| curve.threads == threads);
            curve.map_or(f64::NAN, &value)
        })
    }

    pub(super) fn head(&self) -> Vec<String> {
        let first = ["kernel"].into_iter().chain(setting::HEAD).chain(["walks, base"]);
        let budgets = budget_titles(self.points().iter().map(|point| point.budget));
        first.map(str::to_owned).chain(budgets).chain(["ideal".to_owned()]).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.kernel.clone()];
        cells.extend(self.setting.cells());
        cells.push(self.each(|curve| curve.base_ratio).map(walk_percent).join(" / "));
        let at = |index: usize| {
            let avoided = self
                .each(move |curve| curve.points.get(index).map_or(f64::NAN, |point| point.avoided));
            let points = [1, 2].into_iter().filter_map(|threads| {
                self.curves.iter().find(|curve| curve.threads == threads)?.points.get(index)
            });
            format!("{} {}", rounded_all(avoided), acts(points.map(|point| point.acts)))
        };
        cells.extend((0..self.points().len()).map(at));
        cells.push(rounded_all(self.each(|curve| curve.ideal_avoided_ratio)));
        cells
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    let mut items = Vec::new();
    for (kernel, case) in Case::of_kernels(bench.options) {
        items.extend([1, 2].map(|threads| (kernel, case, threads, "highest")));
        if bench.options.policies().contains(&"pcc") {
            items.push((kernel, case, 2, "round-robin"));
        }
    }
    bench.each(&items, |&(kernel, case, threads, selection)| {
        run(bench, kernel, case, threads, selection)
    })
}

/// Runs all policies with a selection; only `pcc` with another than the highest counts.
fn run(
    bench: &Bench<'_>,
    kernel: Kernel,
    case: Case<'_>,
    threads: u32,
    selection: &str,
) -> Result<Vec<Made>> {
    let is_of = |one: &Variant| one.selection.map_or(selection == "highest", |of| of == selection);
    let variants: Vec<Variant> = Variant::all(bench.options).filter(is_of).collect();
    let policies: Vec<&str> = variants.iter().map(|one| one.policy).collect();
    let (graph, interval) = (bench.graph(kernel.name(), case.order), bench.interval());
    let flags = format!(
        "utility --preset {} {graph} --threads {threads} --selection {selection} --policies {} \
         --budgets {BUDGETS} {interval}",
        case.preset,
        policies.join(",")
    );
    let Ran { report, command } = bench.sim::<SimUtilityReport>(&flags, &[])?;
    let row = |(variant, (_, points)): (&Variant, (_, _))| {
        let curve = Curve {
            threads,
            base_ratio: report.base.counts.walk_ratio,
            ideal_avoided_ratio: report.ideal.walks_avoided_ratio,
            points,
        };
        let line = Line {
            kernel: kernel.name().to_owned(),
            setting: Setting::new(case, &variant.name()),
            curves: vec![curve],
        };
        (command.clone(), Row::Threads(line))
    };
    Ok(variants.iter().zip(curves(&report)).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::super::table::Acts;
    use super::*;

    #[test]
    fn threads_of_a_setting_are_one_line() {
        let options = Options::read(&[]).unwrap();
        let line = |threads, policy: &str, avoided| Line {
            kernel: "pr".to_owned(),
            setting: Setting::new(Case::all(&options)[0], policy),
            curves: vec![Curve {
                threads,
                base_ratio: 0.01,
                ideal_avoided_ratio: 1.0,
                points: vec![Point {
                    budget: 0.04,
                    avoided,
                    acts: Acts { promotions: 3, demotions: threads.into() },
                }],
            }],
        };
        let mut one = line(2, "pcc", 0.251);
        let cells = one.cells();
        assert_eq!(cells[4..], ["- / 1.00 %", "- / 25 % (3/2)", "- / 100 %"]);
        assert!(!one.join(&line(1, "heat", 0.5)));
        assert!(one.join(&line(1, "pcc", -0.001)));
        let cells = one.cells();
        assert_eq!(cells[..4], ["pr", "original", "haswell", "pcc"]);
        assert_eq!(cells[4..], ["1.00 % / 1.00 %", "0 / 25 % (3/1, 3/2)", "100 / 100 %"]);
        assert_eq!(one.head().len(), cells.len());
    }
}
