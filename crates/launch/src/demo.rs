//! `tune` without a target: three copies of hugepilot's `hot-set` workload. One stays on base
//! pages, one is tuned, and one has all memory promoted, which is the ideal.
//!
//! The copies run interleaved (SIGSTOP and SIGCONT), in blocks of one short window each, in random
//! order. Only windows of one block are compared (`blocks.rs`), because the speed of a shared
//! machine drifts. Tuned is compared with all huge directly, not by way of the base copy.
//!
//! Measured with 256 MiB hot of 1 GiB on a 2-vCPU virtual machine, where the true share of the gain
//! is 100 %. Four runs, in which all huge gained 9 to 14 %, gave shares of 100 to 108 %. A fifth,
//! with 5 %, gave 157 % and the warning: its tuned copy was 2.8 % faster than the other, probably
//! by the place of its memory. On the windows of two other runs, tuned and all huge each compared
//! with the base copy gave 89 to 124 %, where the direct comparison gave 99 to 108 %; each divided
//! by its own start on base pages, 103 to 133 %. One copy that changes its state within each block
//! takes 1 s for the changes of 1 GiB. The ratio of tuned over all huge then varies by 12 % from
//! block to block, instead of 6 %, and 40 s hold 18 blocks instead of 140.

mod blocks;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, Target};
use hugepilot_manager::ManagerError;
use hugepilot_manager::tune::{Event, TuneOptions, open, promote_where, tune_all};
use hugepilot_record::Pid;
use hugepilot_reports::tune::{GroundTruth, TuneReport, TuneWarning};
use hugepilot_stats::{Orders, Rounds};
use hugepilot_units::{AddrRange, Nanos, VirtAddr};
use rustix::process::Signal;

use blocks::{ALL_HUGE, COPIES, TUNED};

use crate::LaunchError;

/// Time of the blocks with all copies on base pages.
const ALIKE: Duration = Duration::from_secs(8);
/// Time of the blocks after promotion.
const COMPARE: Duration = Duration::from_secs(30);
/// Lines at the start of a window that do not count: the first spans the pause, in the second the
/// caches fill.
const LEAD: usize = 2;
/// Lines of a window that count: 80 ms, if the copies print each 10 ms.
const COUNTED: usize = 8;
/// Longest time to fill memory: slow if a virtual machine had returned it to its host.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Runs the demonstration.
///
/// `workload` is the command of one copy. It must announce its hot regions, and print a line of
/// throughput each 10 ms. The copies end with hugepilot, also if it is killed. A dry run starts one
/// copy only.
///
/// # Errors
/// If a copy cannot be started or sampled, or ends early.
pub fn demo(
    workload: &[OsString],
    options: TuneOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<TuneReport, LaunchError> {
    let options = TuneOptions { larger_is_better: true, find_metric: false, ..options };
    if options.dry_run {
        say(step("filling the memory of the copy"));
        let copy = WorkloadCopy::start(workload, false, interrupted)?;
        return tune(&copy, options, interrupted, say);
    }
    let guard = options.guard;
    let mut start = |copy| {
        say(step(copy));
        WorkloadCopy::start(workload, true, interrupted)
    };
    // In the order of BASE, TUNED and ALL_HUGE.
    let mut copies = [
        start("filling the memory of the first of three copies")?,
        start("filling the memory of the second of three copies")?,
        start("filling the memory of the third of three copies")?,
    ];
    let mut orders = Orders::random(COPIES, 1);
    let mut left = |left| {
        let step = "comparing the copies, all on base pages";
        say(Event::Demonstrating { step, left: Some(left) });
    };
    let alike = blocks(&mut copies, &mut orders, ALIKE, interrupted, &mut left)?;
    let report = tune(&copies[TUNED], options, interrupted, say)?;
    if report.acts.verified_regions == 0 || interrupted() {
        return Ok(report.with_interruption(interrupted()));
    }
    let settled = Instant::now();
    say(step("promoting all memory of the third copy"));
    let stopped = copies[ALL_HUGE].running(|copy| {
        Ok(promote_where(&open(copy.pid())?, &|_| true, &guard, interrupted)?.stopped)
    })?;
    let mut left = |left| {
        let step = "comparing the copies: on base pages, tuned, all on huge pages";
        say(Event::Demonstrating { step, left: Some(left) });
    };
    let promoted = blocks(&mut copies, &mut orders, COMPARE, interrupted, &mut left)?;
    let (runs, doubt) = blocks::compared(&alike, &promoted, stopped.is_none());
    // A copy that is not all huge is not the ideal.
    let not_huge = stopped.map(|stopped| TuneWarning::NoAllHuge { stopped });
    let busy = (settled.elapsed() > READY_WITHIN).then_some(TuneWarning::MachineBusy);
    let doubts = [doubt, not_huge, busy].into_iter().flatten();
    Ok(report.with_runs(runs, doubts).with_interruption(interrupted()))
}

/// Event of a step whose end is unknown.
const fn step(step: &str) -> Event<'_> {
    Event::Demonstrating { step, left: None }
}

