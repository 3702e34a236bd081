//! Kernels against oracles of their own: serial, in another way, and in closed form where there is one.

use std::collections::VecDeque;

use hugepilot_graph::kernel::{
    CcAlgorithm, Dangling, DiameterAlgorithm, Direction, PageRankAlgorithm, PageRankConfig, Setup,
    SsspAlgorithm, betweenness, bfs, components, diameter, pagerank, sssp, triangles,
};
use hugepilot_graph::{
    Build, Edge, EdgeList, Graph, Kronecker, PagePlan, Rng, ThreadPool, Uniform, Width,
};
use proptest::prelude::*;

fn graph<V: Width>(list: &EdgeList, directed: bool) -> Graph<V> {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) }.graph(list).unwrap()
}

fn setup(threads: usize) -> Setup {
    Setup::new(PagePlan::default(), ThreadPool::new(threads))
}

/// Distances by a queue; `None` for who is not reached.
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
    // Each vertex searches on its own, whatever the direction of edges.
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

/// Dense power iteration, in numbers twice as wide.
fn ranks(list: &EdgeList, directed: bool, iterations: usize, dangling: Dangling) -> Vec<f64> {
    let graph: Graph<u64> = graph(list, directed);
    let count = graph.vertices();
    let mut ranks = vec![1.0 / count as f64; count];
    for _ in 0..iterations {
        let mut next = vec![0.15 / count as f64; count];
        for (v, rank) in ranks.iter().enumerate() {
            let row = graph.out.neighbours(v);
            if row.is_empty() && dangling == Dangling::Redistribute {
                next.iter_mut().for_each(|next| *next += 0.85 * rank / count as f64);
            }
            row.iter().for_each(|&to| next[to.at()] += 0.85 * rank / row.len() as f64);
        }
        ranks = next;
    }
    ranks
}

fn check_pagerank<V: Width>(list: &EdgeList, directed: bool, threads: usize, near: f64) {
    let graph: Graph<V> = graph(list, directed);
    // All ranks are 1 in sum, and in 32 bits the last few of these may never be still.
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
        for (iterations, rounds) in [(few, 7), (many, 400), (push, 400)] {
            // New ranks in place change what dangles while it is shared: only the limit is alike.
            let found = pagerank(&graph, iterations, &setup(threads)).unwrap();
            found.verify(&graph, iterations).unwrap();
            let still = iterations.tolerance.max(rounding);
            assert!(iterations == few || found.residual <= still, "{}", found.residual);
            for (v, expected) in ranks(list, directed, rounds, dangling).iter().enumerate() {
                let error = (found.rank(v) - expected).abs();
                assert!(
                    error <= near * expected.max(1.0 / graph.vertices() as f64),
                    "{iterations:?}: {v} {error}"
                );
            }
        }
    }
}

