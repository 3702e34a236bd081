//! Gain of huge pages by array of a graph: Figures 5 and 11 of Manocha et al. (IISWC'22).
//!
//! Each run is a separate process that reads the graph from a file, each array on the pages of the
//! plan, and runs a kernel. A round runs each plan once. The result is the ratio of times to those
//! on base pages in the same round.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hugepilot_reports::graph::GraphReport;
use hugepilot_stats::{Orders, Rounds};

use super::arguments::Positional;
use super::graph::{generated, graph_report};
use super::pairs::{median, spread};

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
    let words = Positional::read(args, (5, 1), "kronecker:25:4")?;
    let (runs, graph, kernels) = (words.count, words.size, words.chosen(&KERNELS, |one| one.0)?);
    println!(
        "{graph}, 64 bits; seconds of the kernel, medians of {runs} interleaved runs; \
         speedup over base pages"
    );
    println!(
        "{:<9} {:<5} {:<17} {:>8} {:>11}  SPEEDUP, HUGE",
        "REORDER", "", "PAGES", "KERNEL", "FIRST_TOUCH"
    );
    for order in ["original", "dbg"] {
        for (name, kernel) in &kernels {
            let weighted = *name == "sssp";
            let file = graph_file(hugepilot, graph, order, weighted)?;
            let plans: Vec<&str> = PLANS
                .iter()
                .copied()
                .filter(|plan| *name == "sssp" || !plan.starts_with("weights"))
                .collect();
            let one = |plan: usize| {
                graph_report(hugepilot, kernel, &file, &["--width", "64", "--pages", plans[plan]])
            };
            // A first run warms memory up.
            one(0)?;
            let mut rounds = Rounds::default();
            for plans in Orders::rotated(plans.len()).take(runs) {
                rounds.measure(plans, one)?;
            }
            for (at, plan) in plans.iter().enumerate() {
                println!("{order:<9} {name:<5} {plan:<17} {}", line(&rounds, at));
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

/// Describes the runs of a plan: times, the speedup over the first plan, and the arrays on huge
/// pages.
fn line(rounds: &Rounds<GraphReport>, plan: usize) -> String {
    let seconds = rounds.map(|report| report.phases.kernel_seconds.unwrap_or(f64::NAN));
    let touch = median(rounds.of(plan).filter_map(|report| report.phases.first_touch_seconds));
    let arrays = rounds.of(plan).take(1).flat_map(|report| &report.arrays);
    let huge: Vec<String> = arrays
        .filter(|array| array.huge_bytes.get() > 0)
        .map(|array| format!("{} {} of {}", array.name, array.huge_bytes, array.bytes))
        .collect();
    let (kernel, speedup) = (seconds.median(plan), spread(seconds.ratios(0, plan).spread(), 2));
    format!("{kernel:>8.2} {touch:>11.2}  {speedup}x  {}", huge.join(", "))
}

#[cfg(test)]
mod tests {
    use hugepilot_reports::graph::{ArrayPages, Phases};
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
        let rounds = [[of(2.0, 0), of(1.0, 2 << 20)], [of(4.0, 0), of(2.0, 2 << 20)]];
        let line = line(&Rounds::from_iter(rounds.map(Vec::from)), 1);
        assert_eq!(line.trim_start(), "1.50        0.50  2.00 (2.00–2.00)x  property 2MiB of 4MiB");
    }
}
