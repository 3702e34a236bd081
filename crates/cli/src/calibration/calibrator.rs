//! Calibration of this machine: stored by an earlier run, or measured in a child process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hugepilot_kernel::{OwnMemory, Root};
use hugepilot_profiler::calibrate::{
    LeftOut, LeftOutCause, MachineCalibration, Measurement, Point, Standing, is_possible,
};
use hugepilot_profiler::{sample_cost, stored_directory};
use hugepilot_units::Nanos;

use super::child::Measuring;
use super::{CalibrationMode, Keep};
use crate::output::Progress;

/// Time after which a daemon reads the stored calibration again, and measures if it grew old.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// Time after which it tries again to calibrate: memory may be free by then.
const UNKNOWN_FOR: Duration = Duration::from_secs(600);

/// Receives notes, a line each.
pub(super) type Say<'a> = &'a dyn Fn(&str);

/// Facts that a calibration has.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Measured points; none if there is no calibration.
    pub(super) points: Vec<Point>,
    /// Cost of a sample; zero if unknown.
    pub(super) sample_cost: Nanos,
}

/// Calibration that is made when it is first needed.
pub(super) struct Calibrator {
    mode: CalibrationMode,
    keep: Keep,
    directory: Option<PathBuf>,
    state: State,
    /// When the facts were last known.
    since: Instant,
}

enum State {
    Unknown,
    Measuring(Measuring),
    Known(Facts),
}

impl Calibrator {
    pub(super) fn new(mode: CalibrationMode, keep: Keep) -> Self {
        let (directory, state) = (stored_directory(), State::Unknown);
        Self { mode, keep, directory, state, since: Instant::now() }
    }

    /// Returns the facts. Measures them first if necessary, for up to 20 s.
    pub(super) fn get(self, progress: &Progress) -> Facts {
        let say = |line: &str| progress.keep(line);
        match self.begin(&say) {
            State::Measuring(measuring) => {
                let now = |hot| progress.now(format!("calibrating: {hot} of hot memory"));
                self.finish(measuring.wait(now), &say)
            }
            State::Known(facts) => facts,
            State::Unknown => Facts::default(),
        }
    }

    /// Returns the facts if they are known. The first call begins to measure them, and so does one
    /// long after.
    pub(super) fn poll(&mut self, say: Say<'_>) -> Option<Facts> {
        if self.is_due() {
            self.state = self.begin(say);
            self.since = Instant::now();
        }
        if let State::Measuring(measuring) = &mut self.state {
            let measured = measuring.poll()?;
            self.state = State::Known(self.finish(measured, say));
            self.since = Instant::now();
        }
        match &self.state {
            State::Known(facts) => Some(facts.clone()),
            _ => None,
        }
    }

    fn is_due(&self) -> bool {
        match &self.state {
            State::Unknown => true,
            State::Measuring(_) => false,
            State::Known(_) if self.mode != CalibrationMode::Auto => false,
            State::Known(facts) => {
                let limit = if facts.points.is_empty() { UNKNOWN_FOR } else { KNOWN_FOR };
                self.since.elapsed() > limit
            }
        }
    }

    /// Ends a measurement; the next call of [`Calibrator::poll`] begins again.
    pub(super) fn stop(&mut self) {
        if matches!(self.state, State::Measuring(_)) {
            self.state = State::Unknown;
        }
    }

    /// Reads the stored calibration, or begins to measure.
    fn begin(&self, say: Say<'_>) -> State {
        // Reports always have the cost of sampling. Measuring it takes half a second.
        let without = || State::Known(Facts::without_points());
        let memory = OwnMemory::read(&Root::live());
        match self.mode {
            CalibrationMode::Off => return without(),
            CalibrationMode::Auto => {
                let stored = self.directory.as_deref().and_then(load_trusted);
                if let Some(stored) = stored.filter(|one| one.measured.is_complete(memory)) {
                    return State::Known(Facts::of(stored));
                }
            }
            CalibrationMode::Force => {}
        }
        if !is_possible(memory) {
            not_calibrated(&memory.to_string(), say);
            return without();
        }
        let often = if self.is_kept() { ", once" } else { "" };
        say(&format!("calibrating: gain of huge pages on this machine (up to 20 s{often})"));
        Measuring::start().map_or_else(
            |error| {
                not_calibrated(&error.to_string(), say);
                without()
            },
            State::Measuring,
        )
    }

