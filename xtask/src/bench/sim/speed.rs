//! Speed of `sim tlb` under an engine, beside the native run of a program and other tools.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hugepilot_reports::sim::SimTlbReport;
use hugepilot_stats::{Orders, Rounds};
use serde::{Deserialize, Serialize};

use super::super::pairs::none;
use super::record::Row;
use super::runner::{Bench, no_qemu, shown_program, words};
use super::table::spread;
use crate::run::in_path;

pub(super) const METHOD: &str = "\
Accesses per second of one simulation, median (minimum–maximum) of interleaved rounds. `walk` is a
random walk by dependent loads, `sweep` has independent ones. Their time is the whole process, also
under the other tools, and is compared with that of a native run in the same round. lackey writes
its trace to /dev/null. `lab run sim-speed` measures simulations without a program.";

pub(super) const HEAD: [&str; 5] = ["tool", "accesses of", "CPUs", "million/s", "× native time"];

/// Kinds of independent loads.
const SWEEPS: [&str; 3] = ["stream", "random", "gather"];
/// Memory of the walk and of the sweeps.
const WALK_BYTES: u64 = 512 << 20;
/// Part of the steps that valgrind's tools get, which are much slower.
const FEWER: u64 = 20;
/// Other tools that execute each access.
const PEERS: [(&str, &[&str]); 2] = [
    ("lackey", &["--tool=lackey", "--trace-mem=yes"]),
    ("cachegrind", &["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) tool: String,
    pub(super) input: String,
    /// CPUs, `None` for all.
    #[serde(default)]
    pub(super) cpus: Option<u32>,
    /// Accesses per second of each run.
    pub(super) rates: Vec<f64>,
    /// Time of each run over that of the native run of its round; empty without native runs.
    pub(super) over_native: Vec<f64>,
}

impl Line {
    /// Adds the rounds of `other`, if it measures the same.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let same = (&self.tool, &self.input, self.cpus) == (&other.tool, &other.input, other.cpus);
        if same {
            self.rates.extend(&other.rates);
            self.over_native.extend(&other.over_native);
        }
        same
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let millions = spread(self.rates.iter().map(|rate| rate / 1e6), 1);
        let native = if self.over_native.is_empty() {
            none()
        } else {
            spread(self.over_native.iter().copied(), 1)
        };
        let cpus = self.cpus.map_or_else(|| "all".to_owned(), |cpus| cpus.to_string());
        vec![self.tool.clone(), self.input.clone(), cpus, millions, native]
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    match no_qemu() {
        Some(cause) => eprintln!("skipped walk and sweep: {cause}"),
        None => {
            walk(bench)?;
            sweeps(bench)?;
        }
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn rate(accesses: u64, seconds: f64) -> f64 {
    accesses as f64 / seconds.max(1e-9)
}

/// Measures the walk under QEMU, and a shorter one under valgrind.
fn walk(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compiled("walk", include_str!("programs/walk.c"))?;
    let walk = |steps: u64| words(&format!("{program} {WALK_BYTES} {steps}"));
    let steps = bench.options.accesses / 4;
    under_qemu(bench, &walk(steps))?;
    if !in_path("valgrind") {
        eprintln!("skipped lackey and cachegrind: valgrind is missing");
        return Ok(());
    }
    let short = walk(steps / FEWER);
    let counted = bench.sim::<SimTlbReport>("tlb --pages 4k --preset haswell", &short)?;
    for (tool, flags) in PEERS {
        beside_native(bench, tool, &short, &mut |words| {
            let mut command = Command::new("valgrind");
            let seconds = seconds(command.args(flags).args(words))?;
            let shown = format!("valgrind {}{}", flags.join(" "), shown_program(words));
            let command = shown.replace(" -- ", " ");
            Ok(Took { command, accesses: counted.report.input.accesses, seconds })
        })?;
    }
    Ok(())
}

/// Measures independent loads under QEMU.
fn sweeps(bench: &Bench<'_>) -> Result<()> {
    let program = bench.compiled("sweep", include_str!("programs/sweep.c"))?;
    let steps = bench.options.accesses / 2;
    SWEEPS.iter().try_for_each(|kind| {
        under_qemu(bench, &words(&format!("{program} {kind} {WALK_BYTES} {steps}")))
    })
}

fn under_qemu(bench: &Bench<'_>, program: &[String]) -> Result<()> {
    beside_native(bench, "sim tlb under QEMU", program, &mut |words| {
        let begun = Instant::now();
        let ran = bench.sim::<SimTlbReport>("tlb --pages 4k --preset haswell", words)?;
        let (accesses, seconds) = (ran.report.input.accesses, begun.elapsed().as_secs_f64());
        Ok(Took { command: ran.command, accesses, seconds })
    })
}

/// Run of a program under a tool.
struct Took {
    command: String,
    accesses: u64,
    seconds: f64,
}

/// Measures the native program and a tool, interleaved.
fn beside_native(
    bench: &Bench<'_>,
    tool: &str,
    program: &[String],
    one: &mut dyn FnMut(&[String]) -> Result<Took>,
) -> Result<()> {
    let (first, rest) = program.split_first().context("a program")?;
    let (mut command, mut rates, mut times) = (String::new(), Vec::new(), Rounds::default());
    for order in Orders::rotated(2).take(bench.options.pairs) {
        times.measure(order, |which| -> Result<f64> {
            if which == 0 {
                return seconds(Command::new(first).args(rest));
            }
            let took = one(program)?;
            command = took.command;
            rates.push(rate(took.accesses, took.seconds));
            Ok(took.seconds)
        })?;
    }
    let over_native = times.of(0).zip(times.of(1)).map(|(native, took)| took / native).collect();
    let input = shown_program(program).replace(" -- ", "");
    bench.add(
        &command,
        Row::Speed(Line { tool: tool.to_owned(), input, cpus: None, rates, over_native }),
    )
}

/// Run time of a program whose output is dropped.
fn seconds(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(begun.elapsed().as_secs_f64())
}
