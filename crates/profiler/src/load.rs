//! Load of the machine beside the targets, as the kernel counts it.

use std::rc::Rc;

use hugepilot_kernel::system::SystemMeter;
use hugepilot_kernel::{Process, Root};
use hugepilot_policy::LoadReading;
use hugepilot_record::Pid;
use hugepilot_units::Nanos;

/// Time between two readings, of 0.1 ms each.
const EVERY: Nanos = Nanos::millis(250);
/// Most readings that are stored; if there are more, the oldest of the second half go.
const MAX_READINGS: usize = 2048;

/// Reader of the load: all readings so far.
#[derive(Debug)]
pub struct LoadReader {
    meter: SystemMeter,
    targets: Vec<Rc<Process>>,
    /// This process.
    own: Option<Process>,
    readings: Vec<LoadReading>,
}

impl LoadReader {
    /// Makes a reader of the load beside `targets`, with the first reading.
    pub fn new(root: &Root, targets: Vec<Rc<Process>>, now: Nanos) -> Self {
        let own = i32::try_from(std::process::id()).ok();
        let own = own.and_then(|pid| Process::open(root, Pid(pid)).ok());
        let meter = SystemMeter::open(root);
        let mut reader = Self { meter, targets, own, readings: Vec::new() };
        reader.poll(now);
        reader
    }

    /// Reads the load, if a reading is due.
    pub fn poll(&mut self, now: Nanos) {
        if self.readings.last().is_some_and(|last| now < last.time + EVERY) {
            return;
        }
        let Some(reading) = self.read(now) else { return };
        if self.readings.len() >= MAX_READINGS {
            self.readings.remove(MAX_READINGS / 2);
        }
        self.readings.push(reading);
    }

    /// The readings so far.
    pub fn readings(&self) -> &[LoadReading] {
        &self.readings
    }

    /// `None` if a target has ended: its CPU time would count as that of others.
    fn read(&mut self, time: Nanos) -> Option<LoadReading> {
        let cpu = self.meter.read().cpu?;
        let mut own = self.targets.iter().map(|target| &**target).chain(&self.own);
        let add = |sum: Nanos, process: &Process| Some(sum + process.cpu_time().ok()?);
        let own = own.try_fold(Nanos::ZERO, add)?;
        Some(LoadReading { time, busy: cpu.user + cpu.system, stolen: cpu.steal, own })
    }
}
