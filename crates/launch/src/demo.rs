//! `tune` without a target: two copies of hugepilot's `hot-set` workload, one of them tuned.
//!
//! For a comparison the copies run interleaved (SIGSTOP and SIGCONT), so that the load of a shared
//! machine affects both alike: first both untouched, then one tuned, then the other with all memory
//! promoted, which is the ideal. Each copy is compared with its own start, with the other as the
//! reference, so that the placement of their memory does not matter.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hugepilot_kernel::{Change, Program, StartedProgram, Target, Thp};
use hugepilot_record::Pid;
use hugepilot_record::tune::{GroundTruth, Performance, TuneReport, TuneWarning};
use hugepilot_stats::Spread;
use hugepilot_units::{AddrRange, Nanos, VirtAddr};
use rustix::process::Signal;

use crate::LaunchError;
use hugepilot_manager::ManagerError;
use hugepilot_manager::tune::{Event, TuneOptions, open, promote_all, tune_attached};

/// Intervals of each copy.
const PAIRS: usize = 5;
/// Length of an interval.
const INTERVAL: Nanos = Nanos::millis(1500);
/// Longest time to fill memory: slow if a virtual machine had returned it to its host.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Runs the demonstration.
///
/// `workload` is the command of one copy. It must announce its hot regions, and print a line of
/// throughput several times a second. The copies end with hugepilot, also if it is killed.
///
/// # Errors
/// If a copy cannot be started or sampled, or ends early.
pub fn demo(
    workload: &[OsString],
    options: TuneOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<TuneReport, LaunchError> {
    let acts = !options.dry_run;
    let mut control = WorkloadCopy::start(workload, acts, interrupted)?;
    control.signal(Signal::STOP);
    let mut tuned = WorkloadCopy::start(workload, acts, interrupted)?;
    tuned.signal(Signal::STOP);
    let guard = options.guard;
    let options = TuneOptions { larger_is_better: true, ..options };
    let alike = if options.dry_run {
        Intervals::default()
    } else {
        intervals(&mut control, &mut tuned, interrupted)?
    };
    tuned.signal(Signal::CONT);
    let mut report = tune_attached(open(tuned.pid())?, options, None, interrupted, say)?;
    report.ground_truth = tuned.ground_truth(&report);
    let settled = Instant::now();
    tuned.signal(Signal::STOP);
    if report.dry_run || report.verified_regions == 0 || interrupted() {
        return Ok(report);
    }
    let first = intervals(&mut control, &mut tuned, interrupted)?;
    control.signal(Signal::CONT);
    let all = promote_all(&open(control.pid())?, &guard, interrupted)?;
    control.signal(Signal::STOP);
    let second = intervals(&mut control, &mut tuned, interrupted)?;
    let figure = |spread| Performance { ops_per_second: spread, ..Performance::default() };
    report.baseline = Some(figure(Spread::of(&first.control)));
    report.tuned = Some(figure(Spread::of(&first.tuned)));
    report.all_huge = Some(figure(Spread::of(&second.control)));
    report.conclude(true);
    // Drift affects ratios of adjacent intervals less than ratios of medians.
    let by = |over: Option<f64>| Some(first.ratio()? / over?);
    report.set_speedups(by(alike.ratio()), by(second.ratio()));
    if let Some(stop) = all.stopped {
        // A copy that is not all huge is not the ideal.
        report.all_huge = None;
        report.set_speedups(report.speedup, None);
        report.warnings.push(TuneWarning::NoAllHuge { stopped: stop });
    }
    if settled.elapsed() > READY_WITHIN {
        report.warnings.push(TuneWarning::MachineBusy);
    }
    Ok(report)
}

/// Throughput of both copies by interval.
#[derive(Default)]
struct Intervals {
    control: Vec<f64>,
    tuned: Vec<f64>,
}

impl Intervals {
    /// Median ratio of adjacent intervals: tuned over control.
    fn ratio(&self) -> Option<f64> {
        let pairs = self.tuned.iter().zip(&self.control);
        let ratios: Vec<f64> = pairs.map(|(tuned, control)| tuned / control).collect();
        Spread::of(&ratios).map(|spread| spread.median)
    }
}

fn intervals(
    control: &mut WorkloadCopy,
    tuned: &mut WorkloadCopy,
    interrupted: &dyn Fn() -> bool,
) -> Result<Intervals, LaunchError> {
    let mut intervals = Intervals::default();
    for _ in 0..PAIRS {
        let pair = control
            .interval(interrupted)
            .and_then(|first| Ok((first, tuned.interval(interrupted)?)));
        match pair {
            Ok((control, tuned)) => {
                intervals.control.push(control);
                intervals.tuned.push(tuned);
            }
            // The intervals until then count.
            Err(LaunchError::Interrupted) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(intervals)
}

/// Copy of the workload. Killed on drop.
struct WorkloadCopy {
    child: StartedProgram,
    lines: Receiver<String>,
    hot: Vec<AddrRange>,
}

impl WorkloadCopy {
    /// Starts it and waits until its memory is filled. If it will be promoted (`acts`), a missing
    /// permission is an error before that.
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
            if let Some(range) = line.strip_prefix("hot ").and_then(parse_range) {
                copy.hot.push(range);
            } else if line.starts_with("ready") {
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

    /// Lets it run for one interval, and returns its mean throughput. The first line spans the
    /// pause and does not count.
    fn interval(&mut self, interrupted: &dyn Fn() -> bool) -> Result<f64, LaunchError> {
        self.lines.try_iter().for_each(drop);
        self.signal(Signal::CONT);
        let _ = self.line(interrupted)?;
        let end = Instant::now() + Duration::from(INTERVAL);
        let (mut sum, mut count) = (0.0, 0.0);
        while Instant::now() < end || count == 0.0 {
            let line = self.line(interrupted)?;
            if let Some(ops) =
                line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok())
            {
                sum += ops;
                count += 1.0;
            }
        }
        self.signal(Signal::STOP);
        Ok(sum / count)
    }

    fn ground_truth(&self, report: &TuneReport) -> Option<GroundTruth> {
        let hot_regions: u64 =
            self.hot.iter().map(|range| range.len().get()).sum::<u64>() / huge_page(self.pid())?;
        let is_hot = |start: VirtAddr| self.hot.iter().any(|range| range.contains(start));
        let picked =
            report.selected.iter().filter(|candidate| is_hot(candidate.start)).count() as u64;
        #[allow(clippy::cast_precision_loss)]
        let ratio = |of: u64| if of == 0 { 0.0 } else { picked as f64 / of as f64 };
        Some(GroundTruth {
            hot_regions,
            selected_hot_regions: picked,
            recall_ratio: ratio(hot_regions),
            precision_ratio: ratio(report.selected.len() as u64),
        })
    }
}

/// Starts it with its output in a pipe, in its own process group: Ctrl-C is for hugepilot.
fn started(command: &[OsString]) -> io::Result<(StartedProgram, PipeReader)> {
    let nothing = File::open("/dev/null")?;
    let (output, end) = io::pipe()?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let mut child = StartedProgram::bound(&Program {
        path: Path::new(&command[0]),
        arguments: command,
        environment: &environment,
        thp: Thp::Inherit,
        standard: [Some(nothing.as_fd()), Some(end.as_fd()), None],
        own_group: true,
    })?;
    child.release()?;
    Ok((child, output))
}

fn huge_page(pid: Pid) -> Option<u64> {
    open(pid).ok().map(|process| process.sizes().huge.get())
}

/// Parses `start-end` in hexadecimal.
fn parse_range(text: &str) -> Option<AddrRange> {
    let (start, end) = text.trim().split_once('-')?;
    let hex = |digits: &str| {
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok().map(VirtAddr::new)
    };
    Some(AddrRange::new(hex(start)?, hex(end)?))
}
