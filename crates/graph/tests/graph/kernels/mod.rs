//! Kernels against serial oracles and closed forms.

mod closed_forms;
mod ranges;

use std::collections::VecDeque;

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig, Setup,
    SsspAlgorithm, betweenness, bfs, components, diameter, pagerank, sssp, triangles,
};
use hugepilot_graph::{Build, Edge, EdgeList, Graph, PagePlan, ThreadPool, Width};
use proptest::prelude::*;

fn graph<V: Width>(list: &EdgeList, directed: bool) -> Graph<V> {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) }.graph(list).unwrap()
}

fn setup(threads: usize) -> Setup {
    Setup::new(PagePlan::default(), ThreadPool::new(threads))
}

/// Returns distances by a queue; `None` for unreachable vertices.
fn distances(list: &EdgeList, directed: bool, source: u64) -> Vec<Option<u64>> {
    let count = usize::try_from(list.vertices).unwrap();
    let mut rows = vec![Vec::new(); count];
    for edge in &list.edges {
        rows[edge.from as usize].push(edge.to);
        if !directed {
            rows[edge.to as usize].push(edge.from);
        }
    }
    let (mut found, mut queue) = (vec![None; count], VecDeque::from([source]));
    found[source as usize] = Some(0);
    while let Some(v) = queue.pop_front() {
        for &to in &rows[v as usize] {
            if found[to as usize].is_none() {
                found[to as usize] = found[v as usize].map(|far| far + 1);
                queue.push_back(to);
            }
        }
    }
    found
}

fn check_bfs<V: Width>(list: &EdgeList, directed: bool, source: u64, threads: usize) {
    let graph: Graph<V> = graph(list, directed);
    let expected = distances(list, directed, source);
    let mut sizes = Vec::new();
    for far in expected.iter().flatten() {
        let far = usize::try_from(*far).unwrap();
        sizes.resize(sizes.len().max(far + 1), 0);
        sizes[far] += 1;
    }
    for direction in [Direction::Optimizing, Direction::TopDown] {
        let source = V::new(source as usize);
        let found = bfs(&graph, source, direction, &setup(threads)).unwrap();
        found.verify(&graph, source).unwrap();
        assert_eq!(found.levels, sizes, "{direction:?}");
        for (v, far) in expected.iter().enumerate() {
            let parent = found.parents[v];
            assert_eq!(parent != V::NONE, far.is_some());
            // One step nearer; the source is its own parent.
            let nearer = far.and_then(|far| far.checked_sub(1));
            assert!(nearer.is_none() || expected[parent.at()] == nearer, "the parent of {v}");
        }
    }
}

fn check_components<V: Width>(list: &EdgeList, directed: bool, threads: usize) {
    let graph: Graph<V> = graph(list, directed);
    // A search from each vertex, whatever the direction of edges.
    let mut expected = vec![usize::MAX; graph.vertices()];
    for v in 0..graph.vertices() {
        if expected[v] == usize::MAX {
            for (to, far) in distances(list, false, v as u64).iter().enumerate() {
                if far.is_some() {
                    expected[to] = v;
                }
            }
        }
    }
    for algorithm in [CcAlgorithm::Afforest, CcAlgorithm::ShiloachVishkin] {
        let found = components(&graph, algorithm, &setup(threads)).unwrap();
        found.verify(&graph).unwrap();
        assert!(
            found.labels.iter().zip(&expected).all(|(label, &expected)| label.at() == expected),
            "{algorithm:?}"
        );
    }
}

/// Dense power iteration in 64 bits.
fn ranks(list: &EdgeList, directed: bool, iterations: usize, dangling: Dangling) -> Vec<f64> {
    let graph: Graph<u64> = graph(list, directed);
    let count = graph.vertices();
    let mut ranks = vec![1.0 / count as f64; count];
    for _ in 0..iterations {
        let is_lost = |v: &usize| graph.out.neighbours(*v).is_empty();
        let lost: f64 = (0..count).filter(is_lost).map(|v| ranks[v]).sum();
        let lost = if dangling == Dangling::Redistribute { lost } else { 0.0 };
        let mut next = vec![(0.15 + 0.85 * lost) / count as f64; count];
        for (v, rank) in ranks.iter().enumerate() {
            let row = graph.out.neighbours(v);
            row.iter().for_each(|&to| next[to.at()] += 0.85 * rank / row.len() as f64);
        }
        ranks = next;
    }
    ranks
}

