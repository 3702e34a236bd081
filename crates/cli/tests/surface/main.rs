//! Surface of the command line: `--help`, the JSON Schemas, and docs/cli.md about both.
//!
//! `BLESS=1` rewrites the goldens: `tests/help` and `docs/schema`.

#![forbid(unsafe_code)]

mod documents;
mod help;
mod markdown;
mod outputs;
mod schemas;
#[path = "../validation/mod.rs"]
mod validation;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Checks that `folder` holds exactly these files; with `BLESS=1`, removes all others.
#[track_caller]
fn assert_files(folder: &Path, expected: &BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
        let entry = entry.expect("a name in the folder");
        let name = entry.file_name().to_string_lossy().into_owned();
        if expected.contains(&name) {
            continue;
        }
        let is_blessed = std::env::var_os("BLESS").is_some_and(|value| value == "1");
        assert!(is_blessed, "{}: no longer in use; BLESS=1 removes it", entry.path().display());
        fs::remove_file(entry.path()).expect("a golden can be removed");
    }
}
