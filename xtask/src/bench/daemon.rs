//! The daemon beside a changing mix of programs, compared with THP `never` and `always`.
//!
//! Programs start, grow, idle and end by one timeline in a cgroup with a limit, and memory goes
//! short twice: a ballast takes what is free below a ceiling, and holds it for a while. Each mode
//! is a run of its own. Rates are operations per CPU second of the program, because the programs
//! share the CPUs, relative to a reference program on the same CPU. They are compared window by
//! window of the timeline. The references are on base pages in every mode. The speed of a virtual
//! CPU varies by more than many gains, and that of each CPU differently.

mod ballast;
mod host;
mod measure;
mod options;
mod plot;
mod probe;
mod program;
mod record;
mod summary;
mod table;
mod timeline;
mod tools;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hugepilot_testkit::need::{Need, all, cgroup_memory, program as installed, root};

use super::records::{Machine, append, read};
use crate::stress::Interruption;
use measure::Bench;
use options::Options;
use record::Run;

/// `[--minutes N=30] [--mode never,always,daemon] [--limit SIZE=12GiB] [--seed N=1]
/// [--output FILE] [--report FILE] [--plot FILE]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let options = Options::read(args)?;
    let runs = match &options.report {
        Some(file) => read(file)?,
        None => measured(hugepilot, &options)?,
    };
    print!("{}", table::report(&runs));
    if let Some(file) = &options.plot {
        fs::write(file, plot::svg(&runs)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Runs the mix in each mode.
fn measured(hugepilot: &Path, options: &Options) -> Result<Vec<Run>> {
    let tools = ["taskset", "setpriv", "rustc", "redis-server"].map(installed);
    if let Need::Err(missing) = all([root(), cgroup_memory()].into_iter().chain(tools)) {
        bail!("the mix cannot run here: {missing}");
    }
    let interrupted = Interruption::watched()?;
    let (compiled, machine) = (tools::compile()?, Machine::read());
    let bench =
        Bench { hugepilot, compiled: &compiled, options, machine, interrupted: &interrupted };
    let mut runs = Vec::new();
    for &mode in &options.modes {
        eprintln!("{}: {} minutes", mode.name(), options.minutes);
        let run = bench.run(mode)?;
        options.output.as_deref().map_or(Ok(()), |file| append(file, &run))?;
        runs.push(run);
    }
    Ok(runs)
}
