//! Slices of the system.

use hugepilot_kernel::system::{SystemMeter, SystemUsage};
use hugepilot_kernel::{Root, thp};
use hugepilot_record::{Metric, MetricKind, MetricScope, Unit};
use hugepilot_recording::Slice;
use hugepilot_units::{Bytes, Nanos, PageSizes};

use super::metrics::{Row, SYSTEM, VMSTAT, metric};
use super::pace::{Clocks, Pace};
use super::source::MetricValues;
use super::system_events::SystemCounters;

/// Shortest slice of the files of the system, which take 0.2 ms to read. Events are read at each
/// slice.
const SHORTEST: Nanos = Nanos::millis(100);
/// Values of the files.
const FILES: usize = VMSTAT.len() + SYSTEM.len();

/// Metrics of the system.
pub(super) struct SystemSlices {
    meter: SystemMeter,
    root: Root,
    sizes: PageSizes,
    /// Values of the last reading.
    before: Vec<Option<u64>>,
    pace: Pace,
    /// Events of the whole system, if any are counted.
    counters: Option<SystemCounters>,
    /// When the events were last read.
    counted: Nanos,
}

impl SystemSlices {
    pub(super) fn new(root: &Root, sizes: PageSizes, every: Nanos, now: Nanos) -> Self {
        let (meter, root) = (SystemMeter::open(root), root.clone());
        let pace = Pace::new(every.max(SHORTEST), now);
        let before = Vec::new();
        let mut new = Self { meter, root, sizes, before, pace, counters: None, counted: now };
        new.before = new.read();
        new
    }

    /// Reads the values of the files: those of [`VMSTAT`], then those of [`SYSTEM`].
    fn read(&mut self) -> Vec<Option<u64>> {
        let usage = self.meter.read();
        let mut values: Vec<_> = VMSTAT.iter().map(|&(name, _)| usage.vmstat(name)).collect();
        values.extend(self.others(&usage));
        values
    }

    /// Returns the values of [`SYSTEM`], in its order.
    fn others(&self, usage: &SystemUsage) -> [Option<u64>; SYSTEM.len()] {
        let cpu = usage.cpu;
        [
            usage.stalled_some.map(Nanos::get),
            usage.stalled_full.map(Nanos::get),
            cpu.map(|cpu| cpu.user.get()),
            cpu.map(|cpu| cpu.system.get()),
            cpu.map(|cpu| cpu.idle.get()),
            cpu.map(|cpu| cpu.steal.get()),
            usage.free.map(Bytes::get),
            usage.available.map(Bytes::get),
            usage.thp.map(Bytes::get),
            usage.hugetlb_free,
            thp::smaller_large_pages(&self.root, self.sizes).map(Bytes::get),
            thp::mapped_in_part(&self.root, self.sizes),
        ]
    }

    /// Counts events of the whole system, too, in slices that begin now.
    pub(super) fn count(&mut self, counters: Option<SystemCounters>) {
        self.counters = counters;
        self.counters.iter_mut().for_each(SystemCounters::restart);
    }

    /// Returns the counters of events, without which it goes on.
    pub(super) fn take_counters(&mut self) -> Option<SystemCounters> {
        self.counters.take()
    }

