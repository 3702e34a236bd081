//! Fold of a recording's lines into tracks.

use std::collections::{BTreeMap, HashMap};

use hugepilot_record::{Metric, MetricKind, MetricScope, Pid, Tid};
use hugepilot_reports::explain::TimeOrigin;
use hugepilot_units::Nanos;
use serde_json::Value;

use super::areas::Areas;
use super::code::CodeTrack;
use super::heat::HeatTrack;
use super::rounds::Rounds;
use super::thread_stalls::ThreadStallTrack;
use super::track::{Slot, Track};
use crate::{
    End, Head, HeatSlice, Line, MAX_PHASES, NamedMapping, PageSlice, Phase, RecordedProcess,
    RecordedTrial, Slice,
};

/// Processes of a report at most.
const MAX_PROCESSES: usize = 1024;
/// Threads of a process at most.
const MAX_THREADS: usize = 256;
/// Threads of all processes at most.
const MAX_ALL_THREADS: usize = 1024;
/// Trials kept at most, and reports.
const MAX_RESULTS: usize = 10_000;
/// Bytes of the JSON of all reports at most.
const MAX_REPORT_BYTES: usize = 64 << 20;
/// Warnings kept at most.
const MAX_WARNINGS: usize = 1000;

/// Part of a recording that a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// First second; `None` for the start.
    pub from: Option<f64>,
    /// Last second; `None` for the end.
    pub to: Option<f64>,
    /// Process; `None` for all.
    pub pid: Option<Pid>,
}

impl Window {
    fn has(self, end: f64) -> bool {
        // A slice counts if it ends inside.
        self.from.is_none_or(|from| end > from) && self.to.is_none_or(|to| end <= to + 1e-9)
    }
}

/// A recording as tracks.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Head of the recording.
    pub head: Head,
    /// Whether it is a journal alone, without metrics and without an end.
    pub is_journal: bool,
    /// Part that was read.
    pub window: Window,
    /// Metrics of the system.
    pub system: Track,
    /// Processes, in order of appearance.
    pub processes: Vec<ProcessTrack>,
    /// Phases that the recording names.
    pub phases: Vec<Phase>,
    /// Warnings of the recording.
    pub warnings: Vec<String>,
    /// End of the recording, unless it was cut.
    pub end: Option<End>,
    /// Rounds of its journal.
    pub(crate) rounds: Rounds,
    /// Runs and trials that are over.
    pub(crate) trials: Vec<RecordedTrial>,
    /// JSON that the command printed.
    pub(crate) reports: Vec<Value>,
    /// Last time in it, in seconds since its start.
    pub duration: f64,
    /// Lines of processes or threads beyond the limits.
    pub ignored: u64,
    /// A track of a thread without slices.
    pub(crate) no_thread: Track,
    current: HashMap<Pid, usize>,
    threads: usize,
    /// Length of the JSON in `reports`.
    report_bytes: usize,
}

/// Tracks of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessTrack {
    /// Pid.
    pub pid: Pid,
    /// Name, the last if it started other programs.
    pub name: String,
    /// Start time in clock ticks; 0 if the recording does not have it.
    pub start_ticks: u64,
    /// Metrics of the process.
    pub track: Track,
    /// Base, THP and hugetlb bytes.
    pub pages: Track,
    /// Samples, samples with an address, scattered ones.
    pub stalls: Track,
    /// Threads with their names.
    pub threads: BTreeMap<Tid, (String, Track)>,
    /// Stall samples of threads.
    pub(crate) thread_stalls: ThreadStallTrack,
    /// Heat by region and time.
    pub(crate) heat: HeatTrack,
    /// Stalls by code.
    pub code: CodeTrack,
    /// Mappings over time.
    pub(crate) areas: Areas,
    /// The mappings when they were last read.
    pub(crate) last_pages: Option<PageSlice>,
    /// The last ones before the window, until the process has a slice in it.
    earlier_pages: Option<PageSlice>,
}

