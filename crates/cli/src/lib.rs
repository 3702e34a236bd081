//! Command line of hugepilot: parse, dispatch, print, exit. It has no algorithms.
//!
//! It is a library, so that tests can walk [`command`], the definition of all commands and options.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the command's output is its stdout")]

mod calibration;
mod compare;
mod completions;
mod daemon;
mod debloat;
mod doctor;
mod exit;
mod explain;
mod failure;
mod graph;
mod help;
mod interrupt;
mod journal;
mod knobs;
mod lab;
mod locale;
mod new_file;
mod output;
mod pool;
mod record;
mod recording;
mod recover;
mod report;
mod run;
mod saved;
mod schedule;
pub mod schema;
mod sim;
mod status;
mod target;
mod top;
mod trace;
mod trial_guard;
mod tune;
mod usage;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Unsupported, privilege};
use hugepilot_lab::holder;

use crate::exit::Exit;
use crate::failure::{Failure, wants_json};
use crate::output::escaped;

/// Put huge pages where they pay, for live processes on stock Linux
#[derive(Parser)]
#[command(name = "hugepilot", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "\
Examples:
  hugepilot doctor                           check this machine
  hugepilot tune -p 4711 --dry-run           plan and predicted speedup
  sudo hugepilot tune -p 4711                tune a running process
  sudo hugepilot debloat -p 4711 --dry-run   reclaimable memory and its cost
  hugepilot compare -- ./solve input.txt     find the fastest page mode

Exit status: 0 yes, 1 no (nothing to gain), 2 error, 3 unsupported here (see `hugepilot doctor`)")]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    Compare(Box<compare::CompareArgs>),
    Completions(completions::CompletionsArgs),
    Daemon(Box<daemon::DaemonArgs>),
    Debloat(Box<debloat::DebloatArgs>),
    Doctor(doctor::DoctorArgs),
    Explain(explain::ExplainArgs),
    Graph(graph::GraphArgs),
    Knobs(knobs::KnobsArgs),
    Lab(lab::LabArgs),
    Pool(pool::PoolArgs),
    Record(Box<record::RecordArgs>),
    Report(Box<report::ReportArgs>),
    Run(Box<run::RunArgs>),
    Schema(schema::SchemaArgs),
    Sim(Box<sim::SimArgs>),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Trace(Box<trace::TraceArgs>),
    Tune(Box<tune::TuneArgs>),
}

/// Returns the definition of the command line.
pub fn command() -> clap::Command {
    exit::explained(help::grouped(Cli::command()))
}

/// Lists the commands without subcommands, each with its full name, such as `pool set`.
pub fn leaves() -> Vec<(String, clap::Command)> {
    fn below(command: clap::Command, name: &str) -> Vec<(String, clap::Command)> {
        if !command.has_subcommands() {
            return vec![(name.to_owned(), command)];
        }
        let full =
            |sub: &clap::Command| format!("{name} {}", sub.get_name()).trim_start().to_owned();
        command.get_subcommands().flat_map(|sub| below(sub.clone(), &full(sub))).collect()
    }
    below(command(), "")
}

/// Commands that change or inspect other processes. All others drop the capabilities of the binary.
const PRIVILEGED: [&str; 7] = ["daemon", "debloat", "doctor", "record", "status", "top", "tune"];

/// Confines the capabilities of the binary. Before that, only the name of the command is read.
fn confine() -> Result<(), Unsupported> {
    privilege::lower()?;
    let name = std::env::args_os().nth(1).unwrap_or_default();
    if name == trial_guard::ARGUMENT || PRIVILEGED.iter().any(|privileged| *privileged == name) {
        Ok(())
    } else {
        privilege::renounce()
    }
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    if let Err(refusal) = confine() {
        let failure = Failure::new(refusal.to_string(), Exit::Error).with_help(refusal.help());
        return failure.print().into();
    }
    if std::env::args_os().nth(1).is_some_and(|name| name == trial_guard::ARGUMENT) {
        return trial_guard::run();
    }
    if std::env::args_os().nth(1).is_some_and(|name| name == calibration::child::ARGUMENT) {
        return calibration::child::run();
    }
    if std::env::args_os().nth(1).is_some_and(|name| name == holder::ARGUMENT) {
        return holder::serve(&std::env::args_os().skip(2).collect::<Vec<_>>());
    }
    let cli = parse();
    let reads_memory = matches!(cli.command, Commands::Daemon(_) | Commands::Debloat(_));
    let done = match cli.command {
        Commands::Compare(args) => compare::run(&args),
        Commands::Completions(args) => completions::run(&args),
        Commands::Daemon(args) => daemon::run(&args),
        Commands::Debloat(args) => debloat::run(&args),
        Commands::Doctor(args) => doctor::run(&args),
        Commands::Explain(args) => explain::run(&args),
        Commands::Graph(args) => graph::run(&args),
        Commands::Knobs(args) => {
            return knobs::run(&args)
                .unwrap_or_else(|error| interrupt::end(failure::fail(&error, false)));
        }
        Commands::Lab(args) => {
            return lab::run(args)
                .unwrap_or_else(|error| interrupt::end(failure::fail(&error, false)));
        }
        Commands::Pool(args) => pool::run(&args),
        Commands::Record(args) => {
            return record::run(&args)
                .unwrap_or_else(|error| interrupt::end(failure::fail(&error, false)));
        }
        Commands::Report(args) => report::run(&args),
        Commands::Run(args) => {
            return run::run(&args)
                .unwrap_or_else(|error| interrupt::end(failure::fail(&error, false)));
        }
        Commands::Schema(args) => schema::run(&args),
        Commands::Sim(args) => sim::run(&args),
        Commands::Status(args) => status::run(&args),
        Commands::Top(args) => top::run(&args),
        Commands::Trace(args) => trace::run(&args),
        Commands::Tune(args) => tune::run(&args),
    };
    interrupt::over();
    interrupt::end(done.unwrap_or_else(|error| failure::fail(&error, reads_memory)))
}

fn parse() -> Cli {
    let mut command = help::shortened(command());
    parsed(&mut command, std::env::args_os())
        .unwrap_or_else(|error| refuse_usage(&usage::error(error, &mut command, &words())))
}

fn parsed<T: Into<OsString> + Clone>(
    command: &mut clap::Command,
    words: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    let matches = command.try_get_matches_from_mut(words);
    matches.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches))
}

/// Command line of hugepilot, each word without characters that control a terminal.
fn words() -> Vec<String> {
    std::env::args_os().map(|word| printable(word.as_encoded_bytes())).collect()
}

/// Prints a usage error, with `--json` also as JSON. Also prints requested help or version.
pub(crate) fn refuse_usage(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        // clap ignores that stdout is full.
        let exit = output::print_help(error).map_or_else(Failure::print, |()| Exit::Yes);
        std::process::exit(i32::from(exit as u8));
    }
    if wants_json(std::env::args_os()) {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default().trim_start_matches("error: ");
        let hints = lines.take_while(|line| !line.starts_with("Usage:")).map(str::to_owned);
        Failure::new(first, Exit::Error).with_help(hints).print_json();
    }
    if words().iter().map(OsString::from).ne(std::env::args_os()) {
        // Its colours are control characters, too, so it has none.
        let _ = std::io::stderr().write_all(escaped(&error.to_string()).as_bytes());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound_and_has_each_privileged_command() {
        command().debug_assert();
        for name in PRIVILEGED {
            assert!(command().find_subcommand(name).is_some(), "{name}");
        }
    }
}
