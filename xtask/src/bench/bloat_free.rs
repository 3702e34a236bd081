//! Cost of debloating for programs without bloat: Figure 15 of EMD (ISMM'25).
//!
//! The watermarks are so low that memory always counts as short. The daemon samples the program and
//! reads its memory, finds no candidate, and repeats this after pauses that grow. Each measurement
//! starts a new daemon, because one that has run for a while has long pauses. It is a dry run:
//! there is nothing to free, and other processes stay untouched.

use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::pairs::{PairedStats, median, pairs};
use super::workload::Workload;
use super::yardstick::Yardstick;

/// Workloads that use all of their memory.
const WORKLOADS: [&str; 3] = ["gups", "pointer-chase", "stream"];
/// Measurements of 2 s whose median is one value.
const MEASUREMENTS: usize = 9;

/// `[PAIRS=10] [SIZE=1GiB] [WORKLOAD…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let count: usize =
        args.first().map_or(Ok(10), |text| text.parse()).context("PAIRS is a number")?;
    let size = args.get(1).unwrap_or(&"1GiB");
    let wanted = args.get(2..).filter(|some| !some.is_empty()).unwrap_or(&WORKLOADS);
    println!("{size}; speed beside a daemon relative to alone; {count} pairs each");
    let mut all = Vec::new();
    for name in wanted {
        ensure!(WORKLOADS.contains(name), "no workload {name:?}");
        let workload =
            Workload::start_stopped(hugepilot, &[name, "--pages", "thp", "--size", size])?;
        all.extend(one(hugepilot, name, workload, count)?.pairs);
    }
    println!("all            {}", PairedStats::of(all).line());
    Ok(())
}

fn one(hugepilot: &Path, name: &str, workload: Workload, count: usize) -> Result<PairedStats> {
    let yardstick = Yardstick::start(hugepilot)?;
    let spared = yardstick.pid().to_owned();
    let (yardstick, workload) = (RefCell::new(yardstick), RefCell::new(workload));
    let speed = || {
        let one = |_| {
            yardstick
                .borrow_mut()
                .measure(&mut workload.borrow_mut())
                .expect("the workload runs on")
        };
        median(&(0..MEASUREMENTS).map(one).collect::<Vec<f64>>())
    };
    let (mut plans_made, mut candidates) = (0, 0);
    let watched = || {
        let daemon = Daemon::start(hugepilot, &spared).expect("the daemon starts");
        let speed = speed();
        let plans = daemon.stop().expect("the daemon stops");
        plans_made += plans.len();
        candidates += plans.iter().filter_map(|plan| plan["candidates"].as_u64()).sum::<u64>();
        speed
    };
    let stats = pairs(count, speed, watched);
    println!("{name:<14} {}; {plans_made} plans, {candidates} huge pages to split", stats.line());
    Ok(stats)
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
