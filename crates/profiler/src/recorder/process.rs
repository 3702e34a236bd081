//! Slices of one process: its own metrics, those of its threads, and its mappings.

use hugepilot_kernel::{
    HugeSums, KernelError, LastUse, Process, ProcessMeter, ProcessUsage, Target,
};
use hugepilot_record::{LargePages, Mapping, MappingKind, MetricKind, Pid, Sample, Tid};
use hugepilot_recording::{Line, MappingPages, PageSlice, RecordedProcess, Slice, ThreadInfo};
use hugepilot_units::{Bytes, Nanos, VirtAddr};

use super::code::CodeStalls;
use super::heat::HeatCounts;
use super::metrics::{FRAMES, MAPPING_SUMS, PROCESS, THREAD_SUMS};
use super::pace::{Clocks, Pace};
use super::source::{MetricSource, MetricValues, Widths};
use super::threads::{ThreadSlice, ThreadSums, Threads};
use super::tree::Use;
use crate::large_pages;

/// Mappings of a look, the largest ones.
const MAX_MAPPINGS: usize = 512;
/// Shortest time between two reads of huge pages, of mappings, between two slices of code, and
/// between two reads of their symbols.
const HUGE_EVERY: Nanos = Nanos::millis(100);
const MAPPINGS_EVERY: Nanos = Nanos::seconds(1);
const CODE_EVERY: Nanos = Nanos::millis(100);
const SYMBOLS_EVERY: Nanos = Nanos::seconds(10);

/// A recorded process.
pub(super) struct ProcessSlices {
    process: Process,
    meter: ProcessMeter,
    before: ProcessUsage,
    /// Use at the end of the process, which was reaped.
    last: Option<LastUse>,
    /// Resident memory when it was opened.
    held: Bytes,
    since: Nanos,
    threads: Threads,
    /// Pace of reading which memory is huge, an eighteenth of the cost of reading the mappings.
    huge_pace: Pace,
    mapping_pace: Pace,
    code_pace: Pace,
    /// Pace of reading symbols for the slices of code that ended.
    symbol_pace: Pace,
    pages: Vec<MappingPages>,
    heat: HeatCounts,
    code: CodeStalls,
    /// Whether another program was started, so that addresses have lost their meaning.
    execed: bool,
}

/// Inputs of a slice.
pub(super) struct SliceContext<'a> {
    pub(super) now: Nanos,
    /// Whether it is the last slice of the recording, in which everything is due.
    pub(super) is_last: bool,
    /// Process that is kept after its end, until the last slice.
    pub(super) awaited: Option<Pid>,
    pub(super) clock: Clocks,
    pub(super) sources: &'a mut [Box<dyn MetricSource>],
    /// Numbers of the metrics and groups of each source.
    pub(super) widths: &'a [Widths],
    /// Recorded processes.
    pub(super) processes: usize,
}

impl SliceContext<'_> {
    /// Values of a slice of a process.
    fn width(&self) -> usize {
        let own = PROCESS.len() + THREAD_SUMS.len() + MAPPING_SUMS.len() + FRAMES.len();
        own + self.widths.iter().map(|widths| widths.metrics).sum::<usize>()
    }
}

