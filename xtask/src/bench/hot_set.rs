//! Gain of tuning, compared with the ideal, on a workload whose hot regions are known.
//!
//! Each run starts three copies of the `hot-set` workload, tunes one, promotes all memory of
//! another, and compares them in blocks of short windows (`hugepilot tune --footprint …`). The hot
//! regions differ from run to run.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::arguments::Positional;
use super::pairs::median;
use crate::run::json;

/// `[RUNS=5] [FOOTPRINT=6GiB] [HOT=768MiB]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Positional { count: runs, size: footprint, names } =
        Positional::read(args, (5, 1), "6GiB")?;
    let hot = names.first().unwrap_or(&"768MiB");
    println!(
        "hot-set, {footprint} of which {hot} are hot; \
         medians of {runs} runs (worst in brackets; \
         runs with a value, if some have none)"
    );
    println!(
        "{:<8} {:>7} {:>15} {:>15} {:>17} {:>16} {:>16} {:>16} {:>16}",
        "pattern",
        "threads",
        "tuned",
        "all huge",
        "all_huge_gain_ratio",
        "90_%_promoted_s",
        "recall",
        "precision",
        "none_ratio"
    );
    for pattern in ["gather", "chase"] {
        for threads in ["1", "2"] {
            let reports: Vec<Value> = (1..=runs)
                .map(|seed| {
                    let mut command = Command::new(hugepilot);
                    command.args(["tune", "--json", "--footprint", footprint, "--hot", hot]);
                    command.args(["--pattern", pattern, "--threads", threads]);
                    tune(command.args(["--seed", &seed.to_string()]))
                })
                .collect::<Result<_>>()?;
            let column = |path: &str, worst: fn(f64, f64) -> f64| {
                let values = reports.iter().map(|report| report.pointer(path)?.as_f64());
                column(&values.collect::<Vec<_>>(), worst)
            };
            println!(
                "{pattern:<8} {threads:>7} {:>15} {:>15} {:>17} {:>16} {:>16} {:>16} {:>16}",
                column("/speedup", f64::min),
                column("/all_huge_speedup", f64::min),
                column("/all_huge_gain_ratio", f64::min),
                column("/most_promoted_seconds", f64::max),
                column("/ground_truth/recall_ratio", f64::min),
                column("/ground_truth/precision_ratio", f64::min),
                column("/sampler/none_ratio", f64::max),
            );
        }
    }
    Ok(())
}

/// Median and worst of the runs with a value. A run without one, such as one in which all huge
/// gained nothing, says something, too: then their count follows.
fn column(runs: &[Option<f64>], worst: fn(f64, f64) -> f64) -> String {
    let values: Vec<f64> = runs.iter().copied().flatten().collect();
    let Some(extreme) = values.iter().copied().reduce(worst) else {
        return format!("- 0/{}", runs.len());
    };
    let text = format!("{:.3} [{extreme:.3}]", median(values.iter().copied()));
    if values.len() == runs.len() {
        text
    } else {
        format!("{text} {}/{}", values.len(), runs.len())
    }
}

fn tune(command: &mut Command) -> Result<Value> {
    let report: Value = json(command)?;
    // What was promoted until then says nothing about the policy.
    if let Some(cause) = report["stopped"].as_str() {
        bail!(
            "promotion ended early: {cause}; for no_huge_pages, drop the page cache: \
             echo 1 > /proc/sys/vm/drop_caches"
        );
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_a_value_are_counted() {
        let table = [
            (&[Some(0.5), Some(0.7), Some(0.9)][..], "0.700 [0.500]"),
            (&[Some(0.5), None, Some(0.9)], "0.700 [0.500] 2/3"),
            (&[None, None], "- 0/2"),
        ];
        for (runs, text) in table {
            assert_eq!(column(runs, f64::min), text);
        }
    }
}
