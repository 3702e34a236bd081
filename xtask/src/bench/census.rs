//! Speed of the census, its cost for the target, and the cost of a split.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_stats::Rounds;
use serde_json::Value;

use super::arguments::Positional;
use super::debloat::{collapse, debloat, number};
use super::pairs::{median, table};
use super::workload::Workload;
use crate::run::json;

/// Operations of one timed step of the target: about 50 µs.
const STEP: &str = "1000";
/// Run time of the target for one measurement of its steps.
const STEPS_FOR: &str = "4s";

/// `[RUNS=7] [SIZE=4GiB]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Positional { count: runs, size, .. } = Positional::read(args, (7, 5), "4GiB")?;
    println!("{size}, medians of {runs} runs, one core");
    speed(hugepilot, "all pages in use", &["gups", "--pages", "thp", "--size", size], runs)?;
    let half = ["random-access", "--bloat", "50", "--size", size];
    speed(hugepilot, "half of it zero-filled", &half, runs)?;
    let empty = ["random-access", "--bloat", "98", "--size", size];
    speed(hugepilot, "98 % zero-filled", &empty, runs)?;
    splits(hugepilot, &half, runs)?;
    steps(hugepilot, size, runs)
}

/// Prints GiB of huge pages that the census reads per second, of a stopped target.
#[allow(clippy::cast_precision_loss)]
fn speed(hugepilot: &Path, what: &str, workload: &[&str], runs: usize) -> Result<()> {
    let workload = Workload::start(hugepilot, workload)?;
    workload.signal("STOP")?;
    let mut rates = Vec::new();
    for _ in 0..runs {
        let report = census(hugepilot, &workload.pid)?;
        let seconds = report["scan_seconds"].as_f64().context("scan_seconds is a number")?;
        rates.push(number(&report, "/scanned_bytes")? as f64 / f64::from(1 << 30) / seconds);
    }
    println!("{what:<24} {:>6.1} GiB/s", median(rates));
    Ok(())
}

fn census(hugepilot: &Path, pid: &str) -> Result<Value> {
    let mut command = Command::new(hugepilot);
    command.args(["debloat", "--dry-run", "--order", "exact", "--observe", "0s"]);
    json(command.args(["--calibration", "off", "--json", "-p", pid]))
}

/// Prints the time of one split, in the kernel and in total.
#[allow(clippy::cast_precision_loss)]
fn splits(hugepilot: &Path, workload: &[&str], runs: usize) -> Result<()> {
    let workload = Workload::start(hugepilot, workload)?;
    workload.signal("STOP")?;
    let (mut calls, mut all) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        collapse(hugepilot, &workload.pid)?;
        let report = debloat(hugepilot, "exact", "40%", &[&workload.pid])?;
        let each = |key: &str| -> Result<f64> {
            let seconds = report[key].as_f64().with_context(|| format!("{key} is a number"))?;
            Ok(1e6 * seconds / number(&report, "/huge_pages_split")?.max(1) as f64)
        };
        calls.push(each("split_call_seconds")?);
        all.push(each("split_seconds")?);
    }
    println!(
        "one split, half of it freed: {:.0} µs in the kernel, {:.0} µs with census and \
         verification",
        median(calls),
        median(all)
    );
    Ok(())
}

/// Prints throughput and step times of a target, alone and while the census runs throughout.
fn steps(hugepilot: &Path, size: &str, runs: usize) -> Result<()> {
    let steps = |_, scanned| run_steps(hugepilot, size, scanned == 1);
    let rounds = Rounds::after_warm_up(2, runs, steps)?;
    let [rate, p99, p50] = [0, 1, 2].map(|part| rounds.map(|steps| steps[part]));
    print!("{}", table(&rate, ["alone", "scanned"], "ops/s"));
    println!(
        "step of {STEP} operations: p50 {:.1} µs alone, {:.1} µs while scanned; \
         p99 {:.1} µs alone, {:.1} µs while scanned",
        p50.median(0),
        p50.median(1),
        p99.median(0),
        p99.median(1)
    );
    Ok(())
}

/// Operations per second; p99 and p50 of the step in µs.
fn run_steps(hugepilot: &Path, size: &str, scanned: bool) -> Result<[f64; 3]> {
    let mut child = Command::new(hugepilot)
        .args(["lab", "workload", "gups", "--pages", "thp", "--size", size])
        .args(["--steps", STEP, "--seconds", STEPS_FOR, "--interval", "100ms"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(
        child.stdout.take().context("stdout is piped")?,
    ));
    let ready = lines.next().context("a first line")??;
    let pid = ready.strip_prefix("ready ").context("ready PID")?.trim().to_owned();
    let begun = Instant::now();
    while scanned && begun.elapsed() < Duration::from_millis(3500) {
        census(hugepilot, &pid)?;
    }
    let last = lines
        .map_while(Result::ok)
        .filter(|line| line.starts_with('{'))
        .last()
        .context("a line of JSON")?;
    child.wait()?;
    let summary: Value = serde_json::from_str(&last)?;
    let of = |path: &str| {
        summary.pointer(path).and_then(Value::as_f64).with_context(|| format!("{path}: {last}"))
    };
    Ok([of("/ops_per_second")?, of("/latency/p99_ns")? / 1e3, of("/latency/p50_ns")? / 1e3])
}
