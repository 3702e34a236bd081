//! Work of a process, as the kernel counts it: a metric for programs that report none.

use std::rc::Rc;

use hugepilot_kernel::perf::counters::Counters;
use hugepilot_kernel::proc::IoCounts;
use hugepilot_kernel::{KernelError, Process, access_error};
use hugepilot_reports::tune::{FoundMetric, NoMetric, WorkReading, find_metric};
use hugepilot_units::Nanos;

/// Shortest time between two readings.
const MIN_EVERY: Nanos = Nanos::millis(50);
/// Longest time between two readings.
const MAX_EVERY: Nanos = Nanos::millis(500);
/// Readings that are wanted in the first observation, which may end after half its time.
const READINGS: u64 = 16;
/// Most readings that are stored: three minutes of them with the usual observation.
const MAX_READINGS: usize = 1024;
/// Readings from the start that stay if there are more: those before the first promotion.
const FIRST_READINGS: usize = 256;

/// Reader of the work of a process: all readings so far.
pub struct WorkReader {
    process: Rc<Process>,
    counters: Option<Rc<Counters>>,
    every: Nanos,
    readings: Vec<WorkReading>,
    /// Cause why read and write calls cannot be read.
    no_io: Option<KernelError>,
}

impl WorkReader {
    /// Makes a reader with the first reading. `observe` is the longest time until the first
    /// decision: if it is short, so are the windows between readings.
    pub fn new(
        process: Rc<Process>,
        counters: Option<Rc<Counters>>,
        observe: Nanos,
        now: Nanos,
    ) -> Self {
        let every = Nanos::new(observe.get() / READINGS).clamp(MIN_EVERY, MAX_EVERY);
        let mut reader = Self { process, counters, every, readings: Vec::new(), no_io: None };
        reader.poll(now);
        reader
    }

    /// Reads the process, in some microseconds, if a reading is due.
    pub fn poll(&mut self, now: Nanos) {
        let is_due = self.readings.last().is_none_or(|last| now >= last.time + self.every);
        let Some(reading) = is_due.then(|| self.read(now)).flatten() else { return };
        if self.readings.len() >= MAX_READINGS {
            self.readings.remove(FIRST_READINGS);
        }
        self.readings.push(reading);
    }

    /// Finds a metric; see [`find_metric`].
    ///
    /// # Errors
    /// Cause why none was found.
    pub fn found(&self, first_act: Nanos, last_act: Nanos) -> Result<FoundMetric, NoMetric> {
        find_metric(&self.readings, first_act, last_act).map_err(|cause| {
            let no_io = self.no_io.as_ref().filter(|_| cause == NoMetric::FewEvents);
            no_io.map_or(cause, |error| NoMetric::Unreadable(access_error(error)))
        })
    }

    /// `None` if the process is gone.
    fn read(&mut self, time: Nanos) -> Option<WorkReading> {
        let io = self.io();
        let counted = self.counters.as_ref().map(|counters| counters.read());
        Some(WorkReading {
            time,
            cpu: self.process.cpu_time().ok()?,
            child_faults: self.process.stat().ok()?.child_faults,
            io_calls: io.map(|io| io.calls),
            io_bytes: io.map(|io| io.bytes),
            instructions: counted.and_then(|counted| counted.instructions),
        })
    }

    fn io(&mut self) -> Option<IoCounts> {
        if self.no_io.is_some() {
            return None;
        }
        self.process.io_counts().map_err(|error| self.no_io = Some(error)).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hugepilot_kernel::Root;
    use hugepilot_record::Pid;
    use hugepilot_reports::tune::Metric;

    use super::*;

    /// A captured process whose files can be changed.
    struct Captured(tempfile::TempDir);

    impl Captured {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let thp = root.path().join("sys/kernel/mm/transparent_hugepage");
            fs::create_dir_all(&thp).unwrap();
            fs::write(thp.join("hpage_pmd_size"), "2097152").unwrap();
            fs::create_dir_all(root.path().join("proc/7")).unwrap();
            let captured = Self(root);
            captured.set(0, 0);
            captured
        }

        fn set(&self, ticks: u64, calls: u64) {
            let process = self.0.path().join("proc/7");
            let rest = "1 ".repeat(36);
            let stat = format!("7 (db) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {rest}");
            fs::write(process.join("stat"), stat).unwrap();
            let bytes = 100 * calls;
            let io = format!("rchar: {bytes}\nwchar: 0\nsyscr: {calls}\nsyscw: 0\n");
            fs::write(process.join("io"), io).unwrap();
        }

        fn reader(&self, observe: Nanos) -> WorkReader {
            let process = Process::open(&Root::at(self.0.path()), Pid(7)).unwrap();
            WorkReader::new(Rc::new(process), None, observe, Nanos::ZERO)
        }
    }

    #[test]
    fn a_process_is_read_when_a_reading_is_due_and_its_metric_found() {
        let captured = Captured::new();
        let mut reader = captured.reader(Nanos::seconds(4));
        let (mut ticks, mut calls) = (0, 0);
        for step in 1..=200 {
            // Drained each 50 ms. After 4 s it makes a fifth more calls with the same CPU time.
            (ticks, calls) = (ticks + 4, calls + if step <= 80 { 1000 } else { 1200 });
            captured.set(ticks, calls);
            reader.poll(Nanos::millis(50 * step));
        }
        assert_eq!(reader.readings.len(), 41, "a quarter of a second apart");
        let found = reader.found(Nanos::seconds(4), Nanos::seconds(4)).unwrap();
        assert_eq!(
            (found.metric, found.before.len(), found.after.len()),
            (Metric::IoCalls, 16, 23)
        );
        let ratio = found.after[0] / found.before[0];
        assert!((ratio - 1.2).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn windows_are_short_if_the_observation_is() {
        let captured = Captured::new();
        for (observe, every) in [(0, 50), (500, 50), (4000, 250), (60_000, 500)] {
            assert_eq!(captured.reader(Nanos::millis(observe)).every, Nanos::millis(every));
        }
    }

    #[test]
    fn an_unreadable_process_has_a_cause_and_many_readings_stay_bounded() {
        let captured = Captured::new();
        fs::write(captured.0.path().join("proc/7/io"), "junk").unwrap();
        let mut reader = captured.reader(Nanos::ZERO);
        for step in 1..=2000_u64 {
            captured.set(10 * step, 0);
            reader.poll(Nanos::millis(100 * step));
        }
        assert_eq!(reader.readings.len(), MAX_READINGS);
        assert_eq!(reader.readings[FIRST_READINGS - 1].time, Nanos::millis(25_500));
        let found = reader.found(Nanos::seconds(9), Nanos::seconds(190));
        let Err(NoMetric::Unreadable(cause)) = found else { panic!("{found:?}") };
        assert!(cause.error.contains("io"), "{cause:?}");
        fs::remove_file(captured.0.path().join("proc/7/stat")).unwrap();
        reader.poll(Nanos::seconds(900));
        assert_eq!(reader.readings.last().unwrap().time, Nanos::seconds(200), "it is gone");
    }
}
