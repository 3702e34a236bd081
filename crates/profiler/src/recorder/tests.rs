//! The recorder on a captured tree, with a clock of the test.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use hugepilot_record::{MetricKind, Pattern, Provenance, Tid};
use hugepilot_recording::{CodeStall, Frame, Slice};
use hugepilot_units::VirtAddr;

use super::*;
use crate::{AddressSource, SamplerChoice};

thread_local! {
    static NOW: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

const CLOCKS: Clocks = Clocks { now: || NOW.get(), cpu: || NOW.get() };

/// Values of `stat` that a test changes.
#[derive(Clone, Copy)]
struct Stat {
    pid: i32,
    state: char,
    faults: u64,
    user_ticks: u64,
    stack: u64,
}

const STAT: Stat = Stat { pid: 7, state: 'R', faults: 100, user_ticks: 10, stack: 140_725 };

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn put_stat(root: &Path, stat: Stat) {
    let Stat { pid, state, faults, user_ticks, stack } = stat;
    let line = format!(
        "{pid} (a) \x1b[31m</b>) {state} 1 2 3 0 -1 4194304 {faults} 5 4 0 {user_ticks} 3 0 0 20 0 \
         2 0 999999999 3133440 383 184467 943 944 {stack} 0 0\n"
    );
    put(root, &format!("proc/{pid}/stat"), &line);
    put(root, &format!("proc/{pid}/task/{pid}/stat"), &line);
}

/// A captured tree with process 7.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(
        root,
        "proc/meminfo",
        "MemTotal: 64 kB\nMemAvailable: 9 kB\nMemFree: 8 kB\nHugepagesize: 2048 kB\n",
    );
    put(root, "proc/vmstat", "pgfault 1000\nthp_fault_alloc 7\n");
    put_stat(root, STAT);
    put(root, "proc/7/statm", "900 30 10 1 0 20 0\n");
    put(root, "proc/7/task/7/schedstat", "5000 700 3\n");
    put(root, "proc/7/task/7/status", "VmHWM:\t640 kB\nvoluntary_ctxt_switches:\t8\n");
    put(root, "proc/7/task/7/children", "");
    put(
        root,
        "proc/7/smaps",
        "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages: 2048 kB\n\
         Swap: 12 kB\nVmFlags: rd wr\n",
    );
    folder
}

const OPTIONS: RecorderOptions = RecorderOptions {
    every: Nanos::millis(100),
    with_children: true,
    max_processes: 2,
    rate_hz: 100,
    callers: true,
};

fn recorder(folder: &tempfile::TempDir, stalls: Stalls) -> Recorder {
    NOW.set(Nanos::seconds(10));
    let root = Root::at(folder.path());
    let mut recorder =
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, stalls, Vec::new(), CLOCKS);
    assert!(recorder.watch(Process::open(&root, Pid(7)).unwrap()));
    recorder
}

fn missing() -> Stalls {
    Stalls::Missing("a test".to_owned())
}

fn slices(lines: &[Line]) -> Vec<&Slice> {
    lines
        .iter()
        .filter_map(|line| if let Line::Slice(slice) = line { Some(slice) } else { None })
        .collect()
}

/// Value of a metric among slices of process 7, or of the system.
fn value(head: &Head, slices: &[&Slice], name: &str) -> Option<(f64, Nanos)> {
    let metric = head.metrics.iter().find(|metric| metric.name == name).expect(name);
    let scope: Vec<_> = head.metrics.iter().filter(|one| one.scope == metric.scope).collect();
    let at = scope.iter().position(|one| one.name == name)?;
    let suits = |slice: &&&Slice| match metric.scope {
        MetricScope::System => slice.pid.is_none(),
        MetricScope::Process => slice.pid == Some(Pid(7)) && slice.tid.is_none(),
        MetricScope::Thread => slice.tid.is_some(),
    };
    let of_scope = slices.iter().filter(suits);
    let widths = of_scope.clone().all(|slice| slice.values.len() == scope.len());
    assert!(widths, "{name}: a slice has a value for each metric of its scope");
    of_scope.filter_map(|slice| Some((slice.values[at]?, slice.length))).next_back()
}

