//! Two equal workloads in alternating slices, of which one is observed by hugepilot.

use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hugepilot_stats::{Orders, Rounds};
use hugepilot_units::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::super::cpu;
use super::super::workload::Workload;
use crate::status::resident;

/// Time for hugepilot to attach, while its workload runs.
const ATTACH: Duration = Duration::from_millis(800);
/// Time at the start of a slice that does not count: caches are cold.
const SETTLE: Duration = Duration::from_millis(40);
/// Time of a slice that counts.
const SLICE: Duration = Duration::from_millis(160);
/// Slices of each workload while one of them is observed.
const SLICES: usize = 20;
const MIB: f64 = Bytes::mib(1).as_f64();

/// Two equal workloads on one CPU, of which at most one runs.
pub(super) struct Twins {
    workloads: [Workload; 2],
    orders: Orders,
}

/// Results of a time in which the first was observed, and of one in which the second was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crossing {
    /// Speed of the observed workload over that of the other one, medians of the slices.
    pub(super) ratios: [f64; 2],
    /// CPU time of hugepilot, per time that it ran.
    pub(super) cores: f64,
    /// Its peak memory.
    pub(super) peak_mib: f64,
}

impl Crossing {
    /// Speed of an observed workload over that alone. How much faster one of them is by itself
    /// multiplies one ratio and divides the other.
    pub(super) fn ratio(&self) -> f64 {
        (self.ratios[0] * self.ratios[1]).sqrt()
    }
}

impl Twins {
    /// Takes two workloads that are stopped.
    pub(super) fn new(workloads: [Workload; 2]) -> Result<Self> {
        Workload::age(&workloads)?;
        Ok(Self { workloads, orders: Orders::random(2, 1) })
    }

    /// Observes each of the two in turn. `observer` starts hugepilot for a process.
    pub(super) fn cross(&mut self, observer: &dyn Fn(&str) -> Result<Child>) -> Result<Crossing> {
        let (mut ratios, mut cores, mut peak_mib) = ([0.0; 2], 0.0, 0.0_f64);
        for observed in [0, 1] {
            let workload = &self.workloads[observed];
            let hugepilot = Observer(observer(&workload.pid)?);
            workload.signal("CONT")?;
            std::thread::sleep(ATTACH);
            hugepilot.signal(Signal::STOP)?;
            workload.signal("STOP")?;
            let begun = hugepilot.cpu_seconds()?;
            let (ratio, ran) = self.alternate(observed, &hugepilot)?;
            ratios[observed] = ratio;
            cores += (hugepilot.cpu_seconds()? - begun) / ran / 2.0;
            peak_mib = peak_mib.max(Bytes::new(resident(hugepilot.0.id()).1).as_f64() / MIB);
        }
        Ok(Crossing { ratios, cores, peak_mib })
    }

    /// Lets both run in slices, in a random order in each pair. Returns the ratio of their speeds,
    /// and the seconds that hugepilot ran.
    fn alternate(&mut self, observed: usize, hugepilot: &Observer) -> Result<(f64, f64)> {
        let (mut rates, mut ran) = (Rounds::default(), Duration::ZERO);
        for order in self.orders.by_ref().take(SLICES) {
            rates.measure(order, |index| -> Result<f64> {
                let workload = &mut self.workloads[index];
                workload.signal("CONT")?;
                workload.skip(SETTLE)?;
                let begun = Instant::now();
                // hugepilot runs in the part that counts only. It reads what was due meanwhile at
                // its start, which makes the cost larger.
                if index == observed {
                    hugepilot.signal(Signal::CONT)?;
                }
                let rate = workload.mean_rate(SLICE)?;
                if index == observed {
                    hugepilot.signal(Signal::STOP)?;
                    ran += begun.elapsed();
                }
                workload.signal("STOP")?;
                Ok(rate)
            })?;
        }
        let ratio = rates.ratios(observed, 1 - observed).median().context("no slices")?;
        Ok((ratio, ran.as_secs_f64()))
    }

    /// Lets the first run on, and returns its pid.
    pub(super) fn proceed(&self) -> Result<&str> {
        self.workloads[0].signal("CONT")?;
        Ok(&self.workloads[0].pid)
    }
}

/// Running hugepilot, killed on drop.
struct Observer(Child);

impl Observer {
    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.0), signal).context("hugepilot ended")
    }
    fn cpu_seconds(&self) -> Result<f64> {
        cpu::of_threads(self.0.id()).context("hugepilot ended")
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_stats::Ratios;

    use super::super::super::pairs::line;
    use super::*;

    /// The first workload is 5 % faster by itself, the machine drifts, and observation costs 1 %.
    #[test]
    fn what_makes_one_workload_faster_is_not_a_cost() {
        let crossing = |at: u32| {
            let noise = 1.0 + f64::from(at % 5) / 1000.0 - 0.002;
            Crossing { ratios: [0.99 * 1.05 * noise, 0.99 / 1.05], cores: 0.0, peak_mib: 0.0 }
        };
        assert!((crossing(2).ratio() - 0.99).abs() < 1e-9);
        let ratios = Ratios::of((0..20).map(|at| crossing(at).ratio()));
        let expected =
            "median 0.9900 (95 % certain: 0.9895 to 0.9905), from 0.9890 to 0.9910, 20 pairs";
        assert_eq!(line(&ratios), expected);
    }
}
