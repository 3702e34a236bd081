//! Execution of a workload's threads, and reports of their throughput.
//!
//! Each worker counts in its own cache line, once per batch, so counting costs nothing. The main
//! thread sleeps between lines.

use std::io::{self, BufRead, Read, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use hugepilot_units::{Bytes, Nanos};

use super::latency::{Latencies, Latency};
use super::output::{Lines, SCHEMA, Summary, pages_name};
use super::{MemoryLimits, Spec, Worker};
use crate::{Result, WorkloadError};

pub(crate) const MAX_THREADS: usize = 1024;
/// Length limit of an input line, in bytes.
const MAX_LINE: u64 = 256;

/// Duration, threads and output of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// Worker threads.
    pub threads: usize,
    /// Run time; `None` runs until killed or until the reader closes the output.
    pub seconds: Option<Nanos>,
    /// Operations of each thread, after which it ends: fixed work, to compare times.
    pub ops: Option<u64>,
    /// Interval between lines.
    pub interval: Nanos,
    /// Whether to print the addresses of the hot regions first.
    pub announce: bool,
    /// Whether to start the work only at a line `go` after `ready`, so that memory can be changed
    /// before.
    pub wait: bool,
    /// Operations per timed batch, instead of the workload's own; reports the times.
    pub steps: Option<NonZeroU64>,
}

impl RunConfig {
    /// Default: one thread for ten seconds, a line per second.
    pub const DEFAULT: Self = Self {
        threads: 1,
        seconds: Some(Nanos::seconds(10)),
        ops: None,
        interval: Nanos::seconds(1),
        announce: false,
        wait: false,
        steps: None,
    };

    fn check(&self) -> Result<()> {
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return Err(WorkloadError::Threads { threads: self.threads, max: MAX_THREADS });
        }
        if self.interval == Nanos::ZERO { Err(WorkloadError::NoInterval) } else { Ok(()) }
    }
}

