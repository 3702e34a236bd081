//! Sizes of the candidate cache: Figure 6.

use anyhow::Result;
use hugepilot_reports::sim::SimPolicyReport;
use serde::{Deserialize, Serialize};

use super::options::Kernel;
use super::record::Row;
use super::runner::{Bench, Made};
use super::setting::Case;
use super::table::{Acts, acts, rounded_all};

pub(super) const METHOD: &str = "\
Share of the page walks avoided by `pcc` by the number of entries of the candidate cache, with huge
pages for 32 % of the footprint as in Figure 6. At each interval as many regions are promoted as the
table has entries. In brackets: promotions and demotions. Other policies have no such table.";

const ENTRIES: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    pub(super) order: String,
    pub(super) preset: String,
    pub(super) points: Vec<Point>,
    /// Share of the walks that huge pages only avoid.
    pub(super) ideal_ratio: f64,
}

/// Run with a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) entries: u32,
    /// Share of the walks avoided.
    pub(super) avoided: f64,
    #[serde(flatten)]
    pub(super) acts: Acts,
}

impl Line {
    pub(super) fn head(&self) -> Vec<String> {
        let entries = self.points.iter().map(|point| point.entries.to_string());
        let first = ["kernel", "order", "TLBs"].map(str::to_owned);
        first.into_iter().chain(entries).chain(["ideal".to_owned()]).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.kernel.clone(), self.order.clone(), self.preset.clone()];
        let avoided =
            |point: &Point| format!("{} {}", rounded_all([point.avoided]), acts([point.acts]));
        cells.extend(self.points.iter().map(avoided));
        cells.push(rounded_all([self.ideal_ratio]));
        cells
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    bench.each(&Case::of_kernels(bench.options), |&(kernel, case)| sweep(bench, kernel, case))
}

fn sweep(bench: &Bench<'_>, kernel: Kernel, case: Case<'_>) -> Result<Vec<Made>> {
    let Case { order, preset } = case;
    let (graph, interval) = (bench.graph(kernel.name(), order), bench.interval());
    let (mut points, mut ideal_ratio, mut command) = (Vec::new(), 0.0, String::new());
    for entries in ENTRIES {
        let flags =
            format!("pcc --preset {preset} --budget 32% {graph} {interval} --entries {entries}");
        let ran = bench.sim::<SimPolicyReport>(&flags, &[])?;
        let run = &ran.report.run;
        points.push(Point { entries, avoided: run.walks_avoided_ratio, acts: Acts::of(run) });
        ideal_ratio = ran.report.ideal.walks_avoided_ratio;
        command = ran.command.replace(&format!("--entries {entries}"), "--entries N");
    }
    let line = Line {
        kernel: kernel.name().to_owned(),
        order: order.name().to_owned(),
        preset: preset.to_owned(),
        points,
        ideal_ratio,
    };
    Ok(vec![(command, Row::Sizes(line))])
}
