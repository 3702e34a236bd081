//! The test command: every check that must pass, cheapest first, and a table at the end.

mod checks;
mod dependencies;
mod live;
mod programs;
mod report;
mod skips;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::run::{self, Tests, cargo};
use crate::setup::toolchain;
use crate::{dispositions, setup, tidy};
use report::{Report, Row};
use skips::Skips;

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every step.
    All,
    /// Without the live kernel tests and Miri.
    Quick,
}

/// Runs the steps up to the first that fails, then prints the table.
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
    report.step("tidy", || tidy::run(&run::root()).map(|()| "passed".to_owned()))?;
    // In CI, whose time is limited, they use the time in which the live tests wait.
    if scope == Scope::Quick || !is_ci() {
        checks::run(report)?;
    }
    tests(scope, report)?;
    dependencies::check(report)?;
    if scope == Scope::Quick {
        report.not_run("live", "--quick");
    } else {
        live_tests(report)?;
    }
    match report.skips.as_ref().map(Skips::unexpected) {
        Some(skips) if is_ci() => ensure!(skips.is_empty(), "skipped in CI: {}", skips.join("; ")),
        _ => {}
    }
    Ok(())
}

/// Whether this is a run whose skips are failures.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs the test programs and the doctests, two at a time, and Miri beside them.
fn tests(scope: Scope, report: &mut Report) -> Result<()> {
    let mut built = Vec::new();
    report.step("build tests", || {
        built = programs::build()?;
        Ok(format!("{} test programs", built.len()))
    })?;
    let log = SkipLog::fresh("workspace")?;
    for program in &mut built {
        program.command.env("HUGEPILOT_SKIP_LOG", &log.0);
    }
    match scope {
        Scope::Quick => report.not_run("miri", "--quick"),
        // Its standard library is built each time on a fresh machine, a minute of the 15.
        Scope::All if is_ci() => report.not_run("miri", "CI: without CI=true, it runs"),
        Scope::All => match toolchain::miri() {
            Ok(miri) => built.insert(0, programs::miri(miri)),
            Err(cause) => report.not_run("miri", &cause),
        },
    }
    let mut finished = Vec::new();
    let tested = report.step("test", || {
        finished = programs::run(built)?;
        let tests = finished.iter().filter(|run| run.name != programs::MIRI).map(|run| run.tests);
        summary(tests.sum(), log.read().count())
    });
    for run in finished.iter().filter(|run| run.name == programs::MIRI) {
        let outcome = format!("{} passed, beside the tests", run.tests.passed);
        report.rows.push(Row { step: "miri", seconds: run.seconds, outcome });
    }
    report.skips = Some(log.read());
    tested
}

/// Runs the live tests, and in CI the checks beside them.
fn live_tests(report: &mut Report) -> Result<()> {
    let mut built = Vec::new();
    report.step("build live", || {
        built = live::build()?;
        Ok(format!("{} test programs", built.len()))
    })?;
    let log = SkipLog::fresh("live")?;
    let mut checks = Report::default();
    let (tested, checked) = thread::scope(|scope| {
        let checked = is_ci().then(|| scope.spawn(|| checks::run_beside_live(&mut checks)));
        let live = || summary(live::run(&built, &log.0)?, log.read().count());
        let tested = report.step("live", live);
        let checked = checked.map_or(Ok(Ok(())), thread::ScopedJoinHandle::join);
        (tested, checked.unwrap_or_else(|_| Err(anyhow!("a check panicked"))))
    });
    report.rows.extend(checks.rows);
    report.skips = report.skips.take().map(|skips| skips.and(log.read()));
    tested.and(checked)
}

fn passed(command: &mut Command) -> Result<String> {
    run::run(command).map(|()| "passed".to_owned())
}

/// The file in which the tests of one run record their skips.
struct SkipLog(PathBuf);

impl SkipLog {
    fn fresh(name: &str) -> Result<Self> {
        let folder = run::target().join("skips");
        let log = folder.join(format!("{name}.log"));
        let created = fs::create_dir_all(&folder).and_then(|()| fs::write(&log, ""));
        created.with_context(|| log.display().to_string())?;
        Ok(Self(log))
    }

    fn read(&self) -> Skips {
        Skips::read(&fs::read_to_string(&self.0).unwrap_or_default())
    }
}

/// Counts of a run of tests, of which at least one must have run. The test runner counts a test
/// that skips itself as passed; this summary does not.
fn summary(tests: Tests, skipped: u64) -> Result<String> {
    ensure!(tests.passed > 0, "no test ran");
    let passed = tests.passed.saturating_sub(skipped);
    let mut text = format!("{passed} passed");
    for (count, what) in [(skipped, "skipped"), (tests.ignored, "ignored")] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if passed == 0 {
        text += " (NONE RAN)";
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_do_not_count_as_passed() {
        let tests = Tests { passed: 10, ignored: 1 };
        assert_eq!(summary(tests, 0).unwrap(), "10 passed, 1 ignored");
        assert_eq!(summary(tests, 3).unwrap(), "7 passed, 3 skipped, 1 ignored");
        assert_eq!(summary(tests, 10).unwrap(), "0 passed, 10 skipped, 1 ignored (NONE RAN)");
        assert!(summary(Tests::default(), 0).is_err());
    }
}
