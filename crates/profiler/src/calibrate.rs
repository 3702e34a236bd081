//! Calibration: the saving by huge pages on this machine, for random accesses.
//!
//! Base pages and huge pages are measured interleaved, so that the noise of a shared machine
//! affects both. Takes one to a few seconds and at most 2 GiB, once per machine: the caller stores
//! the result ([`MachineCalibration::save`]).

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use hugepilot_kernel::memory::{mem_info, page_sizes};
use hugepilot_kernel::{AnonMap, KernelError, Pages, Root};
use hugepilot_stats::median;
use hugepilot_units::{Bytes, Nanos, PageSizes};
use serde::{Deserialize, Serialize};

use crate::stored;

/// Sizes of the hot set that are calibrated.
const SIZES: [Bytes; 4] = [Bytes::mib(16), Bytes::mib(64), Bytes::mib(256), Bytes::gib(1)];
const PAIRS: usize = 5;
/// Memory that stays free during calibration.
const RESERVE: Bytes = Bytes::gib(2);
/// Words per cache line. One is used, so that every access can miss.
const WORDS_PER_LINE: usize = 8;
const STEPS: usize = 400_000;
/// File that stores a calibration.
const FILE: &str = "calibration.json";
/// Largest plausible cost of a sample.
const MAX_SAMPLE_COST: Nanos = Nanos::millis(10);

/// Ratios at one size of the hot set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Memory accessed at random.
    pub hot_bytes: Bytes,
    /// Time on huge pages over time on base pages for dependent loads; median of pairs.
    pub chase_ratio: f64,
    /// Time on huge pages over time on base pages for independent loads; median of pairs.
    pub gather_ratio: f64,
}

/// Calibration of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineCalibration {
    /// The machine, as in [`MachineCalibration::machine`]; other machines do not use it.
    pub machine: String,
    /// Points ordered by size.
    pub points: Vec<Point>,
    /// Cost of one sample of the CPU clock for the sampled thread.
    pub sample_cost_ns: Nanos,
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
    /// user wrote it, or if a value is out of range.
    pub fn load(directory: &Path, machine: &str) -> Option<Self> {
        let measured: Self = stored::read(directory, FILE)?;
        (measured.machine == machine && measured.is_plausible()).then_some(measured)
    }

    /// Writes the calibration into `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// `PermissionDenied` if the directory, or one of its parents, belongs to another user; errors
    /// of `open` and `write`.
    pub fn save(&self, directory: &Path) -> std::io::Result<()> {
        stored::write(directory, FILE, self)
    }

    /// Whether a measurement can have given these values.
    fn is_plausible(&self) -> bool {
        let ratio = |ratio: f64| (0.01..=100.0).contains(&ratio);
        let point = |point: &Point| {
            SIZES.contains(&point.hot_bytes)
                && ratio(point.chase_ratio)
                && ratio(point.gather_ratio)
        };
        (1..=SIZES.len()).contains(&self.points.len())
            && self.points.iter().all(point)
            && self.sample_cost_ns <= MAX_SAMPLE_COST
    }

    /// Measures every size that fits into memory, calling `progress` before each. Sizes without
    /// available huge pages are skipped: comparing base pages with base pages would show no gain.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn measure(progress: impl Fn(Bytes)) -> Result<Self, KernelError> {
        let root = Root::live();
        let sizes = page_sizes(&root)?;
        let available = mem_info(&root)?.available;
        let fits = |hot: &Bytes| available > hot.times(2) + RESERVE;
        let points = SIZES
            .into_iter()
            .filter(fits)
            .inspect(|&hot| progress(hot))
            .filter_map(|hot| point(hot, sizes));
        Ok(Self {
            machine: Self::machine(&root),
            points: points.collect(),
            sample_cost_ns: crate::sample_cost().unwrap_or_default(),
        })
    }
}

