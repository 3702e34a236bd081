//! Time to start hugepilot.
//!
//! Scripts run it, and it runs in front of other programs (`hugepilot run -- CMD`), so its start
//! must be short.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::pairs::pairs;

/// `[PAIRS=20]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let count = args.first().map_or(Ok(20), |text| text.parse()).context("PAIRS is a number")?;
    ensure!(count >= 5, "fewer than 5 pairs show no spread");
    let stats = pairs(
        count,
        || milliseconds(Path::new("true"), &[]),
        || milliseconds(hugepilot, &["--version"]),
    );
    print!("{}", stats.table("true", "hugepilot", "ms"));
    Ok(())
}

fn milliseconds(program: &Path, args: &[&str]) -> f64 {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(status.success(), "{}: {status}", program.display());
    start.elapsed().as_secs_f64() * 1e3
}
