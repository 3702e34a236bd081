//! Simulated promotions, replayed on the live program: Figure 5, top.
//!
//! The program of the simulation is that of the live run: a kernel of the GAP benchmark suite, read
//! from the same file, with one thread. Its memory comes from `malloc`, so it starts on base pages
//! and can be promoted. The kernels of hugepilot itself do not suit: they put arrays on base pages
//! that nothing may promote. QEMU is slow, so the simulated run has a tenth of the trials (for
//! PageRank: of the iterations). Events are applied at the same trial or iteration, so that most of
//! the live run has all promotions, as in the paper, whose runs are long.

use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hugepilot_reports::sim::SimPolicyReport;
use hugepilot_reports::tune::{ScheduleReport, TuneReport};
use hugepilot_stats::{Orders, in_order};
use serde::{Deserialize, Serialize};

use super::super::graph::{generated, suite};
use super::super::pairs::none;
use super::options::{Kernel, Order};
use super::record::Row;
use super::runner::{Bench, no_qemu, shown_program, words};
use super::setting::Setting;
use super::table::{percent, spread};
use crate::run;
use crate::status::thp_always;

pub(super) const METHOD: &str = "\
Kernels of the GAP benchmark suite with one thread, simulated under QEMU, then live with the
promotions of a policy replayed by `tune --schedule` (Figure 5, top). The live run has ten times
the trials or iterations; an event comes at the time at which it came in the simulated tenth.
Seconds are those of a trial by the program's clock, with all promotions in its time; medians
(minimum–maximum). The speedup is that over base pages within a round of interleaved runs. `all` is
glibc's malloc with THP.";

pub(super) const HEAD: [&str; 9] = [
    "kernel",
    "order",
    "TLBs",
    "policy",
    "huge pages",
    "walks avoided, simulated",
    "seconds",
    "speedup",
    "events applied",
];

const BUDGETS: [&str; 4] = ["1%", "4%", "16%", "64%"];
const THREADS: (&str, &str) = ("OMP_NUM_THREADS", "1");
const THP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// `none`, a budget, or `all`.
    pub(super) variant: String,
    /// Share of the walks that the simulation avoids.
    pub(super) avoided_ratio: f64,
    /// Seconds on base pages and with the variant, of each round.
    pub(super) pairs: Vec<(f64, f64)>,
    /// Reports of the replays.
    pub(super) replays: Vec<ScheduleReport>,
}

impl Line {
    /// Adds the rounds of `other`, if `other` is of the same kernel and variant.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let same = (&self.kernel, &self.setting, &self.variant)
            == (&other.kernel, &other.setting, &other.variant)
            && self.avoided_ratio.to_bits() == other.avoided_ratio.to_bits();
        if same {
            self.pairs.extend(&other.pairs);
            self.replays.extend(other.replays.iter().cloned());
        }
        same
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let seconds = self.pairs.iter().map(|pair| pair.1);
        let faster = self.pairs.iter().map(|(base, this)| base / this);
        let mut cells = vec![self.kernel.clone()];
        cells.extend(self.setting.cells());
        cells.extend([
            self.variant.clone(),
            percent(self.avoided_ratio),
            spread(seconds, 3),
            if self.variant == "none" { none() } else { format!("{}x", spread(faster, 3)) },
            applied(&self.replays),
        ]);
        cells
    }
}

/// Promotions of the last replay, of the events of the schedule.
fn applied(replays: &[ScheduleReport]) -> String {
    let Some(one) = replays.last() else { return none() };
    let missing = match one.not_found {
        0 => String::new(),
        count => format!(", {count} without mapping"),
    };
    format!("{} of {}{missing}", one.promoted_events, one.events)
}

/// Returns why nothing can be replayed here.
pub(super) fn missing() -> Option<String> {
    suite().err().map(|error| error.to_string()).or_else(no_qemu).or_else(thp_always)
}

/// Kernel of the suite, with arguments for a simulated and for a live run.
struct Program {
    kernel: Kernel,
    simulated: Vec<String>,
    live: Vec<String>,
}

