//! Kernels on graphs of several chunks, so that threads share the work; and the access stream.

use std::fmt;
use std::sync::Mutex;

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig, Setup,
    SsspAlgorithm, betweenness, bfs, components, diameter, pagerank, sssp, triangles,
};
use hugepilot_graph::{
    AccessSink, Array, ArrayRange, Build, EdgeSource, Graph, Grid, Kronecker, PagePlan, Rng,
    ThreadPool, Tracer, Uniform, Width,
};

fn graph<V: Width>(source: &impl EdgeSource) -> Graph<V> {
    Build { directed: false, pages: PagePlan::default(), pool: ThreadPool::new(2) }
        .graph(source)
        .unwrap()
}

fn setup(threads: usize) -> Setup {
    Setup::new(PagePlan::default(), ThreadPool::new(threads))
}

fn kronecker() -> Kronecker {
    Kronecker { scale: 17, degree: 8, weighted: true, rng: Rng::Whole, shuffled: true }
}

/// Searches switch direction twice, and most edges are never read.
#[test]
fn all_algorithms_of_a_kernel_agree() {
    let graphs: [Graph<u32>; 2] =
        [graph(&kronecker()), graph(&Uniform { scale: 16, degree: 4, weighted: true })];
    for graph in &graphs {
        let hub = (0..graph.vertices())
            .max_by_key(|&v| graph.out.degree(v))
            .map(<u32 as Width>::new)
            .unwrap();
        let [up, down] = [Direction::Optimizing, Direction::TopDown].map(|direction| {
            let found = bfs(graph, hub, direction, &setup(3)).unwrap();
            found.verify(graph, hub).unwrap();
            found.levels
        });
        assert_eq!(up, down);
        let [few, all] = [CcAlgorithm::Afforest, CcAlgorithm::ShiloachVishkin].map(|algorithm| {
            let found = components(graph, algorithm, &setup(3)).unwrap();
            found.verify(graph).unwrap();
            found
        });
        assert_eq!(*few.labels, *all.labels);
        assert_eq!(few.largest(), up.iter().sum::<usize>());
        let [narrow, wide, none] =
            [SsspAlgorithm::Delta(2), SsspAlgorithm::Delta(1000), SsspAlgorithm::BellmanFord].map(
                |algorithm| {
                    let found = sssp(graph, hub, algorithm, &setup(3)).unwrap();
                    found.verify(graph, hub).unwrap();
                    found.distances
                },
            );
        assert_eq!(*narrow, *wide);
        assert_eq!(*narrow, *none);
        betweenness(graph, &[hub], &setup(3)).unwrap().verify(graph, &[hub]).unwrap();
        triangles(graph, &setup(3)).unwrap().verify(graph).unwrap();
        for algorithm in [DiameterAlgorithm::DoubleSweep, DiameterAlgorithm::MultiSource] {
            diameter(graph, hub, algorithm, &setup(3)).unwrap().verify(graph).unwrap();
        }
    }
}

/// Jacobi gives the same bits for any number of threads, other algorithms the same ranks.
#[test]
fn ranks_do_not_depend_on_the_number_of_threads() {
    let graph: Graph<u32> = graph(&kronecker());
    for dangling in [Dangling::Drop, Dangling::Redistribute] {
        let config = PageRankConfig {
            max_iterations: 60,
            tolerance: 1e-5,
            dangling,
            ..PageRankConfig::default()
        };
        let alone = pagerank(&graph, config, &setup(1)).unwrap();
        for threads in [2, 3, 5] {
            let found = pagerank(&graph, config, &setup(threads)).unwrap();
            assert_eq!(*found.ranks, *alone.ranks, "{dangling:?}, {threads} threads");
            assert_eq!(found.residual.to_bits(), alone.residual.to_bits());
        }
        for algorithm in [
            PageRankAlgorithm::Jacobi,
            PageRankAlgorithm::GaussSeidel,
            PageRankAlgorithm::DeltaPush,
        ] {
            let config = PageRankConfig { algorithm, max_iterations: 1000, ..config };
            let found = pagerank(&graph, config, &setup(3)).unwrap();
            found.verify(&graph, config).unwrap();
            let error: f64 =
                (0..graph.vertices()).map(|v| (found.rank(v) - alone.rank(v)).abs()).sum();
            assert!(error < 1e-3, "{algorithm:?}, {dangling:?}: {error}");
        }
    }
}

