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

use anyhow::{Context, Result, ensure};

use crate::run::{self, Tests, cargo};
use crate::setup::toolchain;
use crate::{dispositions, setup, tidy};
use programs::Program;
use report::Report;
use skips::Skips;

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every step.
    All,
    /// Without the live kernel tests and Miri.
    Quick,
}

/// Runs all steps, then prints the table and the failures.
pub(crate) fn run(scope: Scope) -> Result<()> {
    dispositions::reset()?;
    let mut report = Report::default();
    steps(scope, &mut report);
    println!("\n{}", report.render());
    let Report { failures, .. } = report;
    ensure!(failures.is_empty(), "{} failed:\n  {}", failures.len(), failures.join("\n  "));
    Ok(())
}

/// Runs the steps. One that fails ends only those that need what it builds.
fn steps(scope: Scope, report: &mut Report) {
    report.step("setup", || Ok(setup::run()));
    report.step("fmt", || passed(&mut cargo(&["fmt", "--all", "--check"])));
    report.step("tidy", || tidy::run(&run::root()).map(|()| "passed".to_owned()));
    // In CI, whose time is limited, they use the time in which the live tests wait.
    if scope == Scope::Quick || !is_ci() {
        checks::run(report);
    }
    tests(scope, report);
    dependencies::check(report);
    if scope == Scope::Quick {
        report.not_run("live", "--quick");
    } else {
        live_tests(report);
    }
    let unexpected = report.skips.as_ref().map(Skips::unexpected).filter(|_| is_ci());
    let unexpected = unexpected.into_iter().flatten();
    report.failures.extend(unexpected.map(|skip| format!("skipped in CI: {skip}")));
}

/// Whether this is a run whose skips are failures.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs the test programs and the doctests, two at a time, and Miri beside them.
fn tests(scope: Scope, report: &mut Report) {
    let Some(mut built) = build(report, "build tests", programs::build) else {
        return report.not_run("test", "its build failed");
    };
    match scope {
        Scope::Quick => report.not_run("miri", "--quick"),
        // Its standard library is built each time on a fresh machine, a minute of the 15.
        Scope::All if is_ci() => report.not_run("miri", "CI: without CI=true, it runs"),
        Scope::All => match toolchain::miri() {
            Ok(miri) => built.insert(0, programs::miri(miri)),
            Err(cause) => report.not_run("miri", &cause),
        },
    }
    let mut miri = Vec::new();
    let mut skips = Skips::default();
    report.step("test", || {
        let log = SkipLog::fresh("workspace")?;
        for program in &mut built {
            program.command.env("HUGEPILOT_SKIP_LOG", &log.0);
        }
        let (beside, finished): (Vec<_>, Vec<_>) =
            programs::run(built).into_iter().partition(|run| run.name == programs::MIRI);
        miri = beside;
        skips = log.read();
        summary(finished.into_iter().map(|run| run.tests).sum(), skips.count())
    });
    for run in miri {
        let outcome = summary(run.tests, 0).map(|text| text + ", beside the tests");
        report.record("miri", run.seconds, outcome);
    }
    report.skips = Some(skips);
}

/// Builds test programs in a step; `None` if that failed.
fn build(
    report: &mut Report,
    step: &'static str,
    build: impl FnOnce() -> Result<Vec<Program>>,
) -> Option<Vec<Program>> {
    let mut built = None;
    report.step(step, || {
        let programs = built.insert(build()?);
        Ok(format!("{} test programs", programs.len()))
    });
    built
}

/// Runs the live tests, and in CI the checks beside them.
fn live_tests(report: &mut Report) {
    let Some(built) = build(report, "build live", live::build) else {
        report.not_run("live", "its build failed");
        // The checks may name the cause.
        return if is_ci() {
            checks::run(report)
        };
    };
    let mut checks = Report::default();
    let mut skips = Skips::default();
    thread::scope(|scope| {
        if is_ci() {
            scope.spawn(|| checks::run_beside_live(&mut checks));
        }
        report.step("live", || {
            let log = SkipLog::fresh("live")?;
            let tests = live::run(&built, &log.0);
            skips = log.read();
            summary(tests, skips.count())
        });
    });
    report.extend(checks);
    report.skips = report.skips.take().map(|before| before.and(skips));
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
/// that skips itself as passed; this summary does not. An error names the failed tests.
fn summary(tests: Tests, skipped: u64) -> Result<String> {
    ensure!(tests.failed.is_empty(), tests.failed.join("\n"));
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
        let tests = |skipped| {
            summary(Tests { passed: 10, ignored: 1, failed: Vec::new() }, skipped).unwrap()
        };
        assert_eq!(tests(0), "10 passed, 1 ignored");
        assert_eq!(tests(3), "7 passed, 3 skipped, 1 ignored");
        assert_eq!(tests(10), "0 passed, 10 skipped, 1 ignored (NONE RAN)");
        assert!(summary(Tests::default(), 0).is_err());
    }

    #[test]
    fn failed_tests_are_named_though_others_passed() {
        let failed = ["cli tests/live: a", "cli tests/live: b"].map(str::to_owned).to_vec();
        let mut report = Report::default();
        report.step("live", || summary(Tests { passed: 10, ignored: 0, failed }, 0));
        assert_eq!(report.failures, ["live: cli tests/live: a", "live: cli tests/live: b"]);
    }
}
