//! Checks by the compiler: lints of clippy, and the documentation.

use std::path::Path;

use anyhow::Result;

use super::live::LIVE;
use super::passed;
use crate::run::cargo;

/// Checks all targets.
pub(super) fn clippy() -> Result<String> {
    let all = ["--workspace", "--all-features", "--all-targets"];
    for targets in [&all[..], &LIVE] {
        passed(&mut cargo(&[&["clippy"], targets, &["--", "-D", "warnings"]].concat()))?;
    }
    Ok("passed".to_owned())
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

/// Builds the documentation.
///
/// Documenting a crate requires that those below it were checked. Cargo takes the results of clippy
/// if the compiler of the workspace and its arguments are the same, so these variables are those
/// that `cargo clippy` sets. If they differ, cargo checks all crates again.
pub(super) fn rustdoc() -> Result<String> {
    let mut doc = cargo(&[&["doc"], &DOCUMENTED[..]].concat());
    doc.env("RUSTDOCFLAGS", "-D warnings");
    let driver = Path::new(doc.get_program()).with_file_name("clippy-driver");
    if driver.is_absolute() && driver.exists() {
        doc.env("RUSTC_WORKSPACE_WRAPPER", driver);
        doc.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    passed(&mut doc)
}