    /// Returns the metrics; those that the first reading lacks are missing.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let files = rows().zip(&self.before).map(|(row, value)| {
            let (name, source) = (row.0, row.3);
            let missing = || format!("this kernel does not report {name} in {source}");
            metric(&row, MetricScope::System, value.is_none().then(missing))
        });
        let events = self.counters.iter().flat_map(SystemCounters::metrics);
        files.chain(events).collect()
    }

    /// Returns the slices that end at `now`: of the events, and of the files if that is due. Both
    /// are one if they have the same length.
    pub(super) fn slices(
        &mut self,
        now: Nanos,
        is_last: bool,
        clock: Clocks,
    ) -> impl Iterator<Item = Slice> {
        let MetricValues { values: events, groups } =
            self.counters.as_mut().map(SystemCounters::increase).unwrap_or_default();
        let (length, width) = (now - self.counted, events.len());
        self.counted = now;
        let slice = |length, values, groups| {
            let (pid, tid) = (None, None);
            Slice { time: now, length, pid, tid, values, groups }
        };
        let mut slices = vec![slice(length, [vec![None; FILES], events].concat(), groups)];
        if is_last || self.pace.is_due(now) {
            let (of_files, mut values) = self.files(now, clock);
            if of_files == length {
                slices[0].values[..FILES].copy_from_slice(&values);
            } else {
                values.resize(FILES + width, None);
                slices.push(slice(of_files, values, Vec::new()));
            }
        }
        let has_values = |slice: &Slice| slice.values.iter().any(Option::is_some);
        slices.into_iter().filter(move |slice| slice.length > Nanos::ZERO && has_values(slice))
    }

    /// Reads the files. Returns the time since they were last read, and their values.
    fn files(&mut self, now: Nanos, clock: Clocks) -> (Nanos, Vec<Option<f64>>) {
        let began = (clock.cpu)();
        let read = self.read();
        let values = rows().zip(read.iter().zip(&self.before)).map(|(row, (now, before))| {
            Some(match row.2 {
                MetricKind::Counter => (*now)?.saturating_sub((*before)?) as f64,
                MetricKind::Gauge => (*now)? as f64,
            })
        });
        let values = values.collect();
        self.before = read;
        (self.pace.done(now, (clock.cpu)() - began), values)
    }
}

/// Rows of the values of the files.
fn rows() -> impl Iterator<Item = Row> {
    let vmstat = VMSTAT.iter().map(|&(name, description)| {
        (name, Unit::Count, MetricKind::Counter, "/proc/vmstat", description)
    });
    vmstat.chain(SYSTEM)
}

#[cfg(test)]
mod tests {
    use hugepilot_events::EventReading;
    use hugepilot_record::GroupTime;

    use super::super::system_events::tests::{cpu, scripted};
    use super::*;

    /// Lengths in milliseconds, bytes read from memory and page faults of the slices of `every`
    /// that 100 ms have. Each 10 ms, memory has 640 bytes read, and the system has a page fault.
    fn slices_of(every: u64) -> Vec<(u64, Option<f64>, Option<f64>)> {
        let folder = tempfile::tempdir().unwrap();
        let faults = |count: u64| {
            let path = folder.path().join("proc/vmstat");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("pgfault {count}\n")).unwrap();
        };
        faults(0);
        let root = Root::at(folder.path());
        let mut system =
            SystemSlices::new(&root, PageSizes::X86_64, Nanos::millis(every), Nanos::ZERO);
        let (counters, script) = scripted(&cpu("GenuineIntel", 6, 106), &[]);
        system.count(Some(counters));
        let names: Vec<String> = system.metrics().into_iter().map(|metric| metric.name).collect();
        let column = |name| names.iter().position(|one| one == name).unwrap();
        let (read, fault) = (column("memory_read"), column("pgfault"));
        let mut found = Vec::new();
        for time in (every..=100).step_by(usize::try_from(every).unwrap()) {
            faults(time / 10);
            let time_of_group = GroupTime { enabled_ns: time, running_ns: time };
            let value = EventReading { value: time, time: time_of_group };
            *script.borrow_mut() = vec![Some(value)];
            const CLOCKS: Clocks = Clocks { now: || Nanos::ZERO, cpu: || Nanos::ZERO };
            let slices = system.slices(Nanos::millis(time), false, CLOCKS);
            found.extend(slices.map(|slice| {
                assert_eq!(slice.values.len(), names.len());
                let millis = slice.length.get() / 1_000_000;
                (millis, slice.values[read], slice.values[fault])
            }));
        }
        found
    }

    #[test]
    fn bandwidth_has_slices_of_10_ms_and_files_have_longer_ones() {
        let found = slices_of(10);
        let [events @ .., files] = &found[..] else { panic!("{found:?}") };
        assert_eq!(events, [(10, Some(640.0), None); 10]);
        assert_eq!(*files, (100, None, Some(10.0)));
    }

    #[test]
    fn events_and_files_of_the_same_time_are_one_slice() {
        assert_eq!(slices_of(100), [(100, Some(6400.0), Some(10.0))]);
    }
}