/// Schedule of a budget, and the share of the walks that its simulation avoids.
struct Plan {
    budget: &'static str,
    schedule: PathBuf,
    avoided_ratio: f64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    for &kernel in &bench.options.kernels {
        let program = program(bench, kernel)?;
        let (mut plans, mut ideal_ratio, mut command) = (Vec::new(), 0.0, String::new());
        for budget in BUDGETS {
            let schedule = bench.folder.join(format!("{}-{budget}.schedule", kernel.name()));
            let flags = format!(
                "{} --preset {} --budget {budget} {} --schedule {}",
                bench.options.policy(),
                bench.options.preset(),
                bench.interval(),
                schedule.display()
            );
            let ran =
                bench.sim_with::<SimPolicyReport>(Some(THREADS), &flags, &program.simulated)?;
            ideal_ratio = ran.report.ideal.walks_avoided_ratio;
            let avoided_ratio = ran.report.run.walks_avoided_ratio;
            command = ran.command.replace(&schedule.display().to_string(), "FILE");
            plans.push(Plan { budget, schedule, avoided_ratio });
        }
        command = command.replace("--budget 64%", "--budget BUDGET");
        let folder = format!("{}/", run::target().display());
        command += &format!(
            "\n{}={} hugepilot tune --schedule FILE --schedule-time SECONDS --max-added 100%{}",
            THREADS.0,
            THREADS.1,
            shown_program(&program.live)
        );
        command = command.replace(&folder, "target/");
        live(bench, &program, &plans, ideal_ratio, &command)?;
    }
    Ok(())
}

fn program(bench: &Bench<'_>, kernel: Kernel) -> Result<Program> {
    let graph = format!("kronecker:{}:16", bench.options.scale);
    let (ending, flags): (_, &[&str]) = match kernel {
        Kernel::Sssp => ("wsg", &["--weighted"]),
        _ => ("sg", &[]),
    };
    let (ending, flags) = match bench.options.order() {
        Order::Original => (ending.to_owned(), flags.to_vec()),
        Order::Dbg => (format!("dbg.{ending}"), [flags, &["--reorder", "dbg"]].concat()),
    };
    let file = generated(bench.hugepilot, &graph, &ending, &flags)?;
    let binary = suite()?.join(kernel.name());
    let with = |args: &str| {
        let paths = [&binary, Path::new("-f"), &file].map(|one| one.to_string_lossy().into_owned());
        paths.into_iter().chain(words(args)).collect()
    };
    let (simulated, live) = match kernel {
        Kernel::Bfs => ("-n 8", "-n 80"),
        Kernel::Sssp => ("-d 2 -n 2", "-d 2 -n 20"),
        Kernel::Pr => ("-t 0 -n 1 -i 4", "-t 0 -n 1 -i 40"),
    };
    Ok(Program { kernel, simulated: with(simulated), live: with(live) })
}

/// Runs all variants in each round, and records each round, since a round takes minutes. A schedule
/// takes as long as the simulated run does natively.
fn live(
    bench: &Bench<'_>,
    program: &Program,
    plans: &[Plan],
    ideal_ratio: f64,
    command: &str,
) -> Result<()> {
    let begun = Instant::now();
    plain(&program.simulated, None)?;
    let duration = format!("{:.3}s", begun.elapsed().as_secs_f64());
    let variants: Vec<Variant<'_>> = iter::once(Variant::None)
        .chain(plans.iter().map(Variant::Plan))
        .chain([Variant::All { avoided_ratio: ideal_ratio }])
        .collect();
    let orders = Orders::rotated(variants.len());
    for (round, order) in (1..=bench.options.pairs).zip(orders) {
        let run = |which: usize| variants[which].run(bench, &duration, &program.live);
        let runs = in_order(order, run)?;
        let base = runs[0].0;
        for (variant, (took, replay)) in variants.iter().zip(runs) {
            let line = Line {
                kernel: program.kernel.name().to_owned(),
                setting: Setting::first(bench.options),
                variant: variant.name().to_owned(),
                avoided_ratio: variant.avoided_ratio(),
                pairs: vec![(base, took)],
                replays: replay.into_iter().collect(),
            };
            bench.add(command, Row::Replay(line))?;
        }
        let name = program.kernel.name();
        eprintln!("  {name}: round {round} of {}", bench.options.pairs);
    }
    Ok(())
}

/// Promotions of a live run.
enum Variant<'a> {
    None,
    Plan(&'a Plan),
    All { avoided_ratio: f64 },
}