fn check_pagerank<V: Width>(list: &EdgeList, directed: bool, threads: usize, near: f64) {
    let graph: Graph<V> = graph(list, directed);
    // Ranks sum to 1, and in 32 bits the last digits may never settle.
    let rounding = if V::BITS == 32 { 4.0 * f64::from(f32::EPSILON) } else { 0.0 };
    for dangling in [Dangling::Drop, Dangling::Redistribute] {
        let few = PageRankConfig {
            max_iterations: 7,
            tolerance: 0.0,
            dangling,
            ..PageRankConfig::default()
        };
        let many = PageRankConfig {
            max_iterations: 300,
            tolerance: near / 1000.0,
            algorithm: PageRankAlgorithm::GaussSeidel,
            ..few
        };
        let push = PageRankConfig {
            max_iterations: 1000,
            algorithm: PageRankAlgorithm::DeltaPush,
            ..many
        };
        let after = |rounds| ranks(list, directed, rounds, dangling);
        let (expected, limit) = (after(7), after(400));
        for (iterations, expected) in [(few, &expected), (many, &limit), (push, &limit)] {
            // Updated ranks change the dangling rank during an iteration: only the limit is the
            // same.
            let found = pagerank(&graph, iterations, &setup(threads)).unwrap();
            found.verify(&graph, iterations).unwrap();
            let still = iterations.tolerance.max(rounding);
            assert!(iterations == few || found.residual <= still, "{}", found.residual);
            for (v, expected) in expected.iter().enumerate() {
                let error = (found.rank(v) - expected).abs();
                assert!(
                    error <= near * expected.max(1.0 / graph.vertices() as f64),
                    "{iterations:?}: {v} {error}"
                );
            }
        }
    }
}

/// Bellman–Ford over the list of edges until nothing changes.
fn check_sssp<V: Width>(list: &EdgeList, directed: bool, source: u64, threads: usize) {
    let weight = |from: u64, to: u64| (from.min(to) * 31 + from.max(to) * 17) % 97 + 1;
    let edges = list
        .edges
        .iter()
        .map(|edge| Edge { weight: weight(edge.from, edge.to), ..*edge })
        .collect();
    let list = EdgeList { vertices: list.vertices, edges, weighted: true };
    let mut expected = vec![u64::MAX; list.vertices as usize];
    expected[source as usize] = 0;
    loop {
        let mut changed = false;
        for &Edge { from, to, weight } in &list.edges {
            for (from, to) in [(from, to), if directed { (from, to) } else { (to, from) }] {
                let length = expected[from as usize].saturating_add(weight);
                if length < expected[to as usize] {
                    (expected[to as usize], changed) = (length, true);
                }
            }
        }
        if !changed {
            break;
        }
    }
    let graph: Graph<V> = graph(&list, directed);
    let source = V::new(source as usize);
    for algorithm in [
        SsspAlgorithm::Delta(1),
        SsspAlgorithm::Delta(13),
        SsspAlgorithm::Delta(100_000),
        SsspAlgorithm::BellmanFord,
    ] {
        let found = sssp(&graph, source, algorithm, &setup(threads)).unwrap();
        found.verify(&graph, source).unwrap();
        for (far, &expected) in found.distances.iter().zip(&expected) {
            assert_eq!(
                if *far == V::NONE { u64::MAX } else { far.at() as u64 },
                expected,
                "{algorithm:?}"
            );
        }
    }
}

/// All triples of vertices; all pairs of distances.
fn check_triangles_and_diameter<V: Width>(list: &EdgeList, threads: usize) {
    let graph: Graph<V> = graph(list, false);
    let joined = |a: usize, b: usize| graph.out.neighbours(a).contains(&V::new(b));
    let mut count = 0;
    for a in 0..graph.vertices() {
        for b in 0..a {
            if joined(a, b) {
                count += (0..b).filter(|&c| joined(a, c) && joined(b, c)).count() as u64;
            }
        }
    }
    let found = triangles(&graph, &setup(threads)).unwrap();
    found.verify(&graph).unwrap();
    assert_eq!(found.count, count);
    let most = |v: u64| distances(list, false, v).into_iter().flatten().max().unwrap();
    let longest = (0..list.vertices).map(most).max().unwrap() as usize;
    let bound = |algorithm| {
        let found = diameter(&graph, V::new(0), algorithm, &setup(threads)).unwrap();
        found.verify(&graph).unwrap();
        found.lower_bound
    };
    let sweeps = bound(DiameterAlgorithm::DoubleSweep);
    assert!(sweeps <= longest && sweeps >= most(0) as usize, "{sweeps} of {longest}");
    // 64 sources are all vertices of a small graph.
    let multi = bound(DiameterAlgorithm::MultiSource);
    assert!(multi <= longest && (list.vertices > 64 || multi == longest), "{multi} of {longest}");
}

