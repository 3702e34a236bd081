//! Memory traffic of the whole system, in bytes, counted at the memory controllers.
//!
//! Units outside the cores count it: `uncore_imc` on Intel, `amd_df` and `amd_umc` on AMD. If sysfs
//! names the events, with their scale and unit, these are used; otherwise those of hugepilot's
//! lists, which count 64 bytes each.

use hugepilot_events::{DeviceEvent, EventCode, Resolved, ResolvedEvent, parse, resolve};
use hugepilot_record::{Cpu, Metric, MetricKind, MetricScope, Unit};

use super::pmu::Pmu;
use crate::Root;

/// Bytes of an event of the lists: a cache line.
const LINE_BYTES: f64 = 64.0;

/// Event whose count is a number of bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficEvent {
    /// Event, with the metric in bytes that it gives.
    pub event: ResolvedEvent,
    /// Bytes of one event.
    pub bytes: f64,
}

/// Events of the memory traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTraffic {
    /// Events. That they can be opened is not certain.
    pub events: Vec<TrafficEvent>,
    /// Metrics without an event, with the cause.
    pub missing: Vec<Metric>,
}

/// Direction of traffic, or both.
struct Direction {
    metric: &'static str,
    description: &'static str,
    /// Units with the names of their events in sysfs: servers, clients before Tiger Lake, later
    /// clients.
    sysfs: &'static [(&'static str, &'static str)],
    /// Metric of the lists.
    listed: &'static str,
}

const READ: Direction = Direction {
    metric: "memory_read",
    description: "Bytes read from memory by the whole system",
    sysfs: &[
        ("uncore_imc", "cas_count_read"),
        ("uncore_imc", "data_reads"),
        ("uncore_imc_free_running", "data_read"),
    ],
    listed: "dram_reads",
};
const WRITE: Direction = Direction {
    metric: "memory_write",
    description: "Bytes written to memory by the whole system",
    sysfs: &[
        ("uncore_imc", "cas_count_write"),
        ("uncore_imc", "data_writes"),
        ("uncore_imc_free_running", "data_write"),
    ],
    listed: "dram_writes",
};
/// Where reads and writes are counted together only.
const BOTH: Direction = Direction {
    metric: "memory_read_and_written",
    description: "Bytes read from and written to memory by the whole system",
    sysfs: &[],
    listed: "dram_accesses",
};

/// Returns the events of the memory traffic on `cpu`.
pub fn memory_traffic(root: &Root, cpu: &Cpu) -> MemoryTraffic {
    let mut traffic = MemoryTraffic::default();
    for direction in [&READ, &WRITE] {
        match direction.event(root, cpu) {
            Ok(event) => traffic.events.push(event),
            Err(metric) => traffic.missing.push(metric),
        }
    }
    if traffic.events.is_empty() {
        traffic.events.extend(BOTH.event(root, cpu));
    }
    traffic
}

impl Direction {
    fn event(&self, root: &Root, cpu: &Cpu) -> Result<TrafficEvent, Metric> {
        let found = self.sysfs.iter().find_map(|(unit, event)| {
            let bytes = Pmu::instances(root, unit).first()?.event_bytes(root, event)?;
            let device = DeviceEvent { unit: (*unit).to_owned(), terms: (*event).to_owned() };
            let code = EventCode::Devices(vec![device]);
            let source = format!("{code}, {bytes} bytes each by sysfs");
            Some(self.of(code, source, bytes))
        });
        found.map_or_else(|| self.of_list(cpu), Ok)
    }

    fn of_list(&self, cpu: &Cpu) -> Result<TrafficEvent, Metric> {
        let names: Vec<_> = parse(cpu, self.listed).into_iter().collect();
        let Resolved { mut events, missing } = resolve(cpu, &names);
        match events.pop() {
            Some(event) => {
                let source = format!("{}, {LINE_BYTES} bytes each", event.metric.source);
                Ok(self.of(event.code, source, LINE_BYTES))
            }
            None => {
                let cause = missing.into_iter().next().and_then(|metric| metric.missing);
                let missing = cause.or_else(|| Some("no event is known".to_owned()));
                Err(Metric { missing, ..self.metric("no event".to_owned()) })
            }
        }
    }

    fn of(&self, code: EventCode, source: String, bytes: f64) -> TrafficEvent {
        TrafficEvent { event: ResolvedEvent { metric: self.metric(source), code }, bytes }
    }

