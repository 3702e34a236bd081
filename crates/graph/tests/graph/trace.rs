//! Traces of kernels: each access in order, within a named mapping.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig,
    SsspAlgorithm,
};
use hugepilot_graph::run::{Job, Kernel, PreparedGraph, SourceVertex, TracedRuns};
use hugepilot_graph::{EdgeList, EdgeSource, Kronecker, PagePlan, Rng, ThreadPool, Width};
use hugepilot_record::trace::{TraceMapping, TracePiece};
use hugepilot_reports::graph::{AllocOrder, Phases};

/// Access: index of its array in [`Recorded::names`], byte in the array, whether it is a store.
type Access = (usize, u64, bool);

/// Trace with arrays in place of addresses.
#[derive(Default)]
struct Recorded {
    names: Vec<String>,
    mappings: Vec<TraceMapping>,
    phases: Vec<String>,
    /// Number of accesses before each phase.
    before: Vec<usize>,
    accesses: Vec<Access>,
    threads: Vec<u16>,
}

impl Recorded {
    fn piece(&mut self, piece: TracePiece) {
        match piece {
            TracePiece::Phase(name) => {
                self.phases.push(name);
                self.before.push(self.accesses.len());
            }
            TracePiece::ThreadEnd(thread) => panic!("thread {thread} ends"),
            TracePiece::Mappings(mappings) => {
                for two in mappings.windows(2) {
                    assert!(two[0].range.end <= two[1].range.start, "{two:?}");
                }
                for mapping in &mappings {
                    let [start, end] = [mapping.range.start, mapping.range.end].map(|at| at.get());
                    assert!(start % 4096 == 0 && end % 4096 == 0 && start < end, "{mapping:?}");
                    if !self.names.contains(&mapping.name) {
                        self.names.push(mapping.name.clone());
                    }
                }
                self.mappings = mappings;
            }
            TracePiece::Accesses { thread, accesses } => {
                if !self.threads.contains(&thread) {
                    self.threads.push(thread);
                }
                for access in accesses {
                    let at = self
                        .mappings
                        .partition_point(|mapping| mapping.range.start.get() <= access.address);
                    let mapping = &self.mappings[at.checked_sub(1).expect("below all mappings")];
                    let inside = access.address < mapping.range.end.get();
                    assert!(inside, "{access:?} is behind {mapping:?}");
                    let name = self.names.iter().position(|name| *name == mapping.name).unwrap();
                    let byte = access.address - mapping.range.start.get();
                    self.accesses.push((name, byte, access.store));
                }
            }
        }
    }

    /// Counts loads and stores by array.
    fn counts(&self) -> BTreeMap<&str, [usize; 2]> {
        let mut counts = BTreeMap::new();
        for &(name, _, store) in &self.accesses {
            counts.entry(self.names[name].as_str()).or_insert([0; 2])[usize::from(store)] += 1;
        }
        counts
    }

    /// Returns the accesses of each phase in any fixed order.
    fn sorted(&self) -> Vec<Vec<Access>> {
        let ends = self.before[1..].iter().copied().chain([self.accesses.len()]);
        // The order of `names` is that of the addresses, which differ from run to run.
        let rank = |name: &String| self.names.iter().filter(|other| *other < name).count();
        let ranks: Vec<usize> = self.names.iter().map(rank).collect();
        let phase = |(&begin, end): (&usize, usize)| {
            let ranked = self.accesses[begin..end].iter();
            let mut accesses: Vec<Access> =
                ranked.map(|&(name, byte, store)| (ranks[name], byte, store)).collect();
            accesses.sort_unstable();
            accesses
        };
        self.before.iter().zip(ends).map(phase).collect()
    }
}

fn job(kernel: Kernel, threads: usize) -> Job {
    Job {
        input: String::new(),
        directed: false,
        pages: PagePlan::default(),
        pages_text: String::new(),
        alloc_order: AllocOrder::Natural,
        pool: ThreadPool::new(threads),
        reorder: None,
        kernel: Some(kernel),
        trials: 1,
        source: SourceVertex::Random(1),
        verify: false,
        output: None,
    }
}

fn prepared<V: Width>(job: &Job, source: &impl EdgeSource) -> PreparedGraph<V> {
    let graph = job.build_options().graph(source).unwrap();
    job.prepare(graph, Phases::default(), None).unwrap()
}

