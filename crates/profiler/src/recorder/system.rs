//! Slices of the system.

use hugepilot_kernel::Root;
use hugepilot_kernel::system::{SystemMeter, SystemUsage};
use hugepilot_record::recording::{Metric, MetricKind, MetricScope, Slice, Unit};
use hugepilot_units::Nanos;

use super::metrics::{SYSTEM, VMSTAT, metric};
use super::pace::{Clocks, Pace};
use super::source::MetricValues;
use super::system_events::SystemCounters;

/// Shortest slice of the files of the system, which take 0.1 ms to read. Events are read at each
/// slice.
const SHORTEST: Nanos = Nanos::millis(100);
/// Values of the files.
const FILES: usize = VMSTAT.len() + SYSTEM.len();

/// Metrics of the system.
pub(super) struct SystemSlices {
    meter: SystemMeter,
    before: SystemUsage,
    /// Counters of [`VMSTAT`] in `before`, whose text is long.
    counts: [Option<u64>; VMSTAT.len()],
    pace: Pace,
    /// Events of the whole system, if any are counted.
    counters: Option<SystemCounters>,
    /// When the events were last read.
    counted: Nanos,
}

impl SystemSlices {
    pub(super) fn new(root: &Root, every: Nanos, now: Nanos) -> Self {
        let mut meter = SystemMeter::open(root);
        let before = meter.read();
        let pace = Pace::new(every.max(SHORTEST), now);
        let counts = vmstat(&before);
        Self { meter, before, counts, pace, counters: None, counted: now }
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
        let vmstat = VMSTAT.iter().map(|&(name, description)| {
            let row = (name, Unit::Count, MetricKind::Counter, "/proc/vmstat", description);
            let missing = self.before.vmstat(name).is_none();
            metric(&row, MetricScope::System, missing.then(|| format!("this kernel has no {name}")))
        });
        let others = SYSTEM.iter().zip(others(&self.before)).map(|(row, value)| {
            let source = row.3;
            let missing =
                value.is_none().then(|| format!("this kernel does not report it in {source}"));
            metric(row, MetricScope::System, missing)
        });
        let events = self.counters.iter().flat_map(SystemCounters::metrics);
        vmstat.chain(others).chain(events).collect()
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
        let usage = self.meter.read();
        let counts = vmstat(&usage);
        let counters = counts.iter().zip(&self.counts);
        let counters =
            counters.map(|(now, before)| Some((*now)?.saturating_sub((*before)?) as f64));
        let values = SYSTEM.iter().zip(others(&usage)).zip(others(&self.before));
        let others = values.map(|((row, now), before)| match row.2 {
            MetricKind::Counter => Some(now?.saturating_sub(before?) as f64),
            MetricKind::Gauge => now.map(|now| now as f64),
        });
        let values = counters.chain(others).collect();
        (self.before, self.counts) = (usage, counts);
        (self.pace.done(now, (clock.cpu)() - began), values)
    }
}

/// Returns the counters of [`VMSTAT`], in its order.
fn vmstat(usage: &SystemUsage) -> [Option<u64>; VMSTAT.len()] {
    VMSTAT.map(|(name, _)| usage.vmstat(name))
}

/// Returns the values of [`SYSTEM`], in its order.
fn others(usage: &SystemUsage) -> [Option<u64>; SYSTEM.len()] {
    let cpu = usage.cpu;
    [
        usage.stalled_some.map(Nanos::get),
        usage.stalled_full.map(Nanos::get),
        cpu.map(|cpu| cpu.user.get()),
        cpu.map(|cpu| cpu.system.get()),
        cpu.map(|cpu| cpu.idle.get()),
        cpu.map(|cpu| cpu.steal.get()),
        usage.free.map(hugepilot_units::Bytes::get),
        usage.available.map(hugepilot_units::Bytes::get),
        usage.thp.map(hugepilot_units::Bytes::get),
        usage.hugetlb_free,
    ]
}

#[cfg(test)]
mod tests {
    use hugepilot_record::event::EventReading;
    use hugepilot_record::recording::GroupTime;

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
        let mut system = SystemSlices::new(&root, Nanos::millis(every), Nanos::ZERO);
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