impl ProcessTrack {
    fn new(head: &Head, pid: Pid) -> Self {
        Self {
            pid,
            name: String::new(),
            start_ticks: 0,
            track: Track::new(kinds(head, MetricScope::Process)),
            pages: Track::new(vec![MetricKind::Gauge; 3]),
            stalls: Track::new(vec![MetricKind::Counter; 3]),
            threads: BTreeMap::new(),
            thread_stalls: ThreadStallTrack::default(),
            heat: HeatTrack::default(),
            code: CodeTrack::default(),
            areas: Areas::default(),
            last_pages: None,
            earlier_pages: None,
        }
    }

    /// Adds the pages of a slice.
    #[allow(clippy::cast_precision_loss)]
    fn add_pages(&mut self, slot: Slot, pages: PageSlice) {
        let (mut base, mut thp, mut hugetlb) = (0.0, 0.0, 0.0);
        for mapping in &pages.mappings {
            let huge = mapping.thp_bytes.saturating_add(mapping.hugetlb_bytes);
            base += mapping.resident_bytes.saturating_sub(huge) as f64;
            thp += mapping.thp_bytes as f64;
            hugetlb += mapping.hugetlb_bytes as f64;
        }
        self.pages.push(slot, &[Some(base), Some(thp), Some(hugetlb)]);
        self.last_pages = Some(pages);
    }

    /// Whether pages are known that were read after `time`.
    fn has_pages_after(&self, time: Nanos) -> bool {
        self.earlier_pages.iter().chain(&self.last_pages).any(|read| read.time > time)
    }

    /// A copy of the metrics and stall samples alone.
    pub(crate) fn clone_tracks(&self) -> Self {
        Self {
            track: self.track.clone(),
            stalls: self.stalls.clone(),
            pages: self.pages.clone(),
            threads: BTreeMap::new(),
            thread_stalls: ThreadStallTrack::default(),
            heat: HeatTrack::default(),
            code: CodeTrack::default(),
            areas: Areas::default(),
            last_pages: None,
            earlier_pages: None,
            name: self.name.clone(),
            ..*self
        }
    }

    /// Name and pid, for headings.
    pub fn title(&self) -> String {
        if self.name.is_empty() {
            return format!("process {}", self.pid);
        }
        format!("{} (pid {})", self.name, self.pid)
    }
}

/// Metrics of `scope`, in the order of the values of its slices.
pub(crate) fn metrics(head: &Head, scope: MetricScope) -> impl Iterator<Item = &Metric> {
    head.metrics.iter().filter(move |metric| metric.scope == scope)
}

/// Column of a metric of processes.
pub(crate) fn column(head: &Head, name: &str) -> Option<usize> {
    metrics(head, MetricScope::Process).position(|metric| metric.name == name)
}

fn kinds(head: &Head, scope: MetricScope) -> Vec<MetricKind> {
    metrics(head, scope).map(|metric| metric.kind).collect()
}

impl Timeline {
    /// A recording without lines.
    pub fn new(head: Head, window: Window) -> Self {
        let system = Track::new(kinds(&head, MetricScope::System));
        let no_thread = Track::new(kinds(&head, MetricScope::Thread));
        Self {
            head,
            is_journal: false,
            window,
            system,
            no_thread,
            processes: Vec::new(),
            phases: Vec::new(),
            warnings: Vec::new(),
            end: None,
            rounds: Rounds::default(),
            trials: Vec::new(),
            reports: Vec::new(),
            duration: 0.0,
            ignored: 0,
            current: HashMap::new(),
            threads: 0,
            report_bytes: 0,
        }
    }

