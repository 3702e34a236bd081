//! Gain of tuning, compared with the ideal, on a workload whose hot regions are known.
//!
//! Each run starts three copies of the `hot-set` workload, tunes one, promotes all memory of
//! another, and compares them in blocks of short windows (`hugepilot tune --footprint …`). The hot
//! regions differ from run to run.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::pairs::median;

/// `[RUNS=5] [FOOTPRINT=6GiB] [HOT=768MiB]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: u32 = args.first().map_or(Ok(5), |text| text.parse()).context("RUNS is a number")?;
    let footprint = args.get(1).unwrap_or(&"6GiB");
    let hot = args.get(2).unwrap_or(&"768MiB");
    println!(
        "hot-set, {footprint} of which {hot} are hot; \
         medians of {runs} runs (worst in brackets)"
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
                    tune(
                        hugepilot,
                        &[
                            "--footprint",
                            footprint,
                            "--hot",
                            hot,
                            "--pattern",
                            pattern,
                            "--threads",
                            threads,
                            "--seed",
                            &seed.to_string(),
                        ],
                    )
                })
                .collect::<Result<_>>()?;
            let column = |path: &str, worst: fn(f64, f64) -> f64| {
                let values: Vec<f64> =
                    reports.iter().filter_map(|report| report.pointer(path)?.as_f64()).collect();
                let extreme = values.iter().copied().reduce(worst).unwrap_or(f64::NAN);
                format!("{:.3} [{extreme:.3}]", median(&values))
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

fn tune(hugepilot: &Path, args: &[&str]) -> Result<Value> {
    let output = Command::new(hugepilot)
        .args(["tune", "--json"])
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("cannot start hugepilot")?;
    ensure!(output.status.success(), "hugepilot tune {}: {}", args.join(" "), output.status);
    let report: Value =
        serde_json::from_slice(&output.stdout).context("hugepilot tune --json prints JSON")?;
    // What was promoted until then says nothing about the policy.
    if let Some(cause) = report["stopped"].as_str() {
        bail!(
            "promotion ended early: {cause}; for no_huge_pages, drop the page cache: \
             echo 1 > /proc/sys/vm/drop_caches"
        );
    }
    Ok(report)
}
