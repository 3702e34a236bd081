//! Slices of the system.

use hugepilot_kernel::Root;
use hugepilot_kernel::system::{SystemMeter, SystemUsage};
use hugepilot_record::recording::{Metric, MetricKind, MetricScope, Slice, Unit};
use hugepilot_units::Nanos;

use super::metrics::{SYSTEM, VMSTAT, metric};
use super::pace::Pace;
use super::system_events::SystemCounters;

/// Shortest slice of the system: its files take 0.1 ms to read.
const SHORTEST: Nanos = Nanos::millis(100);

/// Metrics of the system.
pub(super) struct SystemSlices {
    meter: SystemMeter,
    before: SystemUsage,
    pace: Pace,
    /// Events of the whole system, if any are counted.
    counters: Option<SystemCounters>,
}

impl SystemSlices {
    pub(super) fn new(root: &Root, every: Nanos, now: Nanos) -> Self {
        let mut meter = SystemMeter::open(root);
        let before = meter.read();
        Self { meter, before, pace: Pace::new(every.max(SHORTEST), now), counters: None }
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

    /// Returns the slice that ends at `now`, if one is due.
    pub(super) fn slice(
        &mut self,
        now: Nanos,
        is_last: bool,
        clock: fn() -> Nanos,
    ) -> Option<Slice> {
        if !is_last && !self.pace.is_due(now) {
            return None;
        }
        let began = clock();
        let usage = self.meter.read();
        let counters = VMSTAT.iter().map(|&(name, _)| {
            Some(usage.vmstat(name)?.saturating_sub(self.before.vmstat(name)?) as f64)
        });
        let values = SYSTEM.iter().zip(others(&usage)).zip(others(&self.before));
        let others = values.map(|((row, now), before)| match row.2 {
            MetricKind::Counter => Some(now?.saturating_sub(before?) as f64),
            MetricKind::Gauge => now.map(|now| now as f64),
        });
        let mut values: Vec<_> = counters.chain(others).collect();
        let events = self.counters.as_mut().map(SystemCounters::increase).unwrap_or_default();
        values.extend(events.values);
        self.before = usage;
        let length = self.pace.done(now, clock() - began);
        let (pid, tid, groups) = (None, None, events.groups);
        (length > Nanos::ZERO).then_some(Slice { time: now, length, pid, tid, values, groups })
    }
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
