//! Further sources of metrics: a trait, and the events of the processor and the kernel.

use std::collections::BTreeMap;

use hugepilot_kernel::perf::groups::{CounterTarget, GroupCounters};
use hugepilot_kernel::{Process, Target};
use hugepilot_record::Pid;
use hugepilot_record::event::{EventReading, Resolved, ResolvedEvent};
use hugepilot_record::recording::{GroupTime, Metric, MetricScope};

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

/// Events of processes, in groups that count at the same time.
pub struct EventCounters {
    events: Vec<ResolvedEvent>,
    /// Metrics that the processor lacks.
    missing: Vec<Metric>,
    counted: BTreeMap<Pid, (GroupCounters, Readings)>,
    /// Events that some process has.
    available: Vec<bool>,
    /// First cause why a process lacks an event.
    refused: Vec<Option<String>>,
}

/// Reading of each event.
type Readings = Vec<Option<EventReading>>;

impl EventCounters {
    /// Creates a source of those of the `requested` events that count processes. Counts none yet.
    pub fn new(requested: Resolved) -> Self {
        let Resolved { mut events, mut missing } = requested;
        events.retain(|event| event.metric.scope != MetricScope::System);
        missing.retain(|metric| metric.scope != MetricScope::System);
        // Missing metrics have a place among the values of processes.
        for metric in &mut missing {
            (metric.scope, metric.group) = (MetricScope::Process, None);
        }
        let (available, refused) = (vec![false; events.len()], vec![None; events.len()]);
        Self { events, missing, counted: BTreeMap::new(), available, refused }
    }

    fn refuse(&mut self, at: usize, cause: String) {
        self.refused[at].get_or_insert(cause);
    }
}

impl MetricSource for EventCounters {
    fn metrics(&self) -> Vec<Metric> {
        let none = || Some("no process was counted".to_owned());
        let counted = self.events.iter().enumerate().map(|(at, event)| {
            let cause = || self.refused[at].clone().or_else(none);
            let missing = if self.available[at] { None } else { cause() };
            Metric { missing, ..event.metric.clone() }
        });
        counted.chain(self.missing.iter().cloned()).collect()
    }

    fn attach(&mut self, process: &Process) {
        let target = CounterTarget::ProcessAlone(process);
        let counters = match GroupCounters::open(process.root(), target, &self.events) {
            Ok(counters) => counters,
            Err(cause) => {
                return (0..self.events.len()).for_each(|at| self.refuse(at, cause.to_string()));
            }
        };
        let causes: BTreeMap<usize, String> =
            counters.missing().map(|(at, cause)| (at, cause.to_string())).collect();
        for at in 0..self.events.len() {
            self.available[at] |= !causes.contains_key(&at);
        }
        causes.into_iter().for_each(|(at, cause)| self.refuse(at, cause));
        let readings = counters.read();
        self.counted.insert(process.id().pid, (counters, readings));
    }

    fn read(&mut self, pid: Pid) -> Option<MetricValues> {
        let (counters, before) = self.counted.get_mut(&pid)?;
        let now = counters.read();
        let mut values = increase(&self.events, before, &now);
        *before = now;
        values.values.resize(self.events.len() + self.missing.len(), None);
        Some(values)
    }

    fn detach(&mut self, pid: Pid) {
        self.counted.remove(&pid);
    }
}

/// Returns the scaled increase of each event, and the times of each group.
#[allow(clippy::cast_precision_loss)]
fn increase(
    events: &[ResolvedEvent],
    before: &[Option<EventReading>],
    now: &[Option<EventReading>],
) -> MetricValues {
    let mut found = MetricValues::default();
    for (event, (before, now)) in events.iter().zip(before.iter().zip(now)) {
        let slice = now.map(|now| now.since(before.unwrap_or_default()));
        found.values.push(slice.and_then(EventReading::scaled).map(|value| value as f64));
        if let Some(group) = event.metric.group {
            let group = group as usize;
            let groups = found.groups.len().max(group + 1);
            found.groups.resize(groups, GroupTime::default());
            // All events of a group have the same times.
            found.groups[group] = slice.map_or(found.groups[group], |slice| slice.time);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use hugepilot_record::doctor::Cpu;
    use hugepilot_record::event::{parse, resolve};

    use super::*;

    fn ice_lake() -> Cpu {
        Cpu {
            vendor: "GenuineIntel".to_owned(),
            model_name: String::new(),
            family: 6,
            model: 106,
            hypervisor: false,
        }
    }

    fn resolved(names: &[&str]) -> Resolved {
        let cpu = ice_lake();
        let names: Vec<_> = names.iter().map(|name| parse(&cpu, name).unwrap()).collect();
        resolve(&cpu, &names)
    }

    fn reading(value: u64, enabled_ns: u64, running_ns: u64) -> Option<EventReading> {
        Some(EventReading { value, time: GroupTime { enabled_ns, running_ns } })
    }

    #[test]
    fn the_increase_of_two_readings_is_that_of_the_slice_scaled() {
        let events = resolved(&["ipc"]).events;
        let before = [reading(100, 10, 5), None];
        let now = [reading(150, 30, 15), reading(7, 20, 20)];
        let found = increase(&events, &before, &now);
        // Counted in 10 of 20 ns, so twice the increase.
        assert_eq!(found.values, [Some(100.0), Some(7.0)]);
        assert_eq!(found.groups, [GroupTime { enabled_ns: 20, running_ns: 20 }]);
        assert_eq!(increase(&events, &now, &[None, None]).values, [None, None]);
    }

    #[test]
    fn every_metric_without_values_has_its_cause() {
        let mut source = EventCounters::new(resolved(&["ipc", "bandwidth"]));
        assert!(source.metrics().iter().all(|metric| metric.missing.is_some()));
        source.available[0] = true;
        source.refuse(1, "first".to_owned());
        source.refuse(1, "second".to_owned());
        let metrics = source.metrics();
        let causes: Vec<_> = metrics.iter().map(|metric| metric.missing.as_deref()).collect();
        assert_eq!(causes[..2], [None, Some("first")]);
        assert!(causes[2..].iter().all(Option::is_some), "{causes:?}");
        assert!(metrics.iter().all(|metric| metric.scope == MetricScope::Process));
    }
}
