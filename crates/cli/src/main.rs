//! `hugepilot`: parse, dispatch, print, exit.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod lab;

/// Puts huge pages where they pay, for live processes.
#[derive(Debug, Parser)]
#[command(name = "hugepilot", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Lab(lab::LabArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Lab(args) => lab::run(args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("hugepilot: {error:#}");
            ExitCode::from(2)
        }
    }
}
