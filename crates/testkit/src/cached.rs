//! What is in the page cache.

use std::path::Path;
use std::process::Command;

/// Bytes of a file in the page cache, as another program counts them: `fincore`, which the test requires.
///
/// # Panics
/// Without it, or for no file.
pub fn cached(path: &Path) -> u64 {
    let output = Command::new("fincore")
        .args(["--bytes", "--noheadings", "--output", "RES"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
