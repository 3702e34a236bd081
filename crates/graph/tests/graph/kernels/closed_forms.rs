//! Closed forms, known counts, and verifiers.

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig,
    betweenness, bfs, components, diameter, pagerank, triangles,
};
use hugepilot_graph::{Build, EdgeList, Graph, Kronecker, PagePlan, Rng, ThreadPool, Uniform};

use super::{graph, setup};

/// Rank of the centre of a star: (0.15/N)(1 + 0.85k)/(1 − 0.7225).
#[test]
fn ranks_in_closed_form() {
    let leaves = 99.0;
    let star = EdgeList::new(100, (1..100).map(|v| (0, v)));
    let cycle = EdgeList::new(77, (0..77).map(|v| (v, (v + 1) % 77)));
    for algorithm in
        [PageRankAlgorithm::Jacobi, PageRankAlgorithm::GaussSeidel, PageRankAlgorithm::DeltaPush]
    {
        let iterations = PageRankConfig {
            max_iterations: 500,
            tolerance: 1e-12,
            algorithm,
            ..PageRankConfig::default()
        };
        let found = pagerank(&graph::<u64>(&star, false), iterations, &setup(2)).unwrap();
        let centre = 0.15 / 100.0 * (1.0 + 0.85 * leaves) / (1.0 - 0.7225);
        assert!((found.rank(0) - centre).abs() < 1e-9);
        let found = pagerank(&graph::<u64>(&cycle, true), iterations, &setup(2)).unwrap();
        assert!((0..77).all(|v| (found.rank(v) - 1.0 / 77.0).abs() < 1e-12));
    }
}

/// In Gauss–Seidel, dangling ranks cost no iterations: half of these vertices have no edges.
#[test]
fn dangling_ranks_cost_no_iterations() {
    let list = EdgeList::new(2000, (0..5000u64).map(|i| (i * i % 997, i * 7 % 991)));
    let graph: Graph<u64> = graph(&list, false);
    let sweeps = |dangling| {
        let config = PageRankConfig {
            max_iterations: 100,
            algorithm: PageRankAlgorithm::GaussSeidel,
            dangling,
            ..PageRankConfig::default()
        };
        let found = pagerank(&graph, config, &setup(1)).unwrap();
        found.verify(&graph, config).unwrap();
        found.iterations
    };
    let (drop, redistribute) = (sweeps(Dangling::Drop), sweeps(Dangling::Redistribute));
    assert!(redistribute <= drop + 2, "{redistribute} instead of {drop}");
}

/// Stops where configured, and reports the remaining residual: no rank is moved or lost on the way.
#[test]
fn pushing_stops_at_any_round() {
    let list = EdgeList::new(300, (0..3000u64).map(|i| (i * i % 300, i * 7 % 251)));
    let graph: Graph<u64> = graph(&list, true);
    for dangling in [Dangling::Drop, Dangling::Redistribute] {
        let config = PageRankConfig {
            max_iterations: 1000,
            tolerance: 1e-10,
            algorithm: PageRankAlgorithm::DeltaPush,
            dangling,
            damping: 0.85,
        };
        let end = pagerank(&graph, config, &setup(2)).unwrap();
        for most in [1, 2, 3, 10, 40] {
            for tolerance in [0.0, f64::NAN, 1e-10, 1e-3, 0.9] {
                let some = PageRankConfig { max_iterations: most, tolerance, ..config };
                let found = pagerank(&graph, some, &setup(2)).unwrap();
                assert!(found.iterations <= most && found.residual.is_finite());
                assert!(found.iterations == most || found.residual <= tolerance.max(0.0));
                let error: f64 = (0..300).map(|v| (found.rank(v) - end.rank(v)).abs()).sum();
                // The residual is passed on forever, less in each round.
                assert!(
                    error <= found.residual / 0.15 + 1e-9,
                    "{some:?}: {error} {}",
                    found.residual
                );
            }
        }
    }
}

