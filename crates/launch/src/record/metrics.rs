//! Metrics of processes, recorded by a thread while another command works.
//!
//! The command samples stalls itself and writes its rounds. The thread adds what `/proc` has, in
//! slices of time, so that both are on one axis.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use hugepilot_kernel::{Process, Root, clock, memory};
use hugepilot_profiler::recorder::{Recorder, RecorderOptions, Stalls};
use hugepilot_record::Pid;
use hugepilot_recording::{Head, Line};
use hugepilot_units::{Nanos, PageSizes};

use super::{next_due, unix_seconds};

/// Settings of the metrics beside a command.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Length of a slice.
    pub every: Nanos,
    /// Processes that are recorded from the start.
    pub processes: Vec<Pid>,
    /// Whether the processes that a recorded process starts are recorded, too.
    pub with_children: bool,
    /// Processes that are recorded at a time.
    pub max_processes: usize,
    /// Time after which a process that came later is dropped, unless it comes again. Without
    /// processes there are no slices. `None`: processes are recorded to their end.
    pub keep: Option<Nanos>,
    /// Name of the stall samples of the command, or why it has none over time.
    pub sampler: Result<String, String>,
}

/// Thread that records metrics. Ends on drop, after its last slice.
#[derive(Debug)]
pub struct MetricsThread {
    /// `None` at its end.
    watched: Option<Sender<Pid>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsThread {
    /// Starts it, once it has read the state of the first processes. `add` gets that and the lines
    /// of each slice after the returned head, and returns whether to go on; the last line is
    /// [`Line::End`].
    ///
    /// # Errors
    /// The size of pages is unknown, or no thread can be made.
    pub fn start(
        options: MetricsOptions,
        command_line: Vec<String>,
        mut add: impl FnMut(Vec<Line>) -> bool + Send + 'static,
    ) -> io::Result<(Head, Self)> {
        let root = Root::live();
        let sizes = memory::page_sizes(&root).map_err(io::Error::other)?;
        let (watched, pids) = channel();
        let (to_head, head) = channel();
        let work = move || {
            let mut follower = Follower::new(root, sizes, options);
            let head = follower.recorder.head(command_line, unix_seconds());
            // Before the caller has the head, and goes on.
            let opening = follower.recorder.opening();
            // Without a receiver, the caller has ended.
            if to_head.send(head).is_ok() && (opening.is_empty() || add(opening)) {
                follower.follow(&pids, add);
            }
        };
        let thread = Builder::new().name("metrics".to_owned()).spawn(work)?;
        let thread = Self { watched: Some(watched), thread: Some(thread) };
        let head = head.recv().map_err(io::Error::other)?;
        Ok((head, thread))
    }

    /// Records a process, too, from now on.
    pub fn watch(&self, pid: Pid) {
        // A thread that cannot write its lines has ended.
        let _ = self.watched.as_ref().map(|watched| watched.send(pid));
    }
}

impl Drop for MetricsThread {
    fn drop(&mut self) {
        self.watched = None;
        // A panic was printed; the recording then has no end.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Work of the thread.
struct Follower {
    root: Root,
    recorder: Recorder,
    every: Nanos,
    keep: Option<Nanos>,
    /// End of the recording of processes that came later.
    until: BTreeMap<Pid, Nanos>,
}

impl Follower {
    /// Records the first processes.
    fn new(root: Root, sizes: PageSizes, options: MetricsOptions) -> Self {
        let settings = RecorderOptions {
            every: options.every,
            with_children: options.with_children,
            max_processes: options.max_processes,
            rate_hz: 0,
            callers: false,
        };
        let stalls = options.sampler.map_or_else(Stalls::Missing, Stalls::Elsewhere);
        let recorder = Recorder::new(&root, sizes, settings, stalls, Vec::new());
        let (every, keep, until) = (options.every, options.keep, BTreeMap::new());
        let mut follower = Self { root, recorder, every, keep, until };
        options.processes.into_iter().for_each(|pid| follower.watch(pid));
        follower
    }

    fn watch(&mut self, pid: Pid) {
        match Process::open(&self.root, pid) {
            Ok(process) => _ = self.recorder.watch(process),
            Err(error) => self.recorder.warn(format!("process {pid} is not recorded: {error}")),
        }
    }

    /// Records slice after slice, until the other end of `pids` is dropped.
    fn follow(&mut self, pids: &Receiver<Pid>, mut add: impl FnMut(Vec<Line>) -> bool) {
        let mut due = clock::monotonic() + self.every;
        loop {
            match pids.recv_timeout((due - clock::monotonic()).into()) {
                Ok(pid) if self.watch_for_a_while(pid) => {
                    self.recorder.resume();
                    due = clock::monotonic() + self.every;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    due = next_due(due, self.every);
                    let lines = self.slice();
                    if !lines.is_empty() && !add(lines) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let is_idle = self.is_idle();
                    add(if is_idle { self.recorder.end() } else { self.recorder.finish(None) });
                    return;
                }
            }
        }
    }

    /// Whether there are no slices now.
    fn is_idle(&self) -> bool {
        self.keep.is_some() && !self.recorder.has_processes()
    }

    /// Records a process that came later. Returns whether it is the first after a pause.
    fn watch_for_a_while(&mut self, pid: Pid) -> bool {
        let was_idle = self.is_idle();
        self.until.extend(self.keep.map(|keep| (pid, clock::monotonic() + keep)));
        self.watch(pid);
        was_idle && !self.is_idle()
    }

    /// Ends a slice, unless idle, and drops processes whose time is over.
    fn slice(&mut self) -> Vec<Line> {
        let is_idle = self.is_idle();
        // Warnings do not gather until there are processes again.
        let lines = if is_idle { self.recorder.take_pending() } else { self.recorder.slice() };
        let now = clock::monotonic();
        let recorder = &mut self.recorder;
        self.until.retain(|&pid, until| {
            let stays = *until > now;
            if !stays {
                recorder.forget(pid);
            }
            stays
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use hugepilot_record::MetricScope;

    use super::*;

    type Lines = Arc<Mutex<Vec<Line>>>;

    const OPTIONS: MetricsOptions = MetricsOptions {
        every: Nanos::millis(10),
        processes: Vec::new(),
        with_children: false,
        max_processes: 2,
        keep: None,
        sampler: Err(String::new()),
    };

    fn start(options: MetricsOptions) -> (Head, MetricsThread, Lines) {
        let lines = Lines::default();
        let to = Arc::clone(&lines);
        let add = move |more| {
            to.lock().unwrap().extend::<Vec<Line>>(more);
            true
        };
        let (head, thread) = MetricsThread::start(options, Vec::new(), add).unwrap();
        (head, thread, lines)
    }

    /// Waits for a number of lines.
    fn await_lines(lines: &Lines, at_least: usize) {
        while lines.lock().unwrap().len() < at_least {
            std::thread::sleep(OPTIONS.every.into());
        }
    }

    /// Records `processes`, and `later` after some slices.
    fn recorded(processes: Vec<Pid>, later: &[Pid]) -> (Head, Vec<Line>) {
        let sampler = Ok("rounds".to_owned());
        let (head, thread, lines) = start(MetricsOptions { processes, sampler, ..OPTIONS });
        await_lines(&lines, 3);
        later.iter().for_each(|&pid| thread.watch(pid));
        await_lines(&lines, 10);
        drop(thread);
        let lines = std::mem::take(&mut *lines.lock().unwrap());
        (head, lines)
    }

    fn own() -> Pid {
        Pid(std::process::id().cast_signed())
    }

    #[test]
    fn a_process_is_recorded_to_the_end_of_the_command() {
        let (head, lines) = recorded(vec![own()], &[own()]);
        assert_eq!((head.every, head.sampler.as_deref()), (Nanos::millis(10), Some("rounds")));
        assert!(head.metrics.iter().any(|metric| metric.scope == MetricScope::Process));
        let introduced = lines.iter().filter(|line| matches!(line, Line::Process(_))).count();
        let times = lines.iter().filter_map(|line| match line {
            Line::Slice(slice) if slice.pid.is_some() => Some(slice.time),
            _ => None,
        });
        let times: Vec<Nanos> = times.collect();
        assert!(introduced >= 1 && times.len() > 3, "{lines:?}");
        assert!(times.is_sorted() && times[0] >= head.started, "{times:?}");
        assert!(matches!(lines.last(), Some(Line::End(_))), "{lines:?}");
    }

    #[test]
    fn a_short_recording_has_the_memory_before_the_command_acts() {
        let options =
            MetricsOptions { processes: vec![own()], every: Nanos::seconds(60), ..OPTIONS };
        let (head, thread, lines) = start(options);
        let begun = clock::monotonic();
        drop(thread);
        let process = head.metrics.iter().filter(|one| one.scope == MetricScope::Process);
        let rss = process.clone().position(|metric| metric.name == "rss").unwrap();
        let thp = process.clone().position(|metric| metric.name == "thp").unwrap();
        let lines = lines.lock().unwrap();
        for metric in [rss, thp] {
            let has = |line: &Line| match line {
                Line::Slice(slice) if slice.pid.is_some() && slice.tid.is_none() => {
                    slice.time <= begun && slice.values[metric].is_some()
                }
                _ => false,
            };
            assert!(lines.iter().any(has), "{lines:?}");
        }
    }

    #[test]
    fn a_process_that_comes_later_is_recorded_and_one_that_ended_is_a_warning() {
        let (_, lines) = recorded(Vec::new(), &[own(), Pid(-1)]);
        let is_own = |line: &&Line| matches!(line, Line::Process(one) if one.id.pid == own());
        assert!(lines.iter().any(|line| is_own(&line)), "{lines:?}");
        let is_warning = |line: &&Line| matches!(line, Line::Warning(_));
        let warning = lines.iter().find(is_warning).expect("a warning");
        let Line::Warning(text) = warning else { panic!() };
        assert!(text.starts_with("process -1 is not recorded: "), "{text}");
    }

    #[test]
    fn a_process_is_dropped_after_its_time_and_comes_again() {
        let keep = Some(Nanos::millis(50));
        let (_, thread, lines) = start(MetricsOptions { keep, ..OPTIONS });
        let pause = || std::thread::sleep(Duration::from_millis(500));
        let lines_so_far = || lines.lock().unwrap().len();
        pause();
        assert_eq!(lines_so_far(), 0, "without a process, no slices");
        thread.watch(own());
        pause();
        let first = lines_so_far();
        pause();
        assert!(first > 0 && lines_so_far() == first, "it was dropped");
        thread.watch(own());
        await_lines(&lines, first + 3);
    }

    #[test]
    fn a_pause_is_in_no_slice_and_its_warnings_are_written_at_once() {
        let (every, keep) = (Nanos::millis(100), Some(Nanos::millis(150)));
        let (_, thread, lines) = start(MetricsOptions { every, keep, ..OPTIONS });
        let pause = || std::thread::sleep(Duration::from_millis(1500));
        pause();
        thread.watch(Pid(-1));
        await_lines(&lines, 1);
        assert!(matches!(lines.lock().unwrap()[..], [Line::Warning(_)]));
        thread.watch(own());
        pause();
        let so_far = lines.lock().unwrap().len();
        drop(thread);
        let lines = lines.lock().unwrap();
        assert!(matches!(lines[so_far..], [Line::End(_)]), "{lines:?}");
        let of_system = lines.iter().filter_map(|line| match line {
            Line::Slice(slice) if slice.pid.is_none() => Some(slice.length),
            _ => None,
        });
        let lengths: Vec<Nanos> = of_system.collect();
        let is_short = |length: &Nanos| *length < Nanos::seconds(1);
        assert!(!lengths.is_empty() && lengths.iter().all(is_short), "{lengths:?}");
    }

    #[test]
    fn a_file_that_cannot_be_written_ends_the_thread() {
        let (to, calls) = channel();
        let add = move |_: Vec<Line>| to.send(()).is_err();
        let (head, thread) = MetricsThread::start(OPTIONS, Vec::new(), add).unwrap();
        assert_eq!(head.sampler_missing.as_deref(), Some(""));
        assert_eq!(calls.iter().take(2).count(), 1);
        thread.watch(own());
    }
}
