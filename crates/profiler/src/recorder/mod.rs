//! Recorder: software metrics and stall samples of processes over time, as lines of a recording.
//!
//! [`Recorder::sample`] collects stall samples, [`Recorder::slice`] ends a slice of time and
//! returns its lines. Cheap metrics are read at each slice. Those that cost more, such as
//! mappings, have longer slices of their own: a measurement that uses 1 ms of CPU time is made at
//! most every 400 ms, so each costs at most a quarter percent of a processor.
//!
//! The recorder reads `/proc` below a [`Root`], and writes nothing. Hardware counters are one
//! [`MetricSource`] of several.

mod code;
mod counts;
mod ends;
mod heat;
mod layouts;
mod machine;
mod metrics;
mod names;
mod pace;
mod process;
mod source;
mod symbols;
mod system;
mod system_events;
#[cfg(test)]
mod tests;
mod thread_stalls;
mod threads;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::{KernelError, Process, Root, Target, clock};
use hugepilot_record::{Metric, MetricScope, Pid, ProvenanceCounts, Sample};
use hugepilot_recording::{ENDED_EARLY, Head, Line, SCHEMA};
use hugepilot_units::{Nanos, PageSizes, VirtAddr};

use crate::SamplerChoice;
pub use counts::RecorderCounts;
pub use machine::machine;
use metrics::{FRAMES, MAPPING_SUMS, NO_FRAMES, PROCESS, THREAD, THREAD_SUMS, metric};
use pace::{Clocks, Pace};
use process::{ProcessSlices, SliceContext};
use source::Widths;
pub use source::{EventCounters, MetricSource, MetricValues};
use system::SystemSlices;
pub use system_events::SystemCounters;
use tree::Tree;

/// Shortest time between two searches for children.
const SEARCH_EVERY: Nanos = Nanos::millis(100);
/// Shortest time between two searches for new threads to sample.
const RESCAN_EVERY: Nanos = Nanos::seconds(1);

/// Sample with the return addresses of its callers.
type CalledSample = (Sample, Box<[VirtAddr]>);

/// Settings of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// Length of a slice.
    pub every: Nanos,
    /// Whether the processes that a recorded process starts are recorded, too.
    pub with_children: bool,
    /// Processes that are recorded at a time.
    pub max_processes: usize,
    /// Rate of the sampler, for the head.
    pub rate_hz: u32,
    /// Whether the sampler walks stacks.
    pub callers: bool,
}

/// Sampler of a recorder, or why it has none.
pub enum Stalls {
    /// A running sampler.
    Sampled(SamplerChoice),
    /// The command that records samples, too: the name of its samples, which are not slices.
    Elsewhere(String),
    /// Why there are no samples.
    Missing(String),
}

/// Recorder of processes.
pub struct Recorder {
    root: Root,
    sizes: PageSizes,
    options: RecorderOptions,
    processes: BTreeMap<Pid, ProcessSlices>,
    stalls: Stalls,
    sources: Vec<Box<dyn MetricSource>>,
    widths: Vec<Widths>,
    system: SystemSlices,
    search: Pace,
    rescanned: Nanos,
    /// Processes that cannot be recorded, until the next search.
    refused: BTreeSet<Pid>,
    /// Process whose end [`Recorder::ended`] reports.
    awaited: Option<Pid>,
    /// Tree of processes below the awaited one.
    tree: Option<Tree>,
    pending: Vec<Line>,
    counts: RecorderCounts,
    /// Stall samples before the recording began.
    unrecorded: ProvenanceCounts,
    too_many: bool,
    started: Nanos,
    /// Time since boot at the start: children that started before are not recorded.
    booted: Nanos,
    own_cpu: Nanos,
    clock: Clocks,
}

impl Recorder {
    /// Creates a recorder without processes, which starts now.
    pub fn new(
        root: &Root,
        sizes: PageSizes,
        options: RecorderOptions,
        stalls: Stalls,
        sources: Vec<Box<dyn MetricSource>>,
    ) -> Self {
        Self::with_clock(root, sizes, options, stalls, sources, Clocks::LIVE)
    }

    fn with_clock(
        root: &Root,
        sizes: PageSizes,
        options: RecorderOptions,
        stalls: Stalls,
        sources: Vec<Box<dyn MetricSource>>,
        clock: Clocks,
    ) -> Self {
        let started = (clock.now)();
        Self {
            root: root.clone(),
            sizes,
            processes: BTreeMap::new(),
            stalls,
            sources,
            widths: Vec::new(),
            system: SystemSlices::new(root, sizes, options.every, started),
            search: Pace::new(SEARCH_EVERY.max(options.every), started),
            rescanned: started,
            refused: BTreeSet::new(),
            awaited: None,
            tree: None,
            pending: Vec::new(),
            counts: RecorderCounts::default(),
            unrecorded: ProvenanceCounts::default(),
            too_many: false,
            started,
            // Start times of processes are whole ticks.
            booted: clock::since_boot() - Nanos::millis(20),
            own_cpu: clock::own_cpu_time(),
            clock,
            options,
        }
    }

