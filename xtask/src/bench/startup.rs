//! Time to start hugepilot.
//!
//! Scripts run it, and it runs in front of other programs (`hugepilot run -- CMD`), so its start
//! must be short.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hugepilot_stats::Rounds;

use super::arguments::Positional;
use super::pairs::table;

/// `[PAIRS=20]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Positional { count, .. } = Positional::read(args, (20, 5), "")?;
    let programs = [Path::new("true"), hugepilot];
    let rounds = Rounds::after_warm_up(2, count, |_, which| milliseconds(programs[which]))?;
    print!("{}", table(&rounds, ["true", "hugepilot"], "ms"));
    Ok(())
}

fn milliseconds(program: &Path) -> Result<f64> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().with_context(|| program.display().to_string())?;
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
