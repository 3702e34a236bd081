//! Calibration: the saving by huge pages on this machine, for random accesses.
//!
//! A measurement takes up to 20 s, and memory that other programs may need, so the caller runs it
//! in a process of its own and stores the result ([`MachineCalibration::save`]). A calibration is
//! refused if it cannot be right ([`Measurement::flaw`]), and measured again when it is old, when a
//! trial contradicts it, or when memory allows sizes that it omits.

use std::fmt;
use std::path::Path;

use hugepilot_kernel::memory::mem_info;
use hugepilot_kernel::{OwnMemory, Root};
use hugepilot_stats::Spread;
use hugepilot_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::stored;

/// Sizes of the hot set that are calibrated.
pub const SIZES: [Bytes; 4] = [Bytes::mib(16), Bytes::mib(64), Bytes::mib(256), Bytes::gib(1)];
/// Memory of the measuring process beside its two hot sets.
const BESIDE: Bytes = Bytes::mib(16);
/// File that stores a calibration.
const FILE: &str = "calibration.json";
/// Largest plausible cost of a sample.
const MAX_SAMPLE_COST: Nanos = Nanos::millis(10);
/// Difference of ratios that the pairs of one measurement do not show: between two runs on an idle
/// machine, medians differ by up to 0.04.
const TOLERANCE: f64 = 0.05;
/// Share of the time used or wanted that the hypervisor may have taken.
const MAX_STEAL: f64 = 0.1;
/// Age in seconds at which a calibration is measured again: 30 days.
const MAX_AGE: u64 = 30 * 24 * 3600;

/// Ratios at one size of the hot set: time on huge pages over time on base pages, of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Memory accessed at random.
    pub hot_bytes: Bytes,
    /// Ratio for dependent loads.
    pub chase_ratio: Spread,
    /// Ratio for independent loads.
    pub gather_ratio: Spread,
}

/// Size that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Size of the hot set.
    pub hot_bytes: Bytes,
    /// Cause.
    #[serde(flatten)]
    pub cause: LeftOutCause,
}

/// Cause for which a size was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum LeftOutCause {
    /// This process may not take the memory.
    Memory {
        /// Memory that was available, as text.
        available: String,
    },
    /// The kernel has no free huge pages: base pages would be compared with base pages.
    NoHugePages,
}

/// Measured points, and the state of the machine meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Points ordered by size.
    pub points: Vec<Point>,
    /// Sizes without a point.
    pub left_out: Vec<LeftOut>,
    /// End of the measurement, in seconds since 1970.
    pub measured_unix_seconds: u64,
    /// Load average of a minute at the end.
    pub load_average: f64,
    /// Time that the hypervisor took, over the time that this machine used or wanted.
    pub steal_ratio: f64,
}

/// Property that a right measurement cannot have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flaw {
    /// The hypervisor took much of the time.
    Steal {
        /// Share that it took.
        steal_ratio: f64,
    },
    /// Huge pages were slower than base pages in each pair.
    Slower {
        /// Size of the hot set.
        hot: Bytes,
        /// Median ratio.
        ratio: f64,
    },
    /// Huge pages save less for much memory than for little.
    NotMonotone {
        /// Smaller size of the hot set, with its median ratio.
        small: (Bytes, f64),
        /// Larger size, with its higher ratio.
        large: (Bytes, f64),
    },
}

/// Calibration of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineCalibration {
    /// The machine, as in [`MachineCalibration::machine`]; other machines do not use it.
    pub machine: String,
    /// Cost of one sample of the CPU clock for the sampled thread.
    pub sample_cost_ns: Nanos,
    /// Measured saving.
    pub measured: Measurement,
    /// Its agreement with trials.
    pub standing: Standing,
}

/// Agreement of a calibration with trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No trial contradicted it.
    Unchallenged,
    /// A trial contradicted it, so it is measured again.
    Contradicted,
    /// A trial contradicted it, and a second measurement agreed with it. The trial is then beyond
    /// the model.
    Confirmed,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Steal { steal_ratio } => {
                write!(f, "the hypervisor took {:.0} % of the CPU time", steal_ratio * 100.0)
            }
            Self::Slower { hot, ratio } => {
                write!(f, "for {hot}, huge pages took {ratio:.2} of the time of base pages")
            }
            Self::NotMonotone { small: (small, low), large: (large, high) } => write!(
                f,
                "huge pages took {low:.2} of the time for {small}, but {high:.2} for {large}"
            ),
        }
    }
}

impl Point {
    /// Ratios of both kinds of loads.
    fn ratios(&self) -> [Spread; 2] {
        [self.chase_ratio, self.gather_ratio]
    }
}

impl Measurement {
    /// Returns the property for which it cannot be right; `None` if it can be.
    pub fn flaw(&self) -> Option<Flaw> {
        if self.steal_ratio > MAX_STEAL {
            return Some(Flaw::Steal { steal_ratio: self.steal_ratio });
        }
        let slower = self.points.iter().find_map(|point| {
            let ratio = point.ratios().into_iter().find(|ratio| ratio.min > 1.0 + TOLERANCE)?;
            Some(Flaw::Slower { hot: point.hot_bytes, ratio: ratio.median })
        });
        slower.or_else(|| {
            self.points.iter().enumerate().find_map(|(index, large)| {
                self.points[..index].iter().find_map(|small| rise(small, large))
            })
        })
    }

