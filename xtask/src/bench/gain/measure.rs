//! Run of two fresh processes: their rates on base pages, a state for one, and their rates again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::need::{Need, memory};
use hugepilot_units::Bytes;
use serde_json::Value;

use super::super::records::Machine;
use super::options::Options;
use super::prepare::Prepared;
use super::record::{Run, State};
use super::target::Target;
use super::twins::compare;

/// Time between the end of the build and the first window. Memory that is new to a virtual machine
/// is slower for some seconds.
const WARM_UP: f64 = 8.0;
/// Time from the start of a state to the second window, in all states alike.
const APPLY: Duration = Duration::from_secs(15);
/// Time from the end of a longer state to the second window.
const SETTLE: Duration = Duration::from_secs(1);
/// Memory that is filled and freed before a run. On a virtual machine, the first touch of memory
/// that the guest had returned to the host is 10 to 50 times slower.
const WARM: Bytes = Bytes::gib(4);
/// Memory that two processes of a program and the huge pages of one need.
const NEEDED: Bytes = Bytes::gib(8);
/// Resident memory of every program at least.
const SMALLEST: Bytes = Bytes::mib(200);

/// Where and how to measure.
pub(super) struct Bench<'a> {
    pub(super) hugepilot: &'a Path,
    pub(super) options: &'a Options,
    pub(super) seed: u64,
    pub(super) machine: Machine,
    pub(super) interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// Runs a program once.
    pub(super) fn run(&self, prepared: &Prepared, state: State, round: usize) -> Result<Run> {
        if let Need::Err(cause) = memory(NEEDED) {
            bail!("{cause}");
        }
        warm(WARM);
        let window = self.options.window;
        // One after the other: side by side, the pages of both would alternate in memory.
        let mut target = Target::start(prepared, self.interrupted)?;
        target.wait_until_ready()?;
        let mut twin = Target::start(prepared, self.interrupted)?;
        let ready = twin.wait_until_ready()?;
        twin.wait_until(ready + WARM_UP)?;
        target.wait_until(prepared.program.earliest_seconds - 2.0 * window.as_secs_f64())?;
        let before_window = compare(&mut target, &mut twin, window)?;
        let before = target.memory()?;
        ensure!(
            before.rss_bytes >= SMALLEST.get(),
            "pid {} has {} resident",
            target.pid,
            Bytes::new(before.rss_bytes)
        );
        target.proceed()?;
        let begun = Instant::now();
        let tune = self.apply(state, target.pid)?;
        let apply = begun.elapsed();
        target.sleep_until(begun + APPLY.max(apply + SETTLE))?;
        let after_window = compare(&mut target, &mut twin, window)?;
        Ok(Run {
            program: prepared.program.name.to_owned(),
            state,
            round,
            seed: self.seed,
            before: before_window,
            after: after_window,
            rss_bytes: before.rss_bytes,
            huge_before_bytes: before.huge_bytes,
            huge_after_bytes: target.memory()?.huge_bytes,
            apply_seconds: apply.as_secs_f64(),
            tune,
            machine: self.machine.clone(),
        })
    }

    /// Applies a state to a process, and returns the report of `tune`.
    fn apply(&self, state: State, pid: u32) -> Result<Option<Value>> {
        let pid = pid.to_string();
        match state {
            State::Base => Ok(None),
            State::Tuned => {
                let mut args = vec!["tune", "-p", &pid, "--json"];
                args.extend(self.options.tune.iter().map(String::as_str));
                let stdout = self.hugepilot(&args)?;
                let mut report: Value =
                    serde_json::from_slice(&stdout).context("`tune --json` prints JSON")?;
                report.as_object_mut().map(|report| report.shift_remove("selected"));
                Ok(Some(report))
            }
            State::All => self.hugepilot(&["lab", "collapse", "-p", &pid]).map(|_| None),
        }
    }

    /// Runs hugepilot and returns its stdout.
    fn hugepilot(&self, args: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new(self.hugepilot);
        let output = command.args(args).stdin(Stdio::null()).output()?;
        // 1: nothing to gain, or not all memory became huge.
        ensure!(
            matches!(output.status.code(), Some(0 | 1)) || !output.stdout.is_empty(),
            "hugepilot {}: {}\n{}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output.stdout)
    }
}

/// Touches every page of new memory, and frees it.
fn warm(size: Bytes) {
    let Ok(size) = usize::try_from(size.get()) else { return };
    let mut memory = vec![0_u8; size];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
