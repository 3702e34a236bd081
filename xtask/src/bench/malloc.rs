//! Comparison of `malloc` implementations: allocating and freeing, and access to many small
//! objects.
//!
//! Each measurement is a process of its own. The allocators are interleaved, and each round starts
//! with a different one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use hugepilot_units::Bytes;

use super::pairs::{PairedStats, median};
use crate::run::{self, cargo};

/// Tests, and one operation of each.
const TESTS: [(&str, &str); 7] = [
    ("same", "one size, first in first out"),
    ("random", "any size up to 1 KiB, any replaced"),
    ("handed", "freed by another thread"),
    ("larson", "two threads, each follows another"),
    ("huge", "one of 9 MB, touched"),
    ("access", "random access to objects of 64 bytes"),
    ("idle", "MiB that 1,000 threads hold while they sleep"),
];

/// Libraries of other allocators, by distribution. The first is the reference.
const OTHERS: [(&str, &[&str]); 2] = [
    ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2.0", "libmimalloc.so.2"]),
    ("jemalloc", &["libjemalloc.so.2"]),
];
const FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// Runs the benchmark: `[RUNS=9] [SIZE=1GiB] [TEST…]`.
pub(super) fn run(_hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: usize =
        args.first().map_or(Ok(9), |text| text.parse()).context("RUNS is a number")?;
    let size: Bytes = args.get(1).unwrap_or(&"1GiB").parse().context("SIZE is one such as 1GiB")?;
    let only = args.get(2..).unwrap_or_default();
    run::run(&mut cargo(&["build", "--release", "-p", "hugepilot-preload", "--example", "churn"]))?;
    run::run(&mut cargo(&["build", "--release", "-p", "hugepilot-preload"]))?;
    let churn = run::target().join("release/examples/churn");
    let allocators = allocators();
    println!(
        "nanoseconds, or the stated unit, medians of {runs}; \
         hugepilot / other with the spread of the ratios within a round"
    );
    for (test, about) in TESTS.iter().filter(|(test, _)| only.is_empty() || only.contains(test)) {
        println!("\n{test}: {about}");
        let seconds = measure(runs, &allocators, |library| nanos(&churn, test, size, library))?;
        for (i, (name, _)) in allocators.iter().enumerate() {
            let ratio = PairedStats::of(
                seconds[i].iter().copied().zip(seconds[0].iter().copied()).collect(),
            );
            let against = if i == 0 { String::new() } else { ratio.line() };
            println!("  {name:<10} {:>9.2}  {against}", median(&seconds[i]));
        }
    }
    Ok(())
}

/// Returns hugepilot's allocator first; names and skips those that are not installed.
fn allocators() -> Vec<(&'static str, Option<PathBuf>)> {
    let mut all = vec![
        ("hugepilot", Some(run::target().join("release/libhugepilot_preload.so"))),
        ("glibc", None),
    ];
    for (name, files) in OTHERS {
        let places = FOLDERS
            .iter()
            .flat_map(|folder| files.iter().map(move |file| Path::new(folder).join(file)));
        match places.into_iter().find(|place| place.exists()) {
            Some(place) => all.push((name, Some(place))),
            None => println!("{name}: not installed"),
        }
    }
    all
}

/// Measures each allocator once per round, after a discarded round.
fn measure(
    runs: usize,
    allocators: &[(&str, Option<PathBuf>)],
    mut one: impl FnMut(Option<&Path>) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    ensure!(runs > 0, "at least one round");
    let mut all = vec![Vec::new(); allocators.len()];
    for round in 0..=runs {
        for step in 0..allocators.len() {
            let which = (round + step) % allocators.len();
            let took = one(allocators[which].1.as_deref())?;
            if round > 0 {
                all[which].push(took);
            }
        }
    }
    Ok(all)
}

fn nanos(churn: &Path, test: &str, size: Bytes, library: Option<&Path>) -> Result<f64> {
    let mut command = Command::new(churn);
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let output = command.args([test, &size.get().to_string()]).output()?;
    if !output.status.success() {
        bail!("{test}: {} {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout)?.trim().parse().context("a number of nanoseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_and_the_first_is_dropped() {
        let allocators = [("a", Some("a".into())), ("b", Some("b".into())), ("c", None)];
        let mut order = String::new();
        let all = measure(2, &allocators, |library| {
            let name = library.map_or("c", |path| path.to_str().unwrap_or_default());
            order += name;
            Ok(if name == "b" { 2.0 } else { 1.0 })
        });
        assert_eq!(order, "abcbcacab");
        assert_eq!(all.unwrap(), [[1.0; 2], [2.0; 2], [1.0; 2]]);
    }
}