#[test]
fn metrics_of_mappings_are_missing_if_the_program_ended_before_they_were_read() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    fs::remove_dir_all(folder.path().join("proc/7")).unwrap();
    let head = recorder.head(Vec::new(), 1.0);
    let swapped = head.metrics.iter().find(|metric| metric.name == "swapped").unwrap();
    assert_eq!(swapped.missing.as_deref(), Some(ENDED_EARLY));
}

#[test]
fn counters_are_increases_and_gauges_are_states() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let head = recorder.head(vec!["hugepilot".to_owned()], 1.0);
    assert_eq!((head.started, head.every), (Nanos::seconds(10), Nanos::millis(100)));
    assert_eq!(head.sampler_missing.as_deref(), Some("a test"));
    put_stat(folder.path(), Stat { faults: 142, user_ticks: 12, ..STAT });
    put(folder.path(), "proc/vmstat", "pgfault 1500\nthp_fault_alloc 9\n");
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    let all = slices(&lines);
    let tenth = Nanos::millis(100);
    assert_eq!(value(&head, &all, "minor_faults"), Some((42.0, tenth)));
    let tick = 1_000_000_000 / rustix_ticks();
    assert_eq!(value(&head, &all, "user_time"), Some(((2 * tick) as f64, tenth)));
    assert_eq!(value(&head, &all, "threads"), Some((2.0, tenth)));
    let base = fs::metadata("/proc/self").map(|_| 4096).unwrap_or(4096);
    assert_eq!(value(&head, &all, "rss"), Some((f64::from(30 * base), tenth)));
    assert_eq!(value(&head, &all, "anonymous"), Some((f64::from(20 * base), tenth)));
    assert_eq!(value(&head, &all, "pgfault"), Some((500.0, tenth)));
    assert_eq!(value(&head, &all, "thp"), Some(((2 << 20) as f64, tenth)));
    assert_eq!(value(&head, &all, "swapped"), Some((f64::from(12 << 10), tenth)));
    assert_eq!(value(&head, &all, "run_queue_wait"), Some((0.0, tenth)));
    assert_eq!(value(&head, &all, "compact_stall"), None);
    let lacking = head.metrics.iter().find(|metric| metric.name == "compact_stall").unwrap();
    assert_eq!(
        lacking.missing.as_deref(),
        Some("this kernel does not report compact_stall in /proc/vmstat")
    );
    assert!(lines.iter().any(|line| matches!(line, Line::Pages(_))));

    put(folder.path(), "proc/7/task/7/schedstat", "9000 1700 4\n");
    NOW.set(Nanos::seconds(11));
    let lines = recorder.slice();
    let all = slices(&lines);
    let rest = Nanos::millis(900);
    assert_eq!(value(&head, &all, "run_queue_wait"), Some((1000.0, rest)));
    assert_eq!(value(&head, &all, "thread_cpu_time"), Some((4000.0, rest)));
    assert_eq!(value(&head, &all, "rss_peak"), Some((f64::from(640 << 10), rest)));
    assert_eq!(value(&head, &all, "minor_faults"), Some((0.0, rest)));
    let pages = lines.iter().filter(|line| matches!(line, Line::Pages(_)));
    assert_eq!(pages.count(), 0, "the same pages as before");
    let gauge = |metric: &&Metric| metric.kind == MetricKind::Gauge && metric.name == "thp";
    assert_eq!(head.metrics.iter().filter(gauge).count(), 1);
}

#[test]
fn the_opening_has_gauges_and_the_first_slice_has_all_increases() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let head = recorder.head(Vec::new(), 1.0);
    NOW.set(Nanos::millis(10_001));
    let lines = recorder.opening();
    assert!(matches!(lines.first(), Some(Line::Process(_))), "{lines:?}");
    assert!(lines.iter().any(|line| matches!(line, Line::Pages(_))), "{lines:?}");
    let all = slices(&lines);
    assert_eq!(all[0].time, head.started);
    let first = |name| value(&head, &all, name).map(|(value, _)| value);
    assert_eq!((first("threads"), first("thp")), (Some(2.0), Some((2 << 20) as f64)));
    assert!(first("rss") > Some(0.0));
    assert_eq!((first("minor_faults"), first("user_time"), first("pgfault")), (None, None, None));
    put_stat(folder.path(), Stat { faults: 142, ..STAT });
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    let tenth = Nanos::millis(100);
    assert_eq!(value(&head, &slices(&lines), "minor_faults"), Some((42.0, tenth)));
}

