//! The flags of `tune`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum, ValueHint};
use hugepilot_kernel::{Root, memory};
use hugepilot_manager::act::Guard;
use hugepilot_manager::tune::TuneOptions;
use hugepilot_units::{Amount, Bytes, Nanos, Share};
use regex::Regex;

use crate::calibration::{CalibrationMode, Machine};

/// Find the regions a program waits for, put them on huge pages, and prove what it gained
///
/// Without a target it shows itself on a workload of ours, in under two minutes. Sampling another user's process needs
/// CAP_PERFMON, promoting any needs CAP_SYS_NICE; --dry-run on a process of your own needs nothing.
#[derive(Args)]
#[command(after_help = "EXAMPLES:\n  \
    hugepilot tune\n  \
    sudo hugepilot tune -p $(pgrep -n redis-server)\n  \
    hugepilot tune -p 4711 --dry-run --json\n  \
    sudo hugepilot tune -p 4711 --budget 4% --progress-file run.log --progress-regex 'Trial Time:\\s+([\\d.]+)'\n  \
    sudo hugepilot tune --baseline --all-huge --runs 5 -- ./pr -g 22 -n 20\n\n\
    EXIT STATUS: 0 regions were promoted (or would be), 1 nothing to gain, 2 error, 3 not possible here, or cannot tell")]
pub(crate) struct TuneArgs {
    /// A running process to tune
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "command")]
    pub(crate) pid: Option<i32>,
    /// A program to start and tune. Its output goes to stderr; stdout is for the report
    #[arg(last = true, value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath)]
    pub(crate) command: Vec<OsString>,
    /// Huge pages that may be made: a share of the resident memory, or bytes
    #[arg(long, default_value = "15%", value_name = "AMOUNT")]
    budget: Amount,
    /// Print what would be done and what it should gain; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Look so long before the first plan and after the last promotion
    #[arg(long, default_value = "3s", value_name = "TIME")]
    observe: Nanos,
    /// Look and promote in rounds for so long altogether
    #[arg(long = "for", default_value = "10s", value_name = "TIME")]
    total: Nanos,
    /// Samples per second of each thread's CPU time [default: what costs the target 0.5 %, 100 to 500]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: Option<u32>,
    /// Do nothing for a smaller predicted gain
    #[arg(long, default_value = "1%", value_name = "SHARE")]
    min_gain: Share,
    /// End a round when one promotion takes longer
    #[arg(long, default_value = "30ms", value_name = "TIME")]
    max_collapse: Nanos,
    /// Finds the program's own figure of merit in its output; the first group is the number
    #[arg(long, value_name = "REGEX")]
    pub(crate) progress_regex: Option<Regex>,
    /// The file an attached program writes its figures to
    #[arg(long, value_name = "FILE", requires = "progress_regex", conflicts_with = "command")]
    pub(crate) progress_file: Option<PathBuf>,
    /// A larger figure is better (throughput, not time)
    #[arg(long, requires = "progress_regex")]
    progress_higher_is_better: bool,
    /// Wait so long for figures, before and again after
    #[arg(long, default_value = "60s", value_name = "TIME")]
    progress_wait: Nanos,
    /// With -- CMD: also run it untouched, and compare
    #[arg(long, requires = "command", conflicts_with = "pid")]
    pub(crate) baseline: bool,
    /// With -- CMD: also run it with all its memory promoted, and compare
    #[arg(long, requires = "command", conflicts_with = "pid")]
    pub(crate) all_huge: bool,
    /// With -- CMD: so many runs of each kind, in turns
    #[arg(long, requires = "command", conflicts_with = "pid", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Where the prediction comes from
    #[arg(long, value_enum, default_value_t = CalibrationMode::Auto)]
    pub(crate) calibration: CalibrationMode,
    #[command(flatten)]
    pub(crate) demo: DemoArgs,
    /// Print one JSON object (schema hugepilot.tune/3)
    #[arg(long, help_heading = "Options")]
    pub(crate) json: bool,
}

