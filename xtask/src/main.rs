//! Project commands: `cargo xtask NAME`. This file is the table of contents.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // tables go to stdout

mod bench; // benchmarks by name, in pairs
mod checkout; // builds of this checkout only, where several share a target folder
mod dispositions; // signals that we were started to ignore
mod events; // tables of the events of processors
mod install; // program, libraries and documents into a folder
mod random; // random choices, repeatable by seed
mod run; // running other programs, and reading what cargo says of its tests
mod setup; // programs and downloads that the tests use
mod status; // sizes of a process
mod stress; // long tests of safety, on the release build
mod test; // the test command
mod tidy; // the rules of the house that no compiler checks

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup                Install what the tests use: Debian packages (as root), rustfmt, clippy, Miri
                       for an installed nightly, cargo-deny, mimalloc's stress test
  test [--quick]       Run every check: setup, format, tidy, lints, rustdoc, tests, Miri over
                       `alloc`, dependencies, live kernel tests. --quick skips Miri and the live
                       tests. With CI=true, a skipped test fails unless its reason is accepted
  tidy [DIR]           Check project rules: words, line lengths, unsafe code, pure crates, layers,
                       links in documents; note the largest crates and files
  install PREFIX [--only program|capi|preload] [--debug]
                       Build and install the program with man pages, completions and documents,
                       the library for C and C++, and the allocator to preload
  events PERFMON LIBPFM4 [--check]
                       Make the tables of events in `record` from checkouts of intel/perfmon and
                       libpfm4; --check compares only
  bench list           List the benchmarks
  bench NAME [ARGS]    Run a benchmark on the release build
  bench NAME --help    Show its question, its arguments and an example
  stress list          List the stress tests
  stress [NAME|all] [--seconds N] [--seed N]
                       Run stress tests on the release build, as root [default: 600 s each]
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            // 128 + SIGINT, as shells report it.
            if error.is::<stress::Interruption>() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(args: &[&str]) -> Result<()> {
    if let ["help" | "--help" | "-h"] = args {
        print!("{USAGE}");
        return Ok(());
    }
    run::find_root()?;
    match args {
        ["test" | "bench" | "stress" | "install", ..] if checkout::shares_builds() => {
            checkout::run_rebuilt(args)
        }
        ["test"] => test::run(test::Scope::All),
        ["test", "--quick"] => test::run(test::Scope::Quick),
        ["setup"] => {
            setup::run();
            Ok(())
        }
        ["tidy"] => tidy::run(&run::root()),
        ["tidy", dir] => tidy::run(dir.as_ref()),
        ["install", args @ ..] => install::install(args),
        ["events", args @ ..] => events::run(args),
        ["bench", name, args @ ..] => bench::run(name, args),
        ["stress", args @ ..] => stress::run(args),
        _ => bail!("no such command\n\n{USAGE}"),
    }
}