fn record<V: Width>(job: &Job, prepared: &PreparedGraph<V>) -> (Recorded, TracedRuns) {
    let mut recorded = Recorded::default();
    let traced = prepared.trace(job, &mut |piece| {
        recorded.piece(piece);
        ControlFlow::Continue(())
    });
    let traced = traced.unwrap();
    assert_eq!(traced.accesses, recorded.accesses.len() as u64);
    assert!(!traced.is_stopped);
    (recorded, traced)
}

fn kronecker(scale: u32) -> Kronecker {
    Kronecker { scale, degree: 8, weighted: true, rng: Rng::Whole, shuffled: true }
}

fn pagerank(algorithm: PageRankAlgorithm, max_iterations: usize) -> Kernel {
    let config = PageRankConfig { tolerance: 0.0, ..PageRankConfig::default() };
    Kernel::PageRank(PageRankConfig { algorithm, max_iterations, ..config })
}

/// Edges 0–1, 0–2 and 1–3, and vertex 4 without edges: offsets 0 2 4 5 6 6, edges 1 2 0 3 0 1.
fn small(job: &Job) -> PreparedGraph<u32> {
    prepared(job, &EdgeList::new(5, [(0, 1), (0, 2), (1, 3)]))
}

/// Writes `array[index]`, and `=` for a store. Phases are separate lines.
fn lines(job: &Job) -> String {
    let mut recorded = Recorded::default();
    let mut text = String::new();
    let traced = small(job).trace(job, &mut |piece| {
        if let TracePiece::Phase(name) = &piece {
            text.push_str(&format!("\n{name}:"));
        }
        recorded.piece(piece);
        for (name, byte, store) in recorded.accesses.drain(..) {
            let name = recorded.names[name].rsplit(':').next().unwrap();
            let store = if store { "=" } else { "" };
            text.push_str(&format!(" {name}[{}]{store}", byte / 4));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(traced.unwrap().runs.len(), 1);
    text
}

#[test]
fn a_search_makes_the_accesses_derived_by_hand() {
    let source = SourceVertex::Id(0);
    let job = Job { source, ..job(Kernel::Bfs(Direction::TopDown), 1) };
    let expected = "
run 1:
bfs begin: offsets[0] offsets[1] parents[0]= offsets[1] offsets[2] parents[1]= offsets[2] \
offsets[3] parents[2]= offsets[3] offsets[4] parents[3]= offsets[4] offsets[5] parents[4]= \
parents[0]= queue[0]=
bfs 1: queue[0] offsets[0] offsets[1] edges[0] parents[1] parents[1]= edges[1] parents[2] \
parents[2]= queue[1]= queue[2]=
bfs 2: queue[1] offsets[1] offsets[2] queue[2] offsets[2] offsets[3] edges[2] parents[0] edges[3] \
parents[3] parents[3]= edges[4] parents[0] queue[3]=
bfs 3: queue[3] offsets[3] offsets[4] edges[5] parents[1]
bfs end: parents[0] parents[1] parents[2] parents[3] parents[4]";
    assert_eq!(lines(&job), expected);
}

#[test]
fn pagerank_makes_the_accesses_derived_by_hand() {
    let job = job(pagerank(PageRankAlgorithm::Jacobi, 2), 1);
    let gather = "offsets[0] offsets[1] edges[0] shares[1] edges[1] shares[2] ranks[0] ranks[0]= \
offsets[1] offsets[2] edges[2] shares[0] edges[3] shares[3] ranks[1] ranks[1]= \
offsets[2] offsets[3] edges[4] shares[0] ranks[2] ranks[2]= \
offsets[3] offsets[4] edges[5] shares[1] ranks[3] ranks[3]= \
offsets[4] offsets[5] ranks[4] ranks[4]=";
    let begin =
        (0..5).map(|v| format!(" offsets[{v}] offsets[{}] ranks[{v}]= shares[{v}]=", v + 1));
    let pass = (0..5).map(|v| format!(" offsets[{v}] offsets[{}] ranks[{v}] shares[{v}]=", v + 1));
    let (begin, pass) = (begin.collect::<String>(), pass.collect::<String>());
    let expected = format!("\nrun 1:\npr begin:{begin}\npr 1: {gather}\npr 2:{pass} {gather}");
    assert_eq!(lines(&job), expected);
}

#[test]
fn counts_of_pagerank_are_those_of_a_loop_over_the_rows() {
    const ITERATIONS: usize = 3;
    for algorithm in [PageRankAlgorithm::Jacobi, PageRankAlgorithm::GaussSeidel] {
        let job = job(pagerank(algorithm, ITERATIONS), 1);
        let prepared: PreparedGraph<u32> = prepared(&job, &kronecker(10));
        let (recorded, _) = record(&job, &prepared);
        let [mut offsets, mut edges] = [0; 2];
        let [mut ranks, mut shares] = [[0; 2]; 2];
        for iteration in 0..=ITERATIONS {
            for v in 0..prepared.graph.vertices() {
                if iteration == 0 {
                    (offsets, ranks[1], shares[1]) = (offsets + 2, ranks[1] + 1, shares[1] + 1);
                    continue;
                }
                offsets += 2;
                for _ in prepared.graph.out.neighbours(v) {
                    (edges, shares[0]) = (edges + 1, shares[0] + 1);
                }
                ranks = ranks.map(|count| count + 1);
                if algorithm == PageRankAlgorithm::GaussSeidel {
                    (offsets, shares[1]) = (offsets + 2, shares[1] + 1);
                    if iteration == ITERATIONS {
                        // Ranks are scaled.
                        ranks = ranks.map(|count| count + 1);
                    }
                } else if iteration > 1 {
                    (offsets, ranks[0], shares[1]) = (offsets + 2, ranks[0] + 1, shares[1] + 1);
                }
            }
        }
        let expected = BTreeMap::from([
            ("edges", [edges, 0]),
            ("offsets", [offsets, 0]),
            ("property:ranks", ranks),
            ("property:shares", shares),
        ]);
        assert_eq!(recorded.counts(), expected, "{algorithm:?}");
    }
}

#[test]
fn counts_of_a_search_are_those_of_a_loop_over_the_rows() {
    let source = SourceVertex::MaxDegree;
    let job = Job { source, ..job(Kernel::Bfs(Direction::TopDown), 1) };
    let prepared: PreparedGraph<u32> = prepared(&job, &kronecker(10));
    let (recorded, runs) = record(&job, &prepared);
    let (graph, hub) = (&prepared.graph, runs.runs[0].source.unwrap() as usize);
    let n = graph.vertices();
    let (mut seen, mut queue, mut edges) = (vec![false; n], vec![hub], 0);
    seen[hub] = true;
    let mut next = 0;
    while let Some(&v) = queue.get(next) {
        next += 1;
        for &to in graph.out.neighbours(v) {
            edges += 1;
            if !std::mem::replace(&mut seen[to as usize], true) {
                queue.push(to as usize);
            }
        }
    }
    let unreached = (0..n).filter(|&v| !seen[v] && graph.out.degree(v) > 0).count();
    let reached = queue.len();
    let expected = BTreeMap::from([
        ("edges", [edges, 0]),
        ("offsets", [2 * n + 2 * reached, 0]),
        ("property:parents", [edges + n, n + reached + unreached]),
        ("worklist:queue", [reached; 2]),
    ]);
    assert_eq!(recorded.counts(), expected);
}

#[test]
fn two_workers_make_the_accesses_of_one() {
    for kernel in
        [pagerank(PageRankAlgorithm::Jacobi, 2), Kernel::Diameter(DiameterAlgorithm::MultiSource)]
    {
        let [one, two] = [1, 2].map(|threads| {
            let job = job(kernel, threads);
            let (recorded, _) = record(&job, &prepared::<u32>(&job, &kronecker(15)));
            assert!(recorded.threads.len() <= threads);
            (recorded.sorted(), recorded.phases)
        });
        assert_eq!(one.1, two.1, "{kernel:?}");
        for ((name, one), two) in one.1.iter().zip(one.0).zip(two.0) {
            assert!(one == two, "{kernel:?}, {name}: {} and {} accesses", one.len(), two.len());
        }
    }
}

/// [`Recorded::piece`] checks that each access is in a mapping.
#[test]
fn all_kernels_access_announced_mappings_only() {
    let kernels = [
        Kernel::Bfs(Direction::Optimizing),
        Kernel::Bfs(Direction::TopDown),
        Kernel::Sssp(SsspAlgorithm::Delta(2)),
        Kernel::Sssp(SsspAlgorithm::BellmanFord),
        pagerank(PageRankAlgorithm::Jacobi, 3),
        pagerank(PageRankAlgorithm::GaussSeidel, 3),
        Kernel::PageRank(PageRankConfig {
            algorithm: PageRankAlgorithm::DeltaPush,
            dangling: Dangling::Drop,
            ..PageRankConfig::default()
        }),
        pagerank(PageRankAlgorithm::DeltaPush, 3),
        Kernel::Components(CcAlgorithm::Afforest),
        Kernel::Components(CcAlgorithm::ShiloachVishkin),
        Kernel::Betweenness,
        Kernel::Diameter(DiameterAlgorithm::DoubleSweep),
        Kernel::Diameter(DiameterAlgorithm::MultiSource),
        Kernel::Triangles,
    ];
    for directed in [false, true] {
        for kernel in kernels {
            if directed && kernel == Kernel::Triangles {
                continue;
            }
            let job = Job { directed, trials: 2, ..job(kernel, 2) };
            let (recorded, runs) = record(&job, &prepared::<u32>(&job, &kronecker(11)));
            let phases = &recorded.phases;
            assert_eq!(phases[0], "run 1", "{kernel:?}");
            assert_eq!(phases.iter().filter(|name| name.starts_with("run ")).count(), 2);
            let begin = format!("{} begin", kernel.name());
            let begin = if phases[1] == "bfs begin" { "bfs begin" } else { &begin };
            assert_eq!(phases[1], begin, "{kernel:?}");
            assert_eq!(runs.runs.len(), 2);
            let counts = recorded.counts();
            // A worker may be too late for any work, and a search may never need bitmaps.
            let may = ["marks-", "bitmap-"];
            for name in recorded.names.iter().filter(|name| name.contains(':')) {
                let is_used = counts.contains_key(name.as_str());
                let may_be_unused = may.iter().any(|part| name.contains(part));
                assert!(is_used || may_be_unused, "{kernel:?}: no access to {name}");
            }
        }
    }
}

#[test]
fn a_trace_is_the_same_each_time_but_for_addresses() {
    for kernel in [Kernel::Bfs(Direction::Optimizing), Kernel::Sssp(SsspAlgorithm::Delta(2))] {
        let job = Job { trials: 3, ..job(kernel, 1) };
        let [one, other] = [(); 2].map(|()| record(&job, &prepared::<u64>(&job, &kronecker(9))));
        assert_eq!(one.0.phases, other.0.phases);
        let named = |recorded: &Recorded| {
            let name = |&(name, byte, store): &Access| (recorded.names[name].clone(), byte, store);
            recorded.accesses.iter().map(name).collect::<Vec<_>>()
        };
        assert!(named(&one.0) == named(&other.0), "{kernel:?}");
        let sources = |runs: &TracedRuns| -> Vec<_> {
            runs.runs.iter().map(|run| run.source.unwrap()).collect()
        };
        assert_eq!(sources(&one.1), sources(&other.1));
    }
}

#[test]
fn a_sink_may_end_the_trace() {
    for threads in [1, 2] {
        let job =
            Job { trials: 1000, ..job(pagerank(PageRankAlgorithm::GaussSeidel, 20), threads) };
        let prepared: PreparedGraph<u32> = prepared(&job, &kronecker(14));
        for last in [1, 2, 10] {
            let mut pieces = 0;
            let traced = prepared.trace(&job, &mut |_| {
                pieces += 1;
                if pieces == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let traced = traced.unwrap();
            assert_eq!(pieces, last, "a sink was called after its end");
            assert!(traced.is_stopped && traced.runs.len() == 1);
        }
    }
}

#[test]
fn a_slow_sink_loses_nothing() {
    let job = job(pagerank(PageRankAlgorithm::Jacobi, 3), 2);
    let prepared: PreparedGraph<u32> = prepared(&job, &kronecker(15));
    let (fast, _) = record(&job, &prepared);
    let mut slow = Recorded::default();
    prepared
        .trace(&job, &mut |piece| {
            thread::sleep(Duration::from_millis(2));
            slow.piece(piece);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(slow.phases, fast.phases);
    assert!(slow.sorted() == fast.sorted());
}