impl Variant<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Plan(plan) => plan.budget,
            Self::All { .. } => "all",
        }
    }

    const fn avoided_ratio(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Plan(plan) => plan.avoided_ratio,
            Self::All { avoided_ratio } => *avoided_ratio,
        }
    }

    /// Seconds of a trial, and the report of the replay.
    fn run(
        &self,
        bench: &Bench<'_>,
        duration: &str,
        program: &[String],
    ) -> Result<(f64, Option<ScheduleReport>)> {
        match self {
            Self::None => Ok((plain(program, None)?, None)),
            Self::Plan(plan) => {
                let (took, report) = replay(bench, plan, duration, program)?;
                Ok((took, Some(report)))
            }
            Self::All { .. } => Ok((plain(program, Some(THP))?, None)),
        }
    }
}

/// Seconds of a trial of the program alone.
fn plain(program: &[String], variable: Option<(&str, &str)>) -> Result<f64> {
    let (first, rest) = program.split_first().context("a program")?;
    let mut command = Command::new(first);
    command.args(rest).envs([THREADS]).envs(variable);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    average(&String::from_utf8_lossy(&output.stdout))
}

/// Seconds of a trial of the program under `tune --schedule`, and the report of the replay.
fn replay(
    bench: &Bench<'_>,
    plan: &Plan,
    duration: &str,
    program: &[String],
) -> Result<(f64, ScheduleReport)> {
    let events = std::fs::read_to_string(&plan.schedule)?.lines().count() - 1;
    if events == 0 {
        return Ok((plain(program, None)?, ScheduleReport::default()));
    }
    let mut command = Command::new(bench.hugepilot);
    command.args(["tune", "--json", "--max-added", "100%", "--schedule-time", duration]);
    command.arg("--schedule").arg(&plan.schedule).arg("--").args(program).envs([THREADS]);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: TuneReport = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{command:?}: {}", errors.trim()))?;
    Ok((average(&errors)?, report.schedule.unwrap_or_default()))
}

/// Reads the mean seconds of a trial from the suite's output.
fn average(output: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("Average Time:"));
    let seconds = line.with_context(|| format!("no Average Time in {output}"))?;
    seconds.trim().parse().context("seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(policy: &str) -> Setting {
        let [order, preset, policy] = ["dbg", "zen5", policy].map(str::to_owned);
        Setting { order, preset, policy }
    }

    #[test]
    fn seconds_are_the_mean_of_trials() {
        let output = "Trial Time:          0.50000\nAverage Time:        0.25000\n";
        assert!((average(output).unwrap() - 0.25).abs() < 1e-9);
        assert!(average("Trial Time: 1").is_err());
    }

    #[test]
    fn rounds_of_a_variant_are_one_line() {
        let round = |kernel: &str, base| Line {
            kernel: kernel.to_owned(),
            setting: setting("pcc"),
            variant: "4%".to_owned(),
            avoided_ratio: 0.5,
            pairs: vec![(base, 1.0)],
            replays: vec![ScheduleReport::default()],
        };
        let mut line = round("pr", 2.0);
        assert!(line.join(&round("pr", 3.0)));
        assert!(!line.join(&round("bfs", 3.0)));
        assert!(!line.join(&Line { setting: setting("heat"), ..round("pr", 3.0) }));
        assert_eq!(line.pairs, [(2.0, 1.0), (3.0, 1.0)]);
        assert_eq!(line.replays.len(), 2);
    }

    #[test]
    fn a_line_has_the_speedup_within_rounds() {
        let replay =
            ScheduleReport { events: 7, promoted_events: 5, not_found: 2, ..Default::default() };
        let line = Line {
            kernel: "pr".to_owned(),
            setting: setting("heat"),
            variant: "4%".to_owned(),
            avoided_ratio: 0.5,
            pairs: vec![(2.0, 1.0), (4.0, 2.0)],
            replays: vec![replay],
        };
        let expected = [
            "pr",
            "dbg",
            "zen5",
            "heat",
            "4%",
            "50.0 %",
            "1.500 (1.000–2.000)",
            "2.000 (2.000–2.000)x",
            "5 of 7, 2 without mapping",
        ];
        assert_eq!(line.cells(), expected);
        assert_eq!(applied(&[]), "-");
    }
}
