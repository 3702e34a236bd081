//! What watching costs: the target its speed, and us our own memory and time.
//!
//! One workload runs all the while; a stretch without us and a stretch watched by `tune --dry-run` take turns.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::pairs::{median, pairs};

/// Before each stretch, for the watcher to attach.
const SETTLE: Duration = Duration::from_millis(600);
/// How long each stretch is measured. Short, because a shared machine's speed wanders within seconds; many pairs make up
/// for it.
const STRETCH: Duration = Duration::from_millis(1600);

/// `[PAIRS=50] [FOOTPRINT=16GiB] [HOT=1GiB]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let count = args.first().map_or(Ok(50), |text| text.parse()).context("PAIRS is a number")?;
    ensure!(count >= 5, "fewer than 5 pairs show no spread");
    let mut workload =
        Workload::start(hugepilot, args.get(1).unwrap_or(&"16GiB"), args.get(2).unwrap_or(&"1GiB"))?;
    let pid = workload.child.id().to_string();
    let (mut cores, mut peaks) = (Vec::new(), Vec::new());
    let lines = std::cell::RefCell::new(&mut workload.lines);
    let stats = pairs(
        count,
        || rate(&mut **lines.borrow_mut()),
        || {
            let begin = Instant::now();
            let mut watcher = Command::new(hugepilot)
                .args(["tune", "--dry-run", "--json", "--observe", "30s", "-p", &pid])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("hugepilot starts");
            let rate = rate(&mut **lines.borrow_mut());
            let (seconds, peak) = usage(watcher.id());
            cores.push(seconds / begin.elapsed().as_secs_f64());
            peaks.push(peak);
            let _ = watcher.kill();
            let _ = watcher.wait();
            rate
        },
    );
    print!("{}", stats.table("alone", "watched", "ops/s"));
    println!(
        "the watcher: median {:.4} of a core, peak memory {:.1} MiB",
        median(&cores),
        median(&peaks) / 1024.0
    );
    Ok(())
}

/// The mean throughput over one stretch.
fn rate(lines: &mut impl Iterator<Item = f64>) -> f64 {
    let settled = Instant::now() + SETTLE;
    while Instant::now() < settled {
        lines.next();
    }
    let end = Instant::now() + STRETCH;
    let (mut sum, mut count) = (0.0, 0.0);
    while Instant::now() < end {
        sum += lines.next().expect("the workload runs on");
        count += 1.0;
    }
    sum / count
}

/// CPU seconds and peak resident KiB of process `pid`.
fn usage(pid: u32) -> (f64, f64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks =
        |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok());
    // Fields 14 and 15 count in hundredths of a second on every Linux.
    ((ticks(14) + ticks(15)) / 100.0, peak.unwrap_or(f64::NAN))
}

struct Workload {
    child: Child,
    lines: Rates,
}

impl Workload {
    fn start(hugepilot: &Path, footprint: &str, hot: &str) -> Result<Self> {
        let mut child = Command::new(hugepilot)
            .args([
                "lab",
                "workload",
                "hot-set",
                "--seconds",
                "0",
                "--interval",
                "100ms",
                "--footprint",
                footprint,
                "--hot",
                hot,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the workload")?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut first = String::new();
        lines.read_line(&mut first)?;
        ensure!(first.starts_with("ready"), "the workload said {first:?}");
        Ok(Self { child, lines: Rates(lines) })
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The second column of each line.
struct Rates(BufReader<ChildStdout>);

impl Iterator for Rates {
    type Item = f64;
    fn next(&mut self) -> Option<f64> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}
