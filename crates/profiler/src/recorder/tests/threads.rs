//! Slices of threads.

use hugepilot_record::GroupTime;

use super::super::metrics::place;
use super::*;

/// Source of one event, in a group of its own. Each thread counts its ID between two reads.
struct EventOfThreads(&'static str);

impl EventOfThreads {
    fn metric(&self, scope: MetricScope) -> Metric {
        Metric { name: self.0.to_owned(), group: Some(0), ..metric(&PROCESS[0], scope, None) }
    }
}

impl MetricSource for EventOfThreads {
    fn metrics(&self) -> Vec<Metric> {
        vec![self.metric(MetricScope::Process)]
    }
    fn attach(&mut self, _: &Process) {}
    fn read(&mut self, _: Pid) -> Option<MetricValues> {
        None
    }
    fn thread_metrics(&mut self) -> Vec<Metric> {
        vec![self.metric(MetricScope::Thread)]
    }
    fn read_threads(&mut self, _: &Process, threads: &[Tid]) -> BTreeMap<Tid, MetricValues> {
        let times = vec![GroupTime { enabled_ns: 8, running_ns: 4 }];
        let values = |tid: &Tid| vec![Some(f64::from(tid.0))];
        let of = |tid| MetricValues { values: values(tid), groups: times.clone() };
        let known = threads.iter().filter(|tid| tid.0 != 8 || self.0 == "b");
        known.map(|tid| (*tid, of(tid))).collect()
    }
    fn detach(&mut self, _: Pid) {}
}

#[test]
fn each_thread_has_its_events_in_each_slice() {
    NOW.set(Nanos::seconds(10));
    let folder = tree();
    let root = Root::at(folder.path());
    let sources: Vec<Box<dyn MetricSource>> =
        vec![Box::new(EventOfThreads("a")), Box::new(EventOfThreads("b"))];
    let mut recorder =
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, missing(), sources, CLOCKS);
    assert!(recorder.watch(Process::open(&root, Pid(7)).unwrap()));
    let line = fs::read_to_string(folder.path().join("proc/7/stat")).unwrap();
    put(folder.path(), "proc/7/task/8/stat", &line.replacen("7 (", "8 (", 1));
    let head = recorder.head(Vec::new(), 1.0);
    let of_threads = head.metrics.iter().filter(|metric| metric.scope == MetricScope::Thread);
    let groups: Vec<_> = of_threads.filter_map(|metric| metric.group).collect();
    assert_eq!(groups, [0, 1]);
    for tenth in [101, 102] {
        NOW.set(Nanos::millis(100 * tenth));
        let lines = recorder.slice();
        let all = slices(&lines);
        let found: Vec<_> = all.iter().filter_map(|slice| Some((slice.tid?.0, *slice))).collect();
        let events = |slice: &Slice| slice.values[THREAD.len()..].to_vec();
        let running = |slice: &Slice| -> Vec<u64> {
            slice.groups.iter().map(|group| group.running_ns).collect()
        };
        let of_process = all.iter().filter(|one| one.pid.is_some() && one.tid.is_none());
        let switches = place("voluntary_switches");
        let with_sums = of_process.filter(|one| one.values[switches].is_some());
        assert!(
            with_sums.clone().count() == 1 && with_sums.clone().all(|one| one.values[0].is_some())
        );
        let [(7, first), (8, second)] = found[..] else { panic!("{found:?}") };
        assert_eq!(first.length, Nanos::millis(100));
        assert_eq!((events(first), running(first)), (vec![Some(7.0); 2], vec![4, 4]));
        assert_eq!((events(second), running(second)), (vec![None, Some(8.0)], vec![0, 4]));
    }
}
