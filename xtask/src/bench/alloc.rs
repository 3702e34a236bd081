//! Overhead of memory on huge pages over the kernel's cost of the same pages.
//!
//! Maps, prefaults and frees memory by the crate and by bare system calls, interleaved, each run in
//! a process of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use hugepilot_stats::Rounds;

use super::arguments::Positional;
use super::pairs::line;
use crate::run::{self, cargo};

const BACKINGS: [&str; 5] = ["base", "thp", "collapse", "hugetlb-2m", "hugetlb-1g"];
const THREADS: [&str; 2] = ["1", "2"];

/// Runs the benchmark: `[PAIRS=9] [SIZE=4GiB] [BACKING…]`.
pub(super) fn run(_hugepilot: &Path, args: &[&str]) -> Result<()> {
    let words = Positional::read(args, (9, 5), "4GiB")?;
    let (count, size) = (words.count, words.size);
    let backings = words.chosen(&BACKINGS, |name| name)?;
    run::run(&mut cargo(&["build", "--release", "-p", "hugepilot-alloc", "--example", "cost"]))?;
    let cost = run::target().join("release/examples/cost");
    println!(
        "{size}: mapped, prefaulted and freed; hugepilot / bare system calls, goal at most 1.10"
    );
    for backing in backings {
        for threads in THREADS {
            let cost = Cost { program: &cost, what: [backing, size, threads] };
            if let Err(error) = cost.compare(count) {
                println!("{backing:<12} not measured: {error}");
                break;
            }
        }
    }
    Ok(())
}

/// Example that measures, and its arguments.
struct Cost<'a> {
    program: &'a PathBuf,
    what: [&'a str; 3],
}

impl Cost<'_> {
    /// Prints a line with the medians and the ratios.
    fn compare(&self, count: usize) -> Result<()> {
        let (_, huge) = self.measure("hugepilot")?;
        let one =
            |_, who: usize| self.measure(["bare", "hugepilot"][who]).map(|(seconds, _)| seconds);
        let rounds = Rounds::after_warm_up(2, count, one)?;
        let [backing, _, threads] = self.what;
        println!(
            "{backing:<12} threads {threads}: {:.3} s bare, {:.3} s hugepilot, {huge:.2} GiB huge; \
             {}",
            rounds.median(0),
            rounds.median(1),
            line(&rounds.ratios(1, 0))
        );
        Ok(())
    }

    /// Returns seconds, and GiB on huge pages.
    #[allow(clippy::cast_precision_loss)]
    fn measure(&self, who: &str) -> Result<(f64, f64)> {
        let output = Command::new(self.program).arg(who).args(self.what).output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8(output.stdout)?;
        let (nanos, huge) = text.trim().split_once(' ').context("two numbers")?;
        Ok((nanos.parse::<u64>()? as f64 / 1e9, huge.parse::<u64>()? as f64 / f64::from(1 << 30)))
    }
}
