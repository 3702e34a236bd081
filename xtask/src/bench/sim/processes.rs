//! Two processes that share huge pages: Figure 9.

use anyhow::Result;
use hugepilot_reports::sim::{ProcessRun, SimPolicyReport};
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::{Bench, Made};
use super::setting::{self, Case, Setting, Variant};
use super::table::{Acts, acts, rounded_all, share, walk_percent};

pub(super) const METHOD: &str = "\
Two processes side by side with one budget for the memory of both (Figure 9). `pcc` takes the
highest counts first, or the processes in turn (round-robin). PageRank runs beside SSSP, which is
sensitive to the TLB, too, and beside a stream, which is not (the paper's mcf). Columns of budgets
have the share of each process's walks that is avoided, of those that huge pages only would avoid,
with the promotions and demotions, and the huge pages that each gets.";

const BUDGETS: [&str; 3] = ["1%", "4%", "16%"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Sources of accesses.
    pub(super) sources: Vec<String>,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// Budgets, the run of each process, and the acts in both.
    pub(super) runs: Vec<(String, Vec<ProcessRun>, Acts)>,
}

impl Line {
    /// Adds the budgets of `other`, if it has the same processes and setting.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let same = (&self.sources, &self.setting) == (&other.sources, &other.setting);
        if same {
            self.runs.extend(other.runs.iter().cloned());
        }
        same
    }

    pub(super) fn head(&self) -> Vec<String> {
        let first = ["processes"].into_iter().chain(setting::HEAD);
        let first = first.chain(["regions", "walks, base"]).map(str::to_owned);
        let budgets = || self.runs.iter().map(|(budget, _, _)| budget.replace('%', " %"));
        let pages = budgets().map(|budget| format!("pages, {budget}"));
        first.chain(budgets()).chain(pages).collect()
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn cells(&self) -> Vec<String> {
        let first = self.runs.first().map_or(&[][..], |(_, runs, _)| runs);
        let base = |run: &ProcessRun| share(run.base_walks as f64, run.accesses as f64);
        let names = self.sources.iter().map(|source| source.split([' ', ':']).next().unwrap_or(""));
        let mut cells = vec![names.collect::<Vec<_>>().join(" / ")];
        cells.extend(self.setting.cells());
        cells.push(joined(first.iter().map(|run| run.regions.to_string())));
        cells.push(joined(first.iter().map(|run| walk_percent(base(run)))));
        let runs = self.runs.iter().map(|(_, runs, _)| runs);
        cells.extend(self.runs.iter().map(|(_, runs, own)| {
            format!("{} {}", rounded_all(runs.iter().map(avoided_share)), acts([*own]))
        }));
        cells.extend(runs.map(|runs| joined(runs.iter().map(|run| run.huge_regions.to_string()))));
        cells
    }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(" / ")
}

/// Walks that are avoided, of those that huge pages only would avoid.
#[allow(clippy::cast_precision_loss)]
fn avoided_share(run: &ProcessRun) -> f64 {
    let avoided = |walks: u64| run.base_walks as f64 - walks as f64;
    share(avoided(run.walks), avoided(run.ideal_walks))
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    let mut items = Vec::new();
    for case in Case::all(bench.options) {
        let both = bench.graph("pr,sssp", case.order);
        let beside = format!("{} --pattern stream:256MiB", bench.graph("pr", case.order));
        for sources in [both, beside] {
            for variant in Variant::all(bench.options) {
                items.extend(BUDGETS.map(|budget| (sources.clone(), case, variant, budget)));
            }
        }
    }
    bench.each(&items, |(sources, case, variant, budget)| {
        run(bench, sources, *case, *variant, budget)
    })
}

fn run(
    bench: &Bench<'_>,
    sources: &str,
    case: Case<'_>,
    variant: Variant,
    budget: &str,
) -> Result<Vec<Made>> {
    let flags = format!(
        "{} {} --preset {} --budget {budget} {sources} {}",
        variant.policy,
        variant.flag(),
        case.preset,
        bench.interval()
    );
    let ran = bench.sim::<SimPolicyReport>(&flags, &[])?;
    let line = Line {
        sources: ran.report.input.sources,
        setting: Setting::new(case, &variant.name()),
        runs: vec![(budget.to_owned(), ran.report.processes, Acts::of(&ran.report.run))],
    };
    let command = ran.command.replace(&format!("--budget {budget}"), "--budget BUDGET");
    Ok(vec![(command, Row::Processes(line))])
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::*;

    #[test]
    fn the_share_is_that_of_the_walks_that_huge_pages_avoid() {
        let run = |walks, huge_regions| ProcessRun {
            accesses: 1000,
            base_walks: 110,
            walks,
            ideal_walks: 10,
            regions: 9,
            huge_regions,
            ..ProcessRun::default()
        };
        let options = Options::read(&[]).unwrap();
        let line = |budget: &str, policy: &str| Line {
            sources: ["pr on kronecker:20:16", "stream:256MiB"].map(str::to_owned).to_vec(),
            setting: Setting::new(Case::all(&options)[0], policy),
            runs: vec![(
                budget.to_owned(),
                vec![run(60, 3), run(110, 0)],
                Acts { promotions: 5, demotions: 2 },
            )],
        };
        let mut one = line("1%", "pcc");
        assert!(one.join(&line("4%", "pcc")));
        assert!(!one.join(&line("4%", "heat")));
        let cells = one.cells();
        let expected = ["pr / stream", "original", "haswell", "pcc", "9 / 9", "11.00 % / 11.00 %"];
        assert_eq!(cells[..6], expected);
        assert_eq!(cells[6..], ["50 / 0 % (5/2)", "50 / 0 % (5/2)", "3 / 0", "3 / 0"]);
        assert_eq!(one.head()[6..], ["1 %", "4 %", "pages, 1 %", "pages, 4 %"]);
        assert_eq!(one.head().len(), cells.len());
    }
}
