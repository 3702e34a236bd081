//! hugepilot: puts huge pages where they pay, for live processes.

#![forbid(unsafe_code)]

mod doctor;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "hugepilot", version, about)]
enum Verb {
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let done = match Verb::parse() {
        Verb::Doctor(args) => doctor::run(&args),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("hugepilot: {error:#}");
            ExitCode::from(2)
        }
    }
}
