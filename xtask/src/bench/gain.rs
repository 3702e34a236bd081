//! Gain of `tune` with its defaults in usual programs, beside the gain of all huge pages.
//!
//! A run of a program has fresh processes, on base pages as first touched. One stays untouched: the
//! twin. Each other gets a state: `tuned`, `all` (every region promoted) or `base` (nothing
//! happens). Then every other region of the first two is promoted, too. Before and after each
//! change, all alternate in slices on one CPU, in a random order in each round, and the ratio of a
//! rate to that of the twin counts. A gain is a later ratio over that on base pages.
//!
//! Wholly on huge pages, two processes of one program gained 1.17 and 1.36 times here: it depends
//! on where in physical memory their huge pages lie. The last window, in which both are wholly
//! huge, shows that difference. So the share of the gain, `(tuned - 1) / (all - 1)`, compares the
//! tuned process with itself, in one window. Pages split back are better base pages than those
//! first touched, so a process gets its states in this order only.
//!
//! A program that names its hot memory gets that promoted instead of all. That is the ideal, and
//! the windows before and after lie a second apart.

mod measure;
mod options;
mod plan;
mod prepare;
mod programs;
mod record;
mod summary;
mod table;
mod target;
mod twins;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use hugepilot_stats::Orders;

use super::records::{Machine, append, read};
use crate::random::new_seed;
use crate::status::thp_always;
use crate::stress::Interruption;
use measure::Bench;
use options::Options;
use prepare::{Prepared, missing};
use programs::{PROGRAMS, Program};
use record::{Failure, Record, State};

/// `[PROGRAM…] [--pairs N=5] [--state tuned,all] [--seed N] [--window SECONDS=5]
/// [--output FILE] [--report FILE] [-- TUNE_ARGUMENTS]`; the defaults are those of the plan
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    if args == ["list"] {
        PROGRAMS.iter().for_each(|program| println!("{}", program.name));
        return Ok(());
    }
    let options = Options::read(args)?;
    if let Some(file) = &options.report {
        print!("{}", table::report(&read::<Record>(file)?));
        return Ok(());
    }
    if let Some(cause) = thp_always() {
        bail!("programs would not start on base pages: {cause}");
    }
    if let Some(cause) = target::damon_pageout(Path::new("/sys/kernel/mm/damon/admin/kdamonds")) {
        bail!("stopped programs would lose huge pages: {cause}");
    }
    let programs = prepared(hugepilot, &selected(&options.programs)?)?;
    let interrupted = Interruption::watched()?;
    let seed = options.seed.unwrap_or_else(new_seed);
    eprintln!("seed {seed}");
    let machine = Machine::read();
    let bench = Bench { hugepilot, options: &options, seed, machine, interrupted: &interrupted };
    let runs = measured(&bench, &programs)?;
    print!("{}", table::report(&runs));
    if interrupted.load(Relaxed) {
        return Err(Interruption.into());
    }
    let succeeded = runs.iter().any(|record| matches!(record, Record::Run(_)));
    ensure!(succeeded, "no run succeeded");
    Ok(())
}

/// Programs of the given names, or all.
fn selected(names: &[String]) -> Result<Vec<&'static Program>> {
    let is_known = |name: &&String| PROGRAMS.iter().any(|program| program.name == **name);
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        bail!("no program {name:?}; programs: {}", known.join(", "));
    }
    let wanted =
        |program: &&Program| names.is_empty() || names.iter().any(|name| name == program.name);
    Ok(PROGRAMS.iter().filter(wanted).collect())
}

/// Compiles the programs that can run here, and names the others.
fn prepared(hugepilot: &Path, programs: &[&'static Program]) -> Result<Vec<Prepared>> {
    let mut all = Vec::new();
    for program in programs {
        match missing(program) {
            Some(cause) => eprintln!("skipped {}: {cause}", program.name),
            None => all.push(Prepared::new(hugepilot, program)?),
        }
    }
    ensure!(!all.is_empty(), "no program can run here");
    Ok(all)
}

/// Runs all programs in each round, the states in random order. A round that fails is a record,
/// too.
fn measured(bench: &Bench<'_>, programs: &[Prepared]) -> Result<Vec<Record>> {
    let options = bench.options;
    let total = options.pairs * programs.len();
    let (mut runs, mut done, begun) = (Vec::new(), 0, Instant::now());
    for round in 0..options.pairs {
        for (index, prepared) in programs.iter().enumerate() {
            let seed = bench.seed.wrapping_add((round * programs.len() + index) as u64);
            let order = Orders::random(options.states.len(), seed).take(1).flatten();
            let states: Vec<State> = order.map(|at| options.states[at]).collect();
            done += 1;
            let name = prepared.program.name;
            let found = match bench.run(prepared, &states, round, seed) {
                Err(error) if error.is::<Interruption>() => return Ok(runs),
                Err(error) => {
                    eprintln!("[{done}/{total}] {name} failed: {error:#}");
                    let failure = Record::Failure(Failure {
                        program: name.to_owned(),
                        round,
                        seed: bench.seed,
                        error: format!("{error:#}"),
                        machine: bench.machine.clone(),
                    });
                    append(&options.output, &failure)?;
                    runs.push(failure);
                    continue;
                }
                Ok(found) => found,
            };
            let left = begun.elapsed().as_secs_f64() * (total - done) as f64 / done as f64;
            let minutes = left / 60.0;
            for run in found {
                let (state, result) = (run.state.name(), described(&run));
                eprintln!("[{done}/{total}] {name} {state}: {result}; {minutes:.0} min left");
                let record = run.into();
                append(&options.output, &record)?;
                runs.push(record);
            }
        }
    }
    Ok(runs)
}

fn described(run: &record::Run) -> String {
    format!(
        "{:.0} → {:.0} per second, {:.3}x, {:.1} s, {} MiB huge",
        run.before.per_second,
        run.after.per_second,
        run.gain(),
        run.apply_seconds,
        run.huge_after_bytes >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_selected_by_name() {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert_eq!(selected(&[]).unwrap().len(), names.len());
        assert_eq!(selected(&["redis".to_owned()]).unwrap()[0].name, "redis");
        assert!(selected(&["reddis".to_owned()]).is_err());
    }
}