    /// Counts events of the whole system, too.
    pub fn count_system(&mut self, counters: SystemCounters) {
        self.system.count(Some(counters));
    }

    /// Records `process` from now on, unless it is recorded. Returns whether it lives.
    pub fn watch(&mut self, process: Process) -> bool {
        let now = (self.clock.now)();
        self.processes.contains_key(&process.id().pid) || self.watch_since(process, now, false)
    }

    fn watch_since(&mut self, process: Process, since: Nanos, is_new: bool) -> bool {
        let pid = process.id().pid;
        let most = self.options.max_processes;
        if self.processes.len() >= most {
            if !std::mem::replace(&mut self.too_many, true) {
                let text = format!("more than {most} processes at a time; others are not recorded");
                self.pending.push(Line::Warning(text));
            }
            return false;
        }
        for source in &mut self.sources {
            source.attach(&process);
        }
        let Ok(slices) = ProcessSlices::new(process, since, is_new, self.options.every) else {
            return false;
        };
        self.pending.push(slices.line(since));
        self.counts.processes += 1;
        self.processes.insert(pid, slices);
        true
    }

    /// Records a process no longer. What it did since the last slice is dropped.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
        for source in &mut self.sources {
            source.detach(pid);
        }
    }

    /// Ends the slices of code where a phase begins.
    pub fn begin_phase(&mut self, time: Nanos) {
        self.processes.values_mut().for_each(|process| process.cut_code(time));
    }

    /// Adds a warning to the recording.
    pub fn warn(&mut self, warning: String) {
        self.pending.push(Line::Warning(warning));
    }

    /// Drops the lines so far, while the recording has not begun.
    pub fn discard(&mut self) {
        self.pending.clear();
    }

    /// Opens processes again that have just started another program.
    pub fn refresh(&mut self) {
        self.sample(Nanos::ZERO);
        let now = (self.clock.now)();
        for process in self.processes.values_mut() {
            process.refresh(now, &mut self.pending);
        }
    }

    /// Returns the head of the recording, once the first processes are watched.
    pub fn head(&mut self, command: Vec<String>, started_unix_seconds: f64) -> Head {
        let (sampler, sampler_missing) = match &self.stalls {
            Stalls::Sampled(chosen) => {
                let rate = self.options.rate_hz;
                let name = chosen.source.name();
                // Samplers of events have no rate.
                let rate =
                    if chosen.samples_time { format!(" at {rate} Hz") } else { String::new() };
                (Some(format!("{name}{rate}")), None)
            }
            Stalls::Elsewhere(name) => (Some(name.clone()), None),
            Stalls::Missing(cause) => (None, Some(cause.clone())),
        };
        Head {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            started_unix_seconds,
            started: self.started,
            every: self.options.every,
            machine: machine(&self.root, self.sizes),
            metrics: self.metrics(),
            sampler,
            sampler_missing,
        }
    }

    /// Returns all metrics, and notes how many each source has.
    fn metrics(&mut self) -> Vec<Metric> {
        let of = |rows: &[metrics::Row], scope, missing: Option<&str>| -> Vec<Metric> {
            rows.iter().map(|row| metric(row, scope, missing.map(str::to_owned))).collect()
        };
        let no_smaps = self.no_smaps();
        let mut all = self.system.metrics();
        all.extend(of(&PROCESS, MetricScope::Process, None));
        all.extend(of(&THREAD_SUMS, MetricScope::Process, None));
        all.extend(of(&MAPPING_SUMS, MetricScope::Process, no_smaps.as_deref()));
        let first =
            self.processes.values().next().map(|first| first.process().large_pages(&[], true));
        let no_frames = matches!(first, Some(Ok(None))).then_some(NO_FRAMES);
        all.extend(of(&FRAMES, MetricScope::Process, no_smaps.as_deref().or(no_frames)));
        let mut threads = of(&THREAD, MetricScope::Thread, None);
        self.widths.clear();
        for source in &mut self.sources {
            let groups: usize = self.widths.iter().map(|widths| widths.groups).sum();
            let (of_processes, of_threads, widths) =
                source::numbered(&mut **source, u32::try_from(groups).unwrap_or(u32::MAX));
            all.extend(of_processes);
            threads.extend(of_threads);
            self.widths.push(widths);
        }
        all.extend(threads);
        all
    }

    /// Returns why the mappings of the first process cannot be read; `None` if they can.
    fn no_smaps(&self) -> Option<String> {
        let first = self.processes.values().next()?;
        // The kernel permits the same users to read the sizes, which takes far longer.
        first.process().layout().err().map(|error| match error {
            KernelError::NoProcess { .. } => ENDED_EARLY.to_owned(),
            error => error.to_string(),
        })
    }

    /// Waits at most `wait` for stall samples and counts them. Without a sampler, sleeps.
    pub fn sample(&mut self, wait: Nanos) {
        let Stalls::Sampled(chosen) = &mut self.stalls else {
            std::thread::sleep(wait.into());
            return;
        };
        let (mut strangers, mut lines) = (Vec::<CalledSample>::new(), Vec::new());
        let processes = &mut self.processes;
        let clock = self.clock;
        let mut take = |sample: Sample, callers: &[_]| match processes.get_mut(&sample.pid) {
            Some(known) => lines.extend(known.add(&sample, callers, clock)),
            None => strangers.push((sample, callers.into())),
        };
        chosen.source.drain_callers(wait, &mut take);
        for pid in chosen.source.execs() {
            if let Some(process) = processes.get_mut(&pid) {
                process.exec();
            }
        }
        self.pending.append(&mut lines);
        if self.options.with_children {
            self.add_strangers(&strangers);
        }
    }

    /// Records processes that are known by their samples first.
    fn add_strangers(&mut self, samples: &[CalledSample]) {
        for (sample, callers) in samples {
            let pid = sample.pid;
            if !self.processes.contains_key(&pid) && !self.adopt(pid, sample.time) {
                continue;
            }
            if let Some(known) = self.processes.get_mut(&pid) {
                self.pending.extend(known.add(sample, callers, self.clock));
            }
        }
    }

    /// Records a child that started since `since`.
    fn adopt(&mut self, pid: Pid, since: Nanos) -> bool {
        if self.refused.contains(&pid) {
            return false;
        }
        let process = Process::open(&self.root, pid).ok();
        let is_new =
            |process: &Process| process.stat().is_ok_and(|stat| stat.started() >= self.booted);
        let adopted =
            process.filter(is_new).is_some_and(|process| self.watch_since(process, since, true));
        if !adopted {
            self.refused.insert(pid);
        }
        adopted
    }

    /// Ends the slice of time and returns its lines.
    pub fn slice(&mut self) -> Vec<Line> {
        let now = (self.clock.now)();
        self.slice_at(now, false)
    }

    fn slice_at(&mut self, now: Nanos, is_last: bool) -> Vec<Line> {
        if self.options.with_children && self.search.is_due(now) {
            let cost = self.search_children(now);
            self.search.done(now, cost);
        }
        let mut lines = std::mem::take(&mut self.pending);
        let clock = self.clock;
        lines.extend(self.system.slices(now, is_last, clock).map(Line::Slice));
        let Self { processes, sources, widths, .. } = self;
        let (awaited, count) = (self.awaited, processes.len());
        let mut context =
            SliceContext { now, is_last, awaited, clock, sources, widths, processes: count };
        let mut ended = Vec::new();
        for (&pid, process) in processes.iter_mut() {
            if !process.slice(&mut context, &mut lines) {
                ended.push(pid);
            }
        }
        ended.iter().for_each(|&pid| self.leave_tree(pid));
        ended.into_iter().for_each(|pid| self.forget(pid));
        self.rescan(now);
        self.counts.slices += 1;
        self.counts.count(&lines);
        lines
    }

    /// Looks for children of the recorded processes, and for orphans below a program. Returns the
    /// CPU time that it used.
    fn search_children(&mut self, now: Nanos) -> Nanos {
        let began = (self.clock.cpu)();
        self.refused.clear();
        let of = |process: &ProcessSlices| -> Vec<Pid> {
            let own = hugepilot_record::Tid(process.process().id().pid.0);
            let others = process.tids().filter(|&tid| tid != own);
            std::iter::once(own)
                .chain(others)
                .flat_map(|tid| process.process().children_of(tid))
                .collect()
        };
        let since = self.search_begin(now);
        let mut found: Vec<Pid> = self.processes.values().flat_map(of).collect();
        found.extend(self.orphans());
        while let Some(pid) = found.pop() {
            if !self.processes.contains_key(&pid) && self.adopt(pid, since) {
                found.extend(self.processes.get(&pid).map(of).unwrap_or_default());
            }
        }
        (self.clock.cpu)() - began
    }

    /// Earliest start of a child that the last search did not find.
    fn search_begin(&self, now: Nanos) -> Nanos {
        self.started.max(now - SEARCH_EVERY.max(self.options.every))
    }

    /// Samples threads that the kernel did not add by itself.
    fn rescan(&mut self, now: Nanos) {
        let Stalls::Sampled(chosen) = &mut self.stalls else { return };
        if now > self.rescanned + RESCAN_EVERY && !self.options.with_children {
            self.rescanned = now;
            for process in self.processes.values() {
                // A process that ended has no new threads.
                let _ = chosen.source.rescan(process.process());
            }
        }
    }

    /// Whether a recorded process lives.
    pub fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> RecorderCounts {
        let samples = self.sampled().since(&self.unrecorded);
        RecorderCounts { live: self.processes.len(), samples, ..self.counts }
    }

    /// Stall samples since the sampler started.
    fn sampled(&self) -> ProvenanceCounts {
        match &self.stalls {
            Stalls::Sampled(chosen) => chosen.source.counts(),
            Stalls::Elsewhere(_) | Stalls::Missing(_) => ProvenanceCounts::default(),
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Nanos {
        (self.clock.now)() - self.started
    }

    /// Returns the CPU time of this process since the start.
    pub fn own_cpu(&self) -> Nanos {
        hugepilot_kernel::clock::own_cpu_time() - self.own_cpu
    }
}
