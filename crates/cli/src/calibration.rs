//! The calibration kept for this machine, and what follows from it.

use std::path::PathBuf;

use clap::ValueEnum;
use hugepilot_kernel::{Root, cpu};
use hugepilot_policy::{Calibration, CalibrationPoint};
use hugepilot_profiler::calibrate::{MachineCalibration, Point};
use hugepilot_units::Nanos;

use crate::output::Progress;

/// Whether to measure this machine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalibrationMode {
    /// Use the kept one; measure where there is none (a few seconds, once per machine)
    Auto,
    /// Measure anew and keep it
    Force,
    /// Predict nothing
    Off,
}

/// Whether a new calibration may be written to the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    /// For `--dry-run`, which changes nothing.
    No,
}

impl Keep {
    pub(crate) fn unless(dry_run: bool) -> Self {
        if dry_run { Self::No } else { Self::Yes }
    }
}

/// What sampling and prediction need to know of this machine.
pub(crate) struct Machine {
    /// What huge pages save.
    pub(crate) calibration: Calibration,
    /// What one sample costs the target; zero where that is not known.
    pub(crate) sample_cost: Nanos,
    /// Base pages that the TLB holds.
    pub(crate) tlb_entries: u32,
}

impl Machine {
    /// Not measured: for whoever does not sample.
    pub(crate) fn unknown() -> Self {
        Self {
            calibration: Calibration::default(),
            sample_cost: Nanos::ZERO,
            tlb_entries: DEFAULT_TLB_ENTRIES,
        }
    }

    /// MachineCalibration, where `mode` allows.
    pub(crate) fn get(mode: CalibrationMode, keep: Keep, progress: &Progress) -> Self {
        let measured = get(mode, keep, progress);
        let point = |point: Point| CalibrationPoint {
            hot: point.hot_bytes,
            chase_ratio: point.chase_ratio,
            gather_ratio: point.gather_ratio,
        };
        let sample_cost = measured.as_ref().map_or(Nanos::ZERO, |measured| measured.sample_cost_ns);
        let points = measured.map(|measured| measured.points).unwrap_or_default();
        Self {
            calibration: Calibration(points.into_iter().map(point).collect()),
            sample_cost,
            tlb_entries: cpu::read(&Root::live())
                .map_or(DEFAULT_TLB_ENTRIES, |cpu| cpu::tlb(&cpu).l2_4k_entries),
        }
    }

    /// The rate at which sampling costs the target 0.5 % of its time: seen from the target it can be twice what was measured, so there is a most.
    pub(crate) fn affordable_rate(&self) -> u32 {
        /// Where the cost is not known.
        const USUAL: u32 = 500;
        let per_second = 5_000_000_u64.checked_div(self.sample_cost.get());
        per_second.map_or(USUAL, |hz| u32::try_from(hz).unwrap_or(USUAL).clamp(100, 500))
    }
}

/// Where the processor says nothing of itself: Skylake's, the smallest of the last ten years' servers.
const DEFAULT_TLB_ENTRIES: u32 = 1536;

/// The kept calibration of this machine, or a new one. `None` when none is wanted or none can be made; then nothing is
/// predicted, which the report says.
fn get(mode: CalibrationMode, keep: Keep, progress: &Progress) -> Option<MachineCalibration> {
    if mode == CalibrationMode::Off {
        // What sampling costs the target is always told; that takes half a second.
        let sample_cost_ns = hugepilot_profiler::sample_cost().ok()?;
        return Some(MachineCalibration {
            machine: String::new(),
            points: Vec::new(),
            sample_cost_ns,
        });
    }
    let directory = directory();
    let machine = MachineCalibration::machine(&Root::live());
    let kept =
        directory.as_ref().and_then(|directory| MachineCalibration::load(directory, &machine));
    if kept.is_some() && mode == CalibrationMode::Auto {
        return kept;
    }
    let often = if keep == Keep::Yes { ", once" } else { "" };
    progress
        .keep(&format!("measuring what huge pages save on this machine (a few seconds{often})"));
    let measured =
        MachineCalibration::measure(|hot| progress.now(format!("calibrating at {hot}"))).ok()?;
    if let Some(directory) = directory.filter(|_| keep == Keep::Yes)
        && let Err(error) = measured.save(&directory)
    {
        progress.keep(&format!("note: the calibration is not kept for the next run: {error}"));
    }
    Some(measured)
}

/// `$XDG_CACHE_HOME/hugepilot`, by default `~/.cache/hugepilot`.
fn directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)?;
    Some(cache.join("hugepilot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_cost() {
        let rate = |cost| {
            let sample_cost = Nanos::new(cost);
            Machine { calibration: Calibration::default(), sample_cost, tlb_entries: 1536 }
                .affordable_rate()
        };
        assert_eq!([14_000, 2_000, 1_000_000, 0].map(rate), [357, 500, 100, 500]);
    }
}
