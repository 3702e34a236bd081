//! Validation rules of Graph500 on a large graph: each is violated, and must be detected.
//!
//! (1) Parents form a tree without a cycle. (2) A tree edge leads one level down, or is as long as
//! distances differ. (3) No edge leads farther down than that. (4) The tree spans the reachable
//! vertices and no others. (5) Tree edges are edges of the graph.

use hugepilot_graph::kernel::{Bfs, Direction, Setup, SsspAlgorithm, bfs, sssp};
use hugepilot_graph::{Build, Graph, Kronecker, PagePlan, Rng, ThreadPool, Width};
use hugepilot_testkit::{need, requires};
use hugepilot_units::Bytes;

/// Memory that the tests need.
const MEMORY: Bytes = Bytes::gib(2);

/// Builds a Kronecker graph as in Graph500.
fn graph(weighted: bool) -> Graph<u32> {
    let source = Kronecker { scale: 18, degree: 16, weighted, rng: Rng::Whole, shuffled: true };
    Build { directed: false, pages: PagePlan::default(), pool: ThreadPool::all() }
        .graph(&source)
        .unwrap()
}

fn setup() -> Setup {
    Setup::new(PagePlan::default(), ThreadPool::all())
}

fn hub(graph: &Graph<u32>) -> u32 {
    let vertices = 0..u32::try_from(graph.vertices()).unwrap();
    vertices.max_by_key(|&v| graph.out.degree(v.at())).unwrap()
}

/// Returns three vertices for which `is_right` holds.
fn three(graph: &Graph<u32>, is_right: impl Fn(u32) -> bool) -> Vec<u32> {
    let vertices = u32::try_from(graph.vertices()).unwrap();
    let found: Vec<u32> =
        (vertices / 3..vertices).chain(0..vertices / 3).filter(|&v| is_right(v)).take(3).collect();
    assert!(!found.is_empty(), "no vertex to try that on");
    found
}

/// Checks that a search with changed parents and level sizes is rejected, and restores it.
fn refused(
    found: &mut Bfs<u32>,
    graph: &Graph<u32>,
    source: u32,
    parents: &[(u32, u32)],
    levels: &[(usize, isize)],
) {
    let sizes = found.levels.clone();
    let before: Vec<u32> = parents.iter().map(|&(v, _)| found.parents[v.at()]).collect();
    parents.iter().for_each(|&(v, parent)| found.parents[v.at()] = parent);
    for &(level, more) in levels {
        found.levels.resize(found.levels.len().max(level + 1), 0);
        found.levels[level] = found.levels[level].checked_add_signed(more).unwrap();
    }
    while found.levels.last() == Some(&0) {
        found.levels.pop();
    }
    assert!(found.verify(graph, source).is_err(), "{parents:?} {levels:?}");
    parents.iter().zip(before).for_each(|(&(v, _), parent)| found.parents[v.at()] = parent);
    found.levels = sizes;
}