/// More paths lead through a grid than `f64` counts. Both corners give the same scores.
#[test]
fn betweenness_with_path_counts_beyond_f64() {
    const SIDE: usize = 600;
    let grid = Grid { rows: SIDE as u64, columns: SIDE as u64, weighted: false };
    let graph: Graph<u64> = graph(&grid);
    let last = (SIDE * SIDE - 1) as u64;
    let [one, other] = [0, last].map(|source| betweenness(&graph, &[source], &setup(2)).unwrap());
    one.verify(&graph, &[0]).unwrap();
    for v in 0..SIDE * SIDE {
        let (score, turned) = (one.score(v), other.score(SIDE * SIDE - 1 - v));
        assert!((score - turned).abs() <= 1e-6 * score.max(1.0), "{v}: {score} {turned}");
    }
    // Inner vertices of the paths to all others, whichever path counts.
    let sum: f64 = (0..SIDE * SIDE).map(|v| one.score(v)).sum();
    let between: usize = (0..SIDE * SIDE).map(|v| (v % SIDE + v / SIDE).saturating_sub(1)).sum();
    // The dependency of the source is not betweenness, and not in the sum.
    assert!((sum / between as f64 - 1.0).abs() < 1e-6, "{sum} {between}");
    // From the centre, `f64` counts all paths: its scores stay when the next source ends the range.
    let centre = last / 2;
    let from_centre = betweenness(&graph, &[centre], &setup(2)).unwrap();
    let both = betweenness(&graph, &[centre, 0, last], &setup(2)).unwrap();
    for v in 0..SIDE * SIDE {
        let expected = from_centre.score(v) + one.score(v) + other.score(v);
        assert!((both.score(v) - expected).abs() <= 1e-6 * expected.max(1.0), "{v}: {expected}");
    }
}

/// Counts by array, reads and writes separately, and addresses of edges.
#[derive(Default)]
struct AccessCounts(Mutex<([[usize; 2]; Array::ALL.len()], Vec<usize>)>);

impl AccessCounts {
    fn on_access(&self, array: Array, address: usize, write: bool) {
        let mut accesses = self.0.lock().unwrap();
        accesses.0[array as usize][usize::from(write)] += 1;
        if array == Array::Edges {
            accesses.1.push(address);
        }
    }
}

impl AccessSink for &AccessCounts {
    fn read<T>(&self, array: Array, item: &T) {
        self.on_access(array, std::ptr::from_ref(item).addr(), false);
    }
    fn write<T>(&self, array: Array, item: &T) {
        self.on_access(array, std::ptr::from_ref(item).addr(), true);
    }
    fn end_phase(&self) {}
    fn begin_phase(&self, _: fmt::Arguments<'_>) {}
}

impl Tracer for AccessCounts {
    type Sink<'a> = &'a Self;
    fn sink(&self, _: usize) -> &Self {
        self
    }
    fn on_arrays(&self, _: &dyn Fn() -> Vec<ArrayRange>) {}
}

#[test]
fn a_sink_receives_each_access() {
    let graph: Graph<u32> = graph(&Kronecker { scale: 10, ..kronecker() });
    let (vertices, edges) = (graph.vertices(), graph.out.edges());
    let record = |kernel: &dyn Fn(&Setup<AccessCounts>)| {
        let setup = Setup {
            tracer: AccessCounts::default(),
            pages: PagePlan::default(),
            pool: ThreadPool::new(2),
            property_pool: None,
        };
        kernel(&setup);
        setup.tracer.0.into_inner().unwrap()
    };
    let iterations =
        PageRankConfig { max_iterations: 3, tolerance: 0.0, ..PageRankConfig::default() };
    let (accesses, at) = record(&|setup| drop(pagerank(&graph, iterations, setup).unwrap()));
    assert_eq!(accesses[Array::Edges as usize], [3 * edges, 0]);
    // The preparation writes each rank and share. Each iteration reads all shares along edges and
    // each rank; between iterations, it reads each rank and writes each share.
    assert_eq!(accesses[Array::Property as usize], [3 * edges + 5 * vertices, 7 * vertices]);
    assert_eq!(accesses[Array::Offsets as usize], [12 * vertices, 0]);
    let row = graph.out.neighbours(0).as_ptr().addr();
    assert!(at.iter().all(|&address| (row..row + 4 * edges).contains(&address)));
    let hub = (0..vertices).max_by_key(|&v| graph.out.degree(v)).unwrap();
    let (accesses, _) =
        record(&|setup| drop(bfs(&graph, hub as u32, Direction::TopDown, setup).unwrap()));
    let found = bfs(&graph, hub as u32, Direction::TopDown, &setup(1)).unwrap();
    let reached = (0..vertices).filter(|&v| found.parents[v] != u32::MAX);
    assert_eq!(accesses[Array::Edges as usize], [reached.map(|v| graph.out.degree(v)).sum(), 0]);
    assert_eq!(accesses[Array::Worklist as usize], [found.reached(); 2]);
    // Each vertex is cleared, a reached one gets a parent, and an unreached one with edges a mark.
    let unreached = (0..vertices).filter(|&v| found.parents[v] == u32::MAX);
    let marked = unreached.filter(|&v| graph.out.degree(v) > 0).count();
    assert_eq!(accesses[Array::Property as usize][1], vertices + found.reached() + marked);
}
