//! Events of the whole system: of units outside the cores, such as memory controllers.

use hugepilot_events::{EventReading, Resolved, ResolvedEvent};
use hugepilot_kernel::perf::groups::{CounterTarget, GroupCounters};
use hugepilot_kernel::perf::traffic::{MemoryTraffic, TrafficEvent};
use hugepilot_kernel::{Root, Unsupported};
use hugepilot_record::{GroupTime, Metric, MetricScope};

use super::source::MetricValues;

/// Reading of each event.
type Readings = Vec<Option<EventReading>>;

/// Counters of the whole system.
pub struct SystemCounters {
    events: Vec<ResolvedEvent>,
    /// Factor of each value: bytes per event.
    scales: Vec<f64>,
    /// Why an event is not counted.
    causes: Vec<Option<String>>,
    /// Metrics without an event.
    missing: Vec<Metric>,
    read: Box<dyn Fn() -> Readings>,
    before: Readings,
}

impl SystemCounters {
    /// Starts counting the memory traffic, and those of the `requested` events that count the
    /// whole system. Takes a descriptor for each unit and socket.
    pub fn open(root: &Root, requested: Resolved, traffic: MemoryTraffic) -> Self {
        let mut counters = Self::new(requested, traffic);
        match GroupCounters::open(root, CounterTarget::System, &counters.events) {
            Ok(groups) => {
                for (at, cause) in groups.missing() {
                    counters.causes[at] = Some(cause.to_string());
                }
                counters.start(Box::new(move || groups.read()));
            }
            Err(cause) => counters.refuse(&cause),
        }
        counters
    }

    fn new(requested: Resolved, traffic: MemoryTraffic) -> Self {
        let is_system = |metric: &Metric| metric.scope == MetricScope::System;
        let (mut events, mut scales): (Vec<_>, Vec<_>) =
            traffic.events.into_iter().map(|TrafficEvent { event, bytes }| (event, bytes)).unzip();
        events.extend(requested.events.into_iter().filter(|event| is_system(&event.metric)));
        scales.resize(events.len(), 1.0);
        // Each unit schedules its own counters, so each event is a group.
        for (event, group) in events.iter_mut().zip(0..) {
            event.metric.group = Some(group);
        }
        let mut missing = traffic.missing;
        missing.extend(requested.missing.into_iter().filter(is_system));
        let causes = vec![None; events.len()];
        Self { events, scales, causes, missing, read: Box::new(Vec::new), before: Vec::new() }
    }

    fn start(&mut self, read: Box<dyn Fn() -> Readings>) {
        self.before = read();
        self.read = read;
    }

    fn refuse(&mut self, cause: &Unsupported) {
        self.causes.fill(Some(cause.to_string()));
    }

    /// Forgets what was counted so far.
    pub(super) fn restart(&mut self) {
        self.before = (self.read)();
    }

    /// Returns the metrics, of scope [`MetricScope::System`].
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let counted = self.events.iter().zip(&self.causes);
        let counted =
            counted.map(|(event, cause)| Metric { missing: cause.clone(), ..event.metric.clone() });
        counted.chain(self.missing.iter().cloned()).collect()
    }

    /// Returns the increase since the last call, scaled by the time in which each event counted.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn increase(&mut self) -> MetricValues {
        let now = (self.read)();
        let mut found = MetricValues::default();
        for (at, scale) in self.scales.iter().enumerate() {
            let of = |readings: &Readings| readings.get(at).copied().flatten();
            let slice = of(&now).map(|now| now.since(of(&self.before).unwrap_or_default()));
            found.values.push(slice.and_then(EventReading::scaled).map(|n| n as f64 * scale));
            found.groups.push(slice.map_or(GroupTime::default(), |slice| slice.time));
        }
        found.values.resize(self.scales.len() + self.missing.len(), None);
        if found.groups.iter().all(|time| time.enabled_ns == 0) {
            found.groups.clear();
        }
        self.before = now;
        found
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use hugepilot_events::{parse, resolve};
    use hugepilot_kernel::perf::traffic::memory_traffic;
    use hugepilot_record::Cpu;

    use super::*;

    pub(in super::super) fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
    }

    /// Counters of `cpu` with scripted readings.
    pub(in super::super) fn scripted(
        cpu: &Cpu,
        names: &[&str],
    ) -> (SystemCounters, Rc<RefCell<Readings>>) {
        let names: Vec<_> = names.iter().map(|name| parse(cpu, name).unwrap()).collect();
        let traffic = memory_traffic(&Root::at("/nowhere"), cpu);
        let mut counters = SystemCounters::new(resolve(cpu, &names), traffic);
        let script = Rc::new(RefCell::new(Vec::new()));
        let read = script.clone();
        counters.start(Box::new(move || read.borrow().clone()));
        (counters, script)
    }

    fn reading(value: u64, enabled_ns: u64, running_ns: u64) -> Option<EventReading> {
        Some(EventReading { value, time: GroupTime { enabled_ns, running_ns } })
    }

    #[test]
    fn traffic_of_intel_is_in_bytes_beside_requested_events() {
        let (mut counters, script) = scripted(&cpu("GenuineIntel", 6, 106), &["ipc", "bandwidth"]);
        let names: Vec<String> = counters.metrics().into_iter().map(|metric| metric.name).collect();
        let wanted = ["memory_read", "memory_write", "dram_reads", "dram_writes", "dram_accesses"];
        assert_eq!(names, wanted);
        assert!(counters.metrics().iter().all(|metric| metric.scope == MetricScope::System));
        *script.borrow_mut() =
            vec![reading(10, 50, 50), reading(3, 50, 25), reading(10, 50, 50), None, None];
        let found = counters.increase();
        assert_eq!(found.values, [Some(640.0), Some(384.0), Some(10.0), None, None]);
        assert_eq!(found.groups[1], GroupTime { enabled_ns: 50, running_ns: 25 });
        script.borrow_mut()[0] = reading(14, 90, 90);
        assert_eq!(counters.increase().values[0], Some(256.0));
        script.borrow_mut()[0] = reading(20, 99, 99);
        counters.restart();
        assert_eq!(counters.increase().values[0], Some(0.0));
    }

    #[test]
    fn traffic_of_amd_is_counted_together_or_apart() {
        let (mut counters, script) = scripted(&cpu("AuthenticAMD", 23, 0x31), &["ipc"]);
        let metrics = counters.metrics();
        let names: Vec<_> = metrics.iter().map(|metric| &metric.name[..]).collect();
        assert_eq!(names, ["memory_read_and_written", "memory_read", "memory_write"]);
        assert!(metrics[1].missing.is_some());
        *script.borrow_mut() = vec![reading(2, 5, 5)];
        assert_eq!(counters.increase().values, [Some(128.0), None, None]);
        let (counters, _) = scripted(&cpu("AuthenticAMD", 25, 17), &[]);
        assert!(counters.metrics().iter().all(|metric| metric.missing.is_none()));
    }

    #[test]
    fn counters_that_cannot_be_opened_have_a_cause() {
        let here = cpu("AuthenticAMD", 25, 17);
        let root = Root::live();
        let traffic = memory_traffic(&Root::at("/nowhere"), &here);
        let mut counters = SystemCounters::open(&root, Resolved::default(), traffic);
        for (metric, value) in counters.metrics().iter().zip(counters.increase().values) {
            match &metric.missing {
                Some(cause) => assert!(!cause.is_empty() && value.is_none(), "{metric:?}"),
                None => eprintln!("{} is counted here", metric.name),
            }
        }
    }
}
