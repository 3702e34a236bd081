//! Comparison of `malloc` implementations: allocating and freeing, and access to many small
//! objects.
//!
//! Each measurement is a process of its own. The allocators are interleaved, and each round starts
//! with a different one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use hugepilot_stats::Rounds;
use hugepilot_units::Bytes;

use super::arguments::Positional;
use super::pairs::line;
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
    let words = Positional::read(args, (9, 1), "1GiB")?;
    let (runs, tests) = (words.count, words.chosen(&TESTS, |test| test.0)?);
    let size: Bytes = words.size.parse().context("SIZE is one such as 1GiB")?;
    run::run(&mut cargo(&["build", "--release", "-p", "hugepilot-preload", "--example", "churn"]))?;
    run::run(&mut cargo(&["build", "--release", "-p", "hugepilot-preload"]))?;
    let churn = run::target().join("release/examples/churn");
    let allocators = allocators();
    println!(
        "nanoseconds, or the stated unit, medians of {runs}; \
         hugepilot / other with the spread of the ratios within a round"
    );
    for (test, about) in tests {
        println!("\n{test}: {about}");
        let rounds = Rounds::after_warm_up(allocators.len(), runs, |_, which| {
            nanos(&churn, test, size, allocators[which].1.as_deref())
        })?;
        for (i, (name, _)) in allocators.iter().enumerate() {
            let against = if i == 0 { String::new() } else { line(&rounds.ratios(0, i)) };
            println!("  {name:<10} {:>9.2}  {against}", rounds.median(i));
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