    /// Judges and stores what was measured.
    fn finish(&self, measured: Result<Measurement, String>, say: Say<'_>) -> Facts {
        match measured.and_then(judged) {
            Ok(measured) => self.store(measured, say),
            Err(cause) => {
                not_calibrated(&cause, say);
                Facts::without_points()
            }
        }
    }

    fn store(&self, measured: Measurement, say: Say<'_>) -> Facts {
        if !measured.left_out.is_empty() {
            say(&format!("note: calibrated without {}", sizes(&measured.left_out)));
        }
        let root = Root::live();
        let new = MachineCalibration {
            machine: MachineCalibration::machine(&root),
            sample_cost_ns: sample_cost().unwrap_or_default(),
            measured,
            standing: Standing::Unchallenged,
        };
        let before = self.directory.as_deref().and_then(load);
        let new = new.replacing(before.as_ref());
        if let Some(directory) = self.directory.as_deref().filter(|_| self.is_kept())
            && let Err(error) = new.save(directory)
        {
            say(&format!(
                "note: the calibration is not stored for the next run in {}: {error}",
                directory.display()
            ));
        }
        Facts::of(new)
    }

    fn is_kept(&self) -> bool {
        self.keep == Keep::Yes || self.mode == CalibrationMode::Force
    }
}

impl Facts {
    pub(super) fn of(calibration: MachineCalibration) -> Self {
        let MachineCalibration { measured, sample_cost_ns, .. } = calibration;
        Self { points: measured.points, sample_cost: sample_cost_ns }
    }

    fn without_points() -> Self {
        Self { points: Vec::new(), sample_cost: sample_cost().unwrap_or_default() }
    }
}

/// Returns the measurement if it can be right, else the cause.
fn judged(measured: Measurement) -> Result<Measurement, String> {
    if let Some(flaw) = measured.flaw() {
        let load = measured.load_average;
        return Err(format!("the machine is too busy: {flaw} (load average {load:.1})"));
    }
    if measured.points.is_empty() {
        return Err(sizes(&measured.left_out));
    }
    Ok(measured)
}

/// Lists the omitted sizes, with the cause of the first.
fn sizes(left_out: &[LeftOut]) -> String {
    let all: Vec<String> = left_out.iter().map(|one| one.hot_bytes.to_string()).collect();
    let cause = match left_out.first().map(|first| &first.cause) {
        Some(LeftOutCause::Memory { available }) => available,
        Some(LeftOutCause::NoHugePages) => "the kernel has no free huge pages",
        None => "no cause",
    };
    format!("{}: {cause}", all.join(", "))
}

fn not_calibrated(cause: &str, say: Say<'_>) {
    say(&format!("note: not calibrated, so the model predicts nothing: {cause}"));
}

/// Calibration of this machine in `directory`.
pub(super) fn load(directory: &Path) -> Option<MachineCalibration> {
    MachineCalibration::load(directory, &MachineCalibration::machine(&Root::live()))
}

/// The same, unless it has to be measured again.
pub(super) fn load_trusted(directory: &Path) -> Option<MachineCalibration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    load(directory).filter(|stored| stored.is_trusted(now))
}

#[cfg(test)]
mod tests {
    use hugepilot_units::Bytes;

    use super::*;

    fn measured(steal_ratio: f64) -> Measurement {
        let cause = LeftOutCause::Memory { available: "9MiB available".to_owned() };
        let left_out = [Bytes::mib(16), Bytes::mib(64)]
            .map(|hot_bytes| LeftOut { hot_bytes, cause: cause.clone() });
        Measurement {
            points: Vec::new(),
            left_out: left_out.to_vec(),
            measured_unix_seconds: 0,
            load_average: 7.26,
            steal_ratio,
        }
    }

    #[test]
    fn a_refused_measurement_has_its_cause() {
        assert_eq!(judged(measured(0.0)).unwrap_err(), "16MiB, 64MiB: 9MiB available");
        let busy = judged(measured(0.5)).unwrap_err();
        let cause = "the hypervisor took 50 % of the CPU time (load average 7.3)";
        assert_eq!(busy, format!("the machine is too busy: {cause}"));
    }
}
