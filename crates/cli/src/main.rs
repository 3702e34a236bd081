//! Entry point of the `hugepilot` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hugepilot_cli::main()
}
