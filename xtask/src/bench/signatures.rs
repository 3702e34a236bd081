//! Signatures of five graph kernels: stall shares over time, as in Eisenman et al. (2016).
//!
//! PageRank, breadth-first search, betweenness, connected components and diameter run on a
//! Kronecker graph and on a grid, on base pages and on THP, with one and two threads. Each run is
//! recorded; the table has the distribution of the stall share over the slices of the trials. The
//! recordings stay, for `hugepilot report`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use hugepilot_recording::{Line, RecordingLimits, RecordingReader};
use hugepilot_reports::graph::GraphReport;
use hugepilot_stats::Spread;
use serde_json::Value;

use super::pairs::{spread, spread_of};
use crate::run::json;

const KERNELS: [&str; 5] = ["pr", "bfs", "bc", "cc", "diameter"];
const THREADS: [&str; 2] = ["1", "2"];
const PAGES: [&str; 2] = ["base", "thp"];

/// Time that the trials of a recording take together, so that the slices show more than luck.
const SECONDS: f64 = 3.0;
/// Slices of the printed table. Shorter ones are merged: they have too few samples each.
const COARSE: &str = "100ms";
/// Fewest and most trials of a recording.
const TRIALS: [f64; 2] = [5.0, 200.0];

/// Arguments.
struct Options {
    /// Directory of the recordings.
    folder: PathBuf,
    /// hugepilot to run, instead of the one that was built: its path is in the recordings.
    program: Option<PathBuf>,
    scale: u32,
    side: u32,
    /// Trials of a recording; `None` for as many as take 3 s together.
    trials: Option<u32>,
    /// Length of the slices of `record`.
    every: String,
    /// Events of `record`; empty for its default.
    events: Vec<String>,
}

impl Options {
    fn read(args: &[&str]) -> Result<Self> {
        let (folder, program) = ("signatures".into(), None);
        let (every, events) = (COARSE.to_owned(), Vec::new());
        let mut options =
            Self { folder, program, scale: 22, side: 4096, trials: None, every, events };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let value = words.next().with_context(|| format!("{word} takes a value"))?;
            match word {
                "--output" => options.folder = value.into(),
                "--program" => options.program = Some(value.into()),
                "--scale" => options.scale = value.parse()?,
                "--side" => options.side = value.parse()?,
                "--trials" => options.trials = Some(value.parse()?),
                "--every" => options.every = (*value).to_owned(),
                "--events" => options.events.push((*value).to_owned()),
                _ => bail!("no such option {word}"),
            }
        }
        Ok(options)
    }
}

/// Result of a recorded run.
struct Recorded {
    seconds: Spread,
    /// Percentiles of the stall share: p5, p25, median, p75, p95.
    stalls: [f64; 5],
}

/// `[--output DIR=signatures] [--program FILE] [--scale N=22] [--side N=4096] [--trials N]
/// [--every TIME=100ms] [--events EVENT]...`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let options = Options::read(args)?;
    let hugepilot = options.program.as_deref().unwrap_or(hugepilot);
    fs::create_dir_all(&options.folder)?;
    println!(
        "| kernel | graph | threads | pages | seconds per trial | stall share: median | p25–p75 | \
         p5–p95 |\n|---|---|---|---|---|---|---|---|"
    );
    let graphs = [format!("kronecker:{}", options.scale), format!("grid:{0}x{0}", options.side)];
    for kernel in KERNELS {
        for graph in &graphs {
            for threads in THREADS {
                for pages in PAGES {
                    let one = record(hugepilot, &options, [kernel, graph, threads, pages])?;
                    print_row([kernel, graph, threads, pages], &one);
                }
            }
        }
    }
    Ok(())
}

fn print_row([kernel, graph, threads, pages]: [&str; 4], one: &Recorded) {
    let seconds = spread(Some(one.seconds), 3);
    let [p5, p25, p50, p75, p95] = one.stalls.map(|share| share * 100.0);
    println!(
        "| {kernel} | {graph} | {threads} | {pages} | {seconds} | \
         {p50:.0} % | {p25:.0}–{p75:.0} % | {p5:.0}–{p95:.0} % |"
    );
}