/// Clock ticks per second of this machine.
fn rustix_ticks() -> u64 {
    let text = std::process::Command::new("getconf").arg("CLK_TCK").output().unwrap();
    String::from_utf8(text.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn an_ended_process_is_recorded_to_its_end() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let head = recorder.head(Vec::new(), 1.0);
    put_stat(folder.path(), Stat { state: 'Z', faults: 150, ..STAT });
    put(folder.path(), "proc/7/task/7/status", "voluntary_ctxt_switches:\t11\n");
    NOW.set(Nanos::millis(10_050));
    let lines = recorder.slice();
    let all = slices(&lines);
    let length = Nanos::millis(50);
    assert_eq!(value(&head, &all, "voluntary_switches"), Some((3.0, length)));
    assert_eq!(value(&head, &all, "minor_faults"), Some((50.0, length)));
    assert_eq!(value(&head, &all, "rss"), None, "a zombie has no memory");
    assert!(!recorder.has_processes());
    let last = recorder.finish(Some("0".to_owned()));
    let Some(Line::End(end)) = last.last() else { panic!("{last:?}") };
    assert_eq!((end.time, end.exit.as_deref()), (Nanos::millis(10_050), Some("0")));
}

#[test]
fn names_are_escaped_and_another_program_has_a_line_of_its_own() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let names = |lines: &[Line]| -> Vec<String> {
        let name = |line: &Line| match line {
            Line::Process(process) => Some(process.id.command.clone()),
            _ => None,
        };
        lines.iter().filter_map(name).collect()
    };
    NOW.set(Nanos::millis(10_100));
    assert_eq!(names(&recorder.slice()), ["a) \\u{1b}[31m</b>"]);
    put_stat(folder.path(), Stat { stack: 99, ..STAT });
    NOW.set(Nanos::millis(10_200));
    assert_eq!(names(&recorder.slice()).len(), 1);
    NOW.set(Nanos::millis(10_300));
    assert_eq!(names(&recorder.slice()).len(), 0);
}

#[test]
fn a_child_is_recorded_from_its_start() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    put_stat(folder.path(), Stat { pid: 8, faults: 33, ..STAT });
    put(folder.path(), "proc/8/statm", "9 3 1 1 0 2 0\n");
    put(folder.path(), "proc/7/task/7/children", "8 ");
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    let child = |slice: &&&Slice| slice.pid == Some(Pid(8)) && slice.values[0].is_some();
    let all = slices(&lines);
    let first = all.iter().find(child).expect("a slice of the child");
    assert_eq!((first.values[0], first.length), (Some(33.0), Nanos::millis(100)));
    assert_eq!(recorder.counts().processes, 2);
}

#[test]
fn a_process_is_recorded_once_and_beyond_the_limit_none() {
    let folder = tree();
    let mut recorder = recorder(&folder, Stalls::Elsewhere("rounds".to_owned()));
    assert_eq!(recorder.head(Vec::new(), 1.0).sampler.as_deref(), Some("rounds"));
    for pid in [8, 9] {
        put_stat(folder.path(), Stat { pid, ..STAT });
        put(folder.path(), &format!("proc/{pid}/statm"), "9 3 1 1 0 2 0\n");
    }
    let open = |pid| Process::open(&Root::at(folder.path()), Pid(pid)).unwrap();
    put_stat(folder.path(), Stat { faults: 142, ..STAT });
    recorder.await_end(Pid(7));
    assert_eq!(recorder.tree_use().unwrap().process_limit, None);
    let watched = [7, 8, 9].map(|pid| recorder.watch(open(pid)));
    assert_eq!((watched, recorder.counts().processes), ([true, true, false], 2));
    assert_eq!(recorder.tree_use().unwrap().process_limit, Some(2));
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    assert_eq!(warnings(&lines), ["more than 2 processes at a time; others are not recorded"]);
    let head = recorder.head(Vec::new(), 1.0);
    let faults = value(&head, &slices(&lines), "minor_faults");
    assert_eq!(faults, Some((42.0, Nanos::millis(100))), "its first slice goes on");
    recorder.forget(Pid(7));
    NOW.set(Nanos::millis(10_200));
    let lines = recorder.slice();
    let pids: BTreeSet<_> = slices(&lines).iter().filter_map(|slice| slice.pid).collect();
    assert_eq!((pids, recorder.watch(open(9))), ([Pid(8)].into(), true));
}

