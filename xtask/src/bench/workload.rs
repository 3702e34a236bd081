//! A workload of ours under measurement: started, stopped and continued, its throughput read line by line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Lines come this often.
const INTERVAL: &str = "20ms";
/// Memory that is new to a virtual machine is slow until its host has settled, so that what is measured first after a change
/// would seem slower than what is measured last.
const AGE: Duration = Duration::from_secs(6);

/// `hugepilot lab workload …`, running until dropped.
pub(super) struct Workload {
    child: Child,
    /// The process to look at: the workload itself, or the server that it drives.
    pub(super) pid: String,
    lines: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts it with `args`, and waits until its memory is filled.
    pub(super) fn start(hugepilot: &Path, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(hugepilot);
        Self::run(command.args(["lab", "workload"]), args)
    }

    /// The same on one processor, always the same one, and standing still.
    pub(super) fn start_still(hugepilot: &Path, args: &[&str]) -> Result<Self> {
        let mut command = Command::new("taskset");
        let this =
            Self::run(command.args(["-c", "0"]).arg(hugepilot).args(["lab", "workload"]), args)?;
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
        let pid =
            pid.with_context(|| format!("workload {} said {first:?}", args.join(" ")))?.to_owned();
        Ok(Self { child, pid, lines })
    }

    /// Its mean throughput over `stretch`, after `settle`.
    pub(super) fn rate(&mut self, settle: Duration, stretch: Duration) -> Result<f64> {
        // Lines of long ago come at once.
        let settled = Instant::now() + settle;
        while Instant::now() < settled {
            self.next()?;
        }
        let end = Instant::now() + stretch;
        let (mut sum, mut count) = (0.0, 0.0);
        while Instant::now() < end {
            sum += self.next()?;
            count += 1.0;
        }
        Ok(sum / count)
    }

    /// The same of a workload that stands still before and after.
    pub(super) fn rate_in_turn(&mut self, settle: Duration, stretch: Duration) -> Result<f64> {
        self.signal("CONT")?;
        let rate = self.rate(settle, stretch);
        self.signal("STOP")?;
        rate
    }

    /// Lets all of `these`, which stand still, run until memory that is new to them has aged.
    pub(super) fn age(these: &[Self]) -> Result<()> {
        these.iter().try_for_each(|workload| workload.signal("CONT"))?;
        thread::sleep(AGE);
        these.iter().try_for_each(|workload| workload.signal("STOP"))
    }

    /// Lets it stand still, or run on.
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status()?;
        ensure!(done.success(), "kill -s {name} {pid}: {done}");
        Ok(())
    }

    /// The second column of the next line.
    fn next(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let figure = line.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        figure.with_context(|| format!("the workload ended; last it said {line:?}"))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // A workload that drives a server ends it when it is asked to end; standing still it would not hear.
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
