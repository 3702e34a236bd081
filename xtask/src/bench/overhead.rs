//! What watching costs: the target its speed, and us our own memory and time.
//!
//! One workload runs all the while; a stretch without us and a stretch watched by `tune --dry-run` take turns.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::pairs::{median, pairs};
use super::workload::Workload;

/// Before each stretch, for the watcher to attach.
const SETTLE: Duration = Duration::from_millis(600);
/// How long each stretch is measured. Short, because a shared machine's speed wanders within seconds; many pairs make up
/// for it.
const STRETCH: Duration = Duration::from_millis(1600);

/// `[PAIRS=50] [FOOTPRINT=16GiB] [HOT=1GiB] [RATE]`, without a rate at the default one.
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let count = args.first().map_or(Ok(50), |text| text.parse()).context("PAIRS is a number")?;
    ensure!(count >= 5, "fewer than 5 pairs show no spread");
    let footprint = args.get(1).unwrap_or(&"16GiB");
    let hot = args.get(2).unwrap_or(&"1GiB");
    let workload =
        Workload::start(hugepilot, &["hot-set", "--footprint", footprint, "--hot", hot])?;
    let pid = workload.pid.clone();
    let (mut cores, mut peaks) = (Vec::new(), Vec::new());
    let workload = RefCell::new(workload);
    let rate = || workload.borrow_mut().rate(SETTLE, STRETCH).expect("the workload runs on");
    let stats = pairs(count, rate, || {
        let begin = Instant::now();
        let mut watcher = Command::new(hugepilot)
            .args(["tune", "--dry-run", "--json", "--observe", "30s", "-p", &pid])
            .args(args.get(3).map(|rate| format!("--rate={rate}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("hugepilot starts");
        let rate = rate();
        let (seconds, peak) = usage(watcher.id());
        cores.push(seconds / begin.elapsed().as_secs_f64());
        peaks.push(peak);
        let _ = watcher.kill();
        let _ = watcher.wait();
        rate
    });
    print!("{}", stats.table("alone", "watched", "ops/s"));
    println!(
        "the watcher: median {:.4} of a core, peak memory {:.1} MiB",
        median(&cores),
        median(&peaks) / 1024.0
    );
    Ok(())
}

/// CPU seconds and peak resident KiB of process `pid`.
fn usage(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| {
        fields.get(field - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
    // Fields 14 and 15 count in hundredths of a second on every Linux.
    ((ticks(14) + ticks(15)) / 100.0, peak.unwrap_or(f64::NAN))
}