/// The workload that is run when no target is given.
#[derive(Args)]
#[command(next_help_heading = "Demonstration (without a target)")]
pub(crate) struct DemoArgs {
    /// Memory of each of the two copies [default: 4GiB, less where that is too much]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["pid", "command"])]
    footprint: Option<Bytes>,
    /// Hot memory in it, scattered in 2 MiB regions [default: an eighth]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["pid", "command"])]
    hot: Option<Bytes>,
    /// How the hot memory is read
    #[arg(long, value_enum, default_value_t = DemoPattern::Gather, conflicts_with_all = ["pid", "command"])]
    pattern: DemoPattern,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with_all = ["pid", "command"])]
    threads: u32,
    /// Which regions are hot
    #[arg(long, default_value_t = 1, conflicts_with_all = ["pid", "command"])]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DemoPattern {
    /// Independent random reads
    Gather,
    /// Each read gives the address of the next
    Chase,
}

impl DemoArgs {
    /// The command line of one copy, after the executable.
    pub(crate) fn workload_arguments(&self) -> anyhow::Result<Vec<String>> {
        let available = memory::mem_info(&Root::live())?.available;
        // Two copies, and a reserve for everybody else.
        let most = Bytes::new(available.get().saturating_sub(Bytes::gib(2).get()) / 2);
        let footprint = self.footprint.unwrap_or(Bytes::gib(4).min(most));
        let hot = self.hot.unwrap_or(Bytes::new(footprint.get() / 8));
        ensure!(
            footprint <= most,
            "two copies of {footprint} do not fit: {available} are available, and 2GiB stay free; use --footprint {most}"
        );
        ensure!(
            hot >= Bytes::mib(32),
            "{hot} of hot memory show nothing: free some memory, or use --hot 64MiB or more"
        );
        let pattern = if self.pattern == DemoPattern::Gather { "gather" } else { "chase" };
        let arguments = [
            "lab",
            "workload",
            "hot-set",
            "--announce",
            "--seconds",
            "0",
            "--interval",
            "100ms",
            "--pattern",
            pattern,
            "--footprint",
            &footprint.get().to_string(),
            "--hot",
            &hot.get().to_string(),
            "--threads",
            &self.threads.to_string(),
            "--seed",
            &self.seed.to_string(),
        ];
        Ok(arguments.map(str::to_owned).to_vec())
    }
}

impl TuneArgs {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.pid.is_some() && self.progress_regex.is_some() && self.progress_file.is_none() {
            bail!(
                "--progress-regex with -p needs --progress-file: the output of a running program cannot be read otherwise"
            );
        }
        if self.pid.is_none() && self.command.is_empty() && self.progress_regex.is_some() {
            bail!(
                "--progress-regex needs a program to read from: give -p PID with --progress-file, or -- CMD"
            );
        }
        if self.command.is_empty()
            && std::env::args_os().next_back().is_some_and(|last| last == "--")
        {
            bail!("no command after --");
        }
        ensure!(self.observe > Nanos::ZERO, "--observe must be more than nothing");
        Ok(())
    }

    /// As the manager wants them.
    pub(crate) fn options(&self, machine: Machine) -> TuneOptions {
        TuneOptions {
            rate_hz: self.rate.unwrap_or_else(|| machine.affordable_rate()),
            observe: self.observe,
            total: self.total,
            budget: self.budget,
            dry_run: self.dry_run,
            min_gain: self.min_gain.get(),
            guard: Guard { max_collapse: self.max_collapse, ..Guard::default() },
            calibration: machine.calibration,
            sample_cost: machine.sample_cost,
            progress_wait: self.progress_wait,
            larger_is_better: self.progress_higher_is_better,
            tlb_entries: machine.tlb_entries,
            ..TuneOptions::default()
        }
    }
}
