//! Threads of one process: Figure 8.

use anyhow::Result;
use hugepilot_record::sim::SimUtilityReport;
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::Bench;
use super::table::{budget_titles, percent, walk_percent};
use super::utility::{curves, of_ideal};

pub(super) const METHOD: &str = "\
Share of the page walks avoided by `pcc` with one and two threads (Figure 8), each with a core, its
TLBs and its candidate cache (`haswell`), by selection: the highest counts of all tables first, or
the tables in turn.";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    pub(super) threads: u32,
    pub(super) selection: String,
    /// Walks per access on base pages.
    pub(super) base_ratio: f64,
    /// Walks per access on huge pages only.
    pub(super) ideal_ratio: f64,
    /// Share of the walks that huge pages only avoid.
    pub(super) ideal_avoided_ratio: f64,
    /// Budgets, and the share of the walks avoided with each.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    pub(super) fn head(&self) -> Vec<String> {
        let first =
            ["kernel", "threads", "selection", "walks, base", "walks, ideal"].map(str::to_owned);
        let last = ["of ideal at 4 %".to_owned()];
        first.into_iter().chain(budget_titles(&self.points)).chain(last).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.kernel.clone(), self.threads.to_string(), self.selection.clone()];
        cells.extend([self.base_ratio, self.ideal_ratio].map(walk_percent));
        cells.extend(self.points.iter().map(|point| percent(point.1)));
        cells.push(percent(of_ideal(&self.points, self.ideal_avoided_ratio)));
        cells
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for kernel in &bench.options.kernels {
        for (threads, selection) in [(1, "highest"), (2, "highest"), (2, "round-robin")] {
            let (graph, interval) = (bench.graph(kernel.name()), bench.interval());
            let flags = format!(
                "utility {graph} --threads {threads} --selection {selection} --policies pcc \
                 --budgets 1%,2%,4%,16%,64% {interval}"
            );
            let ran = bench.sim::<SimUtilityReport>(&flags, &[])?;
            let points = curves(&ran.report).pop().map(|(_, points)| points).unwrap_or_default();
            let line = Line {
                kernel: kernel.name().to_owned(),
                threads,
                selection: selection.to_owned(),
                base_ratio: ran.report.base.counts.walk_ratio,
                ideal_ratio: ran.report.ideal.counts.walk_ratio,
                ideal_avoided_ratio: ran.report.ideal.walks_avoided_ratio,
                points,
            };
            bench.add(&ran.command, Row::Threads(line))?;
        }
    }
    Ok(())
}
