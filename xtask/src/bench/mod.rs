//! Benchmarks by name. Each has a file and an entry in [`BENCHES`].

mod alloc;
mod arguments;
mod cpu;
mod daemon;
mod gain;
mod graph;
mod pairs;
mod progress;
mod records;
mod signatures;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{self, cargo};

/// Benchmark.
struct Bench {
    /// Name for `cargo xtask bench NAME`.
    name: &'static str,
    /// The question that it answers, and its arguments.
    about: &'static str,
    /// Arguments that run.
    example: &'static str,
    /// Function that takes the release binary and the arguments, and prints a table.
    run: fn(&Path, &[&str]) -> Result<()>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "alloc",
        about: "what does memory of `alloc` cost beyond the kernel's part? \
            [PAIRS=9] [SIZE=4GiB] [BACKING…]",
        example: "5 2GiB thp base",
        run: alloc::run,
    },
    Bench {
        name: "daemon",
        about: "what does the daemon gain and cost beside a changing mix of programs, compared \
            with THP never and always? [--minutes N=30] [--mode never,always,daemon] \
            [--limit SIZE=12GiB] [--seed N=1] [--output FILE] [--report FILE] [--plot FILE]",
        example: "--minutes 5 --mode never,daemon --output mix.ndjson",
        run: daemon::run,
    },
    Bench {
        name: "gain",
        about: "how much of the all-huge gain does tune reach in usual programs, and is its \
            prediction right? [PROGRAM…|list] [--pairs N=5] [--state base,tuned,all] \
            [--window SECONDS=5] [--seed N] [--output FILE] [--report FILE] [-- TUNE_ARGS]; \
            HUGEPILOT_GAPBS=DIR",
        example: "list",
        run: gain::run,
    },
    Bench {
        name: "signatures",
        about: "how do the stalls of graph kernels vary over time, on base pages and THP? \
            [--output DIR=signatures] [--program FILE] [--scale N=22] [--side N=4096] \
            [--trials N] [--every TIME=100ms] [--events EVENT]...",
        example: "--scale 20 --trials 3",
        run: signatures::run,
    },
];

/// Runs the benchmark `name` on a fresh release build; `list` prints all names, and `--report`
/// needs no build.
pub(crate) fn run(name: &str, args: &[&str]) -> Result<()> {
    if name == "list" {
        print!("{}", list());
        return Ok(());
    }
    let bench = BENCHES.iter().find(|bench| bench.name == name);
    let bench = bench.with_context(|| format!("no benchmark {name:?}; benchmarks:\n{}", list()))?;
    if is_help(args) {
        print!("{}", bench.help());
        return Ok(());
    }
    bench.require_known(args)?;
    // A table of stored runs needs no binary.
    if !own(args).any(|arg| *arg == "--report") {
        run::run(&mut cargo(&["build", "--release"]))?;
    }
    (bench.run)(&release_binary(), args)
}

/// Whether the arguments ask for help.
fn is_help(args: &[&str]) -> bool {
    own(args).any(|arg| ["--help", "-h", "help"].contains(arg))
}

/// Arguments before `--`; those after are of another program.
fn own<'a>(args: &'a [&'a str]) -> impl Iterator<Item = &'a &'a str> {
    args.iter().take_while(|arg| **arg != "--")
}

impl Bench {
    /// Fails if an option is none of the benchmark's: otherwise it could pass for a size or a name.
    fn require_known(&self, args: &[&str]) -> Result<()> {
        let words = self.about.split(|c: char| !c.is_ascii_lowercase() && c != '-');
        let known: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
        let unknown = own(args).find(|arg| arg.starts_with('-') && !known.contains(arg));
        let help = self.help();
        unknown.map_or(Ok(()), |arg| bail!("bench {}: no option {arg:?}; help: {help}", self.name))
    }

    fn help(&self) -> String {
        let Self { name, about, example, .. } = self;
        let (question, arguments) = about.split_once("? ").unwrap_or((about, ""));
        format!(
            "{question}?\n\nusage: cargo xtask bench {name} {arguments}\n\n\
             Example:\n  cargo xtask bench {name} {example}\n"
        )
    }
}

fn release_binary() -> PathBuf {
    run::target().join("release/hugepilot")
}

fn list() -> String {
    BENCHES.iter().map(|bench| format!("{:<16} {}\n", bench.name, bench.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once_each() {
        let mut names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), BENCHES.len());
        assert!(!names.contains(&"list"));
        assert_eq!(list().lines().count(), BENCHES.len());
    }

    #[test]
    fn unknown_options_are_errors() {
        let bench = |name| BENCHES.iter().find(|bench| bench.name == name).unwrap();
        let error = bench("daemon").require_known(&["--minute", "1"]).unwrap_err().to_string();
        assert!(error.starts_with("bench daemon: no option \"--minute\"; "), "{error}");
        for bench in BENCHES {
            bench.require_known(&bench.example.split(' ').collect::<Vec<_>>()).unwrap();
            bench.require_known(&["a", "--", "./x", "--other"]).unwrap();
            assert!(
                bench.require_known(&["--", "x"]).is_ok() && bench.require_known(&["-x"]).is_err()
            );
        }
    }

    #[test]
    fn help_has_question_options_and_an_example() {
        for bench in BENCHES {
            let help = bench.help();
            let lines: Vec<&str> = help.lines().collect();
            let usage = format!("usage: cargo xtask bench {} [", bench.name);
            assert!(lines[0].ends_with('?') && lines[2].starts_with(&usage), "{help}");
            assert_eq!(lines[5], format!("  cargo xtask bench {} {}", bench.name, bench.example));
        }
        assert!(is_help(&["speed", "--help"]) && !is_help(&["pr", "--", "./x", "--help"]));
    }
}
