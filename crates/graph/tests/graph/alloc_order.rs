//! Allocation order, in a process of its own, because the test measures all memory of that process.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{env, fs};

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig,
    SsspAlgorithm,
};
use hugepilot_graph::run::{Job, Kernel, PreparedGraph, SourceVertex};
use hugepilot_graph::{
    Edge, EdgeSource, Format, LoadMode, LoadOptions, PagePlan, ThreadPool, Width, load, save,
};
use hugepilot_reports::graph::{AllocOrder, GraphReport, Phases};

/// Source of a small cycle among many vertices, which notes the resident set when its first edge is
/// read.
struct ResidentProbe {
    vertices: u64,
    resident: AtomicU64,
}

fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

impl EdgeSource for ResidentProbe {
    fn vertices(&self) -> u64 {
        self.vertices
    }
    fn edges(&self) -> u64 {
        100
    }
    fn is_weighted(&self) -> bool {
        true
    }
    fn blocks(&self) -> usize {
        1
    }
    fn block(&self, _: usize, mut each: impl FnMut(Edge)) {
        let _ = self.resident.compare_exchange(0, resident(), Relaxed, Relaxed);
        (0..100).for_each(|v| each(Edge { from: v, to: (v + 1) % 100, weight: 1 + v }));
    }
}

fn job(kernel: Kernel, alloc_order: AllocOrder) -> Job {
    Job {
        input: String::new(),
        directed: false,
        pages: PagePlan::default(),
        pages_text: String::new(),
        alloc_order,
        // One thread, because some results depend on thread timing.
        pool: ThreadPool::new(1),
        reorder: None,
        kernel: Some(kernel),
        trials: 2,
        source: SourceVertex::MaxDegree,
        verify: true,
        output: None,
    }
}

/// Returns the memory resident before the first edge, and the report. Kernels run with property
/// arrays on the pages of `pages`.
fn run<V: Width>(job: &Job, pages: PagePlan) -> (u64, GraphReport) {
    let source = ResidentProbe { vertices: 1 << 20, resident: AtomicU64::new(0) };
    let before = resident();
    let properties = job.property_pool::<V>(source.vertices).unwrap();
    let graph = job.build_options().graph::<V>(&source).unwrap();
    let prepared: PreparedGraph<V> = job.prepare(graph, Phases::default(), properties).unwrap();
    let job = Job { pages, ..job.clone() };
    let report = prepared.run(&job, |_| {}).unwrap().report;
    (source.resident.into_inner().saturating_sub(before), report)
}

fn kernels() -> Vec<Kernel> {
    let pagerank = |algorithm| PageRankConfig {
        max_iterations: 3,
        tolerance: 0.0,
        damping: 0.85,
        algorithm,
        dangling: Dangling::Drop,
    };
    vec![
        Kernel::Bfs(Direction::Optimizing),
        Kernel::Bfs(Direction::TopDown),
        Kernel::Sssp(SsspAlgorithm::Delta(2)),
        Kernel::Sssp(SsspAlgorithm::BellmanFord),
        Kernel::PageRank(pagerank(PageRankAlgorithm::Jacobi)),
        Kernel::PageRank(pagerank(PageRankAlgorithm::GaussSeidel)),
        Kernel::PageRank(pagerank(PageRankAlgorithm::DeltaPush)),
        Kernel::Components(CcAlgorithm::Afforest),
        Kernel::Components(CcAlgorithm::ShiloachVishkin),
        Kernel::Betweenness,
        Kernel::Diameter(DiameterAlgorithm::DoubleSweep),
        Kernel::Diameter(DiameterAlgorithm::MultiSource),
        Kernel::Triangles,
    ]
}

fn check<V: Width>(kernel: Kernel) {
    /// Other memory of a build before it reads edges, and the error of the kernel's counters before
    /// Linux 6.16.
    const REST: u64 = 2 << 20;
    let property = |report: &GraphReport| {
        report
            .arrays
            .iter()
            .find(|array| array.name == "property")
            .map_or(0, |array| array.bytes.get())
    };
    // The result that preallocated arrays are compared with needs no second trial.
    let natural = Job { trials: 1, verify: false, ..job(kernel, AllocOrder::Natural) };
    let (before, natural) = run::<V>(&natural, PagePlan::default());
    assert!(before < REST, "{kernel:?}: {before} were there before the graph");
    // These pages are unavailable, so a kernel can only use the preallocated property arrays.
    let none: PagePlan = "property=hugetlb-1g".parse().unwrap();
    let (before, first) = run::<V>(&job(kernel, AllocOrder::PropertyFirst), none);
    let bytes = property(&first);
    assert!(bytes >= 1 << 22 && bytes == property(&natural), "{kernel:?}: {bytes}");
    assert!(before.abs_diff(bytes) < REST, "{kernel:?}: {before} before the graph, of {bytes}");
    assert_eq!(first.result, natural.result, "{kernel:?}");
    assert!(
        first.alloc_order == AllocOrder::PropertyFirst
            && natural.alloc_order == AllocOrder::Natural
            && first.verify_error.is_none(),
        "{:?}",
        first.verify_error
    );
    let cost = first.phases;
    assert!(cost.first_touch_seconds > Some(0.0) && cost.allocate_seconds > Some(0.0));
}

#[test]
fn property_first_allocates_the_arrays_that_kernels_use() {
    /// Variable that is set in the process in which no other test runs.
    const ALONE: &str = "HUGEPILOT_TEST_ALONE";
    if env::var_os(ALONE).is_none() {
        let name = "alloc_order::property_first_allocates_the_arrays_that_kernels_use";
        let mut alone = Command::new(env::current_exe().unwrap());
        alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        // Not printed: its output would count as this test's.
        let done = alone.output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("1 passed"), "{done:?}");
        return;
    }
    for kernel in kernels() {
        check::<u32>(kernel);
    }
    // Some of their property arrays are wider than vertex IDs.
    check::<u64>(Kernel::Betweenness);
    check::<u64>(Kernel::Diameter(DiameterAlgorithm::MultiSource));
    of_files();
}

/// Allocates from the `building` callback, for files with rows and for lists.
fn of_files() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::Components(CcAlgorithm::Afforest);
    let first = job(kernel, AllocOrder::PropertyFirst);
    let made = first
        .build_options()
        .graph::<u32>(&ResidentProbe { vertices: 200, resident: AtomicU64::new(0) })
        .unwrap();
    for format in [Format::Gap, Format::Native, Format::MatrixMarket] {
        let file = folder.path().join("graph");
        save(&file, true, format, &made, &hugepilot_graph::Ids::default()).unwrap();
        let properties = Mutex::new(None);
        let building = |vertices, _| {
            *properties.lock().unwrap() = first.property_pool::<u32>(vertices)?;
            Ok(())
        };
        let options = LoadOptions {
            format: Some(format),
            load_mode: LoadMode::Cached,
            building: &building,
            ..LoadOptions::new(first.build_options())
        };
        let graph = load::<u32>(&file, &options).unwrap().graph;
        let prepared =
            first.prepare(graph, Phases::default(), properties.into_inner().unwrap()).unwrap();
        let refused = Job { pages: "property=hugetlb-1g".parse().unwrap(), ..first.clone() };
        let report = prepared.run(&refused, |_| {}).unwrap().report;
        assert_eq!(report.verified, Some(true), "{format}");
    }
}
