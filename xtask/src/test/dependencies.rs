//! Checks of the dependencies with cargo-deny: licences, duplicates, sources, advisories.

use std::path::Path;
use std::process::Command;

use super::passed;
use super::report::Report;
use crate::run::root;
use crate::setup::deny;

/// Checks what deny.toml demands. The database of advisories needs the network; without it, and
/// without cargo-deny, the step is reported as not run.
pub(super) fn check(report: &mut Report) {
    let Some(program) = deny::program() else {
        return report.not_run("dependencies", "no cargo-deny");
    };
    // All packages are here: the tests were built before.
    report.step("dependencies", || {
        passed(deny(&program).args(["--offline", "check", "licenses", "bans", "sources"]))
    });
    match deny::fetch_advisories(&deny(&program)) {
        Ok(()) => {
            _ = report.step("advisories", || {
                passed(deny(&program).args(["check", "--disable-fetch", "advisories"]))
            })
        }
        Err(cause) => report.not_run("advisories", &cause),
    }
}

fn deny(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}
