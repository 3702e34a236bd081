//! Runs of fresh processes: their rates on base pages, a state for each but the twin, and their
//! rates again; then every other region of the tuned one promoted, and the rates once more.

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
use super::record::{AllHuge, Run, State, Window};
use super::target::Target;
use super::twins::compare;

/// Time between the end of the build and the first window. Memory that is new to a virtual machine
/// is slower for some seconds.
const WARM_UP: f64 = 8.0;
/// Least time that a process runs while its state is applied.
const APPLY: Duration = Duration::from_secs(5);
/// Least time that a process runs after its state was applied.
const SETTLE: Duration = Duration::from_secs(1);
/// Memory that is filled and freed before a run. On a virtual machine, the first touch of memory
/// that the guest had returned to the host is 10 to 50 times slower.
const WARM: Bytes = Bytes::gib(4);
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
    /// Runs a program once in each of `states`, beside a twin. `seed`: of the orders in a window,
    /// the same in each.
    pub(super) fn run(
        &self,
        prepared: &Prepared,
        states: &[State],
        round: usize,
        seed: u64,
    ) -> Result<Vec<Run>> {
        if let Need::Err(cause) = memory(prepared.program.needed.times(1 + states.len() as u64)) {
            bail!("{cause}");
        }
        warm(WARM);
        let window = self.options.window;
        let mut targets = self.started(prepared, states.len())?;
        let befores = compare(&mut targets, window, seed)?;
        let mut runs = Vec::new();
        for ((&state, before), target) in states.iter().zip(befores).zip(&mut targets[1..]) {
            let run = self.treat(prepared, target, state, before, round);
            runs.push(run.with_context(|| state.name())?);
        }
        let afters = compare(&mut targets, window, seed)?;
        for ((run, after), target) in runs.iter_mut().zip(afters).zip(&targets[1..]) {
            run.after = after;
            run.huge_after_bytes = target.memory()?.huge_bytes;
        }
        self.promote_rest(&mut targets, &mut runs, seed)?;
        Ok(runs)
    }

    /// Promotes the rest of each process that has huge pages, or of what it names as hot, and
    /// measures once more. A process of which every region was promoted may have grown since.
    fn promote_rest(&self, targets: &mut [Target<'_>], runs: &mut [Run], seed: u64) -> Result<()> {
        for (run, target) in runs.iter().zip(&mut targets[1..]) {
            if run.state != State::Base {
                target.proceed()?;
                self.collapse(target)?;
                target.sleep_until(Instant::now() + SETTLE)?;
                target.stop()?;
            }
        }
        let windows = compare(targets, self.options.window, seed)?;
        for ((run, window), target) in runs.iter_mut().zip(windows).zip(&targets[1..]) {
            if run.state != State::Base {
                run.all = Some(AllHuge { window, huge_bytes: target.memory()?.huge_bytes });
            }
        }
        Ok(())
    }

    /// Starts a twin and `others` more processes. Each builds its structure and warms up while the
    /// others are stopped: side by side, they would share the CPUs, and their pages would alternate
    /// in memory.
    fn started(&self, prepared: &Prepared, others: usize) -> Result<Vec<Target<'_>>> {
        let started = |_| {
            let mut target = Target::start(prepared, self.interrupted)?;
            let ready = target.wait_until_ready()?;
            target.wait_until(prepared.program.earliest_seconds.max(ready + WARM_UP))?;
            target.stop()?;
            Ok(target)
        };
        (0..=others).map(started).collect()
    }

    /// Applies a state to a process while the others are stopped. The window after is still that
    /// before.
    fn treat(
        &self,
        prepared: &Prepared,
        target: &mut Target<'_>,
        state: State,
        before: Window,
        round: usize,
    ) -> Result<Run> {
        let memory = target.memory()?;
        ensure!(
            memory.rss_bytes >= SMALLEST.get(),
            "pid {} has {} resident",
            target.pid,
            Bytes::new(memory.rss_bytes)
        );
        target.proceed()?;
        let begun = Instant::now();
        let tune = self.apply(state, target)?;
        let apply = begun.elapsed();
        target.sleep_until(begun + APPLY.max(apply + SETTLE))?;
        target.stop()?;
        Ok(Run {
            program: prepared.program.name.to_owned(),
            state,
            round,
            seed: self.seed,
            before,
            after: before,
            rss_bytes: memory.rss_bytes,
            huge_before_bytes: memory.huge_bytes,
            huge_after_bytes: memory.huge_bytes,
            all: None,
            apply_seconds: apply.as_secs_f64(),
            tune,
            machine: self.machine.clone(),
        })
    }

    /// Applies a state to a process, and returns the report of `tune`.
    fn apply(&self, state: State, target: &Target<'_>) -> Result<Option<Value>> {
        match state {
            State::Base => Ok(None),
            State::All => self.collapse(target).map(|()| None),
            State::Tuned => {
                let pid = target.pid.to_string();
                let mut args = vec!["tune", "-p", &pid, "--json"];
                args.extend(self.options.tune.iter().map(String::as_str));
                let stdout = self.hugepilot(&args)?;
                let mut report: Value =
                    serde_json::from_slice(&stdout).context("`tune --json` prints JSON")?;
                report.as_object_mut().map(|report| report.shift_remove("selected"));
                Ok(Some(report))
            }
        }
    }

    /// Promotes every region of a process, or of what it names as hot.
    fn collapse(&self, target: &Target<'_>) -> Result<()> {
        let (pid, hot) = (target.pid.to_string(), target.hot());
        let ranges = hot.iter().flat_map(|range| ["--range", range]);
        let args: Vec<&str> = ["lab", "collapse", "-p", &pid].into_iter().chain(ranges).collect();
        self.hugepilot(&args).map(|_| ())
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