    /// Whether all sizes that `memory` allows were measured, or omitted for another cause.
    pub fn is_complete(&self, memory: OwnMemory) -> bool {
        let fits_now = |left_out: &LeftOut| {
            matches!(left_out.cause, LeftOutCause::Memory { .. })
                && fits(left_out.hot_bytes, memory)
        };
        !self.left_out.iter().any(fits_now)
    }

    /// Whether the values are those of a measurement, not of a damaged file.
    fn is_possible(&self) -> bool {
        let ratio = |ratio: Spread| {
            let Spread { min, median, max } = ratio;
            0.01 <= min && min <= median && median <= max && max <= 100.0
        };
        let point = |point: &Point| {
            SIZES.contains(&point.hot_bytes) && point.ratios().into_iter().all(ratio)
        };
        (1..=SIZES.len()).contains(&self.points.len())
            && self.points.is_sorted_by(|a, b| a.hot_bytes < b.hot_bytes)
            && self.points.iter().all(point)
            && self.load_average >= 0.0
            && (0.0..=1.0).contains(&self.steal_ratio)
    }

    /// Whether both give the same ratios, within their spreads.
    fn agrees(&self, other: &Self) -> bool {
        let same = |a: &Point, b: &Point| {
            let close =
                |(a, b): (Spread, Spread)| a.min <= b.max + TOLERANCE && b.min <= a.max + TOLERANCE;
            a.ratios().into_iter().zip(b.ratios()).all(close)
        };
        let of = |hot| other.points.iter().find(|point| point.hot_bytes == hot);
        self.points.iter().all(|point| of(point.hot_bytes).is_none_or(|other| same(point, other)))
    }
}

/// Returns the flaw that the ratio of `large` exceeds that of `small` by more than their spreads.
fn rise(small: &Point, large: &Point) -> Option<Flaw> {
    let pairs = small.ratios().into_iter().zip(large.ratios());
    let mut rises = pairs.filter(|(small, large)| large.min > small.max + TOLERANCE);
    rises.next().map(|(low, high)| Flaw::NotMonotone {
        small: (small.hot_bytes, low.median),
        large: (large.hot_bytes, high.median),
    })
}

/// Whether `memory` allows the two hot sets of a size.
pub fn fits(hot: Bytes, memory: OwnMemory) -> bool {
    memory.room() >= hot.times(2) + BESIDE
}

/// Whether `memory` allows the smallest size.
pub fn is_possible(memory: OwnMemory) -> bool {
    SIZES.into_iter().any(|hot| fits(hot, memory))
}

/// Returns the memory that a measurement takes at most.
pub fn largest() -> Bytes {
    SIZES.into_iter().max().unwrap_or_default().times(2) + BESIDE
}

impl MachineCalibration {
    /// Returns a text that identifies the machine: CPU, kernel, memory.
    pub fn machine(root: &Root) -> String {
        let cpu = root.read_text("proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or("")
            .trim_start_matches([' ', '\t', ':']);
        let kernel = root.read_text("proc/sys/kernel/osrelease").unwrap_or_default();
        let memory = mem_info(root).map_or(Bytes::ZERO, |info| info.total);
        format!("{model}; Linux {kernel}; {memory}")
    }

    /// Reads the calibration in `directory`; `None` if there is none for this machine, if another
    /// user wrote it, if a value is out of range, or if it has a flaw.
    pub fn load(directory: &Path, machine: &str) -> Option<Self> {
        let stored: Self = stored::read(directory, FILE)?;
        let is_sound = stored.machine == machine
            && stored.sample_cost_ns <= MAX_SAMPLE_COST
            && stored.measured.is_possible()
            && stored.measured.flaw().is_none();
        is_sound.then_some(stored)
    }

    /// Writes the calibration into `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// `PermissionDenied` if the directory, or one of its parents, belongs to another user; errors
    /// of `open` and `write`.
    pub fn save(&self, directory: &Path) -> std::io::Result<()> {
        stored::write(directory, FILE, self)
    }

    /// Whether it may be used at `unix_seconds`: not after 30 days, and not once a trial
    /// contradicted it.
    pub fn is_trusted(&self, unix_seconds: u64) -> bool {
        // A clock that was set back makes the age unknown.
        let age = unix_seconds.checked_sub(self.measured.measured_unix_seconds);
        self.standing != Standing::Contradicted && age.is_some_and(|age| age <= MAX_AGE)
    }

    /// Notes that a trial contradicts it. Returns whether it has to be measured again.
    pub fn contradict(&mut self) -> bool {
        let is_new = self.standing == Standing::Unchallenged;
        if is_new {
            self.standing = Standing::Contradicted;
        }
        is_new
    }

    /// Takes the place of `before`, which this measurement repeats.
    pub fn replacing(mut self, before: Option<&Self>) -> Self {
        let is_doubted = |before: &&Self| before.standing != Standing::Unchallenged;
        if let Some(before) = before.filter(is_doubted)
            && self.measured.agrees(&before.measured)
        {
            self.standing = Standing::Confirmed;
        }
        self
    }
}

#[cfg(test)]
mod tests;
