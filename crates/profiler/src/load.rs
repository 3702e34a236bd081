//! Load of the machine beside the targets, as the kernel counts it.

use std::rc::Rc;

use hugepilot_kernel::system::SystemMeter;
use hugepilot_kernel::{Process, Root};
use hugepilot_record::Pid;
use hugepilot_reports::tune::LoadReading;
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use hugepilot_kernel::clock;

    use super::*;

    /// A process that uses a CPU. Killed on drop.
    struct Busy(Child);

    impl Busy {
        fn start() -> (Self, Rc<Process>) {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            let busy = Self(command.spawn().unwrap());
            let pid = Pid(busy.0.id().cast_signed());
            // An exec is not over when spawn returns.
            let process = loop {
                if let Ok(process) = Process::open(&Root::live(), pid) {
                    break process;
                }
            };
            (busy, Rc::new(process))
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// CPU time of others between two readings, while `process` uses half a second.
    fn others_while_busy(reader: &mut LoadReader, process: &Process) -> Nanos {
        reader.readings.clear();
        reader.poll(clock::monotonic());
        let begun = process.cpu_time().unwrap();
        while process.cpu_time().unwrap() - begun < Nanos::millis(500) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        reader.poll(clock::monotonic() + EVERY);
        let [first, .., last] = reader.readings() else { panic!("{reader:?}") };
        (last.busy - first.busy) - (last.own - first.own)
    }

    #[test]
    fn the_cpu_time_of_a_neighbour_is_that_of_others_and_that_of_a_target_is_not() {
        let (_busy, process) = Busy::start();
        let mut beside = LoadReader::new(&Root::live(), Vec::new(), Nanos::ZERO);
        let others = others_while_busy(&mut beside, &process);
        assert!(others >= Nanos::millis(400), "{others:?}");
        // The load of the rest of the machine is in both, so only the difference of the counts of
        // the target shows.
        let mut target = LoadReader::new(&Root::live(), vec![process.clone()], Nanos::ZERO);
        others_while_busy(&mut target, &process);
        let [first, .., last] = target.readings() else { panic!("{target:?}") };
        assert!(last.own - first.own >= Nanos::millis(490), "{target:?}");
    }

    #[test]
    fn without_a_target_there_is_no_reading() {
        let (busy, process) = Busy::start();
        let mut reader = LoadReader::new(&Root::live(), vec![process], Nanos::ZERO);
        assert_eq!(reader.readings().len(), 1);
        drop(busy);
        reader.poll(EVERY);
        assert_eq!(reader.readings().len(), 1, "its time would be that of others");
    }

    #[test]
    fn readings_stay_bounded_and_keep_both_ends() {
        let mut reader = LoadReader::new(&Root::live(), Vec::new(), Nanos::ZERO);
        for step in 1..=3000 {
            reader.poll(Nanos::new(EVERY.get() * step));
        }
        let (first, last) = (reader.readings()[0].time, reader.readings().last().unwrap().time);
        assert_eq!((reader.readings().len(), first), (MAX_READINGS, Nanos::ZERO));
        assert_eq!(last, Nanos::new(EVERY.get() * 3000));
    }
}
