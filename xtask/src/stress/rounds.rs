//! A million rounds of the engine in simulated machines.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Run;
use crate::run::cargo;

/// Rounds that end the test before its time.
const ROUNDS: u64 = 1_000_000;
/// Rounds of one run of the test.
const PIECE: u64 = 10_000;
/// Test that runs a machine for each seed from `HUGEPILOT_SEED` on, for `HUGEPILOT_ROUNDS` rounds.
const TEST: &str =
    "engine::tests::random::random_programs_break_no_limit_and_decisions_are_reproducible";

/// Runs pieces of the test, each with the seeds after those of the one before.
pub(super) fn run(run: &Run<'_>) -> Result<String> {
    let mut done = Counts::default();
    while run.goes_on() && done.rounds < ROUNDS {
        let first = run.seed + done.machines;
        let piece = piece(first)?;
        done.rounds += piece.rounds;
        done.machines += piece.machines;
        done.changes += piece.changes;
        run.progress(|| done.text());
    }
    Ok(done.text())
}

/// Counts of machines that broke no promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    rounds: u64,
    machines: u64,
    changes: u64,
}

impl Counts {
    /// Reads the line that the test prints.
    fn read(output: &str) -> Option<Self> {
        let line =
            output.lines().find_map(|line| line.split_once(" changes").map(|(line, _)| line))?;
        let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
        let [rounds, machines, changes] = [numbers.next()?, numbers.next()?, numbers.next()?];
        Some(Self { rounds, machines, changes })
    }

    fn text(self) -> String {
        let Self { rounds, machines, changes } = self;
        format!("{rounds} rounds of {machines} machines, {changes} changes")
    }
}

fn piece(first: u64) -> Result<Counts> {
    let mut command = cargo(&["test", "--quiet", "--release", "-p", "hugepilot-manager", "--lib"]);
    command.args(["--", "--exact", TEST, "--nocapture"]);
    command.env("HUGEPILOT_ROUNDS", PIECE.to_string()).env("HUGEPILOT_SEED", first.to_string());
    let output = command.stdin(Stdio::null()).output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "machines from seed {first} on: {text}");
    Counts::read(&text).with_context(|| format!("no counts: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_line_of_the_test() {
        let output = "\nrunning 1 test\n1503 rounds of 71 machines, 9 changes\n";
        let counts = Counts { rounds: 1503, machines: 71, changes: 9 };
        assert_eq!(Counts::read(output), Some(counts));
        assert_eq!(Counts::read(&counts.text()), Some(counts));
        assert_eq!(Counts::read("no test was run"), None);
    }
}