/// Sampler of which the samples and their callers are known, and how many it gave.
struct Scripted(Vec<(Sample, Vec<VirtAddr>)>, u64);

fn scripted(samples: Vec<(Sample, Vec<VirtAddr>)>) -> Stalls {
    let source = Box::new(Scripted(samples, 0));
    Stalls::Sampled(SamplerChoice { source, samples_time: true, unavailable: Vec::new() })
}

impl AddressSource for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }
    fn drain(&mut self, wait: Nanos, each: &mut dyn FnMut(Sample)) {
        self.drain_callers(wait, &mut |sample, _| each(sample));
    }
    fn drain_callers(&mut self, _: Nanos, each: &mut dyn FnMut(Sample, &[VirtAddr])) {
        self.1 += self.0.len() as u64;
        self.0.drain(..).for_each(|(sample, callers)| each(sample, &callers));
    }
    fn rescan(&mut self, _: &Process) -> Result<(), hugepilot_kernel::KernelError> {
        Ok(())
    }
    fn counts(&self) -> ProvenanceCounts {
        ProvenanceCounts { exact: self.1, ..ProvenanceCounts::default() }
    }
    fn counts_of(&self, _: Pid) -> Option<ProvenanceCounts> {
        None
    }
    fn execs(&mut self) -> Vec<Pid> {
        Vec::new()
    }
}

fn sample(pid: i32, address: Option<u64>) -> Sample {
    Sample {
        time: Nanos::millis(10_050),
        pid: Pid(pid),
        tid: Tid(pid),
        ip: VirtAddr::new(0x1000),
        address: address.map(VirtAddr::new),
        provenance: Provenance::Exact,
        pattern: Pattern::Scattered,
        stack: None,
    }
}

/// Stalls of the only line by code.
fn stalls(lines: &[Line]) -> &[CodeStall] {
    let code = lines.iter().find_map(|line| match line {
        Line::Code(code) => Some(&code.stalls[..]),
        _ => None,
    });
    code.expect("a line by code")
}

fn warnings(lines: &[Line]) -> Vec<&str> {
    lines
        .iter()
        .filter_map(|line| if let Line::Warning(text) = line { Some(&text[..]) } else { None })
        .collect()
}

#[test]
fn samples_become_heat_at_each_slice_and_code_at_the_end() {
    let folder = tree();
    put(folder.path(), "proc/7/maps", "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n");
    let inside = Some(0x7f00_0020_0000);
    let samples = [sample(7, inside), sample(7, inside), sample(7, None), sample(9, inside)];
    let samples = samples.map(|sample| (sample, Vec::new())).to_vec();
    let mut recorder = recorder(&folder, scripted(samples));
    let head = recorder.head(Vec::new(), 1.0);
    assert_eq!(head.sampler.as_deref(), Some("scripted at 100 Hz"));
    recorder.sample(Nanos::ZERO);
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    let heat: Vec<_> = lines
        .iter()
        .filter_map(|line| if let Line::Heat(heat) = line { Some(heat) } else { None })
        .collect();
    assert_eq!(heat.len(), 1, "pid 9 does not exist");
    assert_eq!((heat[0].samples, heat[0].addressed, heat[0].regions.len()), (3, 2, 1));
    NOW.set(Nanos::millis(10_200));
    let last = recorder.finish(None);
    let stalls: Vec<_> =
        stalls(&last).iter().map(|stall| (stall.samples, stall.mapping.as_deref())).collect();
    assert_eq!(stalls, [(2, Some("[anon]")), (1, None)]);
}

