//! End of a process whose last values come with its end.

use hugepilot_kernel::{LastUse, ResourceUsage};
use hugepilot_recording::{End, TreeUse};
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
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, missing(), sources, CLOCKS);
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

/// The use in slices is read by the names of the metrics, of which the head has the order.
#[test]
fn the_places_of_metrics_are_those_of_the_head() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    let head = recorder.head(Vec::new(), 1.0);
    let own = metrics::PROCESS.iter().chain(&metrics::THREAD_SUMS);
    for (name, ..) in own {
        assert_eq!(metrics_of(&head, MetricScope::Process)[metrics::place(name)], *name);
    }
}

#[test]
fn a_recording_of_nothing_ends_where_it_begins() {
    let folder = tree();
    let mut recorder = recorder(&folder, scripted(vec![(sample(7, None), Vec::new())]));
    recorder.await_end(Pid(7));
    NOW.set(Nanos::millis(10_100));
    recorder.sample(Nanos::ZERO);
    assert_eq!(recorder.counts().samples.total(), 1);
    NOW.set(Nanos::millis(10_200));
    recorder.begin_empty();
    recorder.warn("why".to_owned());
    let head = recorder.head(Vec::new(), 1.0);
    NOW.set(Nanos::millis(10_300));
    let lines = recorder.end_empty(Some("0".to_owned()));
    let [Line::Warning(_), Line::End(end)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((end.time, head.started), (Nanos::millis(10_200), Nanos::millis(10_200)));
    assert_eq!((end.samples.total(), &end.tree), (0, &None));
    assert_eq!((recorder.counts().slices, recorder.counts().processes), (0, 0));
}

/// The use of a tree at the end of a recording.
#[track_caller]
fn tree_at_the_end(recorder: &mut Recorder) -> TreeUse {
    let lines = recorder.finish(None);
    let Some(Line::End(End { tree: Some(tree), .. })) = lines.last() else { panic!("{lines:?}") };
    tree.clone()
}

#[test]
fn the_tree_of_a_running_process_lacks_the_use_from_before() {
    let folder = tree();
    put(folder.path(), "proc/7/task/7/children", "8");
    put_stat(folder.path(), super::Stat { pid: 8, faults: 33, ..STAT });
    let replace = |pid: i32, from: &str, to: &str| {
        let path = folder.path().join(format!("proc/{pid}/stat"));
        let line = fs::read_to_string(&path).unwrap();
        assert!(line.contains(from), "{line}");
        fs::write(path, line.replace(from, to)).unwrap();
    };
    replace(8, " 999999999 ", " 1 ");
    let mut recorder = recorder(&folder, missing());
    recorder.count_running(Pid(7));
    // Process 8 has 100 more, and ends; process 7 has 42 more, and all those of its child.
    let [before, after] = [" 100 5 4 0 10 3 0 0 ", " 142 147 4 0 12 3 23 0 "];
    replace(7, before, after);
    fs::remove_dir_all(folder.path().join("proc/8")).unwrap();
    put(folder.path(), "proc/7/task/7/children", "");
    NOW.set(Nanos::millis(10_100));
    let tree = tree_at_the_end(&mut recorder);
    assert_eq!((tree.faults, tree.unseen_faults), (42 + 100, 100));
    let ticks = |count: u64| (count * 1_000_000_000 / rustix_ticks()) as f64 * 1e-9;
    assert!((tree.unseen_cpu_seconds - ticks(10)).abs() < 1e-9, "{tree:?}");
    assert_eq!((tree.earlier_processes, tree.context_switches), (Some(1), None));
}

#[test]
fn the_tree_has_children_that_ended_unseen_and_orphans() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    recorder.await_end(Pid(7));
    let path = folder.path().join("proc/7/stat");
    let line = fs::read_to_string(&path).unwrap();
    // It waited for children with 1002 faults and 40 ticks.
    let later = line.replace(" 100 5 4 0 10 3 0 0 ", " 142 1005 4 2 12 3 30 10 ");
    assert_ne!(line, later);
    fs::write(&path, later).unwrap();
    // An orphan: the parent of process 7 is its parent, too.
    put_stat(folder.path(), super::Stat { pid: 8, faults: 33, ..STAT });
    put(folder.path(), "proc/8/statm", "900 30 10 1 0 20 0\n");
    put(folder.path(), "proc/8/smaps", "");
    let orphan = Process::open(&Root::at(folder.path()), Pid(8)).unwrap();
    assert!(recorder.watch_since(orphan, Nanos::seconds(10), true));
    NOW.set(Nanos::millis(10_100));
    recorder.slice();
    fs::remove_dir_all(folder.path().join("proc/8")).unwrap();
    NOW.set(Nanos::millis(10_200));
    let tree = tree_at_the_end(&mut recorder);
    // Process 7 has 42 more; the orphan 33 and 4 of its own, and 5 of a child.
    assert_eq!((tree.faults, tree.unseen_faults), (42 + 1002 + 42, 1002 + 5));
    let ticks = |count: u64| (count * 1_000_000_000 / rustix_ticks()) as f64 * 1e-9;
    assert!((tree.unseen_cpu_seconds - ticks(40)).abs() < 1e-9, "{tree:?}");
    assert!((tree.cpu_seconds - ticks(2 + 40 + 13)).abs() < 1e-9, "{tree:?}");
    assert_eq!(tree.context_switches, None, "it has not ended");
}
