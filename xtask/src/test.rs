//! The test command: everything that must pass, in the order of what it costs, and a table of it at the end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::run::{self, Tests, cargo};
use crate::skips::Skips;
use crate::{dispositions, setup, tidy};

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything.
    All,
    /// Without the live kernel tests and the check of the release build.
    Quick,
}

/// Runs the steps up to the first that fails; then prints the table either way.
pub(crate) fn run(scope: Scope) -> Result<()> {
    dispositions::reset()?;
    let mut report = Report::default();
    let result = steps(scope, &mut report);
    println!("\n{}", report.render());
    result
}

fn steps(scope: Scope, report: &mut Report) -> Result<()> {
    report.step("setup", || Ok(setup::run()))?;
    report.step("fmt", || passed(&mut cargo(&["fmt", "--all", "--check"])))?;
    report.step("clippy", lints)?;
    report.step("tidy", || tidy::run(&run::root()).map(|()| "passed".to_owned()))?;

    let log = SkipLog::fresh("workspace")?;
    let tested =
        report.step("test", || log.tests(&mut cargo(&["test", "--workspace", "--all-features"])));
    report.skips = Some(log.read());
    tested?;
    if scope == Scope::Quick {
        let step = "live";
        report.rows.push(Row { step, seconds: 0.0, outcome: "NOT RUN: --quick".to_owned() });
        return Ok(());
    }

    // One at a time: they watch, and change, what all processes share.
    let live = [&["test"], &LIVE[..], &["--", "--test-threads=1"]].concat();
    let log = SkipLog::fresh("live")?;
    let tested = report.step("live", || log.tests(cargo(&live).env("HUGEPILOT_LIVE", "1")));
    report.skips = report.skips.take().map(|skips| skips.and(log.read()));
    tested?;
    // The one crate that is another without debug assertions.
    let release = ["check", "--release", "--package=hugepilot-graph"];
    report.step("check --release", || passed(&mut cargo(&release)))
}

/// The live tests of all crates that have some. Cargo leaves them out where nobody asks for them. Of the whole workspace,
/// with all features and in the same profile, so that all but themselves is built already.
const LIVE: [&str; 4] = ["--workspace", "--all-features", "--test", "live"];

fn lints() -> Result<String> {
    for targets in [&["--workspace", "--all-features", "--all-targets"][..], &LIVE] {
        passed(&mut cargo(&[&["clippy"], targets, &["--", "-D", "warnings"]].concat()))?;
    }
    Ok("passed".to_owned())
}

fn passed(command: &mut Command) -> Result<String> {
    run::run(command).map(|()| "passed".to_owned())
}

/// The file in which the tests of one run note that they skipped themselves.
struct SkipLog(PathBuf);

impl SkipLog {
    fn fresh(name: &str) -> Result<Self> {
        let folder = run::target().join("skips");
        let log = folder.join(format!("{name}.log"));
        let made = fs::create_dir_all(&folder).and_then(|()| fs::write(&log, ""));
        made.with_context(|| log.display().to_string())?;
        Ok(Self(log))
    }

    /// Runs `command`, whose tests must include at least one that ran.
    fn tests(&self, command: &mut Command) -> Result<String> {
        let tests = run::run_tests(command.env("HUGEPILOT_SKIP_LOG", &self.0))?;
        summary(tests, self.read().count())
    }

    fn read(&self) -> Skips {
        Skips::read(&fs::read_to_string(&self.0).unwrap_or_default())
    }
}

/// What a run of tests came to. A test that skips itself counts as passed for the test runner, but not for us.
fn summary(tests: Tests, skipped: u64) -> Result<String> {
    ensure!(tests.passed > 0, "no test ran");
    let really = tests.passed.saturating_sub(skipped);
    let mut text = format!("{really} passed");
    for (count, what) in [(skipped, "skipped"), (tests.ignored, "ignored")] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if really == 0 {
        text += " (NOT ONE RAN)";
    }
    Ok(text)
}

/// What the command did, for the table at its end.
#[derive(Default)]
struct Report {
    rows: Vec<Row>,
    /// Of the tests that ran; `None` before any did.
    skips: Option<Skips>,
}

struct Row {
    step: &'static str,
    seconds: f64,
    outcome: String,
}

impl Report {
    /// Runs one step and notes how long it took and what came of it.
    fn step(&mut self, step: &'static str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        println!("\n== {step}");
        let start = Instant::now();
        let result = work();
        let seconds = start.elapsed().as_secs_f64();
        let outcome = result.as_ref().map_or_else(|_| "FAILED".to_owned(), String::clone);
        self.rows.push(Row { step, seconds, outcome });
        result.map(drop)
    }

    fn render(&self) -> String {
        let mut text = format!("{:<16} {:>8}  outcome\n", "step", "seconds");
        for Row { step, seconds, outcome } in &self.rows {
            text += &format!("{step:<16} {seconds:>8.1}  {outcome}\n");
        }
        text + &self.skips.as_ref().map_or("no test was run".to_owned(), Skips::to_string)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn skipped_tests_are_not_called_passed() {
        let tests = Tests { passed: 10, ignored: 1 };
        assert_eq!(summary(tests, 0).unwrap(), "10 passed, 1 ignored");
        assert_eq!(summary(tests, 3).unwrap(), "7 passed, 3 skipped, 1 ignored");
        assert_eq!(summary(tests, 10).unwrap(), "0 passed, 10 skipped, 1 ignored (NOT ONE RAN)");
        assert!(summary(Tests::default(), 0).is_err());
    }

    #[test]
    fn the_table_shows_the_step_that_failed() {
        let mut report = Report::default();
        report.step("fmt", || Ok("passed".to_owned())).unwrap();
        report.step("clippy", || bail!("a lint")).unwrap_err();
        assert!(report.render().ends_with("FAILED\nno test was run"));
        report.skips = Some(Skips::read("a::b: not root\n"));
        for row in &mut report.rows {
            row.seconds = 1.25;
        }
        let table = "\
step              seconds  outcome
fmt                   1.2  passed
clippy                1.2  FAILED
skipped 1: not root (1)
  a::b: not root";
        assert_eq!(report.render(), table);
    }
}
