//! TLB simulators of other projects on the same accesses: their counts, and their speed.
//!
//! The simulator of DynamoRIO's drcachesim is compiled from a checkout. Its accesses are those of a
//! log; `sim tlb` reads them from a trace. Valgrind's cachegrind is a TLB simulator if a cache line
//! is as large as a page. Both know one page size and exact LRU.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hugepilot_reports::sim::SimTlbReport;
use hugepilot_stats::Orders;
use serde::{Deserialize, Serialize};

use super::record::Row;
use super::runner::{Bench, words};
use super::table::spread;
use crate::run::{self, in_path};

pub(super) const METHOD: &str = "\
TLBs of 64 entries in 4 ways and 1,024 in 8 ways, LRU, 4 KiB pages, simulated by other tools and by
`sim tlb` on the same accesses in turn. `drcachesim` is DynamoRIO's TLB simulator, whose time is
that of its simulation alone; `sim tlb` reads its trace meanwhile. `cachegrind` has lines of 4,096
bytes; its time and that of `sim tlb` under lackey are those of the whole process. cachegrind also
looks up instructions in its second level, which can add misses.";

pub(super) const HEAD: [&str; 5] = ["tool", "accesses of", "million/s", "L1 misses", "walks"];

const PRESET: &str = include_str!("programs/peers.toml");
const DRIVER: &str = include_str!("programs/drcachesim.cpp");
/// Files of the TLB simulator, in `clients/drcachesim` of a checkout of DynamoRIO.
const SOURCES: [&str; 15] = [
    "simulator/tlb_simulator.cpp",
    "simulator/tlb.cpp",
    "simulator/simulator.cpp",
    "simulator/caching_device.cpp",
    "simulator/caching_device_stats.cpp",
    "simulator/create_cache_replacement_policy.cpp",
    "simulator/policy_lru.cpp",
    "simulator/policy_lfu.cpp",
    "simulator/policy_fifo.cpp",
    "simulator/policy_bit_plru.cpp",
    "simulator/policy_rrip.cpp",
    "simulator/prefetcher.cpp",
    "simulator/snoop_filter.cpp",
    "common/trace_entry.cpp",
    "reader/v2p_reader.cpp",
];
const FLAGS: &str = "-std=c++17 -O3 -DNDEBUG -DLINUX -DUNIX -DX86 -DX86_64 -DX64";
const INCLUDED: [&str; 7] = [
    "clients/drcachesim",
    "clients/drcachesim/common",
    "clients/drcachesim/simulator",
    "clients/drcachesim/reader",
    "core/lib",
    "common",
    "ext/droption",
];
const CACHEGRIND: &str = "--tool=cachegrind --cache-sim=yes --I1=32768,8,64 --D1=262144,4,4096 \
                          --LL=4194304,8,4096 --cachegrind-out-file=/dev/null";
/// Memory of the accesses.
const BYTES: u64 = 1 << 30;
/// Part of the accesses that a log has, and steps of a program under valgrind.
const FEWER: u64 = 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) tool: String,
    pub(super) input: String,
    /// Accesses per second of each run.
    pub(super) rates: Vec<f64>,
    pub(super) l1_misses: u64,
    pub(super) walks: u64,
}

impl Line {
    /// Adds the rounds of `other`, if it counts the same.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let same = Self { rates: Vec::new(), ..self.clone() }
            == Self { rates: Vec::new(), ..other.clone() };
        if same {
            self.rates.extend(&other.rates);
        }
        same
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let millions = spread(self.rates.iter().map(|rate| rate / 1e6), 2);
        let counts = [self.l1_misses, self.walks].map(|count| count.to_string());
        let [l1_misses, walks] = counts;
        vec![self.tool.clone(), self.input.clone(), millions, l1_misses, walks]
    }
}

