//! Further sources of metrics: a trait, and the events of the processor and the kernel.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_events::{EventReading, Resolved, ResolvedEvent};
use hugepilot_kernel::perf::groups::{CounterTarget, GroupCounters};
use hugepilot_kernel::{Process, Target};
use hugepilot_record::{GroupTime, Metric, MetricScope, Pid, Tid};

/// Values of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricValues {
    /// A value for each metric of the source, in their order.
    pub values: Vec<Option<f64>>,
    /// Times of the groups of the source.
    pub groups: Vec<GroupTime>,
}

impl MetricValues {
    /// Appends those of a source, of which `metrics` and `groups` are the lengths.
    pub(super) fn append(&mut self, mut more: Self, metrics: usize, groups: usize) {
        more.values.resize(metrics, None);
        more.groups.resize(groups, GroupTime::default());
        self.values.append(&mut more.values);
        self.groups.append(&mut more.groups);
    }

    /// Drops the times of groups if none was enabled.
    pub(super) fn drop_unused_groups(&mut self) {
        if self.groups.iter().all(|group| group.enabled_ns == 0) {
            self.groups.clear();
        }
    }
}

/// Numbers of the metrics and the groups of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) metrics: usize,
    pub(super) thread_metrics: usize,
    pub(super) groups: usize,
}

/// Returns the metrics of a source, of processes and of threads, with groups from `first` on.
pub(super) fn numbered(
    source: &mut dyn MetricSource,
    first: u32,
) -> (Vec<Metric>, Vec<Metric>, Widths) {
    let (mut metrics, mut of_threads) = (source.metrics(), source.thread_metrics());
    let groups = metrics.iter().filter_map(|metric| metric.group).max().map_or(0, |at| at + 1);
    for metric in metrics.iter_mut().chain(&mut of_threads) {
        metric.group = metric.group.map(|group| group + first);
    }
    let widths = Widths {
        metrics: metrics.len(),
        thread_metrics: of_threads.len(),
        groups: groups as usize,
    };
    (metrics, of_threads, widths)
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
    /// Returns the metrics of threads, all of scope [`MetricScope::Thread`], with the groups of
    /// [`Self::metrics`]. The recorder asks once, after those.
    fn thread_metrics(&mut self) -> Vec<Metric> {
        Vec::new()
    }
    /// Returns the increase since the last call, or since [`Self::attach`], of those `threads` of a
    /// process that are counted by themselves. All of them are from then on.
    fn read_threads(&mut self, _: &Process, _threads: &[Tid]) -> BTreeMap<Tid, MetricValues> {
        BTreeMap::new()
    }
    /// Ends the count of a process.
    fn detach(&mut self, pid: Pid);
}

/// Events of processes, in groups that count at the same time.
pub struct EventCounters {
    events: Vec<ResolvedEvent>,
    /// Metrics that the processor lacks.
    missing: Vec<Metric>,
    counted: BTreeMap<Pid, CountedProcess>,
    /// Events that some process has.
    available: Vec<bool>,
    /// Events that are metrics of threads.
    of_threads: Vec<usize>,
    /// First cause why a process lacks an event.
    refused: Vec<Option<String>>,
}

/// Reading of each event.
type Readings = Vec<Option<EventReading>>;

/// Counters of a process. A thread inherits those of the thread that starts it, so that none is
/// missed, until all threads get counters of their own again.
struct CountedProcess {
    counters: GroupCounters,
    /// Counts of earlier counters.
    base: Readings,
    /// At the last slice.
    before: Readings,
    /// Readings of each thread at their last slice.
    threads: BTreeMap<Tid, Readings>,
    /// Threads that exist since the counters were opened, or before. One that could not be counted
    /// is not tried again.
    tried: BTreeSet<Tid>,
}

impl CountedProcess {
    fn new(counters: GroupCounters) -> Self {
        let threads: BTreeMap<_, _> = counters.read_threads().into_iter().collect();
        let tried = threads.keys().copied().collect();
        let before = counters.read();
        Self { counters, base: vec![None; before.len()], before, threads, tried }
    }

    /// Reads the process with all its threads.
    fn read(&self) -> Readings {
        let sum = |(now, base): (Option<EventReading>, &Option<EventReading>)| {
            Some(now?.plus(base.unwrap_or_default()))
        };
        self.counters.read().into_iter().zip(&self.base).map(sum).collect()
    }

