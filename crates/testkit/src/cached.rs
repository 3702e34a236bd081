//! Page cache residency of a file.

use std::path::Path;
use std::process::Command;

/// Returns the bytes of a file in the page cache, counted by `fincore`.
///
/// The test begins with `requires!(need::program("fincore"))`.
///
/// # Panics
/// If `fincore` is missing or cannot read the file.
pub fn cached(path: &Path) -> u64 {
    let output = Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "RES"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