/// Result of one run.
struct Took {
    command: String,
    accesses: u64,
    seconds: f64,
    l1_misses: u64,
    walks: u64,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    let preset = bench.file("peers.toml", PRESET)?;
    match env::var_os("HUGEPILOT_DYNAMORIO").map(PathBuf::from) {
        Some(checkout) => drcachesim(bench, &checkout, &preset)?,
        None => eprintln!("skipped drcachesim: HUGEPILOT_DYNAMORIO names no checkout of DynamoRIO"),
    }
    if in_path("valgrind") {
        cachegrind(bench, &preset)?;
    } else {
        eprintln!("skipped cachegrind: valgrind is missing");
    }
    Ok(())
}

/// Measures two tools in each round, each first in half of them.
fn in_turn(
    bench: &Bench<'_>,
    input: &str,
    tools: [(&str, &dyn Fn() -> Result<Took>); 2],
) -> Result<()> {
    for which in Orders::rotated(tools.len()).take(bench.options.pairs).flatten() {
        let (tool, run) = tools[which];
        let Took { command, accesses, seconds, l1_misses, walks } = run()?;
        let rates = vec![super::speed::rate(accesses, seconds)];
        let (tool, input) = (tool.to_owned(), input.to_owned());
        bench.add(&command, Row::Peers(Line { tool, input, rates, l1_misses, walks }))?;
    }
    Ok(())
}

fn drcachesim(bench: &Bench<'_>, checkout: &Path, preset: &Path) -> Result<()> {
    let driver = driver(bench, checkout)?;
    let count = bench.options.accesses / FEWER;
    for (name, address) in [("random", random as fn(u64) -> u64), ("stream", stream)] {
        let mut log = String::new();
        // Writing to a String cannot fail.
        (0..count).for_each(|at| _ = writeln!(log, " L {:x},8", (1 << 32) + address(at)));
        let log = bench.file(&format!("{name}.log"), &log)?;
        let trace = bench.folder.join(format!("{name}.trace"));
        let mut import = Command::new(bench.hugepilot);
        import.args(["trace", "--import", "lackey"]).arg(&log).arg("-o").arg(&trace);
        run::output(&mut import).map_err(anyhow::Error::msg)?;
        let ours = || {
            let flags = format!("tlb --pages 4k --preset {} {}", preset.display(), trace.display());
            simulated(bench, &flags, &[], None)
        };
        let theirs = || {
            let mut command = Command::new(&driver);
            let text = run::output(command.arg(&log)).map_err(anyhow::Error::msg)?;
            parsed(&text).context("counts of drcachesim")
        };
        let input = format!("{name}, 1 GiB, {count}");
        in_turn(bench, &input, [("sim tlb", &ours), ("drcachesim", &theirs)])?;
    }
    Ok(())
}

/// Compiles the TLB simulator of DynamoRIO with a program that feeds it.
fn driver(bench: &Bench<'_>, checkout: &Path) -> Result<PathBuf> {
    let (source, driver) = (bench.file("drcachesim.cpp", DRIVER)?, bench.folder.join("drcachesim"));
    let mut command = Command::new("c++");
    command.args(FLAGS.split_whitespace());
    INCLUDED.iter().for_each(|folder| _ = command.arg("-I").arg(checkout.join(folder)));
    let folder = checkout.join("clients/drcachesim");
    command.arg(source).args(SOURCES.map(|file| folder.join(file))).arg("-o").arg(&driver);
    run::output(&mut command).map_err(anyhow::Error::msg)?;
    Ok(driver)
}

/// Parses what the program prints: accesses, seconds, and misses of both levels.
fn parsed(text: &str) -> Option<Took> {
    let words = words(text);
    let [accesses, seconds, l1_misses, walks] = &words[..] else { return None };
    Some(Took {
        command: "drcachesim LOG".to_owned(),
        accesses: accesses.parse().ok()?,
        seconds: seconds.parse().ok()?,
        l1_misses: l1_misses.parse().ok()?,
        walks: walks.parse().ok()?,
    })
}

