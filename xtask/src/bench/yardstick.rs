//! How fast a program is, measured by a small one beside it.
//!
//! A shared machine wanders by tens of percent within seconds, and each of its processors by itself. So both take short turns on
//! one processor, and what counts is the ratio within a turn. It is repeatable within 5 % where the speed alone is not within
//! 15 %.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::pairs::median;
use super::workload::Workload;

const TURNS: usize = 10;
/// Caches are warm after that.
const SETTLE: Duration = Duration::from_millis(40);
const STRETCH: Duration = Duration::from_millis(60);

/// Random updates of memory that has no bloat and stays on huge pages.
const ARGS: [&str; 7] = ["random-access", "--bloat", "0", "--size", "1GiB", "--pages", "thp"];

/// The program to measure by, standing still between measurements.
pub(super) struct Yardstick(Workload);

impl Yardstick {
    pub(super) fn start(hugepilot: &Path) -> Result<Self> {
        let workload = Workload::start_still(hugepilot, &ARGS)?;
        Ok(Self(workload))
    }

    /// Its process.
    pub(super) fn pid(&self) -> &str {
        &self.0.pid
    }

    /// The speed of `workload`, which stands still before and after. 2 s.
    pub(super) fn measure(&mut self, workload: &mut Workload) -> Result<f64> {
        let turn = |_| {
            let ours = workload.rate_in_turn(SETTLE, STRETCH)?;
            Ok(ours / self.0.rate_in_turn(SETTLE, STRETCH)?)
        };
        let ratios = (0..TURNS).map(turn).collect::<Result<Vec<f64>>>()?;
        Ok(median(&ratios))
    }
}
