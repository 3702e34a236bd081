//! Recordings with hardware counters. Their input is scripted: no machine counted these values.

use hugepilot_events::{parse, resolve};
use hugepilot_record::{Cpu, GroupTime, Metric, MetricKind, MetricScope, Pid, ProcessId, Unit};
use hugepilot_recording::{
    End, Head, Line, RecordedProcess, Slice, Timeline, Window, recording_report,
};
use hugepilot_render::model::Report;
use hugepilot_units::Nanos;

use crate::example;

/// Values of a metric in each slice: while the graph is loaded, and while it is searched.
pub(crate) type Script = &'static [(&'static str, f64, f64)];

pub(crate) const PID: Pid = Pid(4711);

/// Metrics of the kernel in both examples.
const KERNEL: Script = &[
    ("user_time", 9e7, 1.9e8),
    ("minor_faults", 4000.0, 2.0),
    ("rss", 3e8, 4e8),
    ("thp", 0.0, 0.0),
    ("thread_cpu_time", 9e7, 1.9e8),
    ("memory_pressure_some", 2e6, 0.0),
    ("cpu_steal_time", 1e6, 3e6),
    ("thp_fault_alloc", 50.0, 0.0),
    ("thp_split_page", 0.0, 0.0),
    ("hugetlb_free_pages", 12.0, 4.0),
];

const IVY_BRIDGE: Script = &[
    ("cycles", 250e6, 250e6),
    ("instructions", 300e6, 75e6),
    ("stalls_mem", 50e6, 175e6),
    ("stalls_l1d", 40e6, 160e6),
    ("stalls_l2", 25e6, 150e6),
    ("stalls_total", 75e6, 200e6),
    ("stalls_rs", 12.5e6, 25e6),
    ("stalls_rob", 5e6, 50e6),
    ("lfb_occupied", 250e6, 1000e6),
    ("l1d_loads", 90e6, 30e6),
    ("l1d_load_misses", 2.7e6, 6e6),
    ("l2_loads", 2.5e6, 6e6),
    ("l2_load_hits", 1.5e6, 1.5e6),
    ("llc_loads", 1e6, 4e6),
    ("llc_load_misses", 0.125e6, 1e6),
    ("dtlb_loads", 90e6, 30e6),
    ("dtlb_stores", 40e6, 10e6),
    ("dtlb_load_stlb_hits", 0.72e6, 0.9e6),
    ("dtlb_store_stlb_hits", 0.1e6, 0.2e6),
    ("dtlb_load_walk_starts", 0.2e6, 0.7e6),
    ("dtlb_load_walks", 0.18e6, 0.6e6),
    ("dtlb_load_walks_2m", 0.01e6, 0.02e6),
    ("dtlb_store_walks", 0.05e6, 0.1e6),
    ("dtlb_load_walk_duration", 5e6, 50e6),
    ("dtlb_store_walk_duration", 2.5e6, 12.5e6),
    ("dram_accesses", 5e6, 15e6),
    ("dram_clocks", 93e6, 93e6),
];

/// Computed by hand from the values above, such as DRAM bound while the graph is searched: of 4 M
/// loads of the last level, 1 M miss, so 7 × 1 / (3 + 7 × 1) = 0.7 of the 150 M cycles that wait
/// for an L2 miss wait for DRAM, which are 0.42 of 250 M cycles.
pub(crate) const IVY_BRIDGE_RATIOS: Script = &[
    ("ipc", 1.2, 0.3),
    ("memory_bound_ratio", 0.2, 0.7),
    ("dram_bound_ratio", 0.05, 0.42),
    ("stall_cycles_ratio", 0.3, 0.8),
    ("rs_stall_ratio", 0.05, 0.1),
    ("rob_stall_ratio", 0.02, 0.2),
    ("lfb_occupancy", 1.0, 4.0),
    ("l1d_miss_ratio", 0.03, 0.2),
    ("l2_hit_ratio", 0.6, 0.25),
    ("llc_miss_ratio", 0.125, 0.25),
    ("dtlb_load_miss_ratio", 0.01, 0.05),
    ("stlb_load_miss_ratio", 0.2, 0.4),
    ("load_walk_ratio", 0.002, 0.02),
    ("walk_duration_cycles", 5.0 / 0.18, 50.0 / 0.6),
    ("walk_cycles_low_ratio", 0.02, 0.2),
    ("walk_cycles_high_ratio", 0.03, 0.25),
    ("dtlb_walks_per_1000_instructions", 0.6, 8.0),
    ("dram_bytes_per_second", 3.2e9, 9.6e9),
];

