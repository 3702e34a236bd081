//! Gain of hardware prefetchers on base pages and on huge pages (Eisenman et al., 2016, Tables IV
//! and VI).
//!
//! A program runs in four settings, interleaved: with and without prefetchers, on base pages and on
//! THP. Where the prefetchers cannot be changed, only the pages are compared.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use hugepilot_reports::graph::GraphReport;
use hugepilot_stats::Rounds;

use super::arguments::Positional;
use super::pairs::{line, median};
use crate::run::{json, stdout};

/// The programs of the paper.
const KERNELS: [&str; 5] = ["pr", "bfs", "bc", "cc", "diameter"];

/// Setting of a run: pages, and whether prefetchers are on.
#[derive(Clone, Copy)]
struct Setting {
    pages: &'static str,
    prefetch: bool,
}

const SETTINGS: [Setting; 4] = [
    Setting { pages: "base", prefetch: true },
    Setting { pages: "thp", prefetch: true },
    Setting { pages: "base", prefetch: false },
    Setting { pages: "thp", prefetch: false },
];

/// `[ROUNDS=5] [GRAPH=kronecker:20] [KERNEL… | -- CMD…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let own = args.iter().position(|word| *word == "--").map(|at| args.split_at(at));
    let (args, command) = own.map_or((args, None), |(args, rest)| (args, Some(&rest[1..])));
    let Positional { count, size: graph, names } = Positional::read(args, (5, 5), "kronecker:20")?;
    let settings = match obstacle(hugepilot) {
        None => &SETTINGS[..],
        Some(cause) => {
            println!("gain of prefetchers: not available, because {cause}\n");
            &SETTINGS[..2]
        }
    };
    if let Some(command) = command {
        ensure!(!command.is_empty(), "no program after --");
        return compare(&command.join(" "), count, settings, |setting| {
            let start = Instant::now();
            let run = ["run", "--quiet", "--pages", setting.pages, "--"];
            stdout(setting.command(hugepilot).args(run).args(command))?;
            Ok(start.elapsed().as_secs_f64())
        });
    }
    let kernels = if names.is_empty() { &KERNELS[..] } else { names };
    kernels.iter().try_for_each(|kernel| {
        compare(kernel, count, settings, |setting| {
            // The engine's arrays do not follow the page mode of `run`.
            let pages = format!("all={}", setting.pages);
            let run = ["graph", "run", kernel, graph, "--trials", "3", "--json", "--pages", &pages];
            let report: GraphReport = json(setting.command(hugepilot).args(run))?;
            ensure!(!report.trials.is_empty(), "{kernel}: no trial has a time");
            Ok(median(report.trials.iter().map(|trial| trial.seconds)))
        })
    })
}

impl Setting {
    /// hugepilot, without prefetchers if the setting has none.
    fn command(self, hugepilot: &Path) -> Command {
        let mut command = Command::new(hugepilot);
        if !self.prefetch {
            command.args(["knobs", "prefetch", "set", "off", "--"]).arg(hugepilot);
        }
        command
    }
}

/// Returns why prefetchers cannot be changed; `None` if they can.
fn obstacle(hugepilot: &Path) -> Option<String> {
    let mut command = Command::new(hugepilot);
    let shown = command.args(["knobs", "prefetch", "set", "off", "--", "true"]).output();
    let shown = shown.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if shown.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&shown.stderr);
    let cause = text.lines().next().unwrap_or_default();
    Some(cause.trim_start_matches("hugepilot: ").to_owned())
}

/// Runs the settings interleaved, and prints the gains.
fn compare(
    name: &str,
    rounds: usize,
    settings: &[Setting],
    mut measure: impl FnMut(Setting) -> Result<f64>,
) -> Result<()> {
    let times = Rounds::after_warm_up(settings.len(), rounds, |_, which| measure(settings[which]))?;
    println!("{name}");
    for (which, setting) in settings.iter().enumerate() {
        let prefetch = if setting.prefetch { "on" } else { "off" };
        println!("  {:<5} prefetchers {prefetch:<4} {:>9.4} s", setting.pages, times.median(which));
    }
    let gain = |what: &str, slow: usize, fast: usize| {
        println!("  speedup by {what}: {}", line(&times.ratios(slow, fast)));
    };
    gain("thp", 0, 1);
    if settings.len() == SETTINGS.len() {
        gain("prefetchers on base pages", 2, 0);
        gain("prefetchers on thp", 3, 1);
    }
    Ok(())
}
