//! Gain of hardware prefetchers on base pages and on huge pages (Eisenman et al., 2016, Tables IV
//! and VI).
//!
//! A program runs in four settings, interleaved: with and without prefetchers, on base pages and on
//! THP. Where the prefetchers cannot be changed, only the pages are compared.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::pairs::{PairedStats, median};
use crate::run::stdout;

/// The programs of the paper.
const KERNELS: [&str; 5] = ["pr", "bfs", "bc", "cc", "diameter"];

/// Setting of a run: pages, and whether prefetchers are on.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    let rounds: usize =
        args.first().map_or(Ok(5), |text| text.parse()).context("ROUNDS is a number")?;
    ensure!(rounds >= 5, "fewer than 5 rounds show no spread");
    let graph = args.get(1).unwrap_or(&"kronecker:20");
    let settings = match obstacle(hugepilot) {
        None => &SETTINGS[..],
        Some(cause) => {
            println!("gain of prefetchers: not available, because {cause}\n");
            &SETTINGS[..2]
        }
    };
    if let Some(command) = command {
        ensure!(!command.is_empty(), "no program after --");
        let words = command;
        compare(&command.join(" "), rounds, settings, |setting| {
            let start = Instant::now();
            let pages = ["run", "--quiet", "--pages", setting.pages, "--"];
            output(hugepilot, setting, pages.iter().copied().chain(words.iter().copied()))?;
            Ok(start.elapsed().as_secs_f64())
        })?;
        return Ok(());
    }
    let kernels = args.get(2..).filter(|kernels| !kernels.is_empty()).unwrap_or(&KERNELS);
    for kernel in kernels {
        compare(kernel, rounds, settings, |setting| {
            // The engine's arrays do not follow the page mode of `run`.
            let pages = format!("all={}", setting.pages);
            let words =
                ["graph", "run", kernel, graph, "--trials", "3", "--json", "--pages", &pages];
            seconds(&output(hugepilot, setting, words)?)
        })?;
    }
    Ok(())
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

/// Runs the settings interleaved, each round from another one on, and prints the gains.
fn compare(
    name: &str,
    rounds: usize,
    settings: &[Setting],
    mut measure: impl FnMut(Setting) -> Result<f64>,
) -> Result<()> {
    let mut times = vec![Vec::new(); settings.len()];
    for round in 0..=rounds {
        for turn in 0..settings.len() {
            let index = (round + turn) % settings.len();
            let time = measure(settings[index])?;
            // The first round warms memory up.
            if round > 0 {
                times[index].push(time);
            }
        }
    }
    println!("{name}");
    for (setting, times) in settings.iter().zip(&times) {
        let prefetch = if setting.prefetch { "on" } else { "off" };
        println!("  {:<5} prefetchers {prefetch:<4} {:>9.4} s", setting.pages, median(times));
    }
    let gain = |what: &str, slow: usize, fast: usize| {
        let ratios = times[fast].iter().copied().zip(times[slow].iter().copied()).collect();
        println!("  speedup by {what}: {}", PairedStats::of(ratios).line());
    };
    gain("thp", 0, 1);
    if settings.len() == SETTINGS.len() {
        gain("prefetchers on base pages", 2, 0);
        gain("prefetchers on thp", 3, 1);
    }
    Ok(())
}

/// Runs hugepilot with `words`, without prefetchers if the setting has none. Returns its output.
fn output<'a>(
    hugepilot: &Path,
    setting: Setting,
    words: impl IntoIterator<Item = &'a str>,
) -> Result<String> {
    let mut command = Command::new(hugepilot);
    if !setting.prefetch {
        command.args(["knobs", "prefetch", "set", "off", "--"]).arg(hugepilot);
    }
    stdout(command.args(words))
}

/// Returns the median time of the trials of a graph kernel.
fn seconds(text: &str) -> Result<f64> {
    let json: Value = serde_json::from_str(text).context("graph run --json prints JSON")?;
    let trials = json["trials"].as_array().context("the report has trials")?;
    let times: Vec<f64> = trials.iter().filter_map(|trial| trial["seconds"].as_f64()).collect();
    ensure!(!times.is_empty(), "no trial has a time");
    Ok(median(&times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_runs_once_a_round_and_begins_in_turn() {
        let mut order = Vec::new();
        compare("test", 4, &SETTINGS, |setting| {
            order.push(SETTINGS.iter().position(|one| *one == setting).unwrap());
            Ok(1.0)
        })
        .unwrap();
        assert_eq!(order[..8], [0, 1, 2, 3, 1, 2, 3, 0]);
        assert_eq!(order.len(), 20);
    }

    #[test]
    fn the_time_is_the_median_of_the_trials() {
        let text = r#"{"trials": [{"seconds": 3.0}, {"seconds": 1.0}, {"seconds": 2.0}]}"#;
        assert!((seconds(text).unwrap() - 2.0).abs() < 1e-12);
        assert!(seconds("{}").is_err());
    }
}