/// Prepares and runs a workload, printing to `out` as described in the [crate](crate). A closed
/// `out` ends it without an error. `stdin` is read only for `go`.
///
/// # Errors
/// Invalid sizes and threads ([`WorkloadError::TooLarge`] before memory is allocated), failed
/// allocations, a wrong result ([`WorkloadError::Damaged`]), an `out` that cannot be written.
pub fn run(
    spec: &Spec,
    config: &RunConfig,
    machine: &MemoryLimits,
    stdin: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<Summary> {
    config.check()?;
    let started = Instant::now();
    let mut workload = spec.prepare(machine, config.threads)?;
    let prepare_seconds = started.elapsed().as_secs_f64();
    let hot = workload.hot();
    let (footprint_bytes, bloat_bytes) = (workload.footprint_bytes(), workload.bloat_bytes());
    let mut lines = Lines::new(out);
    if config.announce {
        for range in &hot {
            lines.print(format_args!("hot {range}"))?;
        }
    }
    lines.print(format_args!("ready {}", workload.pid()))?;
    if config.wait && lines.is_open() {
        wait_for_go(stdin)?;
    }

    let done = measure(workload.workers(config.threads), config, &mut lines)?;
    let seconds = done.iter().map(|worker| worker.time.as_secs_f64()).fold(0.0, f64::max);
    let ops = done.iter().map(|worker| worker.ops).sum::<u64>();
    let mut latencies = Latencies::default();
    done.iter().for_each(|worker| latencies.merge(&worker.latencies));
    let latency = config.steps.map(|steps| latencies.summary(steps.get()));
    if let Some(Latency { p50_ns, p99_ns, max_ns, .. }) = latency {
        lines.print(format_args!("latency p50_ns {p50_ns} p99_ns {p99_ns} max_ns {max_ns}"))?;
    }
    let summary = Summary {
        schema: SCHEMA,
        workload: spec.name(),
        pattern: spec.pattern(),
        footprint_bytes,
        hot_bytes: hot.iter().map(|range| range.len()).sum::<Bytes>().get(),
        bloat_bytes,
        threads: config.threads,
        pages: pages_name(spec.pages()),
        seed: spec.seed(),
        prepare_seconds,
        seconds,
        ops,
        ops_per_second: rate(ops, seconds),
        latency,
        checksum: format!(
            "{:#018x}",
            done.iter().fold(0_u64, |sum, worker| sum.wrapping_add(worker.checksum))
        ),
    };
    let json = serde_json::to_string(&summary).map_err(io::Error::from)?;
    lines.print(format_args!("{json}"))?;
    Ok(summary)
}

/// Reads one line, which must be `go`.
fn wait_for_go(stdin: &mut dyn BufRead) -> Result<()> {
    let mut line = String::new();
    let found = match stdin.take(MAX_LINE).read_line(&mut line) {
        Ok(0) => "the end of the input".to_owned(),
        Ok(_) if line.trim() == "go" => return Ok(()),
        Ok(_) => format!("{:?}", line.trim()),
        Err(error) => error.to_string(),
    };
    Err(WorkloadError::NotGo { found })
}

#[allow(clippy::cast_precision_loss)]
fn rate(ops: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { ops as f64 / seconds } else { 0.0 }
}

/// Result of one worker.
struct WorkerResult {
    ops: u64,
    checksum: u64,
    /// Time from the common start to this worker's end.
    time: Duration,
    /// Empty unless batches are timed.
    latencies: Latencies,
}

/// A worker's count, alone in two cache lines, because processors fetch lines in pairs.
///
/// ATOMICS: one writer, and readers that need only a recent value; relaxed is enough.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Runs the workers until the time is up, their work is done, or the output is closed.
fn measure(
    workers: Vec<Box<dyn Worker + '_>>,
    config: &RunConfig,
    lines: &mut Lines<'_>,
) -> Result<Vec<WorkerResult>> {
    let counters: Vec<Counter> = workers.iter().map(|_| Counter::default()).collect();
    let stop = AtomicBool::new(false);
    let barrier = Arc::new(Barrier::new(workers.len() + 1));
    let (report, reports) = mpsc::channel();
    thread::scope(|scope| {
        for (worker, counter) in workers.into_iter().zip(&counters) {
            let (report, barrier, stop) = (report.clone(), Arc::clone(&barrier), &stop);
            scope.spawn(move || {
                barrier.wait();
                // The receiver outlives the scope, so nothing is lost.
                let _ = report.send(work(worker, config, counter, stop));
            });
        }
        drop(report);
        barrier.wait();
        let watched = watch(&reports, &counters, config, lines);
        // ATOMICS: only the flag itself is communicated.
        stop.store(true, Relaxed);
        let mut done = watched?;
        for report in &reports {
            done.push(report?);
        }
        Ok(done)
    })
}

/// Runs batches until the operations are done or `stop` is set. Only whole batches are timed.
fn work(
    mut worker: Box<dyn Worker + '_>,
    config: &RunConfig,
    counter: &Counter,
    stop: &AtomicBool,
) -> Result<WorkerResult> {
    let target = config.ops.unwrap_or(u64::MAX);
    let whole = config.steps.map_or_else(|| worker.batch(), NonZeroU64::get);
    let mut latencies = Latencies::default();
    let start = Instant::now();
    let (mut ops, mut last) = (0, start);
    while ops < target && !stop.load(Relaxed) {
        let batch = whole.min(target - ops);
        worker.step(batch)?;
        ops += batch;
        counter.0.store(ops, Relaxed);
        if config.steps.is_some() && batch == whole {
            let now = Instant::now();
            latencies.add(now - last);
            last = now;
        }
    }
    let time = start.elapsed();
    Ok(WorkerResult { ops, checksum: worker.checksum()?, time, latencies })
}

/// Prints a line per interval until it is time to stop; returns the results of workers that ended
/// before.
fn watch(
    reports: &Receiver<Result<WorkerResult>>,
    counters: &[Counter],
    config: &RunConfig,
    lines: &mut Lines<'_>,
) -> Result<Vec<WorkerResult>> {
    let start = Instant::now();
    let interval = Duration::from_nanos(config.interval.get());
    let end = config.seconds.map(|seconds| Duration::from_nanos(seconds.get()));
    let (mut tick, mut last, mut last_ops) = (interval, Duration::ZERO, 0);
    let mut done = Vec::new();
    loop {
        let until = end.map_or(tick, |end| end.min(tick));
        match reports.recv_timeout(until.saturating_sub(start.elapsed())) {
            Ok(report) => done.push(report?),
            Err(RecvTimeoutError::Disconnected) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = start.elapsed();
        if now >= tick {
            let ops = counters.iter().map(|counter| counter.0.load(Relaxed)).sum::<u64>();
            let per_second = rate(ops - last_ops, (now - last).as_secs_f64());
            lines.print(format_args!("{:.3} {per_second:.0}", now.as_secs_f64()))?;
            (last, last_ops) = (now, ops);
            // A whole interval late: continue from here, instead of printing lines of no length.
            tick = Some(tick.saturating_add(interval))
                .filter(|&next| next > now)
                .unwrap_or(now + interval);
        }
        if !lines.is_open() || end.is_some_and(|end| now >= end) {
            return Ok(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worker that counts its operations.
    struct Counting(u64);

    impl Worker for Counting {
        fn step(&mut self, ops: u64) -> Result<()> {
            self.0 += ops;
            thread::sleep(Duration::from_micros(200));
            Ok(())
        }
        fn checksum(&self) -> Result<u64> {
            Ok(self.0)
        }
        fn batch(&self) -> u64 {
            7
        }
    }

    fn measured(threads: usize, config: &RunConfig, out: &mut dyn Write) -> Vec<WorkerResult> {
        let workers = (0..threads).map(|_| Box::new(Counting(0)) as Box<dyn Worker>).collect();
        measure(workers, config, &mut Lines::new(out)).unwrap()
    }

    /// Output whose reader closes it after some lines.
    struct Closing(usize);

    impl Write for Closing {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(text.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_thread_does_exactly_the_fixed_work() {
        let config = RunConfig { ops: Some(100), seconds: None, ..RunConfig::DEFAULT };
        let done = measured(3, &config, &mut io::sink());
        assert_eq!(done.len(), 3);
        assert!(done.iter().all(|worker| worker.ops == 100 && worker.checksum == 100));
    }

    /// Worker that fails in its second step.
    struct Failing(bool);

    impl Worker for Failing {
        fn step(&mut self, _ops: u64) -> Result<()> {
            if std::mem::replace(&mut self.0, true) {
                Err(WorkloadError::Damaged { workload: "failing" })
            } else {
                Ok(())
            }
        }
        fn checksum(&self) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn a_worker_that_fails_ends_the_run_and_the_others() {
        let config = RunConfig { seconds: None, ..RunConfig::DEFAULT };
        let workers: Vec<Box<dyn Worker>> = vec![Box::new(Counting(0)), Box::new(Failing(false))];
        let failed = measure(workers, &config, &mut Lines::new(&mut io::sink()));
        assert!(matches!(failed, Err(WorkloadError::Damaged { workload: "failing" })));
    }

    #[test]
    fn only_whole_steps_are_timed() {
        let steps = NonZeroU64::new(30);
        let config = RunConfig { ops: Some(100), seconds: None, steps, ..RunConfig::DEFAULT };
        let latency = measured(1, &config, &mut io::sink())[0].latencies.summary(30);
        assert_eq!((latency.batch_ops, latency.batches), (30, 3));
        assert!((200_000..1_000_000_000).contains(&latency.p50_ns), "{latency:?}");
        assert!(latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns);
        let untimed = RunConfig { steps: None, ..config };
        assert_eq!(measured(1, &untimed, &mut io::sink())[0].latencies.summary(30).batches, 0);
    }

    #[test]
    fn work_starts_at_go_and_at_no_other_line() {
        let read = |text: &str| wait_for_go(&mut text.as_bytes());
        assert!(read("go\nmore").is_ok() && read(" go \r\n").is_ok());
        for (text, found) in [("", "the end"), ("gone\n", "\"gone\""), ("\n", "\"\"")] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }

    #[test]
    fn counts_are_complete_when_the_time_is_up() {
        let config = RunConfig { seconds: Some(Nanos::millis(50)), ..RunConfig::DEFAULT };
        let done = measured(2, &config, &mut io::sink());
        assert_eq!(done.len(), 2);
        assert!(done.iter().all(|worker| worker.ops == worker.checksum && worker.ops > 0));
        assert!(done.iter().all(|worker| (0.04..10.0).contains(&worker.time.as_secs_f64())));
    }

    #[test]
    fn a_closed_pipe_ends_an_endless_run_quietly() {
        let config = RunConfig { seconds: None, interval: Nanos::millis(5), ..RunConfig::DEFAULT };
        assert_eq!(measured(1, &config, &mut Closing(6)).len(), 1);
    }

    #[test]
    fn any_other_failure_to_write_ends_the_run_with_an_error() {
        let config = RunConfig { seconds: None, interval: Nanos::millis(5), ..RunConfig::DEFAULT };
        let mut full: [u8; 0] = [];
        let mut out = full.as_mut_slice();
        let failed = measure(vec![Box::new(Counting(0))], &config, &mut Lines::new(&mut out));
        assert!(matches!(failed, Err(WorkloadError::Output(_))));
    }
}