fn point(hot: Bytes, sizes: PageSizes) -> Option<Point> {
    let mut base = AnonMap::new(hot, Pages::Base, sizes).ok()?;
    let mut huge = AnonMap::new(hot, Pages::Huge, sizes).ok()?;
    link(base.words_mut());
    link(huge.words_mut());
    // Collapse works also if THP is off; without free huge pages there is nothing to compare.
    huge.collapse(huge.range()).ok()?;
    let ratio = |walk: fn(&[u64]) -> u64| {
        let pair =
            |_| time(walk, huge.words()).as_seconds() / time(walk, base.words()).as_seconds();
        median((0..PAIRS).map(pair)).unwrap_or(1.0)
    };
    Some(Point { hot_bytes: hot, chase_ratio: ratio(chase), gather_ratio: ratio(gather) })
}

/// Links all lines into one cycle of full length (a linear congruential sequence modulo a power of
/// two, Knuth 3.2.1.2), in one pass in address order, as fast as the first touch.
fn link(words: &mut [u64]) {
    let lines = (words.len() / WORDS_PER_LINE) as u64;
    debug_assert!(lines.is_power_of_two());
    for line in 0..lines {
        let next = line.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
            & (lines - 1);
        words[usize::try_from(line).unwrap_or(0) * WORDS_PER_LINE] = next * WORDS_PER_LINE as u64;
    }
}

fn time(walk: fn(&[u64]) -> u64, words: &[u64]) -> Nanos {
    let start = Instant::now();
    black_box(walk(words));
    start.elapsed().into()
}

/// Walks the cycle: each load yields the address of the next.
#[allow(clippy::cast_possible_truncation)]
fn chase(words: &[u64]) -> u64 {
    let mut at = 0;
    for _ in 0..STEPS {
        at = words[at as usize];
    }
    at
}

/// Sums words at computed addresses, so that many loads overlap.
#[allow(clippy::cast_possible_truncation)]
fn gather(words: &[u64]) -> u64 {
    let mask = words.len() - 1;
    let (mut state, mut sum) = (88_172_645_463_325_252_u64, 0_u64);
    for _ in 0..STEPS * 4 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum = sum.wrapping_add(words[state as usize & mask]);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        let mut words = vec![0_u64; 1024 * WORDS_PER_LINE];
        link(&mut words);
        let mut visited = vec![false; 1024];
        let mut at = 0;
        for _ in 0..1024 {
            at = usize::try_from(words[at]).unwrap();
            assert!(!std::mem::replace(&mut visited[at / WORDS_PER_LINE], true));
        }
        assert_eq!(at, 0, "the cycle closes");
    }

    #[test]
    fn calibrations_of_other_machines_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot");
        let point = Point { hot_bytes: Bytes::mib(64), chase_ratio: 0.8, gather_ratio: 0.5 };
        let stored = MachineCalibration {
            machine: "A".into(),
            points: vec![point],
            sample_cost_ns: Nanos::new(9_000),
        };
        stored.save(&path).unwrap();
        assert_eq!(MachineCalibration::load(&path, "A"), Some(stored));
        assert_eq!(MachineCalibration::load(&path, "B"), None);
        std::fs::write(path.join(FILE), b"{ torn").unwrap();
        assert_eq!(MachineCalibration::load(&path, "A"), None);
    }

    #[test]
    fn impossible_values_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hugepilot");
        let point = Point { hot_bytes: Bytes::mib(64), chase_ratio: 0.8, gather_ratio: 0.5 };
        let whole = MachineCalibration {
            machine: "A".into(),
            points: vec![point],
            sample_cost_ns: Nanos::new(9_000),
        };
        let loads = |measured: &MachineCalibration| {
            measured.save(&path).unwrap();
            MachineCalibration::load(&path, "A").is_some()
        };
        assert!(loads(&whole));
        for point in [
            Point { chase_ratio: -0.8, ..point },
            Point { gather_ratio: 1e300, ..point },
            Point { hot_bytes: Bytes::MAX, ..point },
        ] {
            let changed = MachineCalibration { points: vec![point], ..whole.clone() };
            assert!(!loads(&changed), "{point:?}");
        }
        assert!(!loads(&MachineCalibration { points: Vec::new(), ..whole.clone() }));
        assert!(!loads(&MachineCalibration { points: vec![point; 5], ..whole.clone() }));
        assert!(!loads(&MachineCalibration { sample_cost_ns: Nanos::seconds(1), ..whole.clone() }));
    }
}
