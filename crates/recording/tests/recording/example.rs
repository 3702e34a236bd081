//! A recording as `hugepilot record` makes it: two processes, 60 s in slices of 100 ms, heat that
//! moves, promotion at 30 s, phases, missing metrics and warnings.

use hugepilot_record::{
    Cpu, Metric, MetricKind, MetricScope, Pid, ProcessId, ProvenanceCounts, Tid, Unit,
};
use hugepilot_recording::{
    CodeSlice, CodeStall, End, Frame, Head, HeatSlice, HotRegion, Line, MappingPages, PageSlice,
    Phase, RecordedMachine, RecordedProcess, RecordingWriter, SCHEMA, Slice, ThreadInfo, Timeline,
    TlbSize, Window,
};
use hugepilot_testkit::Rng;
use hugepilot_units::{AddrRange, Nanos, Region, VirtAddr};

const HUGE: u64 = 2 << 20;
const START: u64 = 5_000;
const ARRAY: u64 = 0x7f12_4000_0000 / HUGE;

pub(crate) fn metric(
    name: &str,
    unit: Unit,
    kind: MetricKind,
    scope: MetricScope,
    source: &str,
) -> Metric {
    Metric {
        name: name.to_owned(),
        unit,
        kind,
        scope,
        source: source.to_owned(),
        description: format!("{} of the {scope:?}", name.replace('_', " ")).to_lowercase(),
        group: None,
        missing: None,
    }
}

pub(crate) fn head() -> Head {
    use MetricKind::{Counter, Gauge};
    use MetricScope::{Process, System, Thread};
    let no_pmu = |name, unit| Metric {
        missing: Some("this virtual machine has no performance counters (PMU)".to_owned()),
        ..metric(name, unit, Counter, Process, "perf event")
    };
    Head {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        command: ["hugepilot", "record", "-o", "solve.recording", "--", "./solve"]
            .map(str::to_owned)
            .to_vec(),
        started_unix_seconds: 1_795_600_000.0,
        started: Nanos::millis(START),
        every: Nanos::millis(100),
        machine: RecordedMachine {
            cpu: Cpu {
                vendor: "AuthenticAMD".to_owned(),
                model_name: "AMD EPYC".to_owned(),
                family: 26,
                model: 2,
                hypervisor: true,
            },
            cpus: 2,
            memory_bytes: 16 << 30,
            kernel: "6.18.0".to_owned(),
            thp: "madvise".to_owned(),
            base_page_bytes: 4096,
            huge_page_bytes: HUGE,
            tlb: Some(TlbSize { base_pages: 1536, source: "optimization manual".to_owned() }),
        },
        metrics: vec![
            metric("user_time", Unit::Nanoseconds, Counter, Process, "/proc/PID/stat"),
            metric("minor_faults", Unit::Count, Counter, Process, "/proc/PID/stat"),
            metric("rss", Unit::Bytes, Gauge, Process, "/proc/PID/smaps_rollup"),
            metric("thp", Unit::Bytes, Gauge, Process, "/proc/PID/smaps_rollup"),
            no_pmu("cycles", Unit::Cycles),
            no_pmu("instructions", Unit::Count),
            metric(
                "thread_cpu_time",
                Unit::Nanoseconds,
                Counter,
                Thread,
                "/proc/PID/task/TID/schedstat",
            ),
            metric(
                "memory_pressure_some",
                Unit::Nanoseconds,
                Counter,
                System,
                "/proc/pressure/memory",
            ),
        ],
        sampler: Some("cpu-clock at 500 Hz".to_owned()),
        sampler_missing: None,
    }
}

fn frame(function: &str, source: Option<(&str, u32)>) -> Frame {
    Frame {
        function: Some(function.to_owned()),
        object: Some("/usr/bin/solve".to_owned()),
        source: source.map(|(file, line)| (file.to_owned(), line)),
        mapping_start: None,
    }
}