/// Tunes `copy`, which is stopped before and after.
fn tune(
    copy: &WorkloadCopy,
    options: TuneOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<TuneReport, LaunchError> {
    let reports = copy
        .running(|copy| Ok(tune_all(vec![open(copy.pid())?], options, None, interrupted, say)?))?;
    let report = reports.into_iter().next().ok_or(LaunchError::Interrupted)?;
    Ok(TuneReport { ground_truth: copy.ground_truth(&report), ..report })
}

/// Lets the copies run interleaved for `time`, and reports the time left. If interrupted, the
/// blocks until then count.
fn blocks(
    copies: &mut [WorkloadCopy; COPIES],
    orders: &mut Orders,
    time: Duration,
    interrupted: &dyn Fn() -> bool,
    left: &mut dyn FnMut(Nanos),
) -> Result<Rounds<f64>, LaunchError> {
    let (mut blocks, end) = (Rounds::default(), Instant::now() + time);
    for order in orders.take_while(|_| Instant::now() < end && !interrupted()) {
        left(end.saturating_duration_since(Instant::now()).into());
        match blocks.measure(order, |copy| copies[copy].window(interrupted)) {
            Err(LaunchError::Interrupted) => break,
            block => block?,
        }
    }
    Ok(blocks)
}

/// Copy of the workload. Killed on drop.
struct WorkloadCopy {
    child: StartedProgram,
    lines: Receiver<String>,
    hot: Vec<AddrRange>,
}

impl WorkloadCopy {
    /// Starts it, waits until its memory is filled, and stops it. If it will be promoted (`acts`),
    /// a missing permission is an error before that.
    fn start(
        command: &[OsString],
        acts: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, LaunchError> {
        let cannot = |source| LaunchError::Start {
            program: command[0].to_string_lossy().into_owned(),
            source,
        };
        let (child, output) = started(command).map_err(cannot)?;
        if acts && let Ok(process) = open(child.pid()) {
            process.check_promotable().map_err(ManagerError::Promote)?;
        }
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut copy = Self { child, lines, hot: Vec::new() };
        loop {
            let line = copy.line(interrupted)?;
            if let Some(range) = line.strip_prefix("hot ").and_then(|text| text.parse().ok()) {
                copy.hot.push(range);
            } else if line.starts_with("ready") {
                copy.signal(Signal::STOP);
                return Ok(copy);
            }
        }
    }

    fn pid(&self) -> Pid {
        self.child.pid()
    }

    fn signal(&self, signal: Signal) {
        self.child.signal(signal.as_raw());
    }

    /// Waits for the next line of its output.
    fn line(&mut self, interrupted: &dyn Fn() -> bool) -> Result<String, LaunchError> {
        let end = Instant::now() + READY_WITHIN;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => return Ok(line),
                _ if interrupted() => return Err(LaunchError::Interrupted),
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => break,
            }
        }
        let status = self.ended();
        Err(LaunchError::Ended { what: "the hot-set workload".to_owned(), status })
    }

    /// Returns how it ended; `None` if it has not.
    fn ended(&mut self) -> Option<String> {
        loop {
            match self.child.changed().ok()??.0 {
                Change::Exited(status) => return Some(format!("exit status {status}")),
                Change::Killed(signal) => return Some(format!("killed by signal {signal}")),
                Change::Stopped | Change::Continued => {}
            }
        }
    }

    /// Lets it run during `action`.
    fn running<T>(
        &self,
        action: impl FnOnce(&Self) -> Result<T, LaunchError>,
    ) -> Result<T, LaunchError> {
        self.signal(Signal::CONT);
        let result = action(self);
        self.signal(Signal::STOP);
        result
    }

    /// Lets it run for one window, and returns its mean throughput.
    #[allow(clippy::cast_precision_loss)]
    fn window(&mut self, interrupted: &dyn Fn() -> bool) -> Result<f64, LaunchError> {
        self.lines.try_iter().for_each(drop);
        self.signal(Signal::CONT);
        let mut sum = 0.0;
        for number in 0..LEAD + COUNTED {
            let line = self.line(interrupted)?;
            let ops = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
            sum += ops.filter(|_| number >= LEAD).unwrap_or(0.0);
        }
        self.signal(Signal::STOP);
        Ok(sum / COUNTED as f64)
    }

    fn ground_truth(&self, report: &TuneReport) -> Option<GroundTruth> {
        let hot_regions: u64 =
            self.hot.iter().map(|range| range.len().get()).sum::<u64>() / huge_page(self.pid())?;
        let is_hot = |start: VirtAddr| self.hot.iter().any(|range| range.contains(start));
        let picked =
            report.plan.selected.iter().filter(|candidate| is_hot(candidate.start)).count() as u64;
        #[allow(clippy::cast_precision_loss)]
        let ratio = |of: u64| if of == 0 { 0.0 } else { picked as f64 / of as f64 };
        Some(GroundTruth {
            hot_regions,
            selected_hot_regions: picked,
            recall_ratio: ratio(hot_regions),
            precision_ratio: ratio(report.plan.selected.len() as u64),
        })
    }
}

/// Starts it with its output in a pipe, in its own process group: Ctrl-C is for hugepilot.
fn started(command: &[OsString]) -> io::Result<(StartedProgram, PipeReader)> {
    let nothing = File::open("/dev/null")?;
    let (output, end) = io::pipe()?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let mut child = StartedProgram::bound(&Program {
        standard: [Some(nothing.as_fd()), Some(end.as_fd()), None],
        own_group: true,
        ..Program::inheriting(Path::new(&command[0]), command, &environment)
    })?;
    child.release()?;
    Ok((child, output))
}

fn huge_page(pid: Pid) -> Option<u64> {
    open(pid).ok().map(|process| process.sizes().huge.get())
}