/// Path counts between all pairs: σ(s,v)·σ(v,t)/σ(s,t) if v is on a shortest path.
fn check_betweenness<V: Width>(list: &EdgeList, directed: bool, threads: usize) {
    let graph: Graph<V> = graph(list, directed);
    let count = graph.vertices();
    let far: Vec<_> = (0..count).map(|v| distances(list, directed, v as u64)).collect();
    let mut paths = vec![vec![0.0; count]; count];
    for s in 0..count {
        let mut order: Vec<usize> = (0..count).filter(|&v| far[s][v].is_some()).collect();
        order.sort_by_key(|&v| far[s][v]);
        paths[s][s] = 1.0;
        for &v in &order {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if far[s][to] == far[s][v].map(|far| far + 1) {
                    paths[s][to] += paths[s][v];
                }
            }
        }
    }
    let sources: Vec<V> = (0..count).map(V::new).collect();
    let found = betweenness(&graph, &sources, &setup(threads)).unwrap();
    found.verify(&graph, &sources).unwrap();
    for v in 0..count {
        let mut expected = 0.0;
        for s in (0..count).filter(|&s| s != v) {
            for t in (0..count).filter(|&t| t != v && t != s) {
                if let (Some(a), Some(b), Some(all)) = (far[s][v], far[v][t], far[s][t]) {
                    expected +=
                        if a + b == all { paths[s][v] * paths[v][t] / paths[s][t] } else { 0.0 };
                }
            }
        }
        assert!(
            (found.score(v) - expected).abs() <= 1e-3 * expected.max(1.0),
            "{v}: {} {expected}",
            found.score(v)
        );
    }
}

prop_compose! {
    fn any_list()(
        vertices in 1u64..50,
        ends in prop::collection::vec((any::<u64>(), any::<u64>()), 0..150),
    ) -> EdgeList {
        EdgeList::new(vertices, ends.into_iter().map(|(from, to)| (from % vertices, to % vertices)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 80,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_graphs(
        list in any_list(),
        directed: bool,
        wide: bool,
        source: u64,
        threads in 1usize..4,
    ) {
        if wide {
            check_all::<u64>(&list, directed, source % list.vertices, threads, 1e-9);
        } else {
            check_all::<u32>(&list, directed, source % list.vertices, threads, 1e-4);
        }
    }
}

fn check_all<V: Width>(list: &EdgeList, directed: bool, source: u64, threads: usize, near: f64) {
    check_bfs::<V>(list, directed, source, threads);
    check_components::<V>(list, directed, threads);
    check_pagerank::<V>(list, directed, threads, near);
    check_sssp::<V>(list, directed, source, threads);
    check_triangles_and_diameter::<V>(list, threads);
    check_betweenness::<V>(list, directed, threads);
}

/// A single vertex; only self-loops; a hub; a chain; sinks; components of two vertices.
fn adversarial() -> Vec<EdgeList> {
    vec![
        EdgeList::new(1, []),
        EdgeList::new(5, []),
        EdgeList::new(4, (0..4).map(|v| (v, v))),
        EdgeList::new(3000, (1..3000).map(|v| (0, v))),
        EdgeList::new(3000, (1..3000).map(|v| (v, 0))),
        EdgeList::new(500, (1..500).map(|v| (v - 1, v))),
        EdgeList::new(500, (1..500).map(|v| (v, v - 1))),
        EdgeList::new(600, (0..300).map(|v| (2 * v, 2 * v + 1))),
        EdgeList::new(64, (0..64).flat_map(|v| (0..64).map(move |to| (v, to)))),
    ]
}

#[test]
fn adversarial_graphs() {
    for list in adversarial() {
        for directed in [false, true] {
            for source in [0, list.vertices - 1] {
                check_bfs::<u32>(&list, directed, source, 3);
                check_sssp::<u32>(&list, directed, source, 3);
            }
            check_components::<u32>(&list, directed, 3);
            check_pagerank::<u64>(&list, directed, 2, 1e-9);
            if list.vertices <= 100 {
                check_betweenness::<u32>(&list, directed, 3);
                check_triangles_and_diameter::<u64>(&list, 3);
            }
        }
    }
}
