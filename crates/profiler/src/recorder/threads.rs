//! Threads of a recorded process: their metrics, and the sums over them.

use std::collections::BTreeMap;

use hugepilot_kernel::{Process, ResourceUsage, ThreadUsage};
use hugepilot_record::Tid;
use hugepilot_recording::ThreadInfo;
use hugepilot_units::{Bytes, Nanos};

use super::metrics::{THREAD, THREAD_SUMS};
use super::pace::Pace;
use super::process::SliceContext;
use super::source::MetricValues;

/// Threads of a process that are recorded, the oldest first.
const MAX_THREADS: usize = 64;
/// Error of a reading of resident memory: the kernel counts by processor first.
const RESIDENT_ERROR: Bytes = Bytes::mib(1);

/// Threads as they were last read.
pub(super) struct Threads {
    known: BTreeMap<Tid, ThreadUsage>,
    pace: Pace,
    /// Whether no reading had a second thread.
    is_alone: bool,
}

/// Values of [`THREAD_SUMS`].
pub(super) type ThreadSums = [Option<f64>; THREAD_SUMS.len()];

/// Values of a slice of threads.
pub(super) struct ThreadSlice {
    /// Length of the slice.
    pub(super) length: Nanos,
    /// Values of [`THREAD`], then of the metrics of sources.
    pub(super) threads: Vec<(Tid, MetricValues)>,
    pub(super) sums: ThreadSums,
    /// Whether a thread was not known before.
    pub(super) has_new: bool,
}

impl Threads {
    /// Threads from `since` on, in slices of `every` at least. `process`: one that used something
    /// before, which does not count.
    pub(super) fn new(process: Option<&Process>, every: Nanos, since: Nanos) -> Self {
        let known: BTreeMap<_, _> = process.map(read).unwrap_or_default();
        let is_alone = known.len() <= 1;
        Self { known, pace: Pace::new(every, since), is_alone }
    }

    /// Threads that are known.
    pub(super) fn tids(&self) -> impl Iterator<Item = Tid> {
        self.known.keys().copied()
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<ThreadInfo> {
        let info = |one: &ThreadUsage| ThreadInfo { tid: one.tid, name: one.name.clone() };
        self.known.values().map(info).collect()
    }

    /// Keeps the first thread only, with the name of another program.
    pub(super) fn exec(&mut self, first: Tid, name: &str) {
        self.known.retain(|&tid, _| tid == first);
        self.known.values_mut().for_each(|one| name.clone_into(&mut one.name));
    }

    /// Whether a slice is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.pace.is_due(now)
    }

    /// Reads them; `None` if no time has passed. Of a process that ended and was not reaped, the
    /// first thread remains. All processes share the time that this may cost.
    pub(super) fn slice(
        &mut self,
        process: &Process,
        context: &mut SliceContext<'_>,
    ) -> Option<ThreadSlice> {
        let (now, began) = (context.now, (context.clock.cpu)());
        if self.pace.since(now) == Nanos::ZERO {
            return None;
        }
        let read = read(process);
        let has_new = read.keys().any(|tid| !self.known.contains_key(tid));
        let mut sums = ThreadSums::default();
        let mut threads = Vec::new();
        for (&tid, thread) in &read {
            let values = thread_values(self.known.get(&tid), thread);
            for (sum, at) in sums.iter_mut().zip([1, 4, 5]) {
                if let Some(value) = values[at] {
                    *sum = Some(sum.unwrap_or(0.0) + value);
                }
            }
            threads.push((tid, MetricValues { values: values.to_vec(), groups: Vec::new() }));
        }
        add_events(&mut threads, process, context);
        let peak = read.values().find_map(|thread| thread.peak_resident);
        let [.., rss_peak] = &mut sums;
        *rss_peak = peak.map(|bytes| bytes.get() as f64);
        self.is_alone &= read.len() <= 1;
        self.known = read;
        let cost = Nanos::new(((context.clock.cpu)() - began).get() * context.processes as u64);
        let length = self.pace.done(now, cost);
        Some(ThreadSlice { length, threads, sums, has_new })
    }

    /// Returns the length and the sums of the last slice, by the use of the process until its end.
    /// That includes the switches of threads that ended long before, so it has none unless there
    /// was one thread. `held`: resident memory before exec, of which the kernel keeps the peak.
    pub(super) fn end(
        &mut self,
        usage: &ResourceUsage,
        held: Bytes,
        now: Nanos,
    ) -> (Nanos, ThreadSums) {
        let length = self.pace.done(now, Nanos::ZERO);
        let before = self.known.values().next();
        let increase = |now: u64, of: fn(&ThreadUsage) -> Option<u64>| {
            let before = before.and_then(of).unwrap_or(0);
            self.is_alone.then(|| now.saturating_sub(before) as f64)
        };
        let peak = Some(usage.peak_resident).filter(|peak| *peak > held + RESIDENT_ERROR);
        let sums = [
            None,
            increase(usage.voluntary_switches, |thread| thread.voluntary_switches),
            increase(usage.involuntary_switches, |thread| thread.involuntary_switches),
            peak.map(|bytes| bytes.get() as f64),
        ];
        (length, sums)
    }
}

/// Appends the metrics of the sources to the values of each thread.
fn add_events(
    threads: &mut [(Tid, MetricValues)],
    process: &Process,
    context: &mut SliceContext<'_>,
) {
    let tids: Vec<Tid> = threads.iter().map(|(tid, _)| *tid).collect();
    for (source, widths) in context.sources.iter_mut().zip(context.widths) {
        let mut found = source.read_threads(process, &tids);
        for (tid, values) in threads.iter_mut() {
            let more = found.remove(tid).unwrap_or_default();
            values.append(more, widths.thread_metrics, widths.groups);
        }
    }
    threads.iter_mut().for_each(|(_, values)| values.drop_unused_groups());
}

fn read(process: &Process) -> BTreeMap<Tid, ThreadUsage> {
    let mut tids = process.threads().unwrap_or_default();
    tids.sort_unstable();
    tids.truncate(MAX_THREADS);
    tids.into_iter().filter_map(|tid| Some((tid, process.thread_usage(tid).ok()?))).collect()
}

/// Returns the values of [`THREAD`]. A thread that was not there before started since.
fn thread_values(before: Option<&ThreadUsage>, now: &ThreadUsage) -> [Option<f64>; THREAD.len()] {
    let increase = |of: fn(&ThreadUsage) -> Option<u64>| {
        let old = before.and_then(of).unwrap_or(0);
        of(now).map(|new| new.saturating_sub(old) as f64)
    };
    [
        increase(|thread| Some(thread.cpu.get())),
        increase(|thread| thread.run_queue_wait.map(Nanos::get)),
        increase(|thread| Some(thread.minor_faults)),
        increase(|thread| Some(thread.major_faults)),
        increase(|thread| thread.voluntary_switches),
        increase(|thread| thread.involuntary_switches),
    ]
}
