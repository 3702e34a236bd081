//! Which memory comes first: alone in its process, because it looks at all memory of that.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hugepilot_graph::kernel::{Dangling, Direction, Iterations, Joining, Looking, Stepping, Sweep};
use hugepilot_graph::run::{Job, Kernel, Ready, Start};
use hugepilot_graph::{
    Edge, Format, LoadOptions, Loading, PagePlan, Source, Team, Width, load, save,
};
use hugepilot_record::graph::{GraphReport, Phases};

/// A cycle of some vertices among many, that notes how much is resident when its first edge is asked for.
struct Noting {
    vertices: u64,
    resident: AtomicU64,
}

fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

impl Source for Noting {
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

fn job(kernel: Kernel, property_first: bool) -> Job {
    Job {
        name: String::new(),
        directed: false,
        pages: PagePlan::default(),
        pages_text: String::new(),
        property_first,
        // Results that depend on the order of threads are compared, too.
        team: Team::of(1),
        order: None,
        kernel: Some(kernel),
        trials: 2,
        start: Start::MaxDegree,
        verify: true,
        output: None,
    }
}

/// What was resident before the first edge, and the report; kernels run with properties on the pages of `pages`.
fn run<V: Width>(job: &Job, pages: PagePlan) -> (u64, GraphReport) {
    let source = Noting { vertices: 1 << 20, resident: AtomicU64::new(0) };
    let before = resident();
    let stash = job.stash::<V>(source.vertices).unwrap();
    let graph = job.building().graph::<V>(&source).unwrap();
    let ready: Ready<V> = job.ready(graph, Phases::default(), stash).unwrap();
    let job = Job { pages, ..job.clone() };
    let report = ready.run(&job, |_| {}).unwrap().report;
    (source.resident.into_inner().saturating_sub(before), report)
}

fn kernels() -> Vec<Kernel> {
    let pagerank = |sweep| Iterations {
        most: 3,
        tolerance: 0.0,
        damping: 0.85,
        sweep,
        dangling: Dangling::Drop,
    };
    vec![
        Kernel::Bfs(Direction::Optimizing),
        Kernel::Bfs(Direction::TopDown),
        Kernel::Sssp(Stepping::Delta(2)),
        Kernel::Sssp(Stepping::BellmanFord),
        Kernel::PageRank(pagerank(Sweep::Jacobi)),
        Kernel::PageRank(pagerank(Sweep::GaussSeidel)),
        Kernel::PageRank(pagerank(Sweep::DeltaPush)),
        Kernel::Components(Joining::Afforest),
        Kernel::Components(Joining::ShiloachVishkin),
        Kernel::Betweenness,
        Kernel::Diameter(Looking::Sweeps),
        Kernel::Diameter(Looking::Multi),
        Kernel::Triangles,
    ]
}

fn check<V: Width>(kernel: Kernel) {
    /// What else a build takes until it asks for edges, and what the kernel counts wrongly before Linux 6.16.
    const REST: u64 = 2 << 20;
    let property = |report: &GraphReport| {
        report
            .arrays
            .iter()
            .find(|array| array.name == "property")
            .map_or(0, |array| array.bytes.get())
    };
    let (before, natural) = run::<V>(&job(kernel, false), PagePlan::default());
    assert!(before < REST, "{kernel:?}: {before} were there before the graph");
    // Where properties are refused, a kernel can only have those that were set aside.
    let none: PagePlan = "property=hugetlb-1g".parse().unwrap();
    let (before, first) = run::<V>(&job(kernel, true), none);
    let bytes = property(&first);
    assert!(bytes >= 1 << 22 && bytes == property(&natural), "{kernel:?}: {bytes}");
    assert!(before.abs_diff(bytes) < REST, "{kernel:?}: {before} before the graph, of {bytes}");
    assert_eq!(first.result, natural.result, "{kernel:?}");
    assert!(
        first.property_first && !natural.property_first && first.wrong.is_none(),
        "{:?}",
        first.wrong
    );
    let spent = first.phases;
    assert!(spent.first_touch_seconds > Some(0.0) && spent.allocate_seconds > Some(0.0));
}

#[test]
fn properties_come_first_if_told_to_and_are_those_that_kernels_use() {
    for kernel in kernels() {
        check::<u32>(kernel);
    }
    // Not all that these keep is as wide as vertex numbers.
    check::<u64>(Kernel::Betweenness);
    check::<u64>(Kernel::Diameter(Looking::Multi));
    of_files();
}

/// What is told that building begins sets them aside, so also for files: rows that are there, and lists.
fn of_files() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::Components(Joining::Afforest);
    let first = job(kernel, true);
    let made = first
        .building()
        .graph::<u32>(&Noting { vertices: 200, resident: AtomicU64::new(0) })
        .unwrap();
    for format in [Format::Gap, Format::Native, Format::MatrixMarket] {
        let file = folder.path().join("graph");
        save(&file, true, format, &made, None).unwrap();
        let stash = Mutex::new(None);
        let building = |vertices, _| {
            *stash.lock().unwrap() = first.stash::<u32>(vertices)?;
            Ok(())
        };
        let options = LoadOptions {
            format: Some(format),
            loading: Loading::Cached,
            building: &building,
            ..LoadOptions::new(first.building())
        };
        let graph = load::<u32>(&file, &options).unwrap().graph;
        let ready = first.ready(graph, Phases::default(), stash.into_inner().unwrap()).unwrap();
        let refused = Job { pages: "property=hugetlb-1g".parse().unwrap(), ..first.clone() };
        let report = ready.run(&refused, |_| {}).unwrap().report;
        assert_eq!(report.verified, Some(true), "{format}");
    }
}