    /// Adds a line.
    pub fn add(&mut self, line: Line) {
        match line {
            Line::Process(process) => self.process(process),
            Line::Slice(slice) => self.slice(&slice),
            Line::Pages(pages) => self.pages(pages),
            Line::Heat(heat) => self.heat(&heat),
            Line::Code(code) => {
                let end = self.seconds(code.time);
                if let Some(process) = self.visible(code.pid, end) {
                    process.code.add(&code, end);
                }
            }
            Line::Phase(mut phase) if self.phases.len() < MAX_PHASES => {
                // A program can begin a phase before its first slice begins.
                phase.time = phase.time.max(self.head.started);
                self.duration = self.duration.max(self.seconds(phase.time));
                self.phases.push(phase);
            }
            Line::Warning(warning) if self.warnings.len() < MAX_WARNINGS => {
                self.warnings.push(warning);
            }
            Line::Phase(_) | Line::Warning(_) => self.ignored += 1,
            Line::End(end) => {
                self.duration = self.duration.max(self.seconds(end.time));
                self.end = Some(end);
            }
            Line::Journal(line) => self.journal(line),
            Line::Trial(trial) if self.trials.len() < MAX_RESULTS => {
                self.duration = self.duration.max(self.seconds(trial.time));
                // A report shows its time only.
                self.trials.push(RecordedTrial { result: Value::Null, ..trial });
            }
            Line::Report(report) if self.has_room(&report) => self.reports.push(report),
            Line::Trial(_) | Line::Report(_) => self.ignored += 1,
            Line::Head(_) => {}
        }
    }

    /// Whether there is room for the JSON of a command.
    fn has_room(&mut self, report: &Value) -> bool {
        self.report_bytes = self.report_bytes.saturating_add(report.to_string().len());
        self.reports.len() < MAX_RESULTS && self.report_bytes <= MAX_REPORT_BYTES
    }

    /// Whether its time is that of a simulation, which starts at 0.
    pub(crate) fn is_simulated(&self) -> bool {
        self.head.started == Nanos::ZERO
    }

    /// Time from which its times count.
    pub(crate) const fn origin(&self) -> TimeOrigin {
        if self.is_journal { TimeOrigin::FirstObservation } else { TimeOrigin::RecordingStart }
    }

    /// Adds a line of a journal, and what it shows of the processes.
    fn journal(&mut self, line: Value) {
        match self.rounds.add(line) {
            Ok(lines) => lines.into_iter().for_each(|line| self.add(line)),
            Err(cause) => self.add(Line::Warning(format!("a round is not shown: {cause}"))),
        }
    }

