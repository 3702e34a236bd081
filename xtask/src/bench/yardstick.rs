//! Reference workload: the speed of a workload relative to another one on the same CPU.
//!
//! The speed of a virtual CPU varies within seconds by more than most effects. So both workloads
//! run in short intervals on one CPU, and the result is the ratio within each pair of intervals. It
//! is repeatable within 5 % where the speed alone varies by 15 %.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hugepilot_stats::{Orders, Rounds};

use super::workload::Workload;

/// Intervals of each workload per measurement.
const INTERVALS: usize = 10;
/// Time until caches are warm.
const SETTLE: Duration = Duration::from_millis(40);
const INTERVAL: Duration = Duration::from_millis(60);

/// Random updates of memory that has no bloat and stays on huge pages.
const ARGS: [&str; 7] = ["random-access", "--bloat", "0", "--size", "1GiB", "--pages", "thp"];

/// Reference workload, stopped between measurements.
pub(super) struct Yardstick(Workload);

impl Yardstick {
    pub(super) fn start(hugepilot: &Path) -> Result<Self> {
        let workload = Workload::start_stopped(hugepilot, &ARGS)?;
        Ok(Self(workload))
    }

    /// Pid of the workload.
    pub(super) fn pid(&self) -> &str {
        &self.0.pid
    }

    /// Speed of a stopped workload relative to the reference. Takes 2 s.
    pub(super) fn measure(&mut self, workload: &mut Workload) -> Result<f64> {
        let mut both = [&mut self.0, workload];
        let mut speeds = Rounds::default();
        for order in Orders::rotated(2).take(INTERVALS) {
            speeds.measure(order, |which| both[which].rate_stopped(SETTLE, INTERVAL))?;
        }
        speeds.ratios(1, 0).median().context("no intervals")
    }
}
