//! Checks by the compiler: lints of clippy, and the documentation.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use super::live::LIVE;
use super::passed;
use super::programs::{Program, run_one};
use super::report::Report;
use crate::run::{cargo, when_idle};

/// All checks, in order: step and command.
fn all() -> [(&'static str, Command); 3] {
    let targets = ["--workspace", "--all-features", "--all-targets"];
    let clippy =
        |targets: &[&str]| cargo(&[&["clippy"], targets, &["--", "-D", "warnings"]].concat());
    [("clippy", clippy(&targets)), ("clippy live", clippy(&LIVE)), ("doc", rustdoc())]
}

/// Runs the checks, each as a step.
pub(super) fn run(report: &mut Report) {
    for (step, mut check) in all() {
        report.step(step, || passed(&mut check));
    }
}

/// Runs the checks in the time that the live tests leave idle. Prints the output of each at its
/// end.
pub(super) fn run_beside_live(report: &mut Report) {
    for (step, check) in all() {
        report.step(step, || {
            let program = Program { name: step.to_owned(), command: when_idle(&check) };
            let failed = run_one(program).tests.failed;
            ensure!(failed.is_empty(), failed.join("\n"));
            Ok("passed, beside the live tests".to_owned())
        });
    }
}

/// Packages and features of the documentation. The examples select the features of the development
/// dependencies, as for clippy. The headers of `capi` are its documentation.
const DOCUMENTED: [&str; 8] = [
    "--workspace",
    "--exclude",
    "hugepilot-capi",
    "--all-features",
    "--lib",
    "--bins",
    "--examples",
    "--no-deps",
];

/// The command that builds the documentation.
///
/// Documenting a crate requires that those below it were checked. Cargo takes the results of clippy
/// if the compiler of the workspace and its arguments are the same, so these variables are those
/// that `cargo clippy` sets. If they differ, cargo checks all crates again.
fn rustdoc() -> Command {
    let mut doc = cargo(&[&["doc"], &DOCUMENTED[..]].concat());
    doc.env("RUSTDOCFLAGS", "-D warnings");
    let driver = Path::new(doc.get_program()).with_file_name("clippy-driver");
    if driver.is_absolute() && driver.exists() {
        doc.env("RUSTC_WORKSPACE_WRAPPER", driver);
        doc.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    doc
}
