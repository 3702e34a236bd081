//! `hugepilot compare`: a program in several modes, in turns.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use hugepilot_launch::compare::{CompareOptions, Event, prepare};
use hugepilot_record::compare::CompareReport;
use hugepilot_record::run::Mode;
use hugepilot_report::{compare_text, json};
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish};
use crate::recover;
use crate::run::MODES;

/// Run a program with each kind of pages in turns, and say whether huge pages pay
///
/// Each round has one run of each mode and begins with another one; what counts is the ratio to base in the same round. The best
/// of several modes is then run again, with base, in as many rounds, and these decide, for the best may be so by luck. First each
/// mode is run once untimed, to warm up, and to sample where it waits. The program reads nothing, and what it prints is dropped.
#[derive(Debug, Args)]
#[command(after_help = format!("{MODES}\n\n\
EXIT STATUS: 0 some mode is faster than base for sure, 1 none is, 2 error, 3 no mode but base is to be had here\n\n\
EXAMPLES:\n  \
  hugepilot compare -- ./solve input.txt\n  \
  sudo hugepilot compare --pool 2GiB --runs 9 -- ./solve input.txt\n  \
  hugepilot compare --modes glibc-thp,mimalloc-2m --json -- python3 job.py | jq '.modes[] | {{mode, speedup_over_base}}'\n  \
  hugepilot compare -- hugepilot lab workload hash-insert"))]
pub(crate) struct CompareArgs {
    /// Modes to run besides base: see MODES [default: all]
    #[arg(long, value_name = "MODE", value_delimiter = ',', num_args = 1)]
    modes: Vec<Mode>,
    /// Rounds, each with one run of each mode
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// A library to preload, instead of one that is found: mimalloc if it is called so, else ours. Can be repeated
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Have so much of a mode's pool free for the time of each of its runs, and give it back: needs root
    #[arg(long, value_name = "BYTES")]
    pool: Option<Bytes>,
    /// Do not sample where it waits: spares one run of each mode but base
    #[arg(long)]
    no_stalls: bool,
    /// Pass what the program prints on to standard error
    #[arg(long)]
    show_output: bool,
    /// Print one JSON object (schema hugepilot.compare/1)
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    recover::pending();
    let progress = Progress::new();
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let options = CompareOptions {
        modes,
        runs: args.runs,
        libraries: args.libraries.clone(),
        pool: args.pool,
        stalls: !args.no_stalls,
        show_output: args.show_output,
    };
    let mut say = |event: Event<'_>| tell(&progress, &event);
    let comparison = prepare(&args.command, &options, &mut say)?;
    // A pool must be given back, also when the terminal goes away. Until here a signal ends us at once.
    let interrupt = Interrupt::only_ask()?;
    let report = comparison.run(&|| interrupt.is_asked(), &mut say)?;
    drop(progress);
    finish(&if args.json { json(&report) } else { compare_text(&report) })?;
    Ok(exit_of(&report))
}

fn exit_of(report: &CompareReport) -> Exit {
    let ran = report.modes.iter().any(|mode| mode.mode != Mode::Base && mode.runs > 0);
    match report.pays {
        true => Exit::Yes,
        false if ran => Exit::No,
        false => Exit::Unsupported,
    }
}

fn tell(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::WarmingUp(mode) => progress.now(format!("warming up: {mode}")),
        Event::Running(mode, round, rounds) => {
            progress.now(format!("round {round} of {rounds}: {mode}"))
        }
        Event::Confirming(mode, round, rounds) => {
            progress.now(format!("once more, to be sure: round {round} of {rounds}: {mode}"));
        }
        Event::NotHere(mode) => {
            progress.keep(&format!("{} is left out: {}", mode.mode, mode.reason))
        }
    }
}