const ZEN_4: Script = &[
    ("cycles", 300e6, 300e6),
    ("instructions", 450e6, 120e6),
    ("stalls_mem", 30e6, 180e6),
    ("stalls_retire", 60e6, 240e6),
    ("backend_stall_slots", 360e6, 1080e6),
    ("stalls_rob", 15e6, 60e6),
    ("stalls_rs", 30e6, 75e6),
    ("stalls_store_buffer", 6e6, 3e6),
    ("lfb_occupied", 150e6, 900e6),
    ("l1d_loads", 120e6, 60e6),
    ("l1d_load_misses", 2.4e6, 6e6),
    ("l2_loads", 2.4e6, 6e6),
    ("l2_load_hits", 1.2e6, 1.5e6),
    ("llc_loads", 1e6, 4e6),
    ("llc_load_misses", 0.24e6, 1.2e6),
    ("dtlb_loads", 120e6, 60e6),
    ("dtlb_stores", 40e6, 20e6),
    ("dtlb_misses", 0.8e6, 2e6),
    ("dtlb_stlb_hits", 0.6e6, 1.4e6),
    ("dtlb_walks", 0.2e6, 0.6e6),
    ("dtlb_walks_4k", 0.18e6, 0.5e6),
    ("dtlb_walks_2m", 0.02e6, 0.1e6),
    ("dtlb_walks_1g", 0.0, 0.0),
    ("dram_accesses", 4e6, 12e6),
    ("dram_clocks", 240e6, 240e6),
];

/// Computed by hand, such as the backend bound by memory while the graph is searched: 1,080 M of
/// 6 × 300 M slots are empty, 0.6, and of these loads have 180 / 240, which gives 0.45.
pub(crate) const ZEN_4_RATIOS: Script = &[
    ("ipc", 1.5, 0.4),
    ("memory_bound_ratio", 0.1, 0.6),
    ("backend_bound_memory_ratio", 0.1, 0.45),
    ("rs_stall_ratio", 0.1, 0.25),
    ("rob_stall_ratio", 0.05, 0.2),
    ("lfb_occupancy", 0.5, 3.0),
    ("l1d_miss_ratio", 0.02, 0.1),
    ("l2_hit_ratio", 0.5, 0.25),
    ("llc_miss_ratio", 0.24, 0.3),
    ("dram_of_demand_fills_ratio", 0.1, 0.2),
    ("dtlb_miss_ratio", 0.005, 0.025),
    ("stlb_miss_ratio", 0.25, 0.3),
    ("dtlb_walks_per_1000_instructions", 4.0 / 9.0, 5.0),
    ("dram_bytes_per_second", 2.56e9, 7.68e9),
];

/// A scripted recording.
pub(crate) struct Example {
    pub(crate) head: Head,
    script: Script,
    /// Slices, half of them for loading the graph.
    pub(crate) slices: u64,
    /// Nanoseconds of 200 million in which each group of events counted; the last holds for more.
    pub(crate) running: &'static [u64],
}

impl Example {
    /// Intel, with more events than counters: the second group counted in 25 % of the time, the
    /// third in 2 %, others in 40 %.
    pub(crate) fn ivy_bridge() -> Self {
        let running = &[200_000_000, 50_000_000, 4_000_000, 80_000_000];
        let head = head("GenuineIntel", 6, 62, &["paper", "tlb"]);
        Self { head, script: IVY_BRIDGE, slices: 8, running }
    }

