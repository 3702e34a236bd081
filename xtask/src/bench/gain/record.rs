//! Runs, and the file that keeps them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::run;

/// Treatment of a program between the two windows of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// Nothing, for as long as the others take: the noise.
    Base,
    /// `hugepilot tune -p PID`.
    Tuned,
    /// `hugepilot lab collapse -p PID`.
    All,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Base, Self::Tuned, Self::All];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Tuned => "tuned",
            Self::All => "all",
        }
    }
}

/// Rates of a process on base pages, then in a state, each beside an untouched twin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) program: String,
    pub(super) state: State,
    /// Number of the round, from 0.
    pub(super) round: usize,
    /// Seed of the order of states.
    pub(super) seed: u64,
    /// Window before, on base pages as first touched.
    pub(super) before: Window,
    /// Window after.
    pub(super) after: Window,
    /// Resident memory before.
    pub(super) rss_bytes: u64,
    /// Anonymous memory on huge pages before.
    pub(super) huge_before_bytes: u64,
    /// Anonymous memory on huge pages after the window after.
    pub(super) huge_after_bytes: u64,
    /// Run time of the command that applied the state.
    pub(super) apply_seconds: f64,
    /// Report of `tune`, without its list of regions.
    #[serde(default)]
    pub(super) tune: Option<Value>,
    pub(super) machine: Machine,
}

impl Run {
    /// Gain: speed relative to the twin after, over that before.
    pub(super) fn gain(&self) -> f64 {
        self.after.ratio / self.before.ratio
    }

    /// Whether memory stayed on huge pages that was not there before.
    pub(super) fn keeps_huge_pages(&self) -> bool {
        self.huge_after_bytes > self.huge_before_bytes
    }
}

/// Rates of a process and its twin in alternating slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Operations per second of the process, median of its slices.
    pub(super) per_second: f64,
    /// The same of the untouched twin.
    pub(super) twin_per_second: f64,
    /// Median of the ratios within pairs of slices.
    pub(super) ratio: f64,
    /// Pairs of slices.
    pub(super) slices: usize,
}

/// Circumstances of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) date: String,
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) kernel: String,
    /// Commit of the working tree, with `+` if the tree differs from it.
    pub(super) commit: String,
}

impl Machine {
    pub(super) fn read() -> Self {
        let text = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).current_dir(run::root());
            run::output(&mut command).map_or_else(|_| "unknown".into(), |out| out.trim().to_owned())
        };
        let changed = !text("git", &["status", "--porcelain"]).is_empty();
        let commit = text("git", &["rev-parse", "--short", "HEAD"]);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            date: text("date", &["-u", "+%F"]),
            cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            commit: format!("{commit}{}", if changed { "+" } else { "" }),
        }
    }
}

/// Model of the CPU, with family and model, because virtual machines shorten names.
fn cpu(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map_or("?", |(_, value)| value.trim())
    };
    format!("{} (family {} model {})", field("model name"), field("cpu family"), field("model"))
}

/// Appends a run to a file.
pub(super) fn append(file: &Path, run: &Run) -> Result<()> {
    let line = format!("{}\n", serde_json::to_string(run)?);
    let opened = File::options().append(true).create(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the runs of a file.
pub(super) fn read(file: &Path) -> Result<Vec<Run>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let run = |(index, line)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", file.display(), index + 1))
    };
    text.lines().enumerate().map(run).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run with the given gain.
    pub(in super::super) fn run(program: &str, state: State, round: usize, gain: f64) -> Run {
        let window = Window { per_second: 1000.0, twin_per_second: 500.0, ratio: 2.0, slices: 20 };
        Run {
            program: program.to_owned(),
            state,
            round,
            seed: 1,
            before: window,
            after: Window { per_second: 900.0, ratio: 2.0 * gain, ..window },
            rss_bytes: 1 << 30,
            huge_before_bytes: 0,
            huge_after_bytes: if state == State::Base { 0 } else { 1 << 29 },
            apply_seconds: 3.0,
            tune: None,
            machine: Machine {
                date: "2026-01-02".into(),
                cpu: "CPU".into(),
                cpus: 2,
                kernel: "6.18".into(),
                commit: "abc".into(),
            },
        }
    }

    #[test]
    fn runs_are_appended_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.ndjson");
        let runs = [run("redis", State::Tuned, 0, 1.25), run("redis", State::Base, 0, 1.0)];
        runs.iter().for_each(|run| append(&file, run).unwrap());
        assert_eq!(read(&file).unwrap(), runs);
        fs::write(&file, "{}\n").unwrap();
        assert!(format!("{:#}", read(&file).unwrap_err()).contains("runs.ndjson:1"));
    }

    #[test]
    fn the_cpu_is_named_with_family_and_model() {
        let text = "processor : 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu(text), "AMD EPYC (family 25 model 17)");
    }
}