#[test]
fn mappings_of_one_name_have_their_address_and_code_without_a_file_has_one() {
    let folder = tree();
    let maps = "1000-2000 r-xp 00000000 00:00 0 \n\
                7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
                7f0000800000-7f0000c00000 rw-p 00000000 00:00 0 \n";
    put(folder.path(), "proc/7/maps", maps);
    let addresses = [0x7f00_0020_0000, 0x7f00_0090_0000, 0x7f00_0091_0000];
    let samples = addresses.map(|address| (sample(7, Some(address)), Vec::new())).to_vec();
    let mut recorder = recorder(&folder, scripted(samples));
    recorder.sample(Nanos::ZERO);
    NOW.set(Nanos::millis(10_100));
    let last = recorder.finish(None);
    let start = |stall: &CodeStall| stall.mapping_start.map(VirtAddr::get);
    let found: Vec<_> = stalls(&last).iter().map(|one| (one.samples, start(one))).collect();
    assert_eq!(found, [(2, Some(0x7f00_0080_0000)), (1, Some(0x7f00_0000_0000))]);
    let code = Frame { mapping_start: Some(VirtAddr::new(0x1000)), ..Frame::default() };
    assert!(stalls(&last).iter().all(|stall| stall.frame == code));
}

/// Records samples of process 7 with these return addresses, from their first slice to the end.
fn record_callers(chains: &[&[u64]]) -> Vec<Line> {
    let folder = tree();
    let maps = "400000-401000 r-xp 00000000 08:01 77 /bin/solve\n\
                500000-501000 rw-p 00000000 08:01 77 /bin/solve\n\
                7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n";
    put(folder.path(), "proc/7/maps", maps);
    let address = |&caller: &u64| VirtAddr::new(caller);
    let samples = chains
        .iter()
        .map(|chain| (sample(7, Some(0x7f00_0020_0000)), chain.iter().map(address).collect()));
    let mut recorder = recorder(&folder, scripted(samples.collect()));
    recorder.sample(Nanos::ZERO);
    NOW.set(Nanos::millis(10_100));
    recorder.finish(None)
}

#[test]
fn callers_are_frames_up_to_the_first_address_that_is_not_code() {
    let (code, end, data) = (0x40_0100, 0x40_1000, 0x50_0100);
    let good: &[u64] = &[code, end];
    let chains = [good, good, &[code, end, data, code], &[code, 0x66_0000, code], &[data], &[]];
    let last = record_callers(&chains);
    let found: Vec<_> =
        stalls(&last).iter().map(|stall| (stall.samples, stall.callers.len())).collect();
    assert_eq!(found, [(3, 2), (2, 0), (1, 1)]);
    let objects = stalls(&last).iter().flat_map(|stall| &stall.callers);
    assert!(objects.clone().all(|frame| frame.object.as_deref() == Some("/bin/solve")));
    let [warning] = warnings(&last)[..] else { panic!("{last:?}") };
    assert!(warning.starts_with("67 % of the stall samples have callers"), "{warning}");
    assert!(warnings(&record_callers(&[good])).is_empty());
}

#[test]
fn rare_stacks_lose_their_callers_not_their_instruction() {
    let chains: Vec<Vec<u64>> = (0..2000).map(|at| vec![0x40_0001 + at % 1000]).collect();
    let chains: Vec<&[u64]> = chains.iter().map(|chain| &chain[..]).collect();
    let last = record_callers(&chains);
    let (called, others): (Vec<_>, Vec<_>) =
        stalls(&last).iter().partition(|stall| !stall.callers.is_empty());
    assert_eq!(called.len(), 512);
    let others: Vec<_> = others.iter().map(|stall| (stall.ip.get(), stall.samples)).collect();
    assert_eq!(others, [(0x1000, 2000 - 2 * 512)]);
}

fn metrics_of(head: &Head, scope: MetricScope) -> Vec<&str> {
    let of_scope = head.metrics.iter().filter(|metric| metric.scope == scope);
    of_scope.map(|metric| &*metric.name).collect()
}

mod ends;
mod paces;
mod slices;
mod threads;
