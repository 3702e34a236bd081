//! Measured workload: a process of `hugepilot lab workload` whose throughput is read line by line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Interval between lines.
const INTERVAL: &str = "20ms";
/// Time until memory that is new to a virtual machine is as fast as old memory. Without it, the
/// first measurement after a change would seem slower than the last.
const AGE: Duration = Duration::from_secs(6);

/// Running workload, ended on drop.
pub(super) struct Workload {
    child: Child,
    /// Process to measure: the workload itself, or the server that it drives.
    pub(super) pid: String,
    lines: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts a workload and waits until its memory is filled.
    pub(super) fn start(hugepilot: &Path, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(hugepilot);
        Self::run(command.args(["lab", "workload"]), args)
    }

    /// Starts a workload on CPU 0 and stops it.
    pub(super) fn start_stopped(hugepilot: &Path, args: &[&str]) -> Result<Self> {
        Self::start_stopped_on(0, hugepilot, args)
    }

    /// Starts a workload on `cpu` and stops it.
    pub(super) fn start_stopped_on(cpu: usize, hugepilot: &Path, args: &[&str]) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(hugepilot).args(["lab", "workload"]);
        let this = Self::run(&mut command, args)?;
        this.signal("STOP")?;
        Ok(this)
    }

    fn run(command: &mut Command, args: &[&str]) -> Result<Self> {
        let mut child = command
            .args(args)
            .args(["--seconds", "0", "--interval", INTERVAL])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the workload")?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut first = String::new();
        lines.read_line(&mut first)?;
        let pid = first.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next());
        let pid = pid
            .with_context(|| format!("workload {} printed {first:?}", args.join(" ")))?
            .to_owned();
        Ok(Self { child, pid, lines })
    }

    /// Mean throughput over `interval`, after `settle`.
    pub(super) fn rate(&mut self, settle: Duration, interval: Duration) -> Result<f64> {
        self.skip(settle)?;
        self.mean_rate(interval)
    }

    /// Waits for the first line after `settle`. Lines that were printed before come at once.
    pub(super) fn skip(&mut self, settle: Duration) -> Result<()> {
        let settled = Instant::now() + settle;
        while Instant::now() < settled {
            self.next()?;
        }
        Ok(())
    }

    /// Mean throughput from the last line until the first one after `interval`.
    pub(super) fn mean_rate(&mut self, interval: Duration) -> Result<f64> {
        let end = Instant::now() + interval;
        let (mut sum, mut count) = (0.0, 0.0);
        while Instant::now() < end {
            sum += self.next()?;
            count += 1.0;
        }
        Ok(sum / count)
    }

    /// Continues a stopped workload, measures it, and stops it.
    pub(super) fn rate_stopped(&mut self, settle: Duration, interval: Duration) -> Result<f64> {
        self.signal("CONT")?;
        let rate = self.rate(settle, interval);
        self.signal("STOP")?;
        rate
    }

    /// Continues stopped workloads until new memory is as fast as old memory, and stops them.
    pub(super) fn age(workloads: &[Self]) -> Result<()> {
        workloads.iter().try_for_each(|workload| workload.signal("CONT"))?;
        thread::sleep(AGE);
        workloads.iter().try_for_each(|workload| workload.signal("STOP"))
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status()?;
        ensure!(done.success(), "kill -s {name} {pid}: {done}");
        Ok(())
    }

    /// Throughput: the second column of the next line.
    fn next(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let rate = line.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        rate.with_context(|| format!("the workload ended; its last line: {line:?}"))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // On SIGTERM a workload ends the server that it drives, but not while it is stopped.
        let _ = self.signal("TERM");
        let _ = self.signal("CONT");
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