impl ProcessSlices {
    /// Opens the files of `process`. Its first slice begins at `since`; if it `is_new`, with all
    /// that it used so far.
    pub(super) fn new(
        process: Process,
        since: Nanos,
        is_new: bool,
        every: Nanos,
    ) -> Result<Self, KernelError> {
        let meter = process.meter()?;
        let mut before = meter.read()?;
        let threads = Threads::new((!is_new).then_some(&process), every, since);
        if is_new {
            let stat = &mut before.stat;
            (stat.minor_faults, stat.major_faults) = (0, 0);
            (stat.user, stat.system) = (Nanos::ZERO, Nanos::ZERO);
        }
        let heat = HeatCounts::new(process.sizes(), since);
        Ok(Self {
            process,
            meter,
            held: before.resident,
            before,
            last: None,
            since,
            threads,
            huge_pace: Pace::new(HUGE_EVERY.max(every), since).at_once(),
            mapping_pace: Pace::new(MAPPINGS_EVERY.max(every), since).at_once(),
            code_pace: Pace::new(CODE_EVERY.max(every), since),
            symbol_pace: Pace::new(SYMBOLS_EVERY, since),
            pages: Vec::new(),
            heat,
            code: CodeStalls::new(since),
            execed: false,
        })
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    /// Its parent at the last reading.
    pub(super) const fn parent(&self) -> Pid {
        self.before.stat.parent
    }

    /// Its use until the last reading, with that of the children that it waited for.
    pub(super) fn tree_use(&self) -> Use {
        Use::of(&self.before.stat)
    }

    /// Notes that the process started another program.
    pub(super) const fn exec(&mut self) {
        self.execed = true;
    }

    /// Notes its use at its end.
    pub(super) fn end(&mut self, last: LastUse) {
        self.last = Some(last);
    }

    /// Reads its use so far, or else has that at its end.
    fn read_usage(&self) -> Option<ProcessUsage> {
        let gone = |last: &LastUse| {
            let (resident, shared) = (Bytes::ZERO, Bytes::ZERO);
            ProcessUsage { stat: last.stat.clone(), resident, shared }
        };
        self.meter.read().ok().or_else(|| self.last.as_ref().map(gone))
    }

    /// Threads that are known.
    pub(super) fn tids(&self) -> impl Iterator<Item = Tid> {
        self.threads.tids()
    }

    /// Returns the line that introduces the process.
    pub(super) fn line(&self, time: Nanos) -> Line {
        let mut threads = self.threads.names();
        if threads.is_empty() {
            let id = self.process.id();
            threads.push(ThreadInfo { tid: Tid(id.pid.0), name: id.command.clone() });
        }
        Line::Process(RecordedProcess { time, id: self.process.id().clone(), threads })
    }

    /// Counts a stall sample. `callers`: return addresses, the nearest first.
    pub(super) fn add(
        &mut self,
        sample: &Sample,
        callers: &[VirtAddr],
        clock: Clocks,
    ) -> Vec<Line> {
        self.heat.add(sample);
        self.code.add(&self.process, sample, callers, clock);
        if self.code.is_full() { self.take_code((clock.now)()) } else { Vec::new() }
    }

    /// Ends the slice of code at `until`.
    pub(super) fn cut_code(&mut self, until: Nanos) {
        self.code.cut(until);
    }

    fn take_code(&mut self, until: Nanos) -> Vec<Line> {
        self.code.cut(until);
        self.code.take(self.pid()).into_iter().map(Line::Code).collect()
    }

    fn pid(&self) -> Pid {
        self.process.id().pid
    }

    /// Appends the gauges as they were when the process was opened, and its mappings.
    pub(super) fn opening(&mut self, context: &SliceContext<'_>, lines: &mut Vec<Line>) {
        let values = PROCESS.iter().zip(values_of(&self.before, &self.before));
        let gauges = values.map(|(row, value)| value.filter(|_| row.2 == MetricKind::Gauge));
        let mut values: Vec<_> = gauges.collect();
        values.resize(context.width(), None);
        lines.push(self.line_of(self.since, Nanos::ZERO, None, of(values)));
        self.mapping_slice(context, lines);
    }

    /// Appends the lines of the slice that ends now. Returns whether the process lives.
    pub(super) fn slice(&mut self, context: &mut SliceContext<'_>, lines: &mut Vec<Line>) -> bool {
        let usage = self.read_usage();
        if usage.is_none() && context.awaited == Some(self.pid()) && !context.is_last {
            return true;
        }
        let lives = usage.as_ref().is_some_and(|usage| !usage.stat.is_zombie());
        if let Some(usage) = &usage {
            self.follow_exec(usage, context.now, lines);
        }
        self.usage(usage, context, lines);
        if !lives || context.is_last || self.threads.is_due(context.now) {
            self.thread_slices(context, lines);
        }
        if lives && (context.is_last || self.mapping_pace.is_due(context.now)) {
            self.mapping_slice(context, lines);
        }
        self.code_slice(lives, context, lines);
        let heat = self.heat.slice(self.pid(), context.now, self.code.layouts());
        lines.extend(heat.map(Line::Heat));
        lives
    }

    /// Ends a slice of code, and appends those that ended, if either is due.
    fn code_slice(&mut self, lives: bool, context: &SliceContext<'_>, lines: &mut Vec<Line>) {
        let is_last = !lives || context.is_last;
        if is_last || self.code_pace.is_due(context.now) {
            // The mappings have a pace of their own.
            self.code_pace.done(context.now, Nanos::ZERO);
            self.code.read_layout(&self.process, context.clock);
            if self.code.is_due(context.now) {
                self.cut_code(context.now);
            }
        }
        if is_last || self.symbol_pace.is_due(context.now) {
            lines.extend(self.take_code(context.now));
            // The first reading of debug information is slow, and cached: the next need not rest.
            self.symbol_pace.done(context.now, Nanos::ZERO);
        }
    }

    /// Opens the process again if it started another program since the last slice, and introduces
    /// it again.
    pub(super) fn refresh(&mut self, now: Nanos, lines: &mut Vec<Line>) {
        if let Ok(usage) = self.meter.read() {
            let introduced = lines.len();
            self.follow_exec(&usage, now, lines);
            self.before.stat.start_stack = usage.stat.start_stack;
            if lines.len() == introduced {
                lines.push(self.line(now));
            }
        }
    }

    /// Opens the process again if it started another program.
    fn follow_exec(&mut self, usage: &ProcessUsage, now: Nanos, lines: &mut Vec<Line>) {
        let stack = |usage: &ProcessUsage| usage.stat.start_stack;
        // Without permission, and of a process that ends, the bottom of the stack is 0.
        let has_moved = match (stack(&self.before), stack(usage)) {
            (0, 0) => self.execed,
            (old, new) => new != 0 && old != new,
        };
        self.execed = false;
        if !has_moved || usage.stat.is_zombie() {
            return;
        }
        lines.extend(self.take_code(now));
        let Ok(process) = Process::open(self.process.root(), self.pid()) else { return };
        self.heat.forget_memory();
        self.code = CodeStalls::new(now);
        self.process = process;
        self.threads.exec(Tid(self.pid().0), &usage.stat.command);
        self.mapping_pace = self.mapping_pace.at_once();
        self.huge_pace = self.huge_pace.at_once();
        lines.push(self.line(now));
    }

    /// Appends the slice of the metrics that are read each time. Without `usage`, those of events:
    /// their counts outlive the process.
    fn usage(
        &mut self,
        usage: Option<ProcessUsage>,
        context: &mut SliceContext<'_>,
        lines: &mut Vec<Line>,
    ) {
        let length = context.now - self.since;
        if length == Nanos::ZERO {
            return;
        }
        self.since = context.now;
        let has_usage = usage.is_some();
        let mut values = Vec::new();
        if let Some(usage) = usage {
            let before = std::mem::replace(&mut self.before, usage);
            values.extend(values_of(&before, &self.before));
            values.resize(PROCESS.len() + THREAD_SUMS.len(), None);
            values.extend(self.huge_sums(context));
        }
        values.resize(PROCESS.len() + THREAD_SUMS.len() + MAPPING_SUMS.len() + FRAMES.len(), None);
        let first = values.len();
        let mut values = of(values);
        for (source, widths) in context.sources.iter_mut().zip(context.widths) {
            let more = source.read(self.pid()).unwrap_or_default();
            values.append(more, widths.metrics, widths.groups);
        }
        values.drop_unused_groups();
        if !has_usage && values.values[first..].iter().all(Option::is_none) {
            return;
        }
        lines.push(self.line_of(context.now, length, None, values));
    }

    /// Memory on huge pages, if a read is due, as the values of [`MAPPING_SUMS`], and for the heat.
    /// If it cannot be read so, the mappings have the values at their own pace.
    fn huge_sums(&mut self, context: &SliceContext<'_>) -> [Option<f64>; MAPPING_SUMS.len()] {
        let is_alive = !self.before.stat.is_zombie();
        if !is_alive || !(context.is_last || self.huge_pace.is_due(context.now)) {
            return [None; MAPPING_SUMS.len()];
        }
        let began = (context.clock.cpu)();
        let mut runs = Vec::new();
        let sums = self.process.huge_runs(&mut |run| runs.push(run)).ok();
        if sums.is_some() {
            self.heat.set_huge(runs);
        }
        self.huge_pace.done(context.now, (context.clock.cpu)() - began);
        let value = |of: fn(HugeSums) -> Bytes| sums.map(|sums| of(sums).get() as f64);
        [value(|sums| sums.thp), value(|sums| sums.hugetlb), None]
    }

    fn line_of(&self, time: Nanos, length: Nanos, tid: Option<Tid>, values: MetricValues) -> Line {
        let MetricValues { values, groups } = values;
        Line::Slice(Slice { time, length, pid: Some(self.pid()), tid, values, groups })
    }

    /// Appends a slice for each thread, and their sums to the slice of the process if that is as
    /// long. The sums of a process that was reaped are those that the kernel counted until its end,
    /// unless they include its children.
    fn thread_slices(&mut self, context: &mut SliceContext<'_>, lines: &mut Vec<Line>) {
        let last = self.last.as_ref().and_then(LastUse::own_usage);
        if let Some(usage) = last {
            let (length, sums) = self.threads.end(usage, self.held, context.now);
            lines.push(self.sums_line(context, length, sums));
            return;
        }
        let slice = self.threads.slice(&self.process, context);
        let Some(ThreadSlice { length, threads, sums, has_new }) = slice else { return };
        if threads.is_empty() {
            return;
        }
        // The slice of the process has just been appended.
        match lines.last_mut() {
            Some(Line::Slice(own)) if (own.time, own.length) == (context.now, length) => {
                own.values[PROCESS.len()..][..THREAD_SUMS.len()].copy_from_slice(&sums);
            }
            _ => lines.push(self.sums_line(context, length, sums)),
        }
        for (tid, values) in threads {
            lines.push(self.line_of(context.now, length, Some(tid), values));
        }
        if has_new {
            lines.push(self.line(context.now));
        }
    }

    fn sums_line(&self, context: &SliceContext<'_>, length: Nanos, sums: ThreadSums) -> Line {
        let mut values = vec![None; PROCESS.len()];
        values.extend(sums);
        values.resize(context.width(), None);
        self.line_of(context.now, length, None, of(values))
    }

    /// Appends the mappings, if they changed, and their sums.
    fn mapping_slice(&mut self, context: &SliceContext<'_>, lines: &mut Vec<Line>) {
        let began = (context.clock.cpu)();
        let mappings = self.process.mappings();
        let large =
            mappings.as_ref().ok().and_then(|all| large_pages(&self.process, all, false).ok()?);
        let length = self.mapping_pace.done(context.now, (context.clock.cpu)() - began);
        let Ok(mappings) = mappings else { return };
        if length == Nanos::ZERO {
            return;
        }
        let sum = |of: fn(&Mapping) -> Bytes| {
            Some(mappings.iter().map(of).map(Bytes::get).sum::<u64>() as f64)
        };
        let mut values = vec![None; PROCESS.len() + THREAD_SUMS.len()];
        values.extend([sum(thp), sum(hugetlb), sum(|mapping| mapping.swapped)]);
        let of_frames = |of: fn(&LargePages) -> Bytes| Some(of(large.as_ref()?).get() as f64);
        values.extend([of_frames(|large| large.smaller), of_frames(LargePages::stranded_bytes)]);
        values.resize(context.width(), None);
        lines.push(self.line_of(context.now, length, None, of(values)));
        let pages = largest(&mappings);
        if pages != self.pages {
            self.pages.clone_from(&pages);
            let (time, pid) = (context.now, self.pid());
            lines.push(Line::Pages(PageSlice { time, pid, mappings: pages }));
        }
    }
}

/// Values without groups.
const fn of(values: Vec<Option<f64>>) -> MetricValues {
    MetricValues { values, groups: Vec::new() }
}

/// Returns the values of [`PROCESS`] between two readings.
fn values_of(before: &ProcessUsage, now: &ProcessUsage) -> [Option<f64>; PROCESS.len()] {
    let (old, new) = (&before.stat, &now.stat);
    let increase = |old: u64, new: u64| Some(new.saturating_sub(old) as f64);
    // A zombie has no memory, which says nothing about the program.
    let gauge = |value: u64| (!new.is_zombie()).then_some(value as f64);
    [
        increase(old.minor_faults, new.minor_faults),
        increase(old.major_faults, new.major_faults),
        increase(old.user.get(), new.user.get()),
        increase(old.system.get(), new.system.get()),
        gauge(new.threads),
        gauge(now.resident.get()),
        gauge((now.resident - now.shared).get()),
    ]
}

fn thp(mapping: &Mapping) -> Bytes {
    if mapping.kind == MappingKind::Hugetlb { Bytes::ZERO } else { mapping.huge }
}

fn hugetlb(mapping: &Mapping) -> Bytes {
    if mapping.kind == MappingKind::Hugetlb { mapping.huge } else { Bytes::ZERO }
}

/// Returns the mappings with resident memory, the largest ones if there are many.
fn largest(mappings: &[Mapping]) -> Vec<MappingPages> {
    let resident =
        |mapping: &&Mapping| mapping.resident > Bytes::ZERO || mapping.huge > Bytes::ZERO;
    let mut kept: Vec<&Mapping> = mappings.iter().filter(resident).collect();
    if kept.len() > MAX_MAPPINGS {
        kept.sort_by_key(|mapping| std::cmp::Reverse(mapping.resident.max(mapping.huge)));
        kept.truncate(MAX_MAPPINGS);
        kept.sort_by_key(|mapping| mapping.range.start);
    }
    let pages = |mapping: &Mapping| MappingPages {
        range: mapping.range,
        name: mapping.label().to_owned(),
        resident_bytes: mapping.resident.max(mapping.huge).get(),
        thp_bytes: thp(mapping).get(),
        hugetlb_bytes: hugetlb(mapping).get(),
    };
    kept.into_iter().map(pages).collect()
}
