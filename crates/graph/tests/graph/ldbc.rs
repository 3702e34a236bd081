//! Validation graphs of LDBC Graphalytics, with its results and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::str::FromStr;

use hugepilot_graph::kernel::{
    CcAlgorithm, Direction, PageRankAlgorithm, PageRankConfig, Setup, SsspAlgorithm, bfs,
    components, pagerank, sssp,
};
use hugepilot_graph::{Build, EdgeList, Graph, LoadOptions, PagePlan, ThreadPool, Width, load};

/// Graph, and the vertex IDs of the suite, ascending.
struct Case<V: Width> {
    graph: Graph<V>,
    ids: Vec<u64>,
}

fn path(name: &str) -> String {
    format!("tests/data/ldbc/{name}")
}

fn build(directed: bool) -> Build {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) }
}

fn setup() -> Setup {
    Setup::new(PagePlan::default(), ThreadPool::new(2))
}

/// Loads a file with a vertex and its neighbours on each line.
fn rows<V: Width>(name: &str, directed: bool) -> Case<V> {
    let text = fs::read_to_string(path(name)).unwrap();
    let numbers = |line: &str| line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let rows: Vec<Vec<u64>> = text.lines().map(numbers).collect();
    let ids: BTreeSet<u64> = rows.iter().flatten().copied().collect();
    let places: BTreeMap<u64, u64> = ids.iter().copied().zip(0..).collect();
    let edges = rows.iter().flat_map(|row| row[1..].iter().map(|to| (places[&row[0]], places[to])));
    let list = EdgeList::new(ids.len() as u64, edges);
    Case { graph: build(directed).graph(&list).unwrap(), ids: ids.into_iter().collect() }
}

/// Scale of real weights, which have at most two decimals.
const SCALE: f64 = 100.0;

/// Loads a pair of files with real weights.
fn pair<V: Width>(name: &str, directed: bool) -> Case<V> {
    let options = LoadOptions {
        scale_weights: Some(SCALE),
        directed: Some(directed),
        ..LoadOptions::new(build(directed))
    };
    let loaded = load(path(name), &options).unwrap();
    Case { graph: loaded.graph, ids: loaded.ids.listed().unwrap().to_vec() }
}

/// Reads the expected value of each vertex.
fn expected<T: FromStr<Err: Debug>>(name: &str) -> BTreeMap<u64, T> {
    let text = fs::read_to_string(path(name)).unwrap();
    let pair = |line: &str| {
        let (id, value) = line.split_once(' ').unwrap();
        (id.parse().unwrap(), value.parse().unwrap())
    };
    text.lines().map(pair).collect()
}

impl<V: Width> Case<V> {
    /// Returns the only vertex for which `is_start` holds: the source of the search.
    fn start<T>(&self, expected: &BTreeMap<u64, T>, is_start: impl Fn(&T) -> bool) -> V {
        let ids: Vec<u64> =
            expected.iter().filter(|(_, value)| is_start(value)).map(|(&id, _)| id).collect();
        assert_eq!(ids.len(), 1);
        V::new(self.ids.binary_search(&ids[0]).unwrap())
    }

    /// Checks that all vertices have results, and only these, and that `is_right` accepts each.
    fn holds<T: Debug>(
        &self,
        expected: &BTreeMap<u64, T>,
        found: impl Fn(usize) -> T,
        is_right: impl Fn(&T, &T) -> bool,
    ) {
        assert!(self.ids.iter().eq(expected.keys()), "{:?}", self.ids);
        for (v, (id, expected)) in expected.iter().enumerate() {
            let found = found(v);
            assert!(is_right(expected, &found), "{id}: {found:?} instead of {expected:?}");
        }
    }

    fn bfs(&self, output: &str) {
        let expected = expected::<u64>(output);
        let start = self.start(&expected, |&far| far == 0);
        for direction in [Direction::Optimizing, Direction::TopDown] {
            let found = bfs(&self.graph, start, direction, &setup()).unwrap();
            let far = |v: usize| {
                let before = |v: &V| found.parents.get(v.at()).copied();
                let mut path = std::iter::successors(Some(V::new(v)), before);
                path.position(|at| at == start).map_or(i64::MAX as u64, |steps| steps as u64)
            };
            self.holds(&expected, far, u64::eq);
        }
    }

    fn sssp(&self, output: &str) {
        let expected = expected::<f64>(output);
        let start = self.start(&expected, |&far| far == 0.0);
        for algorithm in [SsspAlgorithm::Delta(7), SsspAlgorithm::BellmanFord] {
            let found = sssp(&self.graph, start, algorithm, &setup()).unwrap();
            let far = |v: usize| match found.distances[v] {
                far if far == V::NONE => f64::INFINITY,
                far => far.at() as f64 / SCALE,
            };
            self.holds(&expected, far, is_near);
        }
    }

    fn pagerank(&self, output: &str, iterations: usize) {
        let config = PageRankConfig {
            max_iterations: iterations,
            tolerance: 0.0,
            ..PageRankConfig::default()
        };
        assert_eq!((config.damping, config.algorithm), (0.85, PageRankAlgorithm::Jacobi));
        let found = pagerank(&self.graph, config, &setup()).unwrap();
        self.holds(&expected::<f64>(output), |v| found.rank(v), is_near);
    }

    /// Compares the partition, not the labels.
    fn components(&self, output: &str) {
        let expected = expected::<u64>(output);
        for algorithm in [CcAlgorithm::Afforest, CcAlgorithm::ShiloachVishkin] {
            let found = components(&self.graph, algorithm, &setup()).unwrap();
            let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
            for (expected, found) in expected.values().zip(found.labels.iter()) {
                assert_eq!(there.entry(*expected).or_insert(*found), found, "{expected} is two");
                assert_eq!(back.entry(*found).or_insert(*expected), expected, "{found} is two");
            }
            assert!(self.ids.iter().eq(expected.keys()), "{:?}", self.ids);
        }
    }
}

/// Whether four digits agree.
fn is_near(expected: &f64, found: &f64) -> bool {
    expected == found || (found - expected).abs() <= 1e-4 * expected.abs()
}

fn all<V: Width>() {
    for (directed, name, iterations) in [(true, "dir", 14), (false, "undir", 26)] {
        rows::<V>(&format!("bfs-{name}-input"), directed).bfs(&format!("bfs-{name}-output"));
        rows::<V>(&format!("wcc-{name}-input"), directed).components(&format!("wcc-{name}-output"));
        rows::<V>(&format!("pr-{name}-input"), directed)
            .pagerank(&format!("pr-{name}-output"), iterations);
        pair::<V>(&format!("sssp-{name}-input.e"), directed).sssp(&format!("sssp-{name}-output"));
        let example = format!("example-{name}ected");
        let case = pair::<V>(&format!("{example}.e"), directed);
        case.bfs(&format!("{example}-BFS"));
        case.sssp(&format!("{example}-SSSP"));
        case.components(&format!("{example}-WCC"));
        case.pagerank(&format!("{example}-PR"), 2);
    }
}

#[test]
fn results_match_the_suite() {
    all::<u32>();
    all::<u64>();
}