/// Byte of a random word.
fn random(at: u64) -> u64 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ mixed >> 32) % BYTES) & !7
}

/// Byte of the next word.
fn stream(at: u64) -> u64 {
    at * 8 % BYTES
}

fn cachegrind(bench: &Bench<'_>, preset: &Path) -> Result<()> {
    let program = bench.compiled("walk", include_str!("programs/walk.c"))?;
    let steps = bench.options.accesses / 4 / FEWER;
    let program = words(&format!("{program} {} {steps}", 64 << 20));
    let ours = || {
        let flags = format!("tlb --pages 4k --preset {} --engine lackey", preset.display());
        let begun = Instant::now();
        simulated(bench, &flags, &program, Some(begun))
    };
    let theirs = || {
        let mut command = Command::new("valgrind");
        command.args(words(CACHEGRIND)).args(&program).stdin(Stdio::null());
        let begun = Instant::now();
        let output = command.output().context("valgrind")?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        counted(&String::from_utf8_lossy(&output.stderr), seconds).context("counts of cachegrind")
    };
    let input = format!("walk, 64 MiB, {steps} steps");
    in_turn(bench, &input, [("sim tlb, lackey", &ours), ("cachegrind", &theirs)])
}

/// Runs `sim tlb`. With `begun`, its time is that of the whole process.
fn simulated(
    bench: &Bench<'_>,
    flags: &str,
    program: &[String],
    begun: Option<Instant>,
) -> Result<Took> {
    let ran = bench.sim::<SimTlbReport>(flags, program)?;
    let SimTlbReport { input, machines, .. } = ran.report;
    let counts = machines.first().context("a page size")?.counts;
    let folder = format!("{}/", bench.folder.display());
    Ok(Took {
        command: ran.command.replace(&folder, ""),
        accesses: input.accesses,
        seconds: begun.map_or(input.seconds, |begun| begun.elapsed().as_secs_f64()),
        l1_misses: counts.l1_misses,
        walks: counts.walks,
    })
}

/// Reads the counts of data accesses from the summary of cachegrind.
fn counted(text: &str, seconds: f64) -> Option<Took> {
    let count = |name: &str| -> Option<u64> {
        let (_, rest) = text.lines().find_map(|line| line.split_once(name))?;
        rest.split_whitespace().next()?.replace(',', "").parse().ok()
    };
    Some(Took {
        command: format!("valgrind {CACHEGRIND} walk"),
        accesses: count("D   refs:")?,
        seconds,
        l1_misses: count("D1  misses:")?,
        walks: count("LLd misses:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_tools_are_read() {
        let took = parsed("2000000 1.5 30 20\n").unwrap();
        assert_eq!((took.accesses, took.l1_misses, took.walks), (2_000_000, 30, 20));
        assert!(parsed("2000000 1.5 30").is_none());
        let text = "==7== I   refs:      5,194,616\n==7== D   refs:        556,710  (529,469 rd)\n\
                    ==7== D1  misses:      514,530  (498,125 rd)\n\
                    ==7== LLd misses:      485,386  (468,982 rd)\n";
        let took = counted(text, 2.0).unwrap();
        assert_eq!((took.accesses, took.l1_misses, took.walks), (556_710, 514_530, 485_386));
        assert!(counted("==7== I   refs: 1", 2.0).is_none());
    }

    #[test]
    fn runs_with_the_same_counts_are_one_line() {
        let line = |walks, rate| Line {
            tool: "drcachesim".to_owned(),
            input: "random".to_owned(),
            rates: vec![rate],
            l1_misses: 9,
            walks,
        };
        let mut joined = line(7, 2e6);
        assert!(joined.join(&line(7, 4e6)) && !joined.join(&line(8, 4e6)));
        assert_eq!(joined.cells(), ["drcachesim", "random", "3.00 (2.00–4.00)", "9", "7"]);
    }
}
