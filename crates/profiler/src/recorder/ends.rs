//! Begin and end of a recording, and pauses in it.

use hugepilot_kernel::{LastUse, Process, clock};
use hugepilot_record::{Pid, ProvenanceCounts};
use hugepilot_recording::{End, Line};
use hugepilot_units::Nanos;

use super::process::SliceContext;
use super::system::SystemSlices;
use super::{Recorder, RecorderCounts, Stalls};

impl Recorder {
    /// Begins the recording again: all values, samples and lines so far are dropped.
    pub fn begin(&mut self) {
        let _ = self.search_children((self.clock.now)());
        self.sample(Nanos::ZERO);
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        self.restart();
        for pid in pids {
            for source in &mut self.sources {
                source.detach(pid);
            }
            if let Ok(process) = Process::open(&self.root, pid) {
                self.watch(process);
            }
        }
        self.restart_tree();
    }

    /// Begins a recording of nothing now, for a part of a run that does not begin.
    pub fn begin_empty(&mut self) {
        self.restart();
        self.tree = None;
    }

    fn restart(&mut self) {
        self.processes.clear();
        self.pending.clear();
        self.counts = RecorderCounts::default();
        self.unrecorded = self.sampled();
        self.too_many = false;
        self.own_cpu = clock::own_cpu_time();
        self.started = (self.clock.now)();
        self.restart_system(self.started);
    }

    /// Begins a slice of the system now: the time since the last one is in no slice.
    pub fn resume(&mut self) {
        self.restart_system((self.clock.now)());
    }

    fn restart_system(&mut self, now: Nanos) {
        let counters = self.system.take_counters();
        self.system = SystemSlices::new(&self.root, self.sizes, self.options.every, now);
        self.system.count(counters);
    }

    /// Returns the lines that wait for the next slice, such as warnings.
    pub fn take_pending(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.pending)
    }

    /// Returns the state of the processes before their first slice: gauges, without counters.
    pub fn opening(&mut self) -> Vec<Line> {
        let now = (self.clock.now)();
        let mut lines = self.take_pending();
        let Self { processes, sources, widths, clock, .. } = self;
        let (clock, count) = (*clock, processes.len());
        let (is_last, awaited) = (false, None);
        let context =
            SliceContext { now, is_last, awaited, clock, sources, widths, processes: count };
        processes.values_mut().for_each(|process| process.opening(&context, &mut lines));
        self.counts.count(&lines);
        lines
    }

    /// Keeps a process after its end, until the last slice: [`Self::ended`] then has its values.
    /// Its use with all its descendants is counted from now on.
    pub fn await_end(&mut self, pid: Pid) {
        self.awaited = Some(pid);
        self.count_tree(pid);
    }

    /// Notes the use of a process until its end. It was reaped.
    pub fn ended(&mut self, last: &LastUse) {
        self.end_tree(last);
        if let Some(process) = self.processes.get_mut(&last.stat.pid) {
            process.end(last.clone());
        }
    }

    /// Ends the last slice and returns the last lines. `exit`: how the program ended, if hugepilot
    /// started it.
    pub fn finish(&mut self, exit: Option<String>) -> Vec<Line> {
        self.sample(Nanos::ZERO);
        let time = (self.clock.now)();
        let mut lines = self.slice_at(time, true);
        lines.extend(self.end_at(time, exit));
        lines
    }

    /// Closes the sampler and the counters after the last line: a program that runs on would bear
    /// their cost.
    pub fn close(&mut self) {
        self.unrecorded = ProvenanceCounts::default();
        self.stalls = Stalls::Missing("the recording is over".to_owned());
        self.sources.clear();
        self.system.take_counters();
        self.processes.clear();
    }

    /// Returns the last lines of a recording without slices, which ends where it began.
    pub fn end_empty(&mut self, exit: Option<String>) -> Vec<Line> {
        self.end_at(self.started, exit)
    }

    /// Returns the last lines, without a last slice.
    pub fn end(&mut self) -> Vec<Line> {
        self.end_at((self.clock.now)(), None)
    }

    fn end_at(&mut self, time: Nanos, exit: Option<String>) -> Vec<Line> {
        let mut lines = self.take_pending();
        let samples = self.counts().samples;
        if samples.lost > 0 {
            let noun = if samples.lost == 1 { "sample" } else { "samples" };
            lines.push(Line::Warning(format!("the kernel lost {} {noun}", samples.lost)));
        }
        let few_callers = self.options.callers.then(|| self.counts.few_callers()).flatten();
        lines.extend(few_callers.map(Line::Warning));
        let (own_cpu, tree) = (self.own_cpu(), self.tree_use());
        lines.push(Line::End(End { time, exit, samples, own_cpu, tree, span: None }));
        lines
    }
}
