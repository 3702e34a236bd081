//! Numbers at the limits of their types: distances, path counts and sums of ranks.

use hugepilot_graph::kernel::{
    Dangling, PageRankAlgorithm, PageRankConfig, SsspAlgorithm, betweenness, pagerank, sssp,
};
use hugepilot_graph::{Edge, EdgeList, Graph, GraphError};

use super::{graph, setup};

/// Path with these weights.
fn chain(weights: &[u64]) -> EdgeList {
    let edge = |(from, &weight)| Edge { from, to: from + 1, weight };
    let edges = (0..).zip(weights).map(edge).collect();
    EdgeList { vertices: weights.len() as u64 + 1, edges, weighted: true }
}

const ALGORITHMS: [SsspAlgorithm; 3] =
    [SsspAlgorithm::Delta(2), SsspAlgorithm::Delta(1_000_000_007), SsspAlgorithm::BellmanFord];

#[test]
fn distances_are_exact_or_refused() {
    let most = u64::from(u32::MAX);
    for algorithm in ALGORITHMS {
        for directed in [false, true] {
            // The largest distance that 32 bits count, and the next one.
            let fits: Graph<u32> = graph(&chain(&[1 << 31, (1 << 31) - 2]), directed);
            let found = sssp(&fits, 0, algorithm, &setup(2)).unwrap();
            assert_eq!(found.distances[..], [0, 1 << 31, u32::MAX - 1]);
            found.verify(&fits, 0).unwrap();
            for weights in [&[1 << 31, (1 << 31) - 1][..], &[2_000_000_000; 10], &[most - 1, 1]] {
                let heavy: Graph<u32> = graph(&chain(weights), directed);
                let error = sssp(&heavy, 0, algorithm, &setup(2)).unwrap_err();
                assert!(matches!(error, GraphError::Distance { bits: 32 }), "{error}");
                assert!(error.is_too_narrow());
                let wide: Graph<u64> = graph(&chain(weights), directed);
                let found = sssp(&wide, 0, algorithm, &setup(2)).unwrap();
                assert_eq!(found.max(), Some(weights.iter().sum()));
            }
            let huge: Graph<u64> = graph(&chain(&[u64::MAX - 1, 1]), directed);
            let error = sssp(&huge, 0, algorithm, &setup(2)).unwrap_err();
            assert!(matches!(error, GraphError::Distance { bits: 64 }) && !error.is_too_narrow());
        }
        // A heavy edge on no shortest path, and an unreachable part, exceed nothing.
        let mut list = chain(&[3, 4]);
        list.edges.push(Edge { from: 0, to: 2, weight: most - 1 });
        list.edges.push(Edge { from: 3, to: 4, weight: most - 1 });
        list.edges.push(Edge { from: 4, to: 5, weight: most - 1 });
        list.vertices = 6;
        let found = sssp(&graph::<u32>(&list, true), 0, algorithm, &setup(2)).unwrap();
        assert_eq!((found.max(), found.reached()), (Some(7), 3));
    }
}

/// The verifier does not share the arithmetic of the kernel.
#[test]
fn a_vertex_beyond_the_range_is_not_unreachable() {
    let found = sssp(&graph::<u32>(&chain(&[3_000_000_000]), true), 0, ALGORITHMS[0], &setup(1));
    let mut list = chain(&[3_000_000_000]);
    list.vertices = 3;
    let short = sssp(&graph::<u32>(&list, true), 0, ALGORITHMS[0], &setup(1)).unwrap();
    assert_eq!(found.unwrap().distances[..], short.distances[..2]);
    let heavy: Graph<u32> = graph(&chain(&[3_000_000_000, 2_000_000_000]), true);
    let error = short.verify(&heavy, 0).unwrap_err().to_string();
    assert!(error.contains("vertex 2 is at distance 5000000000 through 1"), "{error}");
}

/// A hub whose rank is the sum of a million small shares.
#[test]
fn ranks_of_hubs_are_exact() {
    let leaves = 1_500_000u64;
    let star: Graph<u32> =
        graph(&EdgeList::new(leaves + 1, (1..=leaves).map(|leaf| (leaf, 0))), true);
    let all = (leaves + 1) as f64;
    for algorithm in
        [PageRankAlgorithm::Jacobi, PageRankAlgorithm::GaussSeidel, PageRankAlgorithm::DeltaPush]
    {
        let config = PageRankConfig {
            max_iterations: 2,
            tolerance: 0.0,
            algorithm,
            dangling: Dangling::Drop,
            damping: 0.85,
        };
        let found = pagerank(&star, config, &setup(2)).unwrap();
        // Each leaf has the rank of a vertex without predecessors.
        let hub = 0.15 / all + 0.85 * leaves as f64 * 0.15 / all;
        assert!((found.rank(0) / hub - 1.0).abs() < 1e-5, "{} {hub}", found.rank(0));
        found.verify(&star, config).unwrap();
    }
}

/// Diamonds in a row have 2^n paths, more than `f64` counts; each of their sides has half of them.
#[test]
fn path_counts_beyond_f64_are_verified() {
    let diamonds = 1500u64;
    let sides = |i| [(3 * i, 3 * i + 1), (3 * i, 3 * i + 2)];
    let ends = |i| [(3 * i + 1, 3 * i + 3), (3 * i + 2, 3 * i + 3)];
    let edges = (0..diamonds).flat_map(|i| sides(i).into_iter().chain(ends(i)));
    let row: Graph<u64> = graph(&EdgeList::new(3 * diamonds + 1, edges), true);
    let found = betweenness(&row, &[0], &setup(2)).unwrap();
    found.verify(&row, &[0]).unwrap();
    for i in 0..diamonds {
        // Vertices after the joint, all of whose paths lead through it; half of them for a side.
        let after = 3.0 * (diamonds - 1 - i) as f64;
        let [side, joint] = [1, 3].map(|more| found.score((3 * i + more) as usize));
        assert!((joint - after).abs() <= 1e-6 * after.max(1.0), "{i}: {joint} {after}");
        let half = (after + 1.0) / 2.0;
        assert!((side - half).abs() <= 1e-6 * half, "{i}: {side} {half}");
    }
    let mut wrong = betweenness(&row, &[0], &setup(1)).unwrap();
    wrong.scores[1] = (found.score(1) * 1.001).to_bits();
    assert!(wrong.verify(&row, &[0]).is_err());
}

/// A row of 8192 predecessors in cache lines of their own, which are prefetched, and one edge into
/// the last vertex; then no edge at all.
#[test]
fn ranks_of_long_scattered_rows() {
    const VERTICES: u64 = 1 << 18;
    let far = (0..8192).map(|k| (16 * k + 16, 0)).chain([(5, VERTICES - 1)]);
    for edges in [far.collect::<Vec<_>>(), Vec::new()] {
        let graph: Graph<u32> = graph(&EdgeList::new(VERTICES, edges), true);
        let config = PageRankConfig::default();
        let alone = pagerank(&graph, config, &setup(1)).unwrap();
        alone.verify(&graph, config).unwrap();
        assert_eq!(*pagerank(&graph, config, &setup(4)).unwrap().ranks, *alone.ranks);
        let config = PageRankConfig { algorithm: PageRankAlgorithm::GaussSeidel, ..config };
        pagerank(&graph, config, &setup(2)).unwrap().verify(&graph, config).unwrap();
    }
}
