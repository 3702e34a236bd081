//! Calibration of this machine, kept between runs, and the sampling rate that follows from it.

mod calibrator;
pub(crate) mod child;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hugepilot_kernel::Root;
use hugepilot_policy::{Calibration, CalibrationPoint};
use hugepilot_profiler::calibrate::{MachineCalibration, Point};
use hugepilot_profiler::{TlbReach, stored_directory as directory, tlb_size};
use hugepilot_units::Nanos;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Progress, note};
use calibrator::{Calibrator, Facts};

/// Source of the calibration.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CalibrationMode {
    /// Stored calibration; measured if there is none, or it is old or contradicted (up to 20 s)
    Auto,
    /// Measure again and store it
    Force,
    /// No prediction
    Off,
}

/// Permission to store a new calibration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    /// Not stored, unless the user forces it: `--dry-run` changes nothing.
    No,
}

impl Keep {
    pub(crate) fn unless(dry_run: bool) -> Self {
        if dry_run { Self::No } else { Self::Yes }
    }
}

/// Facts about this machine for sampling and prediction.
pub(crate) struct Machine {
    /// Gain of huge pages by size of the hot memory.
    pub(crate) calibration: Calibration,
    /// Cost of one sample to the target; zero if unknown.
    pub(crate) sample_cost: Nanos,
    /// Base pages that the TLB holds.
    pub(crate) tlb_entries: u32,
}

impl Machine {
    /// Unknown facts, for commands that do not sample.
    pub(crate) fn unknown() -> Self {
        Self {
            calibration: Calibration::default(),
            sample_cost: Nanos::ZERO,
            tlb_entries: DEFAULT_TLB_ENTRIES,
        }
    }

    /// Facts as `mode` allows to measure them.
    pub(crate) fn get(mode: CalibrationMode, keep: Keep, progress: &Progress) -> Self {
        Self::of(Calibrator::new(mode, keep).get(progress))
    }

    /// Facts that an earlier run stored; the others are unknown.
    pub(crate) fn stored() -> Self {
        let stored = directory().as_deref().and_then(calibrator::load_trusted);
        Self::of(stored.map(Facts::of).unwrap_or_default())
    }

    fn of(facts: Facts) -> Self {
        let point = |point: Point| CalibrationPoint {
            hot: point.hot_bytes,
            chase_ratio: point.chase_ratio.median,
            gather_ratio: point.gather_ratio.median,
        };
        Self {
            calibration: Calibration(facts.points.into_iter().map(point).collect()),
            sample_cost: facts.sample_cost,
            tlb_entries: tlb_entries(directory().as_deref()),
        }
    }

    /// Rate at which sampling costs the target 0.5 % of its time, in samples per second; at most
    /// 500, as the cost can be twice the measured one.
    pub(crate) fn affordable_rate(&self) -> u32 {
        /// Rate if the cost is unknown.
        const USUAL: u32 = 500;
        let per_second = 5_000_000_u64.checked_div(self.sample_cost.get());
        per_second.map_or(USUAL, |hz| u32::try_from(hz).unwrap_or(USUAL).clamp(100, 500))
    }
}

/// Entries if the processor does not report its TLB: those of Skylake, the smallest of the last ten
/// years' servers.
const DEFAULT_TLB_ENTRIES: u32 = 1536;

/// Base pages that the TLB holds: as `lab tlb-sweep --store` measured, and stored in `directory`;
/// else by the table of CPUs.
fn tlb_entries(directory: Option<&Path>) -> u32 {
    tlb_size(&Root::live(), directory).map_or(DEFAULT_TLB_ENTRIES, |size| size.base_pages)
}

/// Stores how many base pages the TLB holds. Returns the file.
pub(crate) fn store_tlb(base_pages: u32) -> Result<PathBuf, Failure> {
    let failed = |place: &str, cause: String| {
        let help = "set XDG_CACHE_HOME to a directory of your own, by its absolute path".to_owned();
        Failure::new(format!("cannot store the size of the TLB{place}"), Exit::Error)
            .because(cause)
            .with_help([help])
    };
    let Some(directory) = directory() else {
        let cause = "neither XDG_CACHE_HOME nor HOME is an absolute path";
        return Err(failed("", cause.to_owned()));
    };
    let machine = MachineCalibration::machine(&Root::live());
    let saved = TlbReach { machine, base_pages }.save(&directory);
    saved.map_err(|cause| failed(&format!(" in {}", directory.display()), cause.to_string()))
}

/// Notes that a trial contradicts the stored calibration, so that the next run measures it again.
/// Returns whether it does.
pub(crate) fn contradict() -> bool {
    let Some(directory) = directory() else { return false };
    let stored = calibrator::load(&directory);
    stored.is_some_and(|mut stored| stored.contradict() && stored.save(&directory).is_ok())
}

/// Calibration of the daemon: measured when a process is in turn, while the daemon watches memory.
pub(crate) struct Background(RefCell<Calibrator>);

impl Background {
    pub(crate) fn new(mode: CalibrationMode, keep: Keep) -> Self {
        Self(RefCell::new(Calibrator::new(mode, keep)))
    }

    /// Returns the facts if they are known. The first call begins to measure them.
    pub(crate) fn poll(&self) -> Option<Machine> {
        self.0.borrow_mut().poll(&note).map(Machine::of)
    }

    /// Ends a measurement; the next call of [`Background::poll`] begins again.
    pub(crate) fn stop(&self) {
        self.0.borrow_mut().stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_size_of_the_tlb_precedes_that_of_the_table() {
        let directory = tempfile::tempdir().unwrap();
        let by_table = tlb_entries(None);
        assert_eq!(tlb_entries(Some(directory.path())), by_table);
        let machine = MachineCalibration::machine(&Root::live());
        let own = directory.path().join("hugepilot");
        TlbReach { machine, base_pages: by_table + 7 }.save(&own).unwrap();
        assert_eq!(tlb_entries(Some(&own)), by_table + 7);
    }

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
