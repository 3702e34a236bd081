//! Gain of huge pages by array of a graph: Figures 5 and 11 of Manocha et al. (IISWC'22).
//!
//! Each run is a separate process that reads the graph from a file, each array on the pages of the
//! plan, and runs a kernel. A round runs each plan once. The result is the ratio of times to those
//! on base pages in the same round.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hugepilot_record::graph::GraphReport;

use super::graph::{generated, graph_report};
use super::pairs::{PairedStats, median};

/// Page plans, without huge pages first.
const PLANS: [&str; 10] = [
    "base",
    "offsets=thp",
    "edges=thp",
    "weights=thp",
    "worklist=thp",
    "property=thp:20%",
    "property=thp:50%",
    "property=thp:80%",
    "property=thp",
    "all=thp",
];

/// Kernels as in the paper, with their arguments. Its PageRank pushes increases of ranks, to a
/// bound of 0.01 where ranks sum to the number of vertices.
const KERNELS: [(&str, &[&str]); 3] = [
    ("pr", &["pr", "--algo", "delta-push", "--tolerance", "0.01", "--dangling", "drop"]),
    ("bfs", &["bfs", "--algo", "top-down", "--source", "max-degree"]),
    ("sssp", &["sssp", "--algo", "bellman-ford", "--source", "max-degree"]),
];

/// `[RUNS=5] [GRAPH=kronecker:25:4] [KERNEL…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: usize =
        args.first().map_or(Ok(5), |text| text.parse()).context("RUNS is a number")?;
    ensure!(runs > 0, "at least one run");
    let graph = args.get(1).copied().unwrap_or("kronecker:25:4");
    let only = args.get(2..).unwrap_or_default();
    println!(
        "{graph}, 64 bits; seconds of the kernel, medians of {runs} interleaved runs; \
         speedup over base pages"
    );
    println!(
        "{:<9} {:<5} {:<17} {:>8} {:>11}  SPEEDUP, HUGE",
        "REORDER", "", "PAGES", "KERNEL", "FIRST_TOUCH"
    );
    for order in ["original", "dbg"] {
        for (name, kernel) in KERNELS.iter().filter(|one| only.is_empty() || only.contains(&one.0))
        {
            let weighted = *name == "sssp";
            let file = graph_file(hugepilot, graph, order, weighted)?;
            let plans: Vec<&str> = PLANS
                .iter()
                .copied()
                .filter(|plan| *name == "sssp" || !plan.starts_with("weights"))
                .collect();
            let rounds = rounds(runs, &plans, |plan| {
                graph_report(hugepilot, kernel, &file, &["--width", "64", "--pages", plan])
            })?;
            for (plan, reports) in plans.iter().zip(&rounds) {
                println!("{order:<9} {name:<5} {plan:<17} {}", line(&rounds[0], reports)?);
            }
        }
    }
    Ok(())
}

/// Returns the 64-bit file in a vertex order.
fn graph_file(hugepilot: &Path, graph: &str, order: &str, weighted: bool) -> Result<PathBuf> {
    let name = format!("{order}{}.hpg", if weighted { "-weighted" } else { "" });
    let mut args = vec!["--width", "64"];
    args.extend(weighted.then_some("--weighted"));
    if order != "original" {
        args.extend(["--reorder", order]);
    }
    generated(hugepilot, graph, &name, &args)
}

/// Returns the reports of each plan, one per round. A first run warms up the memory and is
/// discarded.
fn rounds<T>(
    runs: usize,
    plans: &[&str],
    mut one: impl FnMut(&str) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut all: Vec<Vec<T>> = plans.iter().map(|_| Vec::new()).collect();
    one(plans[0])?;
    for round in 0..runs {
        for step in 0..plans.len() {
            let which = (round + step) % plans.len();
            all[which].push(one(plans[which])?);
        }
    }
    Ok(all)
}

/// Prints times, the speedup over `base`, and the arrays on huge pages.
fn line(base: &[GraphReport], reports: &[GraphReport]) -> Result<String> {
    let kernel = |report: &GraphReport| report.phases.kernel_seconds.context("kernel_seconds");
    let seconds = reports.iter().map(kernel).collect::<Result<Vec<_>>>()?;
    let before = base.iter().map(kernel).collect::<Result<Vec<_>>>()?;
    let touch: Vec<f64> =
        reports.iter().filter_map(|report| report.phases.first_touch_seconds).collect();
    let faster = PairedStats::of(seconds.iter().copied().zip(before).collect());
    let huge: Vec<String> = reports[0]
        .arrays
        .iter()
        .filter(|array| array.huge_bytes.get() > 0)
        .map(|array| format!("{} {} of {}", array.name, array.huge_bytes, array.bytes))
        .collect();
    let (seconds, touch) = (median(&seconds), median(&touch));
    let PairedStats { median_ratio, min_ratio, max_ratio, .. } = faster;
    Ok(format!(
        "{seconds:>8.2} {touch:>11.2}  {median_ratio:.2}x ({min_ratio:.2}–{max_ratio:.2})  {}",
        huge.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::graph::{ArrayPages, Phases};
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn a_line_has_the_speedup_within_rounds() {
        let of = |kernel: f64, huge: u64| GraphReport {
            phases: Phases {
                kernel_seconds: Some(kernel),
                first_touch_seconds: Some(0.5),
                ..Phases::default()
            },
            arrays: vec![ArrayPages {
                name: "property".into(),
                bytes: Bytes::new(4 << 20),
                huge_bytes: Bytes::new(huge),
            }],
            ..GraphReport::default()
        };
        // The machine becomes half as fast between the rounds.
        let line = line(&[of(2.0, 0), of(4.0, 0)], &[of(1.0, 2 << 20), of(2.0, 2 << 20)]).unwrap();
        assert_eq!(line.trim_start(), "1.50        0.50  2.00x (2.00–2.00)  property 2MiB of 4MiB");
    }
}