    /// Times and values of a metric of a process, where it was read.
    pub(crate) fn values<'a>(
        &self,
        process: &'a ProcessTrack,
        name: &str,
    ) -> impl Iterator<Item = (f64, f64)> + use<'a> {
        let values =
            column(&self.head, name).map_or(&[][..], |column| process.track.column(column));
        let times = process.track.slots().iter().map(|slot| slot.end);
        times.zip(values.iter().copied()).filter(|(_, value)| value.is_finite())
    }

    /// Sum of a counter of a process; `None` without any value.
    pub(crate) fn sum(&self, process: &ProcessTrack, name: &str) -> Option<f64> {
        self.values(process, name).map(|(_, value)| value).reduce(|a, b| a + b)
    }

    /// Seconds since [`Self::origin`].
    pub(crate) fn seconds(&self, time: Nanos) -> f64 {
        time.as_seconds() - self.head.started.as_seconds()
    }

    fn process(&mut self, process: RecordedProcess) {
        if self.window.pid.is_some_and(|pid| pid != process.id.pid) {
            return;
        }
        let known = self.current.get(&process.id.pid).copied();
        let is_other = known.is_some_and(|index| {
            let ticks = self.processes[index].start_ticks;
            ticks != 0 && ticks != process.id.start_ticks
        });
        if is_other {
            // The kernel gave the pid to another process.
            self.current.remove(&process.id.pid);
        }
        let Some(track) = self.track(process.id.pid) else { return };
        track.name = process.id.command;
        track.start_ticks = process.id.start_ticks;
        for thread in process.threads.into_iter().take(MAX_THREADS) {
            if let Some((name, _)) = track.threads.get_mut(&thread.tid) {
                *name = thread.name;
            } else if track.threads.len() < MAX_THREADS {
                track.threads.insert(thread.tid, (thread.name, Track::new(Vec::new())));
            }
        }
    }

    /// The track of a process, unless there are too many or the report is about another.
    fn track(&mut self, pid: Pid) -> Option<&mut ProcessTrack> {
        if self.window.pid.is_some_and(|wanted| wanted != pid) {
            return None;
        }
        if let Some(&index) = self.current.get(&pid) {
            return Some(&mut self.processes[index]);
        }
        if self.processes.len() >= MAX_PROCESSES {
            self.ignored += 1;
            return None;
        }
        self.current.insert(pid, self.processes.len());
        self.processes.push(ProcessTrack::new(&self.head, pid));
        self.processes.last_mut()
    }

    /// The track of a process for a slice that ends at `end`, if the report is about it.
    fn visible(&mut self, pid: Pid, end: f64) -> Option<&mut ProcessTrack> {
        self.duration = self.duration.max(end);
        if !self.window.has(end) {
            return None;
        }
        let from = self.window.from.unwrap_or_default();
        let process = self.track(pid)?;
        if let Some(pages) = process.earlier_pages.take() {
            process.add_pages(Slot { end: from, length: 0.0 }, pages);
        }
        Some(process)
    }

    fn slice(&mut self, slice: &Slice) {
        let slot = Slot { end: self.seconds(slice.time), length: slice.length.as_seconds() };
        let Some(pid) = slice.pid else {
            self.duration = self.duration.max(slot.end);
            if self.window.has(slot.end) {
                self.system.push(slot, &slice.values);
                self.system.groups.add(&slice.groups);
            }
            return;
        };
        let kinds = slice.tid.map(|_| kinds(&self.head, MetricScope::Thread));
        let has_room = self.threads < MAX_ALL_THREADS;
        let Some(process) = self.visible(pid, slot.end) else { return };
        let (Some(tid), Some(kinds)) = (slice.tid, kinds) else {
            process.track.push(slot, &slice.values);
            process.track.groups.add(&slice.groups);
            return;
        };
        let is_room = has_room && process.threads.len() < MAX_THREADS;
        let is_known =
            process.threads.get(&tid).is_some_and(|(_, track)| !track.slots().is_empty());
        if !is_known && !is_room && !process.threads.contains_key(&tid) {
            self.ignored += 1;
            return;
        }
        let entry = process.threads.entry(tid);
        let (_, track) = entry.or_insert_with(|| (String::new(), Track::new(Vec::new())));
        if track.slots().is_empty() {
            *track = Track::new(kinds);
        }
        track.push(slot, &slice.values);
        track.groups.add(&slice.groups);
        self.threads += usize::from(!is_known);
    }

    /// A recording has the pages when they change, so those before the window hold in it, and the
    /// names of mappings in all of it.
    fn pages(&mut self, pages: PageSlice) {
        let (end, length) = (self.seconds(pages.time), self.head.every.as_seconds());
        let is_earlier = self.window.from.is_some_and(|from| end <= from);
        let Some(process) = self.track(pages.pid) else { return };
        pages.mappings.iter().for_each(|one| process.areas.add(one.range, &one.name));
        // A round is written at its end, after slices that read the pages later than it did.
        if process.has_pages_after(pages.time) {
            return;
        }
        if is_earlier {
            process.earlier_pages = Some(pages);
        } else if let Some(process) = self.visible(pages.pid, end) {
            process.add_pages(Slot { end, length }, pages);
        }
        self.duration = self.duration.max(end);
    }

    #[allow(clippy::cast_precision_loss)]
    fn heat(&mut self, heat: &HeatSlice) {
        let slot = Slot { end: self.seconds(heat.time), length: heat.length.as_seconds() };
        if let Some(process) = self.track(heat.pid).filter(|_| !heat.mappings.is_empty()) {
            heat.mappings
                .iter()
                .for_each(|NamedMapping(range, name)| process.areas.add(*range, name));
        }
        let Some(process) = self.visible(heat.pid, slot.end) else { return };
        let values = [heat.samples, heat.addressed, heat.scattered];
        process.stalls.push(slot, &values.map(|value| Some(value as f64)));
        process.heat.add(slot, &heat.regions);
        process.thread_stalls.add(slot, heat);
    }
}
