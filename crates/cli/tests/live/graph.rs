//! `graph`: correct results on all pages, and each array on its pages.

use std::fs;
use std::path::Path;

use hugepilot_reports::graph::{AllocOrder, GraphReport, KernelResult};
use hugepilot_testkit::{Need, make_room, need, requires};
use hugepilot_units::Bytes;

use crate::cgroup::Cgroup;
use crate::tool::{HUGEPILOT, LIMIT, Running, hugepilot};

fn possible() -> Need {
    need::all([need::live(), need::memory(Bytes::gib(1))])
}

fn run(line: &str) -> GraphReport {
    let done =
        hugepilot(["graph", "run"].into_iter().chain(line.split_whitespace()).chain(["--json"]));
    done.exits(0).json()
}

/// Returns the bytes of an array on huge pages, and all its bytes.
fn huge_and_all(report: &GraphReport, array: &str) -> (u64, u64) {
    let found = report.arrays.iter().find(|pages| pages.name == array);
    found
        .map(|pages| (pages.huge_bytes.get(), pages.bytes.get()))
        .unwrap_or_else(|| panic!("no {array} in {:?}", report.arrays))
}

#[test]
fn every_kernel_is_verified_on_every_graph() {
    requires!(possible());
    for graph in [
        "kronecker:12",
        "uniform:12:4",
        "grid:120x130",
        "kronecker:11 --directed",
        "kronecker:12 --width 64 --reorder dbg",
    ] {
        for kernel in [
            "bfs",
            "bfs --algo top-down --alloc-order property-first",
            "sssp",
            "sssp --algo bellman-ford",
            "pr",
            "pr --algo delta-push --alloc-order property-first",
            "cc",
            "bc",
            "diameter",
            "diameter --algo multi-source",
            "tc",
        ] {
            // Triangle counting requires an undirected graph.
            if kernel == "tc" && graph.contains("--directed") {
                continue;
            }
            let report = run(&format!("{kernel} {graph} --verify --trials 3"));
            assert_eq!((report.verified, report.trials.len()), (Some(true), 3), "{kernel} {graph}");
        }
    }
}

#[test]
fn arrays_are_on_their_pages() {
    requires!(possible());
    make_room();
    let report = run("pr kronecker:20:4 --pages property=thp:50%,edges=collapse,offsets=base");
    let (property, all) = huge_and_all(&report, "property");
    assert!(property > all / 4 && property <= all / 2, "{property} of {all}");
    let (edges, all) = huge_and_all(&report, "edges");
    assert!(edges > all / 2, "{edges} of {all}");
    assert_eq!(huge_and_all(&report, "offsets").0, 0);
}

#[test]
fn every_kernel_reports_its_phases_and_arrays_in_both_allocation_orders() {
    requires!(possible());
    for kernel in [
        "bfs",
        "sssp",
        "pr --algo delta-push",
        "cc",
        "bc",
        "diameter",
        "diameter --algo multi-source",
        "tc",
    ] {
        for order in ["natural", "property-first"] {
            let report = run(&format!("{kernel} kronecker:12 --alloc-order {order} --trials 2"));
            let (_, all) = huge_and_all(&report, "property");
            assert!(all >= 4096 * 4, "{kernel}: {all}");
            let phases = report.phases;
            let seconds =
                [phases.allocate_seconds, phases.first_touch_seconds, phases.kernel_seconds];
            assert!(seconds.iter().all(|&seconds| seconds > Some(0.0)), "{kernel}: {phases:?}");
            assert_eq!(report.alloc_order.to_string(), order);
        }
    }
}

#[test]
fn property_arrays_come_before_graphs_from_files() {
    requires!(possible());
    let folder = tempfile::tempdir().unwrap();
    for name in ["g.mtx", "g.sg", "g.hpg"] {
        let file = folder.path().join(name).display().to_string();
        hugepilot(["graph", "generate", "kronecker:12", &file]).exits(0);
        let report = run(&format!("cc {file} --alloc-order property-first"));
        assert!(
            report.alloc_order == AllocOrder::PropertyFirst
                && report.phases.allocate_seconds > Some(0.0),
            "{name}"
        );
        assert_eq!(report.result, run("cc kronecker:12").result, "{name}");
        let natural = run(&format!("cc {file}"));
        assert_eq!(report.peak_bytes, natural.peak_bytes + Bytes::new(4 << 12), "{name}");
    }
}

#[test]
fn a_graph_beyond_the_limit_of_its_cgroup_is_rejected() {
    requires!(need::all([possible(), need::cgroup_memory()]));
    let group = Cgroup::new(Bytes::mib(176));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.el").display().to_string();
    fs::write(&file, "0 1\n").unwrap();
    let run = |line: &str| {
        let mut command = group.command(Path::new(HUGEPILOT));
        command.arg("graph").args(line.split_whitespace());
        Running::start(command).wait(LIMIT)
    };
    let assert_rejected = |line: &str| {
        run(line).exits(2).says(&["cannot build the graph", "available"]);
    };
    assert_rejected("info kronecker:22");
    // The graph alone fits.
    let file = format!("{file} --vertices 16000000 --width 64");
    run(&format!("info {file}")).exits(0);
    assert_rejected(&format!("run cc {file} --alloc-order property-first"));
}

#[test]
fn results_do_not_depend_on_the_vertex_order() {
    requires!(possible());
    let plain = run("pr kronecker:13 --algo jacobi --width 64");
    for order in ["dbg", "sort", "hub-sort", "hub-cluster", "random:7", "rcm"] {
        let other = run(&format!("pr kronecker:13 --algo jacobi --width 64 --reorder {order}"));
        let (Some(KernelResult::Pr { top: a, .. }), Some(KernelResult::Pr { top: b, .. })) =
            (&plain.result, &other.result)
        else {
            panic!("no ranks: {:?}", other.result)
        };
        for (a, b) in a.iter().zip(b) {
            assert!(
                a.vertex == b.vertex && (a.value - b.value).abs() < 1e-12,
                "{order}: {a:?} {b:?}"
            );
        }
        let distances =
            |order: &str| run(&format!("bfs kronecker:13 --source 77 --reorder {order}")).result;
        assert_eq!(distances(order), distances("dbg"));
    }
}

#[test]
fn errors_name_the_cause() {
    requires!(possible());
    let refused = |line: &str, code: i32, words: &[&str]| {
        hugepilot(["graph", "run"].into_iter().chain(line.split_whitespace()))
            .exits(code)
            .says(words);
    };
    refused("bfs kronecker:32:64", 2, &["cannot build the graph", "available"]);
    refused("bfs kronecker:12 --source 4096", 2, &["vertex 4096"]);
    refused("bfs kronecker:12 --pages propery=thp", 2, &["unknown array \"propery\"", "property"]);
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if free.is_ok_and(|free| free.trim() == "0") {
        refused("bfs kronecker:12 --pages property=hugetlb", 3, &["pool", "help:"]);
    }
    refused("tc kronecker:8 --directed", 2, &["directed"]);
    refused("cc kronecker:12 --algo delta", 2, &["delta", "cc"]);
    refused(
        "sssp kronecker:12 --algo bellman-ford --delta 3",
        2,
        &["--delta", "sssp --algo bellman-ford"],
    );
    refused("bfs uniform:12 --rng float", 2, &["--rng is for Kronecker"]);
    refused("bfs kronecker:12 --degree in", 2, &["--reorder"]);
    refused("bfs kronecker:12 --threads 0", 2, &["--threads", "1..=1024"]);
    refused("bfs kronecker:12 --trials 0", 2, &["--trials"]);
}
