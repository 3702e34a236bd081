//! Peak memory of a build, as the kernel reports it, against the stated bound.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use hugepilot_graph::{
    Build, Edge, EdgeList, EdgeSource, Format, Graph, Grid, Kronecker, LoadMode, LoadOptions,
    PagePlan, Rng, ThreadPool, Width, load, save,
};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

/// Variable with source, scale, width in bits, directed and weighted flags, for a process that
/// builds a graph.
const SPEC: &str = "HUGEPILOT_TEST_BUILD";
/// Variable with a file for the process.
const FILE: &str = "HUGEPILOT_TEST_FILE";

/// Memory of a build in bytes.
struct BuildMemory {
    stated: u64,
    peak: u64,
    /// Arrays of the graph.
    finished: u64,
}

/// Reads a line of the process status, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Prints the memory of a build; `make` returns also the stated bound.
fn measure<V: Width>(make: impl FnOnce() -> (Graph<V>, Bytes)) {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let (graph, stated) = make();
    let peak = status("VmHWM") - before;
    let finished: u64 =
        graph.usage().unwrap().iter().map(|usage| usage.pages.resident().get()).sum();
    eprintln!("seen {} {peak} {finished}", stated.get());
}

fn built<V: Width>(build: Build, source: &impl EdgeSource) {
    measure::<V>(|| (build.graph(source).unwrap(), build.peak::<V>(source)));
}

/// Loads a file with rows of one direction.
fn loaded<V: Width>(build: Build, file: &str) {
    let options = LoadOptions { load_mode: LoadMode::Cached, ..LoadOptions::new(build) };
    measure::<V>(|| {
        let loaded = load::<V>(file, &options).unwrap();
        (loaded.graph, loaded.peak)
    });
}

/// Makes a graph with about 2^(`scale` + 4) edges.
fn make<V: Width>(source: &str, scale: u32, directed: bool, weighted: bool) {
    let build = Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) };
    let file = env::var(FILE).unwrap();
    let kronecker = Kronecker { scale, degree: 16, weighted, rng: Rng::Whole, shuffled: true };
    match source {
        "kronecker" => built::<V>(build, &kronecker),
        "galois" => loaded::<V>(build, &file),
        "save" => {
            save(
                &file,
                true,
                Format::Galois,
                &build.graph::<V>(&kronecker).unwrap(),
                &hugepilot_graph::Ids::default(),
            )
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

/// Does nothing unless the variable is set.
#[test]
fn child() {
    let Ok(spec) = env::var(SPEC) else { return };
    let (source, numbers) = spec.split_once(' ').unwrap();
    let spec: Vec<u32> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    match spec[1] {
        32 => make::<u32>(source, spec[0], spec[2] == 1, spec[3] == 1),
        _ => make::<u64>(source, spec[0], spec[2] == 1, spec[3] == 1),
    }
}

/// Runs a process, and returns its standard error.
fn run(spec: &str, file: &Path) -> String {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "peak::child", "--nocapture"]).env(SPEC, spec).env(FILE, file);
    let done = child.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

fn seen(spec: &str) -> BuildMemory {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.gr");
    // Written by another process, which leaves no memory to reuse.
    if let Some(numbers) = spec.strip_prefix("galois ") {
        run(&format!("save {numbers}"), &file);
    }
    let text = run(spec, &file);
    let line = text
        .lines()
        .find_map(|line| line.split_once("seen "))
        .unwrap_or_else(|| panic!("{text}"))
        .1;
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    BuildMemory { stated: numbers[0], peak: numbers[1], finished: numbers[2] }
}

fn check(source: &str, scale: u32, width: u32, directions: &[u32]) {
    for (directed, weighted) in
        directions.iter().flat_map(|directed| [(directed, 0), (directed, 1)])
    {
        let spec = format!("{source} {scale} {width} {directed} {weighted}");
        let BuildMemory { stated, peak, finished } = seen(&spec);
        let share = |bytes: u64| bytes as f64 / finished as f64;
        eprintln!("{spec}: {finished} bytes, stated {:.2}, peak {:.2}", share(stated), share(peak));
        assert!(peak <= stated, "{spec}: {peak} bytes, {stated} were stated");
        assert!(peak <= 2 * finished, "{spec}: {peak} bytes for {finished}");
        assert!(stated <= 4 * peak, "{spec}: {stated} bytes stated for {peak}");
    }
}

#[test]
fn a_build_takes_no_more_than_stated_and_twice_the_graph() {
    for (source, width) in [("kronecker", 64), ("grid", 64), ("sorted", 32)] {
        check(source, 17, width, &[0, 1]);
    }
    // With other sources, the file has all rows.
    check("galois", 17, 32, &[1]);
}

#[test]
fn so_does_a_large_one() {
    requires!(need::all([need::live(), need::memory(Bytes::gib(3))]));
    check("kronecker", 19, 32, &[0]);
    check("grid", 19, 32, &[1]);
}
