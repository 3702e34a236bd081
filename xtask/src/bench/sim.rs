//! Tables of the simulators: speed, the figures of Manocha et al. (MICRO'23), and replay on the
//! live machine.
//!
//! Graph kernels are simulated by `--graph`, exactly and without QEMU. Parts that compare with the
//! live machine simulate the program itself under QEMU. Each measurement is a record in `--output`,
//! from which `--report` prints the same tables again.

mod agree;
mod options;
mod peers;
mod processes;
mod programs;
mod record;
mod replay;
mod reuse;
mod runner;
mod setting;
mod sizes;
mod speed;
mod table;
mod threads;
mod utility;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::records::read;
use options::{Options, Part};
use runner::Bench;

/// `[PART…] [--scale N=20] [--kernels bfs,sssp,pr] [--accesses N=100000000]
/// [--preset haswell,zen5,…] [--order original,dbg] [--policy pcc,hawkeye,heat] [--pairs N=5]
/// [--output FILE] [--report FILE]`
///
/// Simulated figures have all of these presets, orders and policies unless some are named. Parts
/// that run live have the first named; otherwise the preset of this CPU (`zen5` if there is none),
/// `original` and `pcc`.
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let options = Options::read(args)?;
    if let Some(file) = &options.report {
        print!("{}", table::report(&read(file)?, &options.parts));
        return Ok(());
    }
    let bench = Bench::new(hugepilot, &options)?;
    for &part in &options.parts {
        if let Some(cause) = missing(part) {
            eprintln!("skipped {}: {cause}", part.name());
            continue;
        }
        if matches!(part, Part::Replay | Part::Agree) && options.lacks_own_preset() {
            let preset = options.preset();
            eprintln!("no preset has the TLBs of this CPU; simulated are those of {preset}");
        }
        let begun = Instant::now();
        eprintln!("{} …", part.name());
        measure(part, &bench)?;
        eprintln!("{}: {:.0} s", part.name(), begun.elapsed().as_secs_f64());
    }
    let records = bench.records();
    ensure!(!records.is_empty(), "no part can run here");
    print!("{}", table::report(&records, &options.parts));
    Ok(())
}

fn measure(part: Part, bench: &Bench<'_>) -> Result<()> {
    match part {
        Part::Speed => speed::measure(bench),
        Part::Peers => peers::measure(bench),
        Part::Reuse => reuse::measure(bench),
        Part::Utility => utility::measure(bench),
        Part::Sizes => sizes::measure(bench),
        Part::Threads => threads::measure(bench),
        Part::Processes => processes::measure(bench),
        Part::Replay => replay::measure(bench),
        Part::Agree => agree::measure(bench),
        Part::Programs => programs::measure(bench),
    }
}

/// Returns why a part cannot run here.
fn missing(part: Part) -> Option<String> {
    match part {
        Part::Replay => replay::missing(),
        Part::Agree => runner::no_qemu().or_else(crate::status::thp_always),
        Part::Programs => runner::no_qemu(),
        _ => None,
    }
}
