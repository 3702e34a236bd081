//! The memory that a build takes at its peak, read from the kernel, against what is told before.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use hugepilot_graph::{
    Build, Edge, EdgeList, EdgeSource, Format, Graph, Grid, Kronecker, LoadMode, LoadOptions,
    PagePlan, Rng, ThreadPool, Width, load, save,
};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

/// A source, its scale, a width in bits, and whether edges are directed and weighted, for a process that builds that.
const TOLD: &str = "HUGEPILOT_TEST_BUILD";
/// A file for it.
const FILE: &str = "HUGEPILOT_TEST_FILE";

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

/// Prints what it takes to make a graph, of which `make` also says what is promised.
fn timer<V: Width>(make: impl FnOnce() -> (Graph<V>, Bytes)) {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let (graph, promised) = make();
    let peak = status("VmHWM") - before;
    let finished: u64 =
        graph.usage().unwrap().iter().map(|usage| usage.pages.resident().get()).sum();
    eprintln!("seen {} {peak} {finished}", promised.get());
}

fn built<V: Width>(build: Build, source: &impl EdgeSource) {
    timer::<V>(|| (build.graph(source).unwrap(), build.peak::<V>(source)));
}

/// From a file with rows of one direction.
fn loaded<V: Width>(build: Build, file: &str) {
    let options = LoadOptions { load_mode: LoadMode::Cached, ..LoadOptions::new(build) };
    timer::<V>(|| {
        let loaded = load::<V>(file, &options).unwrap();
        (loaded.graph, loaded.peak)
    });
}

/// Each source has 2^(`scale` + 4) edges, or nearly so.
fn make<V: Width>(source: &str, scale: u32, directed: bool, weighted: bool) {
    let build = Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) };
    let file = env::var(FILE).unwrap();
    let kronecker = Kronecker { scale, degree: 16, weighted, rng: Rng::Whole, shuffled: true };
    match source {
        "kronecker" => built::<V>(build, &kronecker),
        "galois" => loaded::<V>(build, &file),
        "save" => {
            save(&file, true, Format::Galois, &build.graph::<V>(&kronecker).unwrap(), None)
                .unwrap();
        }
        // Each round fills other bins.
        "grid" => built::<V>(
            build,
            &Grid { rows: 8 << (scale / 2), columns: 1 << scale.div_ceil(2), weighted },
        ),
        _ => {
            let to = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % (1 << scale);
            let edge = |i| Edge {
                from: i / 16,
                to: to(i),
                weight: if weighted { i % 255 + 1 } else { 0 },
            };
            let edges = (0..16u64 << scale).map(edge).collect();
            built::<V>(build, &EdgeList { vertices: 1 << scale, edges, weighted });
        }
    }
}

/// Not a test unless it is told what to build.
#[test]
fn child() {
    let Ok(told) = env::var(TOLD) else { return };
    let (source, numbers) = told.split_once(' ').unwrap();
    let told: Vec<u32> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    match told[1] {
        32 => make::<u32>(source, told[0], told[2] == 1, told[3] == 1),
        _ => make::<u64>(source, told[0], told[2] == 1, told[3] == 1),
    }
}

/// What a process says that does so.
fn run(told: &str, file: &Path) -> String {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "peak::child", "--nocapture"]).env(TOLD, told).env(FILE, file);
    let done = child.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

fn seen(told: &str) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.gr");
    // By another process, which leaves it no memory to use again.
    if let Some(numbers) = told.strip_prefix("galois ") {
        run(&format!("save {numbers}"), &file);
    }
    let text = run(told, &file);
    let line = text
        .lines()
        .find_map(|line| line.split_once("seen "))
        .unwrap_or_else(|| panic!("{text}"))
        .1;
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    Seen { promised: numbers[0], peak: numbers[1], finished: numbers[2] }
}

fn check(source: &str, scale: u32, width: u32, directions: &[u32]) {
    for (directed, weighted) in
        directions.iter().flat_map(|directed| [(directed, 0), (directed, 1)])
    {
        let told = format!("{source} {scale} {width} {directed} {weighted}");
        let Seen { promised, peak, finished } = seen(&told);
        let share = |bytes: u64| bytes as f64 / finished as f64;
        eprintln!(
            "{told}: {finished} bytes, promised {:.2}, peak {:.2}",
            share(promised),
            share(peak)
        );
        assert!(peak <= promised, "{told}: {peak} bytes, {promised} were promised");
        assert!(peak <= 2 * finished, "{told}: {peak} bytes for {finished}");
        assert!(promised <= 4 * peak, "{told}: {promised} bytes promised for {peak}");
    }
}

#[test]
fn a_build_takes_no_more_than_was_promised_and_twice_the_graph() {
    for (source, width) in [("kronecker", 64), ("grid", 64), ("sorted", 32)] {
        check(source, 18, width, &[0, 1]);
    }
    // Of others, a file has all rows.
    check("galois", 18, 32, &[1]);
}

#[test]
fn so_does_a_large_one() {
    requires!(need::all([need::live(), need::memory(Bytes::gib(3))]));
    check("kronecker", 20, 32, &[0]);
    check("grid", 20, 32, &[1]);
}
