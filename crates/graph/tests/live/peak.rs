//! The memory that a build takes at its peak, read from the kernel, against what is told before.

use std::process::Command;
use std::{env, fs};

use hugepilot_graph::{Build, Graph, Kronecker, PagePlan, Rng, Team, Width};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

/// A scale, a width in bits, and whether edges are directed and weighted, for a process that builds that.
const TOLD: &str = "HUGEPILOT_TEST_BUILD";

/// Bytes.
struct Seen {
    promised: u64,
    peak: u64,
    /// Of the arrays of the graph.
    finished: u64,
}

/// A line of the process's status, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn build<V: Width>(scale: u32, directed: bool, weighted: bool) {
    let source = Kronecker { scale, degree: 16, weighted, rng: Rng::Whole, shuffled: true };
    let build = Build { directed, pages: PagePlan::default(), team: Team::of(2) };
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let graph: Graph<V> = build.graph(&source).unwrap();
    let peak = status("VmHWM") - before;
    let finished: u64 = graph.held().unwrap().iter().map(|held| held.got.resident().get()).sum();
    eprintln!("seen {} {peak} {finished}", build.peak::<V>(&source).get());
}

/// Not a test unless it is told what to build.
#[test]
fn child() {
    let Ok(told) = env::var(TOLD) else { return };
    let told: Vec<u32> = told.split(' ').map(|number| number.parse().unwrap()).collect();
    match told[1] {
        32 => build::<u32>(told[0], told[2] == 1, told[3] == 1),
        _ => build::<u64>(told[0], told[2] == 1, told[3] == 1),
    }
}

fn seen(told: &str) -> Seen {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "peak::child", "--nocapture"]).env(TOLD, told);
    let done = child.output().unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    let line = text.lines().find_map(|line| line.split_once("seen ")).unwrap_or_else(|| panic!("{text}")).1;
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    Seen { promised: numbers[0], peak: numbers[1], finished: numbers[2] }
}

fn check(scale: u32, widths: &[u32]) {
    for width in widths {
        for (directed, weighted) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let told = format!("{scale} {width} {directed} {weighted}");
            let Seen { promised, peak, finished } = seen(&told);
            let share = |bytes: u64| bytes as f64 / finished as f64;
            eprintln!("{told}: {finished} bytes, promised {:.2}, peak {:.2}", share(promised), share(peak));
            assert!(peak <= promised, "{told}: {peak} bytes, {promised} were promised");
            assert!(peak <= 2 * finished, "{told}: {peak} bytes for {finished}");
            assert!(promised <= 4 * peak, "{told}: {promised} bytes promised for {peak}");
        }
    }
}

#[test]
fn a_build_takes_no_more_than_was_promised_and_twice_the_graph() {
    check(18, &[32]);
}

#[test]
fn so_does_a_large_one() {
    requires!(need::all([need::live(), need::memory(Bytes::gib(3))]));
    check(20, &[32, 64]);
}