    fn metric(&self, source: String) -> Metric {
        Metric {
            name: self.metric.to_owned(),
            unit: Unit::Bytes,
            kind: MetricKind::Counter,
            scope: MetricScope::System,
            source,
            description: self.description.to_owned(),
            group: None,
            missing: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pmu::tests::unit;
    use super::*;
    use crate::cpu::{AMD, INTEL};

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.into(), model_name: String::new(), family, model, hypervisor: false }
    }

    type Units<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)])];

    /// Name, code and bytes of each event, and the missing metrics.
    fn traffic(cpu: &Cpu, units: Units<'_>) -> (Vec<(String, String, f64)>, Vec<Metric>) {
        let dir = tempfile::tempdir().unwrap();
        units.iter().for_each(|(name, files)| unit(dir.path(), name, files));
        let found = memory_traffic(&Root::at(dir.path()), cpu);
        let parts =
            |one: TrafficEvent| (one.event.metric.name, one.event.code.to_string(), one.bytes);
        (found.events.into_iter().map(parts).collect(), found.missing)
    }

    fn event(name: &str, code: &str, bytes: f64) -> (String, String, f64) {
        (name.to_owned(), code.to_owned(), bytes)
    }

    /// Files of `uncore_imc_0` of an Ice Lake server.
    const SERVER: [(&str, &str); 8] = [
        ("type", "14"),
        ("cpumask", "0,18"),
        ("events/cas_count_read", "event=0x04,umask=0x0f"),
        ("events/cas_count_read.scale", "6.103515625e-5"),
        ("events/cas_count_read.unit", "MiB"),
        ("events/cas_count_write", "event=0x04,umask=0x30"),
        ("events/cas_count_write.scale", "6.103515625e-5"),
        ("events/cas_count_write.unit", "MiB"),
    ];

    #[test]
    fn events_of_sysfs_have_its_scale() {
        let (events, missing) = traffic(
            &cpu(INTEL, 6, 106),
            &[
                ("uncore_imc_0", &SERVER),
                ("uncore_imc_free_running_0", &[("type", "9"), ("events/data_read", "event=0xff")]),
            ],
        );
        let wanted = [
            event("memory_read", "uncore_imc/cas_count_read/", 64.0),
            event("memory_write", "uncore_imc/cas_count_write/", 64.0),
        ];
        assert_eq!((&events[..], missing.len()), (&wanted[..], 0));
        // A client that no list knows.
        let client = [
            ("type", "9"),
            ("events/data_read", "event=0xff,umask=0x20"),
            ("events/data_read.scale", "3.814697266e-6"),
            ("events/data_read.unit", "MiB"),
        ];
        let (events, missing) =
            traffic(&cpu(INTEL, 6, 151), &[("uncore_imc_free_running_1", &client)]);
        assert_eq!(events[0].1, "uncore_imc_free_running/data_read/");
        assert!((events[0].2 - 4.0).abs() < 1e-6, "{events:?}");
        assert_eq!((events.len(), &missing[0].name[..]), (1, "memory_write"));
    }

    #[test]
    fn without_a_scale_the_events_of_the_lists_count_cache_lines() {
        let plain = [("type", "14"), ("events/cas_count_read", "event=0x04,umask=0x0f")];
        for units in [&[][..], &[("uncore_imc_0", &plain[..])]] {
            let (events, _) = traffic(&cpu(INTEL, 6, 106), units);
            let wanted = event("memory_read", "uncore_imc/event=0x4,umask=0xf/", 64.0);
            assert_eq!((events.len(), &events[0]), (2, &wanted));
        }
        let (events, _) = traffic(&cpu(AMD, 26, 2), &[]);
        assert_eq!(events[1], event("memory_write", "amd_umc/event=0xa,rdwrmask=0x2/", 64.0));
    }

    #[test]
    fn an_older_amd_counts_both_directions_together_and_others_have_a_cause() {
        let (events, missing) = traffic(&cpu(AMD, 23, 0x31), &[]);
        assert_eq!((events.len(), &events[0].0[..]), (1, "memory_read_and_written"));
        let causes: Vec<_> = missing.iter().map(|metric| metric.missing.as_deref()).collect();
        assert_eq!(causes[0], Some("Zen 2: counted with the writes: dram_accesses"));
        let (events, missing) = traffic(&cpu("Other", 1, 1), &[]);
        assert_eq!((events.len(), missing.len()), (0, 2));
        assert!(missing[1].missing.as_deref().unwrap().contains("no list of this processor"));
    }
}