/// Cycles, paths, stars, hypercubes and complete graphs, whose results are formulas.
#[test]
fn closed_forms() {
    let cycle = |n: u64| EdgeList::new(n, (0..n).map(move |v| (v, (v + 1) % n)));
    let all = |graph: &Graph<u64>| (0..graph.vertices() as u64).collect::<Vec<_>>();
    let near = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected.max(1.0);
    let path: Graph<u64> = graph(&EdgeList::new(90, (1..90).map(|v| (v - 1, v))), false);
    let found = betweenness(&path, &all(&path), &setup(2)).unwrap();
    assert!((0..90).all(|v| near(found.score(v), (2 * v * (89 - v)) as f64)));
    for n in [5u64, 8, 31, 100] {
        let graph: Graph<u64> = graph(&cycle(n), false);
        let expected =
            if n % 2 == 1 { (n - 1) * (n - 3) / 4 } else { (n - 2) * (n - 2) / 4 } as f64;
        let found = betweenness(&graph, &all(&graph), &setup(2)).unwrap();
        assert!((0..n as usize).all(|v| near(found.score(v), expected)), "{n}: {}", found.score(0));
        assert_eq!(
            diameter(&graph, 3, DiameterAlgorithm::DoubleSweep, &setup(2)).unwrap().lower_bound
                as u64,
            n / 2
        );
    }
    let leaves = 50;
    let star: Graph<u64> = graph(&EdgeList::new(leaves + 1, (1..=leaves).map(|v| (0, v))), false);
    let found = betweenness(&star, &all(&star), &setup(2)).unwrap();
    assert_eq!((found.score(0), found.score(7)), ((leaves * (leaves - 1)) as f64, 0.0));
    assert_eq!(triangles(&star, &setup(2)).unwrap().count, 0);
    let dimensions = 8;
    let edges =
        (0..1u64 << dimensions).flat_map(|v| (0..dimensions).map(move |bit| (v, v ^ (1 << bit))));
    let cube: Graph<u64> = graph(&EdgeList::new(1 << dimensions, edges), false);
    let found = betweenness(&cube, &all(&cube), &setup(2)).unwrap();
    let expected = (dimensions * (1 << (dimensions - 1)) - ((1 << dimensions) - 1)) as f64;
    assert!((0..1 << dimensions).all(|v| near(found.score(v), expected)));
    let levels = bfs(&cube, 77, Direction::Optimizing, &setup(2)).unwrap().levels;
    assert_eq!(levels, [1, 8, 28, 56, 70, 56, 28, 8, 1]);
    let complete: Graph<u64> =
        graph(&EdgeList::new(40, (0..40).flat_map(|a| (0..a).map(move |b| (a, b)))), false);
    assert_eq!(triangles(&complete, &setup(3)).unwrap().count, 40 * 39 * 38 / 6);
}

/// Counts of `tc -a` and `cc -a` of the GAP benchmark suite (revision b5e3e19), except for isolated
/// vertices after the last edge.
#[test]
fn counts_of_the_gap_benchmark_suite() {
    let build = Build { directed: false, pages: PagePlan::default(), pool: ThreadPool::new(2) };
    for (scale, count, parts) in [(10, 74_720, 128), (12, 483_489, 734)] {
        let source =
            Kronecker { scale, degree: 16, weighted: false, rng: Rng::Whole, shuffled: true };
        let graph: Graph<u32> = build.graph(&source).unwrap();
        assert_eq!(triangles(&graph, &setup(2)).unwrap().count, count);
        assert_eq!(components(&graph, CcAlgorithm::Afforest, &setup(2)).unwrap().count(), parts);
    }
    let graph: Graph<u32> =
        build.graph(&Uniform { scale: 12, degree: 16, weighted: false }).unwrap();
    assert_eq!(triangles(&graph, &setup(2)).unwrap().count, 5319);
}

/// A verifier that accepts everything is useless.
#[test]
fn verifiers_detect_errors() {
    let list = EdgeList::new(6, [(0, 1), (1, 2), (2, 3), (0, 3), (4, 5)]);
    let graph: Graph<u32> = graph(&list, false);
    let right = || bfs(&graph, 0, Direction::Optimizing, &setup(1)).unwrap();
    right().verify(&graph, 0).unwrap();
    for (v, parent) in [(0, 1), (1, 2), (2, 0), (3, u32::MAX), (4, 5), (2, 2), (4, 4), (5, 0)] {
        let mut wrong = right();
        wrong.parents[v] = parent;
        assert!(wrong.verify(&graph, 0).is_err(), "{parent} is not a parent of {v}");
    }
    let right = || components(&graph, CcAlgorithm::Afforest, &setup(1)).unwrap();
    right().verify(&graph).unwrap();
    for (v, label) in [(0, 1), (3, 3), (4, 0), (5, 0), (5, 5), (4, 5)] {
        let mut wrong = right();
        wrong.labels[v] = label;
        assert!(wrong.verify(&graph).is_err(), "{v} is not in {label}");
    }
    let mut joined = right();
    (joined.labels[4], joined.labels[5]) = (0, 0);
    assert!(joined.verify(&graph).is_err(), "two components are not one");
    let iterations =
        PageRankConfig { max_iterations: 100, tolerance: 1e-6, ..PageRankConfig::default() };
    let mut ranks = pagerank(&graph, iterations, &setup(1)).unwrap();
    ranks.verify(&graph, iterations).unwrap();
    ranks.ranks[2] = (ranks.rank(2) as f32 * 1.01).to_bits();
    assert!(ranks.verify(&graph, iterations).is_err());
    for score in [f32::NAN, 7.0, -1.0] {
        let mut between = betweenness(&graph, &[0], &setup(1)).unwrap();
        between.verify(&graph, &[0]).unwrap();
        between.scores[1] = score.to_bits();
        assert!(between.verify(&graph, &[0]).is_err(), "{score}");
    }
    let mut closed = triangles(&graph, &setup(1)).unwrap();
    closed.verify(&graph).unwrap();
    closed.count += 1;
    assert!(closed.verify(&graph).is_err());
    let mut long = diameter(&graph, 0, DiameterAlgorithm::DoubleSweep, &setup(1)).unwrap();
    long.verify(&graph).unwrap();
    long.lower_bound += 1;
    assert!(long.verify(&graph).is_err());
    (long.lower_bound, long.ends) = (1, [0, 4]);
    assert!(long.verify(&graph).is_err(), "no path leads there");
}