    /// Gives each of the threads counters of its own, unless they lack an event.
    fn reopen(&mut self, process: &Process, threads: &[Tid], events: &[ResolvedEvent]) {
        self.tried = threads.iter().copied().collect();
        let target = CounterTarget::ProcessAlone(process);
        let Ok(counters) = GroupCounters::open(process.root(), target, events) else { return };
        if counters.missing().map(|(at, _)| at).ne(self.counters.missing().map(|(at, _)| at)) {
            return;
        }
        let (last, first) = (self.read(), counters.read());
        // Both counted from the opening until now.
        self.base = vec![None; last.len()];
        for at in 0..last.len() {
            let last = last[at].or(self.before[at]);
            self.base[at] = last.map(|last| last.since(first[at].unwrap_or_default()));
        }
        self.threads = counters.read_threads().into_iter().collect();
        self.counters = counters;
    }
}

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
        let (counted, of_threads) = (BTreeMap::new(), Vec::new());
        Self { events, missing, counted, available, of_threads, refused }
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
        self.counted.insert(process.id().pid, CountedProcess::new(counters));
    }

    fn read(&mut self, pid: Pid) -> Option<MetricValues> {
        let counted = self.counted.get_mut(&pid)?;
        let now = counted.read();
        let mut values = increase(&self.events, &mut counted.before, now);
        values.values.resize(self.events.len() + self.missing.len(), None);
        Some(values)
    }

    fn thread_metrics(&mut self) -> Vec<Metric> {
        self.of_threads = (0..self.events.len()).filter(|&at| self.available[at]).collect();
        let metric = |&at: &usize| {
            let metric = &self.events[at].metric;
            let name = format!("thread_{}", metric.name);
            Metric { name, scope: MetricScope::Thread, missing: None, ..metric.clone() }
        };
        self.of_threads.iter().map(metric).collect()
    }

    fn read_threads(&mut self, process: &Process, threads: &[Tid]) -> BTreeMap<Tid, MetricValues> {
        let Some(counted) = self.counted.get_mut(&process.id().pid) else {
            return BTreeMap::new();
        };
        if self.of_threads.is_empty() {
            return BTreeMap::new();
        }
        let mut found = BTreeMap::new();
        for (tid, now) in counted.counters.read_threads() {
            let before = counted.threads.entry(tid).or_insert_with(|| vec![None; now.len()]);
            let mut slice = increase(&self.events, before, now);
            slice.values = self.of_threads.iter().map(|&at| slice.values[at]).collect();
            found.insert(tid, slice);
        }
        if threads.iter().any(|tid| !counted.tried.contains(tid)) {
            counted.reopen(process, threads, &self.events);
        }
        found
    }

    fn detach(&mut self, pid: Pid) {
        self.counted.remove(&pid);
    }
}

/// Returns the scaled increase of each event since the reading before, and the times of each group.
/// A reading that fails while a thread ends, or is less, leaves its increase to the next one.
#[allow(clippy::cast_precision_loss)]
fn increase(events: &[ResolvedEvent], before: &mut Readings, now: Readings) -> MetricValues {
    let mut found = MetricValues::default();
    for (event, (before, now)) in events.iter().zip(before.iter_mut().zip(now)) {
        let slice = now.map(|now| now.since(before.unwrap_or_default()));
        *before = now.map(|now| before.unwrap_or_default().max(now)).or(*before);
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
    use std::sync::mpsc;

    use hugepilot_events::{parse, resolve};
    use hugepilot_kernel::Root;
    use hugepilot_record::Cpu;
    use hugepilot_testkit::requires;

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
        let mut before = vec![reading(100, 10, 5), None];
        let mut next = |now: [Option<EventReading>; 2]| increase(&events, &mut before, now.into());
        let found = next([reading(150, 30, 15), reading(7, 20, 20)]);
        // Counted in 10 of 20 ns, so twice the increase.
        assert_eq!(found.values, [Some(100.0), Some(7.0)]);
        assert_eq!(found.groups, [GroupTime { enabled_ns: 20, running_ns: 20 }]);
        assert_eq!(next([None, None]).values, [None, None]);
        assert_eq!(next([reading(149, 29, 14), None]).values, [Some(0.0), None]);
        let found = next([reading(160, 40, 25), reading(9, 30, 30)]);
        assert_eq!(found.values, [Some(10.0), Some(2.0)], "since the last ones that were read");
    }

    /// Faults of a thread that starts after the counters of its process, before and after it has
    /// counters of its own.
    #[test]
    fn a_thread_has_counts_of_its_own_once_it_is_known() {
        const BYTES: usize = 1 << 20;
        const FAULTS: f64 = (BYTES / 4096) as f64;
        let own = Pid(std::process::id().cast_signed());
        let process = Process::open(&Root::live(), own).unwrap();
        let mut source = EventCounters::new(resolved(&["page-faults"]));
        source.attach(&process);
        let cause = source.metrics().remove(0).missing;
        requires!(cause.map_or(Ok(()), Err));
        assert_eq!(source.thread_metrics()[0].name, "thread_page_faults");
        let mut all = 0.0;
        let ((go, turn), (done, result)) = (mpsc::channel(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            let name = link.file_name().unwrap().to_string_lossy().parse().unwrap();
            let mut touched = Vec::new();
            while turn.recv().is_ok() {
                // Memory that was freed would be used again, without faults.
                touched.push(std::hint::black_box(vec![1_u8; BYTES]));
                done.send(Tid(name)).unwrap();
            }
        });
        let mut step = || {
            go.send(()).unwrap();
            let tid = result.recv().unwrap();
            let found = source.read_threads(&process, &process.threads().unwrap());
            // Threads of other tests end meanwhile, and then the process cannot be read.
            all += (0..1000).find_map(|_| source.read(own)?.values[0]).unwrap();
            found.get(&tid).map(|slice| slice.values[0].unwrap())
        };
        assert_eq!(step(), None, "it counts to the thread that started it");
        assert!(step().unwrap() >= FAULTS);
        let last = step().unwrap();
        assert!((FAULTS..2.0 * FAULTS).contains(&last), "{last}");
        assert!(all >= 3.0 * FAULTS, "{all}");
        drop(go);
        thread.join().unwrap();
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