#[test]
fn a_search_that_violates_a_rule_is_rejected() {
    requires!(need::live());
    requires!(need::memory(MEMORY));
    let graph = graph(false);
    let source = hub(&graph);
    let mut found = bfs(&graph, source, Direction::Optimizing, &setup()).unwrap();
    found.verify(&graph, source).unwrap();
    let (none, parents) = (u32::MAX, found.parents.to_vec());
    let mut level = vec![usize::MAX; graph.vertices()];
    let mut has_children = vec![false; graph.vertices()];
    for v in (0..graph.vertices()).filter(|&v| parents[v] != none) {
        let path = std::iter::successors(Some(v), |&v| Some(parents[v].at()));
        level[v] = path.take_while(|&v| v != source.at()).count();
        has_children[parents[v].at()] = true;
    }
    let is_leaf = |v: u32| parents[v.at()] != none && !has_children[v.at()];
    let beside =
        |v: u32| graph.out.neighbours(v.at()).iter().find(|to| level[to.at()] == level[v.at()]);
    let above = |v: u32| {
        let row = graph.out.neighbours(v.at());
        let fits =
            |&to: &u32| level[to.at()] == level[v.at()] - 1 && row.binary_search(&to).is_err();
        (0..level.len()).map(<u32 as Width>::new).find(fits)
    };
    // (1) A cycle of two vertices, and of one.
    for v in three(&graph, |v| level[v.at()] == 2) {
        let parent = parents[v.at()];
        refused(&mut found, &graph, source, &[(parent, v)], &[]);
        refused(&mut found, &graph, source, &[(v, v)], &[]);
    }
    refused(&mut found, &graph, source, &[(source, none)], &[]);
    refused(
        &mut found,
        &graph,
        source,
        &[(source, parents.iter().copied().find(|&v| v != source).unwrap())],
        &[],
    );
    for v in three(&graph, |v| is_leaf(v) && beside(v).is_some()) {
        // (2) A tree edge within a level, (3) which makes paths too long.
        let (parent, far) = (*beside(v).unwrap(), level[v.at()]);
        refused(&mut found, &graph, source, &[(v, parent)], &[]);
        refused(&mut found, &graph, source, &[(v, parent)], &[(far, -1), (far + 1, 1)]);
    }
    for v in three(&graph, is_leaf) {
        // (4) A reachable vertex is not reached.
        refused(&mut found, &graph, source, &[(v, none)], &[(level[v.at()], -1)]);
    }
    for v in three(&graph, |v| parents[v.at()] == none) {
        // (4) An unreachable vertex is reached.
        refused(&mut found, &graph, source, &[(v, source)], &[(1, 1)]);
    }
    for v in three(&graph, |v| is_leaf(v) && level[v.at()] >= 2 && above(v).is_some()) {
        // (5) All levels are right, but the edge does not exist.
        refused(&mut found, &graph, source, &[(v, above(v).unwrap())], &[]);
    }
    refused(&mut found, &graph, source, &[], &[(1, 1)]);
    found.verify(&graph, source).unwrap();
}

#[test]
fn distances_that_violate_a_rule_are_rejected() {
    requires!(need::live());
    requires!(need::memory(MEMORY));
    let graph = graph(true);
    let source = hub(&graph);
    let mut found = sssp(&graph, source, SsspAlgorithm::Delta(2), &setup()).unwrap();
    found.verify(&graph, source).unwrap();
    let right = found.distances.to_vec();
    let mut refused = |changes: &[(u32, u32)]| {
        changes.iter().for_each(|&(v, far)| found.distances[v.at()] = far);
        assert!(found.verify(&graph, source).is_err(), "{changes:?}");
        changes.iter().for_each(|&(v, _)| found.distances[v.at()] = right[v.at()]);
    };
    let none = u32::MAX;
    refused(&[(source, 1)]);
    refused(&[(source, none)]);
    for v in three(&graph, |v| v != source && right[v.at()] != none) {
        // (2) No edge is this long; (3) an edge is shorter; (4) a reachable vertex is not reached.
        let far = right[v.at()];
        for wrong in [far - 1, far + 1, far + 1000, 0, none] {
            refused(&[(v, wrong)]);
        }
    }
    for v in three(&graph, |v| right[v.at()] == none) {
        // (4) An unreachable vertex is reached, (1) also by a cycle.
        refused(&[(v, 7)]);
        if let Some((&to, &weight)) =
            graph.out.neighbours(v.at()).iter().zip(graph.out.weights(v.at())).next()
        {
            refused(&[(v, 7), (to, 7 + weight)]);
        }
    }
    let all = right.iter().enumerate().filter(|&(_, &far)| far != none);
    let twice: Vec<(u32, u32)> = all.map(|(v, &far)| (Width::new(v), 2 * far)).collect();
    refused(&twice);
    found.verify(&graph, source).unwrap();
}