    /// AMD, with counters for all events.
    pub(crate) fn zen_4() -> Self {
        let events = ["paper", "stalls", "tlb"];
        let head = head("AuthenticAMD", 25, 17, &events);
        Self { head, script: ZEN_4, slices: 8, running: &[200_000_000] }
    }

    pub(crate) fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::new(self.head.clone(), Window::default());
        let id = ProcessId { pid: PID, start_ticks: 9, command: "bfs".to_owned() };
        let time = self.head.started;
        timeline.add(Line::Process(RecordedProcess { time, id, threads: Vec::new() }));
        for slice in 1..=self.slices {
            timeline.add(self.slice(slice, Some(PID)));
            timeline.add(self.slice(slice, None));
        }
        let time = self.time(self.slices);
        let exit = Some("0".to_owned());
        timeline.add(Line::End(End { time, exit, ..End::default() }));
        timeline
    }

    /// End of a slice.
    fn time(&self, slice: u64) -> Nanos {
        self.head.started + Nanos::new(self.head.every.get() * slice)
    }

    pub(crate) fn slice(&self, slice: u64, pid: Option<Pid>) -> Line {
        let scope = if pid.is_some() { MetricScope::Process } else { MetricScope::System };
        let metrics = || self.head.metrics.iter().filter(|metric| metric.scope == scope);
        let value = |metric: &Metric| {
            let mut all = self.script.iter().chain(KERNEL);
            let row = all.find(|row| row.0 == metric.name).unwrap_or_else(|| panic!("{metric:?}"));
            if slice <= self.slices / 2 { row.1 } else { row.2 }
        };
        let values = metrics().map(|one| one.missing.is_none().then(|| value(one))).collect();
        let groups = metrics().filter_map(|metric| metric.group).max().map_or(0, |last| last + 1);
        let running = |group| self.running[(group as usize).min(self.running.len() - 1)];
        let groups = (0..groups)
            .map(|group| GroupTime { enabled_ns: 200_000_000, running_ns: running(group) });
        let (time, length, groups) = (self.time(slice), self.head.every, groups.collect());
        Line::Slice(Slice { time, length, pid, tid: None, values, groups })
    }

    pub(crate) fn report(&self) -> Report {
        recording_report(&self.timeline(), "bfs.rec")
    }
}

/// Head with the events that hugepilot counts on a processor.
fn head(vendor: &str, family: u32, model: u32, events: &[&str]) -> Head {
    let model_name = "scripted".to_owned();
    let cpu = Cpu { vendor: vendor.to_owned(), model_name, family, model, hypervisor: false };
    let names: Vec<_> = events.iter().map(|name| parse(&cpu, name).unwrap()).collect();
    let resolved = resolve(&cpu, &names);
    let mut head = Head { sampler: None, ..example::head() };
    head.sampler_missing = Some("the input is scripted".to_owned());
    head.metrics.retain(|metric| metric.missing.is_none());
    let system =
        |name, unit, kind, source| example::metric(name, unit, kind, MetricScope::System, source);
    let more = [
        system("cpu_steal_time", Unit::Nanoseconds, MetricKind::Counter, "/proc/stat"),
        system("thp_fault_alloc", Unit::Count, MetricKind::Counter, "/proc/vmstat"),
        system("thp_split_page", Unit::Count, MetricKind::Counter, "/proc/vmstat"),
        system("hugetlb_free_pages", Unit::Count, MetricKind::Gauge, "/proc/meminfo"),
    ];
    head.metrics.extend(more);
    head.metrics.extend(resolved.metrics().cloned());
    // As the recorder does: units of the system count by themselves.
    let of_system = head.metrics.iter_mut().filter(|one| one.scope == MetricScope::System);
    for (metric, group) in of_system.filter(|one| one.group.is_some()).zip(0..) {
        metric.group = Some(group);
    }
    head.machine.cpu = cpu;
    head
}
