//! Kernels against oracles of their own: serial, in another way, and in closed form where there is one.

use std::collections::VecDeque;

use hugepilot_graph::kernel::{
    Dangling, Direction, Iterations, Joining, Setup, Sweep, bfs, components, pagerank,
};
use hugepilot_graph::{Build, EdgeList, Graph, Kronecker, PagePlan, Rng, Team, Uniform, Width};
use proptest::prelude::*;

fn graph<V: Width>(list: &EdgeList, directed: bool) -> Graph<V> {
    Build { directed, pages: PagePlan::default(), team: Team::of(2) }.graph(list).unwrap()
}

fn setup(threads: usize) -> Setup {
    Setup::new(PagePlan::default(), Team::of(threads))
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
    for joining in [Joining::Afforest, Joining::ShiloachVishkin] {
        let found = components(&graph, joining, &setup(threads)).unwrap();
        found.verify(&graph).unwrap();
        assert!(
            found.labels.iter().zip(&expected).all(|(label, &expected)| label.at() == expected),
            "{joining:?}"
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
    for dangling in [Dangling::Drop, Dangling::Redistribute] {
        let few = Iterations { most: 7, tolerance: 0.0, dangling, ..Iterations::default() };
        let many = Iterations { most: 300, tolerance: near / 1000.0, sweep: Sweep::GaussSeidel, ..few };
        for (iterations, rounds) in [(few, 7), (many, 400)] {
            // New ranks in place change what dangles while it is shared: only the limit is alike.
            let found = pagerank(&graph, iterations, &setup(threads)).unwrap();
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

prop_compose! {
    fn any_list()(vertices in 1u64..50, ends in prop::collection::vec((any::<u64>(), any::<u64>()), 0..150)) -> EdgeList {
        EdgeList::new(vertices, ends.into_iter().map(|(from, to)| (from % vertices, to % vertices)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_graphs(list in any_list(), directed: bool, source: u64, threads in 1usize..4) {
        let source = source % list.vertices;
        check_bfs::<u32>(&list, directed, source, threads);
        check_bfs::<u64>(&list, directed, source, threads);
        check_components::<u32>(&list, directed, threads);
        check_components::<u64>(&list, directed, threads);
        check_pagerank::<u32>(&list, directed, threads, 1e-4);
        check_pagerank::<u64>(&list, directed, threads, 1e-9);
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
            }
            check_components::<u32>(&list, directed, 3);
            check_pagerank::<u64>(&list, directed, 2, 1e-9);
        }
    }
}

/// The centre of a star: (0.15/N)(1 + 0.85k)/(1 − 0.7225).
#[test]
fn ranks_in_closed_form() {
    let leaves = 99.0;
    let star = EdgeList::new(100, (1..100).map(|v| (0, v)));
    let iterations = Iterations { most: 500, tolerance: 1e-12, ..Iterations::default() };
    let found = pagerank(&graph::<u64>(&star, false), iterations, &setup(2)).unwrap();
    let centre = 0.15 / 100.0 * (1.0 + 0.85 * leaves) / (1.0 - 0.7225);
    assert!((found.rank(0) - centre).abs() < 1e-9);
    let cycle = EdgeList::new(77, (0..77).map(|v| (v, (v + 1) % 77)));
    let found = pagerank(&graph::<u64>(&cycle, true), iterations, &setup(2)).unwrap();
    assert!((0..77).all(|v| (found.rank(v) - 1.0 / 77.0).abs() < 1e-12));
}

/// Graphs in which a search goes up, down and up again, and in which most edges are never read.
#[test]
fn generated_graphs() {
    let build = Build { directed: false, pages: PagePlan::default(), team: Team::of(2) };
    let kronecker = Kronecker { scale: 15, degree: 16, weighted: false, rng: Rng::Whole, shuffled: true };
    let graphs: [Graph<u32>; 2] = [
        build.graph(&kronecker).unwrap(),
        build.graph(&Uniform { scale: 15, degree: 4, weighted: false }).unwrap(),
    ];
    for graph in &graphs {
        let hub =
            (0..graph.vertices()).max_by_key(|&v| graph.out.degree(v)).map(<u32 as Width>::new).unwrap();
        let found = bfs(graph, hub, Direction::Optimizing, &setup(2)).unwrap();
        found.verify(graph, hub).unwrap();
        let down = bfs(graph, hub, Direction::TopDown, &setup(2)).unwrap();
        assert_eq!(found.levels, down.levels);
        let parts = components(graph, Joining::Afforest, &setup(2)).unwrap();
        parts.verify(graph).unwrap();
        assert_eq!(parts.largest(), found.reached());
    }
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
    let right = || components(&graph, Joining::Afforest, &setup(1)).unwrap();
    right().verify(&graph).unwrap();
    for (v, label) in [(0, 1), (3, 3), (4, 0), (5, 0), (5, 5), (4, 5)] {
        let mut wrong = right();
        wrong.labels[v] = label;
        assert!(wrong.verify(&graph).is_err(), "{v} is not in {label}");
    }
    let mut joined = right();
    (joined.labels[4], joined.labels[5]) = (0, 0);
    assert!(joined.verify(&graph).is_err(), "two components are not one");
}
