//! End of a process whose last values come with its end.

use hugepilot_kernel::{LastUse, ResourceUsage};
use hugepilot_units::Bytes;

use super::*;

/// Use until the end, by the stat of a zombie.
fn last_use(stat: &[u8]) -> LastUse {
    let stat = hugepilot_kernel::proc::parse_stat(stat).unwrap();
    LastUse { stat, usage: ResourceUsage::default() }
}

#[test]
fn an_awaited_process_keeps_its_place_until_its_last_values_are_known() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    recorder.await_end(Pid(7));
    let head = recorder.head(Vec::new(), 1.0);
    // The files of a process that was reaped can be opened, but not read.
    for name in ["stat", "statm"] {
        fs::write(folder.path().join("proc/7").join(name), "").unwrap();
    }
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    assert_eq!(value(&head, &slices(&lines), "minor_faults"), None);
    put_stat(folder.path(), Stat { state: 'Z', faults: 150, ..STAT });
    let text = fs::read(folder.path().join("proc/7/stat")).unwrap();
    fs::write(folder.path().join("proc/7/stat"), "").unwrap();
    recorder.ended(&last_use(&text));
    NOW.set(Nanos::millis(10_150));
    let lines = recorder.finish(None);
    let faults = value(&head, &slices(&lines), "minor_faults");
    assert_eq!(faults, Some((50.0, Nanos::millis(150))));
}

/// Source of one event, which counts five between two reads.
struct FiveEvents;

impl MetricSource for FiveEvents {
    fn metrics(&self) -> Vec<Metric> {
        vec![metric(&PROCESS[0], MetricScope::Process, None)]
    }
    fn attach(&mut self, _: &Process) {}
    fn read(&mut self, _: Pid) -> Option<MetricValues> {
        Some(MetricValues { values: vec![Some(5.0)], groups: Vec::new() })
    }
    fn detach(&mut self, _: Pid) {}
}

#[test]
fn events_of_a_process_that_its_parent_reaped_are_recorded_to_its_end() {
    NOW.set(Nanos::seconds(10));
    let folder = tree();
    let root = Root::at(folder.path());
    let sources: Vec<Box<dyn MetricSource>> = vec![Box::new(FiveEvents)];
    let mut recorder =
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, missing(), sources, now);
    assert!(recorder.watch(Process::open(&root, Pid(7)).unwrap()));
    recorder.head(Vec::new(), 1.0);
    for name in ["stat", "statm"] {
        fs::write(folder.path().join("proc/7").join(name), "").unwrap();
    }
    fs::remove_dir_all(folder.path().join("proc/7/task")).unwrap();
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    let last: Vec<_> = slices(&lines).into_iter().filter(|slice| slice.pid.is_some()).collect();
    let [last] = last[..] else { panic!("{lines:?}") };
    let (event, others) = last.values.split_last().unwrap();
    assert_eq!((*event, last.length), (Some(5.0), Nanos::millis(100)));
    assert!(others.iter().all(Option::is_none), "{others:?}");
    assert!(!recorder.has_processes());
}

/// Context switches and the peak of resident memory in the last slice of a process that used this,
/// with a number of threads.
fn last_sums(threads: i32, child_faults: u64, peak: Bytes) -> [Option<f64>; 3] {
    let folder = tree();
    for tid in 8..7 + threads {
        let line = fs::read(folder.path().join("proc/7/stat")).unwrap();
        put(folder.path(), &format!("proc/7/task/{tid}/stat"), &String::from_utf8_lossy(&line));
    }
    let mut recorder = recorder(&folder, missing());
    recorder.await_end(Pid(7));
    let head = recorder.head(Vec::new(), 1.0);
    put_stat(folder.path(), Stat { state: 'Z', ..STAT });
    let mut last = last_use(&fs::read(folder.path().join("proc/7/stat")).unwrap());
    last.stat.child_faults = child_faults;
    last.usage.voluntary_switches = 20;
    last.usage.involuntary_switches = 3;
    last.usage.peak_resident = peak;
    fs::remove_dir_all(folder.path().join("proc/7/task")).unwrap();
    fs::write(folder.path().join("proc/7/stat"), "").unwrap();
    recorder.ended(&last);
    NOW.set(Nanos::millis(10_050));
    let lines = recorder.finish(None);
    ["voluntary_switches", "involuntary_switches", "rss_peak"]
        .map(|name| value(&head, &slices(&lines), name).map(|(value, _)| value))
}

#[test]
fn a_reaped_process_has_the_switches_since_the_last_slice_and_the_peak_of_its_memory() {
    let (large, peak) = (Bytes::mib(64), Some(f64::from(64 << 20)));
    assert_eq!(last_sums(1, 0, large), [Some(12.0), Some(3.0), peak], "8 were before");
    assert_eq!(last_sums(1, 0, Bytes::mib(1))[2], None, "that of hugepilot, before exec");
    assert_eq!(last_sums(2, 0, large), [None, None, peak], "of ended threads, too");
    assert_eq!(last_sums(1, 5, large), [None; 3], "its children are included");
}