/// Bellman and Ford over the list of edges, until nothing changes.
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
                let way = expected[from as usize].saturating_add(weight);
                if way < expected[to as usize] {
                    (expected[to as usize], changed) = (way, true);
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

/// Each three vertices asked; each pair's distance.
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

/// By counting ways between all pairs: σ(s,v)·σ(v,t)/σ(s,t) where v is on the way.
fn check_betweenness<V: Width>(list: &EdgeList, directed: bool, threads: usize) {
    let graph: Graph<V> = graph(list, directed);
    let count = graph.vertices();
    let far: Vec<_> = (0..count).map(|v| distances(list, directed, v as u64)).collect();
    let mut ways = vec![vec![0.0; count]; count];
    for s in 0..count {
        let mut order: Vec<usize> = (0..count).filter(|&v| far[s][v].is_some()).collect();
        order.sort_by_key(|&v| far[s][v]);
        ways[s][s] = 1.0;
        for &v in &order {
            for to in graph.out.neighbours(v).iter().map(|to| to.at()) {
                if far[s][to] == far[s][v].map(|far| far + 1) {
                    ways[s][to] += ways[s][v];
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
                        if a + b == all { ways[s][v] * ways[v][t] / ways[s][t] } else { 0.0 };
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
    fn any_list()(vertices in 1u64..50, ends in prop::collection::vec((any::<u64>(), any::<u64>()), 0..150)) -> EdgeList {
        EdgeList::new(vertices, ends.into_iter().map(|(from, to)| (from % vertices, to % vertices)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_graphs(list in any_list(), directed: bool, source: u64, threads in 1usize..4) {
        let source = source % list.vertices;
        check_bfs::<u32>(&list, directed, source, threads);
        check_bfs::<u64>(&list, directed, source, threads);
        check_components::<u32>(&list, directed, threads);
        check_components::<u64>(&list, directed, threads);
        check_pagerank::<u32>(&list, directed, threads, 1e-4);
        check_pagerank::<u64>(&list, directed, threads, 1e-9);
        check_sssp::<u32>(&list, directed, source, threads);
        check_sssp::<u64>(&list, directed, source, threads);
        check_triangles_and_diameter::<u32>(&list, threads);
        check_triangles_and_diameter::<u64>(&list, threads);
        check_betweenness::<u32>(&list, directed, threads);
        check_betweenness::<u64>(&list, directed, threads);
    }
}

/// One vertex; nothing but loops; a hub; a chain; sinks; components of two.
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

/// The centre of a star: (0.15/N)(1 + 0.85k)/(1 − 0.7225).
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

/// In place, what dangles costs no iterations: half of these vertices have no edges.
#[test]
fn what_dangles_is_shared_at_once() {
    let list = EdgeList::new(2000, (0..5000u64).map(|i| (i * i % 997, i * 7 % 991)));
    let graph: Graph<u64> = graph(&list, false);
    let sweeps = |dangling| {
        let told = PageRankConfig {
            max_iterations: 100,
            algorithm: PageRankAlgorithm::GaussSeidel,
            dangling,
            ..PageRankConfig::default()
        };
        let found = pagerank(&graph, told, &setup(1)).unwrap();
        found.verify(&graph, told).unwrap();
        found.iterations
    };
    let (drop, redistribute) = (sweeps(Dangling::Drop), sweeps(Dangling::Redistribute));
    assert!(redistribute <= drop + 2, "{redistribute} instead of {drop}");
}

/// Each stops when it was told to, and says how far it is from the end: nothing was moved into ranks or lost on the way.
#[test]
fn pushing_stops_at_any_round() {
    let list = EdgeList::new(300, (0..3000u64).map(|i| (i * i % 300, i * 7 % 251)));
    let graph: Graph<u64> = graph(&list, true);
    for dangling in [Dangling::Drop, Dangling::Redistribute] {
        let told = PageRankConfig {
            max_iterations: 1000,
            tolerance: 1e-10,
            algorithm: PageRankAlgorithm::DeltaPush,
            dangling,
            damping: 0.85,
        };
        let end = pagerank(&graph, told, &setup(2)).unwrap();
        for most in [1, 2, 3, 10, 40] {
            for tolerance in [0.0, f64::NAN, 1e-10, 1e-3, 0.9] {
                let some = PageRankConfig { max_iterations: most, tolerance, ..told };
                let found = pagerank(&graph, some, &setup(2)).unwrap();
                assert!(found.iterations <= most && found.residual.is_finite());
                assert!(found.iterations == most || found.residual <= tolerance.max(0.0));
                let error: f64 = (0..300).map(|v| (found.rank(v) - end.rank(v)).abs()).sum();
                // What is not in the ranks yet is handed on for ever, a little less from round to round.
                assert!(
                    error <= found.residual / 0.15 + 1e-9,
                    "{some:?}: {error} {}",
                    found.residual
                );
            }
        }
    }
}

/// Cycles, paths, stars, hypercubes and complete graphs, whose answers are formulas.
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

/// What `tc -a` of the GAP benchmark suite (revision b5e3e19) counts, and `cc -a`, but for vertices alone behind its last edge.
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

/// A verifier that says yes to everything is none.
#[test]
fn verifiers_see_what_is_wrong() {
    let list = EdgeList::new(6, [(0, 1), (1, 2), (2, 3), (0, 3), (4, 5)]);
    let graph: Graph<u32> = graph(&list, false);
    let right = || bfs(&graph, 0, Direction::Optimizing, &setup(1)).unwrap();
    right().verify(&graph, 0).unwrap();
    for (v, parent) in [(0, 1), (1, 2), (2, 0), (3, u32::MAX), (4, 5), (2, 2), (4, 4), (5, 0)] {
        let mut wrong = right();
        wrong.parents[v] = parent;
        assert!(wrong.verify(&graph, 0).is_err(), "{parent} is no parent of {v}");
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
    assert!(long.verify(&graph).is_err(), "no way leads there");
}
