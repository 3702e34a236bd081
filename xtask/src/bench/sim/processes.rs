//! Two processes that share huge pages: Figure 9.

use anyhow::Result;
use hugepilot_record::sim::{ProcessRun, SimPolicyReport};
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::Bench;
use super::table::{percent, share, walk_percent};

pub(super) const METHOD: &str = "\
Two processes side by side with one budget for the memory of both (Figure 9), by selection: the
highest counts first, or the processes in turn. PageRank runs beside SSSP, which is sensitive to the
TLB, too, and beside a stream, which is not (the paper's mcf). `share` is the share of the process's
walks that huge pages only would avoid.";

pub(super) const HEAD: [&str; 8] = [
    "budget",
    "selection",
    "process",
    "walks, base",
    "walks",
    "walks, ideal",
    "share",
    "huge pages of regions",
];

const BUDGETS: [&str; 3] = ["1%", "4%", "16%"];
const SELECTIONS: [&str; 2] = ["highest", "round-robin"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) budget: String,
    pub(super) selection: String,
    /// Source of accesses.
    pub(super) source: String,
    pub(super) run: ProcessRun,
}

impl Line {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn cells(&self) -> Vec<String> {
        let ProcessRun { accesses, base_walks, walks, ideal_walks, regions, huge_regions, .. } =
            self.run;
        let rate = |walks: u64| walk_percent(share(walks as f64, accesses as f64));
        let avoided = |walks: u64| base_walks.saturating_sub(walks) as f64;
        vec![
            self.budget.clone(),
            self.selection.clone(),
            self.source.clone(),
            rate(base_walks),
            rate(walks),
            rate(ideal_walks),
            percent(share(avoided(walks), avoided(ideal_walks))),
            format!("{huge_regions} of {regions}"),
        ]
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    let both = bench.graph("pr,sssp");
    let alone = format!("{} --pattern stream:256MiB", bench.graph("pr"));
    for sources in [both, alone] {
        for budget in BUDGETS {
            for selection in SELECTIONS {
                let interval = bench.interval();
                let flags =
                    format!("pcc --budget {budget} --selection {selection} {sources} {interval}");
                let ran = bench.sim::<SimPolicyReport>(&flags, &[])?;
                let names = ran.report.input.sources;
                for (source, run) in names.into_iter().zip(ran.report.processes) {
                    let (budget, selection) = (budget.to_owned(), selection.to_owned());
                    let line = Line { budget, selection, source, run };
                    bench.add(&ran.command, Row::Processes(line))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_walks_that_huge_pages_avoid() {
        let run = ProcessRun {
            accesses: 1000,
            base_walks: 110,
            walks: 60,
            ideal_walks: 10,
            regions: 9,
            huge_regions: 3,
            ..ProcessRun::default()
        };
        let (budget, selection) = ("4%".to_owned(), "highest".to_owned());
        let line = Line { budget, selection, source: "pr".to_owned(), run };
        let expected = ["4%", "highest", "pr", "11.00 %", "6.00 %", "1.00 %", "50.0 %", "3 of 9"];
        assert_eq!(line.cells(), expected);
        assert_eq!(line.cells().len(), HEAD.len());
    }
}
