//! Cost of debloating for programs without bloat: Figure 15 of EMD (ISMM'25).
//!
//! The watermarks are so low that memory always counts as short. The daemon samples the program and
//! reads its memory, finds no candidate, and repeats this after pauses that grow. Each measurement
//! starts a new daemon, because one that has run for a while has long pauses. It is a dry run:
//! there is nothing to free, and other processes stay untouched.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use hugepilot_stats::Rounds;
use serde_json::Value;

use super::arguments::Positional;
use super::pairs::{line, median};
use super::workload::Workload;
use super::yardstick::Yardstick;

/// Workloads that use all of their memory.
const WORKLOADS: [&str; 3] = ["gups", "pointer-chase", "stream"];
/// Measurements of 2 s whose median is one value.
const MEASUREMENTS: usize = 9;

/// `[PAIRS=10] [SIZE=1GiB] [WORKLOAD…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let words = Positional::read(args, (10, 1), "1GiB")?;
    let (count, size) = (words.count, words.size);
    println!("{size}; speed beside a daemon relative to alone; {count} pairs each");
    let mut all = Rounds::default();
    for name in words.chosen(&WORKLOADS, |name| name)? {
        let workload =
            Workload::start_stopped(hugepilot, &[name, "--pages", "thp", "--size", size])?;
        all.append(one(hugepilot, name, workload, count)?);
    }
    println!("all            {}", line(&all.ratios(1, 0)));
    Ok(())
}

/// Speeds alone and beside a daemon.
fn one(hugepilot: &Path, name: &str, mut workload: Workload, count: usize) -> Result<Rounds<f64>> {
    let mut yardstick = Yardstick::start(hugepilot)?;
    let (mut plans_made, mut candidates) = (0, 0);
    let speeds = Rounds::after_warm_up(2, count, |_, watched| -> Result<f64> {
        let daemon = (watched == 1).then(|| Daemon::start(hugepilot, yardstick.pid()));
        let daemon = daemon.transpose()?;
        let speeds = (0..MEASUREMENTS).map(|_| yardstick.measure(&mut workload));
        let speed = median(speeds.collect::<Result<Vec<_>>>()?);
        let plans = daemon.map_or(Ok(Vec::new()), Daemon::stop)?;
        plans_made += plans.len();
        candidates += plans.iter().filter_map(|plan| plan["candidates"].as_u64()).sum::<u64>();
        Ok(speed)
    })?;
    let ratios = line(&speeds.ratios(1, 0));
    println!("{name:<14} {ratios}; {plans_made} plans, {candidates} huge pages to split");
    Ok(speeds)
}

/// Daemon that is killed on drop.
struct Daemon(Child);

impl Daemon {
    /// Starts a daemon that protects process `spared`.
    fn start(hugepilot: &Path, spared: &str) -> Result<Self> {
        let always = ["daemon", "--dry-run", "--high", "2%", "--low", "1%", "--critical", "100%"];
        let mut command = Command::new(hugepilot);
        command
            .args(always)
            .args(["--protect", spared])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(Self(command.stderr(Stdio::null()).spawn().context("cannot start the daemon")?))
    }

    /// Ends the daemon and returns its plans.
    fn stop(mut self) -> Result<Vec<Value>> {
        let done = Command::new("kill").arg(self.0.id().to_string()).status()?;
        ensure!(done.success(), "kill: {done}");
        let mut text = String::new();
        self.0.stdout.take().context("stdout is piped")?.read_to_string(&mut text)?;
        self.0.wait()?;
        let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line["event"] == "planned").collect())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
