//! Further sources of metrics, such as hardware counters: a trait, and the counters of `tune`.

use std::collections::BTreeMap;

use hugepilot_kernel::perf::counters::{CounterReading, Counters};
use hugepilot_kernel::{Process, Target};
use hugepilot_record::Pid;
use hugepilot_record::recording::{GroupTime, Metric, MetricKind, MetricScope, Unit};

/// Values of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricValues {
    /// A value for each metric of the source, in their order.
    pub values: Vec<Option<f64>>,
    /// Times of the groups of the source.
    pub groups: Vec<GroupTime>,
}

/// Source of metrics of processes. The recorder asks for [`Self::metrics`] once, after it attached
/// to the first processes, and reads each process at each slice.
pub trait MetricSource {
    /// Returns the metrics, all of scope [`MetricScope::Process`]. Groups are counted from 0; the
    /// recorder renumbers them.
    fn metrics(&self) -> Vec<Metric>;
    /// Counts a process from now on. A process that cannot be counted has no values.
    fn attach(&mut self, process: &Process);
    /// Returns the increase since the last call, or since [`Self::attach`]; `None` for a process
    /// that is not counted.
    fn read(&mut self, pid: Pid) -> Option<MetricValues>;
    /// Ends the count of a process.
    fn detach(&mut self, pid: Pid);
}

/// Counter of the processor, by its place in [`values_of`].
const NAMES: [(&str, Unit, &str); 6] = [
    ("instructions", Unit::Count, "Instructions retired"),
    ("cycles", Unit::Cycles, "Core cycles"),
    ("page_walks", Unit::Count, "Page walks for data"),
    ("page_walk_cycles", Unit::Cycles, "Cycles with a page walk for data"),
    ("dtlb_loads", Unit::Count, "Loads that accessed the data TLB"),
    ("dtlb_load_misses", Unit::Count, "Loads that missed the data TLB"),
];

/// Hardware counters in user mode: those of page walks and of the data TLB.
#[derive(Default)]
pub struct HardwareCounters {
    counted: BTreeMap<Pid, (Counters, CounterReading)>,
    /// Quantities that some process has.
    available: [bool; NAMES.len()],
    /// Why the first process is not counted.
    refused: Option<String>,
}

impl HardwareCounters {
    /// Creates a source that counts no process yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl MetricSource for HardwareCounters {
    fn metrics(&self) -> Vec<Metric> {
        let cause = |at: usize| match &self.refused {
            Some(cause) if self.counted.is_empty() => Some(cause.clone()),
            _ if self.available[at] => None,
            _ => Some("this processor has no such event".to_owned()),
        };
        let metric = |(at, &(name, unit, description)): (usize, &(&str, Unit, &str))| Metric {
            name: name.to_owned(),
            unit,
            kind: MetricKind::Counter,
            scope: MetricScope::Process,
            source: "perf_event_open, user mode".to_owned(),
            description: description.to_owned(),
            group: Some(0),
            missing: cause(at),
        };
        NAMES.iter().enumerate().map(metric).collect()
    }

    fn attach(&mut self, process: &Process) {
        match Counters::of_tlb(process) {
            Ok(counters) => {
                let reading = counters.read();
                for (at, value) in values_of(&reading).into_iter().enumerate() {
                    self.available[at] |= value.is_some();
                }
                self.counted.insert(process.id().pid, (counters, reading));
            }
            Err(cause) => _ = self.refused.get_or_insert_with(|| cause.to_string()),
        }
    }

    fn read(&mut self, pid: Pid) -> Option<MetricValues> {
        let (counters, before) = self.counted.get_mut(&pid)?;
        let now = counters.read();
        let increase = increase(before, &now);
        *before = now;
        Some(increase)
    }

    fn detach(&mut self, pid: Pid) {
        self.counted.remove(&pid);
    }
}

fn values_of(reading: &CounterReading) -> [Option<u64>; NAMES.len()] {
    [
        reading.instructions,
        reading.cycles,
        reading.walks,
        reading.walk_cycles,
        reading.tlb_loads,
        reading.tlb_load_misses,
    ]
}

/// Returns the increase of each counter. Scaled counts may fall a little; that counts as 0.
fn increase(before: &CounterReading, now: &CounterReading) -> MetricValues {
    let pairs = values_of(before).into_iter().zip(values_of(now));
    let values =
        pairs.map(|(before, now)| Some(now?.saturating_sub(before.unwrap_or(0)) as f64)).collect();
    let group = GroupTime {
        enabled_ns: now.enabled_ns.saturating_sub(before.enabled_ns),
        running_ns: now.running_ns.saturating_sub(before.running_ns),
    };
    MetricValues { values, groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_increase_of_two_readings_is_that_of_the_slice() {
        let before = CounterReading {
            instructions: Some(100),
            walks: Some(7),
            enabled_ns: 10,
            running_ns: 4,
            ..CounterReading::default()
        };
        let now = CounterReading {
            instructions: Some(150),
            walks: Some(6),
            cycles: Some(3),
            enabled_ns: 30,
            running_ns: 14,
            ..CounterReading::default()
        };
        let found = increase(&before, &now);
        assert_eq!(found.values, [Some(50.0), Some(3.0), Some(0.0), None, None, None]);
        assert_eq!(found.groups, [GroupTime { enabled_ns: 20, running_ns: 10 }]);
    }

    #[test]
    fn counters_that_cannot_be_opened_have_their_cause() {
        let refused = Some("this machine has no PMU".to_owned());
        let source = HardwareCounters { refused, ..HardwareCounters::new() };
        let metrics = source.metrics();
        assert_eq!(metrics.len(), NAMES.len());
        let all = |metric: &Metric| metric.missing.as_deref() == Some("this machine has no PMU");
        assert!(metrics.iter().all(all), "{metrics:?}");
        let available = [true, true, false, false, false, false];
        let source = HardwareCounters { available, ..HardwareCounters::new() };
        let missing: Vec<bool> =
            source.metrics().iter().map(|metric| metric.missing.is_some()).collect();
        assert_eq!(missing, available.map(|available| !available));
    }
}
