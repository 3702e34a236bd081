//! Metrics of processes, recorded by a thread while another command works.
//!
//! The command samples stalls itself and writes its rounds. The thread adds what `/proc` has, in
//! slices of time, so that both are on one axis.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use hugepilot_kernel::{Process, Root, clock, memory};
use hugepilot_profiler::recorder::{Recorder, RecorderOptions, Stalls};
use hugepilot_record::Pid;
use hugepilot_record::recording::{Head, Line};
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
    /// Starts it. `add` gets the lines of each slice after the returned head, and returns whether
    /// to go on; the last line is [`Line::End`].
    ///
    /// # Errors
    /// The size of pages is unknown, or no thread can be made.
    pub fn start(
        options: MetricsOptions,
        command_line: Vec<String>,
        add: impl FnMut(Vec<Line>) -> bool + Send + 'static,
    ) -> io::Result<(Head, Self)> {
        let root = Root::live();
        let sizes = memory::page_sizes(&root).map_err(io::Error::other)?;
        let (watched, pids) = channel();
        let (to_head, head) = channel();
        let every = options.every;
        let work = move || {
            let mut recorder = recorder(&root, sizes, options);
            let head = recorder.head(command_line, unix_seconds());
            // Without a receiver, the caller has ended.
            if to_head.send(head).is_ok() {
                follow(&mut recorder, every, &pids, add);
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

/// Makes a recorder of the first processes.
fn recorder(root: &Root, sizes: PageSizes, options: MetricsOptions) -> Recorder {
    let settings = RecorderOptions {
        every: options.every,
        with_children: options.with_children,
        max_processes: options.max_processes,
        rate_hz: 0,
        callers: false,
    };
    let stalls = options.sampler.map_or_else(Stalls::Missing, Stalls::Elsewhere);
    let mut recorder = Recorder::new(root, sizes, settings, stalls, Vec::new());
    options.processes.into_iter().for_each(|pid| watch(&mut recorder, root, pid));
    recorder
}

fn watch(recorder: &mut Recorder, root: &Root, pid: Pid) {
    match Process::open(root, pid) {
        Ok(process) => _ = recorder.watch(process),
        Err(error) => recorder.warn(format!("process {pid} is not recorded: {error}")),
    }
}

/// Records slice after slice, until the other end of `pids` is dropped.
fn follow(
    recorder: &mut Recorder,
    every: Nanos,
    pids: &Receiver<Pid>,
    mut add: impl FnMut(Vec<Line>) -> bool,
) {
    let root = Root::live();
    let mut due = clock::monotonic() + every;
    loop {
        match pids.recv_timeout((due - clock::monotonic()).into()) {
            Ok(pid) => watch(recorder, &root, pid),
            Err(RecvTimeoutError::Timeout) => {
                due = next_due(due, every);
                if !add(recorder.slice()) {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                add(recorder.finish(None));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hugepilot_record::recording::MetricScope;

    use super::*;

    type Lines = Arc<Mutex<Vec<Line>>>;

    /// Records `processes`, and `later` after some slices.
    fn recorded(processes: Vec<Pid>, later: &[Pid]) -> (Head, Vec<Line>) {
        let lines = Lines::default();
        let (to, every) = (Arc::clone(&lines), Nanos::millis(10));
        let add = move |more| {
            to.lock().unwrap().extend::<Vec<Line>>(more);
            true
        };
        let sampler = Ok("rounds".to_owned());
        let options =
            MetricsOptions { every, processes, with_children: false, max_processes: 2, sampler };
        let (head, thread) = MetricsThread::start(options, Vec::new(), add).unwrap();
        let slices = |at_least: usize| {
            while lines.lock().unwrap().len() < at_least {
                std::thread::sleep(every.into());
            }
        };
        slices(3);
        later.iter().for_each(|&pid| thread.watch(pid));
        slices(10);
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
    fn a_file_that_cannot_be_written_ends_the_thread() {
        let options = MetricsOptions {
            every: Nanos::millis(1),
            processes: Vec::new(),
            with_children: false,
            max_processes: 1,
            sampler: Err("a test".to_owned()),
        };
        let (to, calls) = channel();
        let add = move |_: Vec<Line>| to.send(()).is_err();
        let (head, thread) = MetricsThread::start(options, Vec::new(), add).unwrap();
        assert_eq!(head.sampler_missing.as_deref(), Some("a test"));
        assert_eq!(calls.iter().take(2).count(), 1);
        thread.watch(own());
    }
}