/// Records the trials of a kernel.
fn record(hugepilot: &Path, options: &Options, run: [&str; 4]) -> Result<Recorded> {
    let [kernel, graph, threads, pages] = run;
    let name = format!("{}.rec", run.join("-").replace(':', ""));
    let file = options.folder.join(name);
    let pages = format!("all={pages}");
    let trials = |command: Command, trials: u32| -> Result<Spread> {
        let mut command = command;
        command.args(["graph", "run", kernel, graph, "--threads", threads, "--pages", &pages]);
        command.args(["--trials", &trials.to_string(), "--json"]);
        if matches!(kernel, "bfs" | "bc" | "diameter") {
            // Trials from one vertex are alike.
            command.args(["--source", "max-degree"]);
        }
        let report: GraphReport = json(&mut command)?;
        spread_of(report.trials.iter().map(|trial| trial.seconds)).context("a trial")
    };
    let count = match options.trials {
        Some(count) => count,
        None => enough(trials(Command::new(hugepilot), 1)?.median),
    };
    let mut command = Command::new(hugepilot);
    command.args(["record", "--force", "--rate", "997", "--every", &options.every]);
    options.events.iter().for_each(|event| _ = command.args(["--events", event]));
    command.arg("-o").arg(&file).arg("--").arg(hugepilot);
    let seconds = trials(command, count)?;
    let from = first_trial(&file)?;
    let mut command = Command::new(hugepilot);
    command.args(["report", "--json", "--from", &from.to_string()]).arg(&file);
    let report: Value = json(&mut command)?;
    Ok(Recorded { seconds, stalls: stall_percentiles(&report).context("stall shares")? })
}

/// Trials of `seconds` each in a recording.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn enough(seconds: f64) -> u32 {
    (SECONDS / seconds.max(1e-6)).ceil().clamp(TRIALS[0], TRIALS[1]) as u32
}

/// Seconds from the start of the recording to the first trial.
fn first_trial(file: &Path) -> Result<f64> {
    let mut reader = RecordingReader::new(File::open(file)?, RecordingLimits::default())?;
    let started = reader.head().started;
    let is_first = |line: &Line| matches!(line, Line::Phase(phase) if phase.name == "trial 1");
    let line = reader.find(|line| line.as_ref().is_ok_and(is_first));
    match line {
        Some(Ok(Line::Phase(phase))) => Ok((phase.time - started).as_seconds()),
        _ => bail!("{}: no phase `trial 1`", file.display()),
    }
}

/// Percentiles of `stall_ratio` over time, in the JSON of a report.
fn stall_percentiles(report: &Value) -> Option<[f64; 5]> {
    let blocks = report["sections"].as_array()?.iter().flat_map(|one| one["blocks"].as_array());
    let title = format!("Percentiles over slices of {COARSE}");
    let is_it = |block: &&Value| block["title"].as_str().is_some_and(|of| of.starts_with(&title));
    let mut tables = blocks.flatten().filter(is_it);
    let rows = tables.next()?["rows"].as_array()?;
    let row = rows.iter().find(|row| row[0] == "stall_ratio")?;
    let percentiles: Vec<f64> = (1..=5).filter_map(|i| row[i]["value"].as_f64()).collect();
    percentiles.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_found_in_a_report() {
        let cell = |value: f64| serde_json::json!({ "value": value, "unit": "ratio" });
        let row = |name: &str, cells: [f64; 6]| {
            let mut row = vec![Value::from(name)];
            row.extend(cells.map(cell));
            Value::from(row)
        };
        let table = |every: &str, first: f64| {
            let title = format!("Percentiles over slices of {every}; near peak: more");
            let ratio = row("stall_ratio", [first, 0.2, 0.3, 0.4, 0.5, 0.6]);
            serde_json::json!({ "title": title, "rows": [row("threads", [1.0; 6]), ratio] })
        };
        let sections = |blocks: Value| serde_json::json!({ "sections": [{ "blocks": blocks }] });
        let tables = [table("10ms", 0.0), table("100ms", 0.1)];
        let report = sections(serde_json::json!([{ "title": "a plot" }, tables[0], tables[1]]));
        assert_eq!(stall_percentiles(&report), Some([0.1, 0.2, 0.3, 0.4, 0.5]));
        assert_eq!(stall_percentiles(&sections(serde_json::json!([]))), None);
    }

    #[test]
    fn short_trials_are_many() {
        assert_eq!([2.0, 0.5, 0.03, 0.0].map(enough), [5, 6, 100, 200]);
    }

    #[test]
    fn arguments_have_values() {
        let words = ["--scale", "10", "--output", "x", "--events", "tlb", "--events", "cycles"];
        let options = Options::read(&words).unwrap();
        assert_eq!(options.every, "100ms");
        assert_eq!(Options::read(&["--every", "10ms"]).unwrap().every, "10ms");
        assert_eq!(options.events, ["tlb", "cycles"]);
        assert_eq!((options.scale, options.side), (10, 4096));
        assert_eq!(options.folder, Path::new("x"));
        assert!(Options::read(&["--scale"]).is_err());
        assert!(Options::read(&["--size", "1"]).is_err());
    }
}