/// Lines of `seconds` seconds. `name` is that of the program and of its largest mapping's file.
pub(crate) fn lines(seconds: u64, name: &str) -> Vec<Line> {
    let mut rng = Rng::new(20);
    let time = |slice: u64| Nanos::millis(START + slice * 100);
    let process = |pid: i32, command: &str, threads: &[(i32, &str)]| {
        Line::Process(RecordedProcess {
            time: time(0),
            id: ProcessId { pid: Pid(pid), start_ticks: 99, command: command.to_owned() },
            threads: threads
                .iter()
                .map(|&(tid, name)| ThreadInfo { tid: Tid(tid), name: name.to_owned() })
                .collect(),
        })
    };
    let mut lines = vec![
        process(4711, name, &[(4711, name), (4712, "worker")]),
        process(4720, "logger", &[(4720, "logger")]),
        Line::Phase(Phase { time: time(0), name: "load".to_owned() }),
    ];
    let slices = seconds * 10;
    for slice in 1..=slices {
        if slice == slices / 4 {
            lines.push(Line::Phase(Phase { time: time(slice), name: "solve".to_owned() }));
        }
        lines.extend(slice_lines(slice, slices, time(slice), &mut rng, name));
    }
    lines.push(Line::Warning("the sampler was throttled 3 times".to_owned()));
    lines.push(Line::End(End {
        time: time(slices),
        exit: Some("0".to_owned()),
        samples: ProvenanceCounts {
            exact: 20_000,
            recomputed: 3_000,
            next: 1_000,
            none: 900,
            ..ProvenanceCounts::default()
        },
        own_cpu: Nanos::millis(seconds * 6),
        ..End::default()
    }));
    lines
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn slice_lines(slice: u64, slices: u64, time: Nanos, rng: &mut Rng, name: &str) -> Vec<Line> {
    let length = Nanos::millis(100);
    let is_loading = slice < slices / 4;
    let rss = (400 << 20) * slice.min(slices / 4) / (slices / 4).max(1) + (20 << 20);
    let is_promoted = slice > slices / 2;
    let thp = if is_promoted { rss / 2 / HUGE * HUGE } else { 0 };
    let cpu = 1e8 * if is_loading { 0.6 } else { 1.7 } * (1.0 + 0.05 * rng.normal());
    let faults = if is_loading { 2600.0 } else { 12.0 } * (1.0 + 0.1 * rng.normal());
    let burst = if slice.is_multiple_of(97) { 9000.0 } else { 0.0 };
    let slice_of = |pid: Option<i32>, tid: Option<i32>, values: Vec<Option<f64>>| {
        let (pid, tid) = (pid.map(Pid), tid.map(Tid));
        Line::Slice(Slice { time, length, pid, tid, values, groups: Vec::new() })
    };
    let values = vec![
        Some(cpu),
        Some((faults + burst).round()),
        Some(rss as f64),
        Some(thp as f64),
        None,
        None,
    ];
    let mut lines = vec![
        slice_of(Some(4711), None, values),
        slice_of(Some(4711), Some(4711), vec![Some(cpu * 0.6)]),
        slice_of(Some(4711), Some(4712), vec![Some(cpu * 0.4)]),
        slice_of(None, None, vec![Some((0.02 + 0.01 * rng.normal()).clamp(0.0, 1.0))]),
        slice_of(Some(4720), None, vec![Some(3e6), Some(1.0), Some(6e6), Some(0.0), None, None]),
    ];
    // Heat moves through the array; a hot table stays.
    let sample_count = if is_promoted { 14 } else { 40 };
    let hot = ARRAY + 190 * slice / slices;
    let mut regions: Vec<HotRegion> = (0..6)
        .map(|at| HotRegion(Region::new(hot + at), sample_count / 6 + 1, 1, Some(is_promoted)))
        .collect();
    regions.insert(0, HotRegion(Region::new(0x5555_5580_0000 / HUGE), 6, 0, Some(false)));
    regions.insert(1, HotRegion(Region::new(0x5555_5600_0000 / HUGE), 3, 0, Some(false)));
    lines.push(Line::Heat(HeatSlice {
        time,
        length,
        pid: Pid(4711),
        samples: 85,
        addressed: 78,
        scattered: u64::from(sample_count) + 9,
        regions,
        mappings: Vec::new(),
        threads: Vec::new(),
    }));
    lines.push(code(time, u64::from(sample_count), name));
    if slice.is_multiple_of(10) {
        lines.push(pages(time, rss, thp, name));
    }
    lines
}

fn code(time: Nanos, samples: u64, name: &str) -> Line {
    let main = frame("main", Some(("solve.c", 210)));
    let stall = |function: &str, line, mapping: &str, samples: u64, caller: &str| CodeStall {
        ip: VirtAddr::new(0x5555_5555_5000 + u64::from(line)),
        frame: frame(function, Some(("solve.c", line))),
        callers: vec![frame(caller, Some(("solve.c", line + 90))), main.clone()],
        mapping: Some(mapping.to_owned()),
        mapping_start: None,
        samples,
        streamed: samples / 9,
    };
    let stalls = vec![
        stall("gather", 41, &format!("/data/{name}.graph"), samples / 2, "sweep"),
        stall("scatter", 77, &format!("/data/{name}.graph"), samples / 3, "sweep"),
        stall("hash_find", 130, "[heap]", 9, "lookup"),
    ];
    Line::Code(CodeSlice { time, pid: Pid(4711), stalls })
}

fn pages(time: Nanos, rss: u64, thp: u64, name: &str) -> Line {
    let mapping = |start: u64, bytes: u64, name: &str, resident_bytes: u64, thp_bytes: u64| {
        let range = AddrRange::new(VirtAddr::new(start), VirtAddr::new(start + bytes));
        MappingPages { range, name: name.to_owned(), resident_bytes, thp_bytes, hugetlb_bytes: 0 }
    };
    let mappings = vec![
        mapping(0x5555_5580_0000, 16 << 20, "[heap]", 12 << 20, 0),
        mapping(ARRAY * HUGE, 400 << 20, &format!("/data/{name}.graph"), rss - (12 << 20), thp),
    ];
    Line::Pages(PageSlice { time, pid: Pid(4711), mappings })
}

/// The recording as a file.
pub(crate) fn file(seconds: u64, name: &str) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), head()).unwrap();
    for line in lines(seconds, name) {
        writer.add(&line).unwrap();
    }
    writer.finish().unwrap()
}

/// The recording as tracks.
pub(crate) fn timeline(seconds: u64, name: &str, window: Window) -> Timeline {
    let mut timeline = Timeline::new(head(), window);
    lines(seconds, name).into_iter().for_each(|line| timeline.add(line));
    timeline
}
