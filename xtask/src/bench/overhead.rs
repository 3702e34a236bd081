//! Cost of sampling: speed of the target; CPU time and memory of hugepilot.
//!
//! One workload runs throughout. Intervals alone and intervals sampled by `tune --dry-run`, or
//! recorded by `record --every 10ms`, are interleaved.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::pairs::{median, pairs};
use super::workload::Workload;

/// Time before each interval, for hugepilot to attach.
const SETTLE: Duration = Duration::from_millis(600);
/// Length of an interval. Short, because the speed of a shared machine drifts within seconds; many
/// pairs make up for it.
const INTERVAL: Duration = Duration::from_millis(1600);

/// `[record] [PAIRS=50] [FOOTPRINT=16GiB] [HOT=1GiB] [RATE]`, by default the command's rate.
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let (is_recorded, args) = match args {
        ["record", rest @ ..] => (true, rest),
        _ => (false, args),
    };
    let count = args.first().map_or(Ok(50), |text| text.parse()).context("PAIRS is a number")?;
    ensure!(count >= 5, "fewer than 5 pairs show no spread");
    let footprint = args.get(1).unwrap_or(&"16GiB");
    let hot = args.get(2).unwrap_or(&"1GiB");
    let workload =
        Workload::start(hugepilot, &["hot-set", "--footprint", footprint, "--hot", hot])?;
    let pid = workload.pid.clone();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file.rec");
    let (mut cores, mut peaks, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    let workload = RefCell::new(workload);
    let rate = || workload.borrow_mut().rate(SETTLE, INTERVAL).expect("the workload runs on");
    let stats = pairs(count, rate, || {
        let begin = Instant::now();
        let mut command = Command::new(hugepilot);
        if is_recorded {
            command.args(["record", "--every", "10ms", "--force", "-p", &pid, "-o"]).arg(&file);
        } else {
            // The usual rate, also before the first plan.
            let observe = ["--observe", "30s", "--trial-rate", "1"];
            command.args(["tune", "--dry-run", "--json", "-p", &pid]).args(observe);
        }
        let mut sampler = command
            .args(args.get(3).map(|rate| format!("--rate={rate}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("hugepilot starts");
        let rate = rate();
        let (seconds, peak) = usage(sampler.id());
        let elapsed = begin.elapsed().as_secs_f64();
        sizes.extend(std::fs::metadata(&file).map(|file| file.len() as f64 / elapsed));
        cores.push(seconds / elapsed);
        peaks.push(peak);
        let _ = sampler.kill();
        let _ = sampler.wait();
        rate
    });
    let name = if is_recorded { "recorded" } else { "sampled" };
    print!("{}", stats.table("alone", name, "ops/s"));
    println!(
        "hugepilot: median {:.4} of a core, peak memory {:.1} MiB",
        median(&cores),
        median(&peaks) / 1024.0
    );
    if is_recorded {
        println!("recording: median {:.2} MB per minute", median(&sizes) * 60.0 / 1e6);
    }
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
    // Fields 14 and 15 (utime, stime) count hundredths of a second on every Linux.
    ((ticks(14) + ticks(15)) / 100.0, peak.unwrap_or(f64::NAN))
}
