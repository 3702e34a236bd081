//! Graphs against a naive build, and against the edge counts of the GAP benchmark suite.

use std::collections::BTreeMap;

use hugepilot_graph::{
    Build, Csr, DegreeKind, Edge, EdgeList, EdgeSource, Graph, GraphError, Grid, Help, Kronecker,
    PagePlan, Rng, ThreadPool, Uniform, VertexMap, VertexOrder, Width,
};
use proptest::prelude::*;

fn build(directed: bool, threads: usize) -> Build {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(threads) }
}

/// Each row as a map from neighbour to weight.
type Rows = Vec<BTreeMap<u64, u64>>;

fn naive(list: &EdgeList, directed: bool) -> (Rows, Rows, u64) {
    let count = usize::try_from(list.vertices).unwrap();
    let (mut out, mut into, mut loops) =
        (vec![BTreeMap::new(); count], vec![BTreeMap::new(); count], 0);
    let put = |rows: &mut Rows, from: u64, to: u64, weight: u64| {
        let known = rows[usize::try_from(from).unwrap()].entry(to).or_insert(weight);
        *known = (*known).min(weight);
    };
    for &Edge { from, to, weight } in &list.edges {
        if from == to {
            loops += 1;
            continue;
        }
        put(&mut out, from, to, weight);
        put(&mut into, to, from, weight);
        if !directed {
            put(&mut out, to, from, weight);
            put(&mut into, from, to, weight);
        }
    }
    (out, into, loops)
}

fn rows<V: Width>(csr: &Csr<V>) -> Rows {
    let row = |v| {
        let weights = csr.weights(v);
        let pairs = csr.neighbours(v).iter().enumerate();
        let row: BTreeMap<u64, u64> = pairs
            .map(|(i, to)| (to.at() as u64, weights.get(i).map_or(0, |weight| weight.at() as u64)))
            .collect();
        assert_eq!(row.len(), csr.degree(v), "a neighbour of {v} came twice");
        assert!(csr.neighbours(v).is_sorted());
        row
    };
    (0..csr.vertices()).map(row).collect()
}

fn check<V: Width>(list: &EdgeList, directed: bool, threads: usize) {
    let graph: Graph<V> = build(directed, threads).graph(list).unwrap();
    let (out, into, loops) = naive(list, directed);
    assert_eq!(rows(&graph.out), out);
    assert_eq!(rows(graph.incoming()), into);
    assert_eq!(graph.dropped.self_loops, loops);
    assert_eq!(graph.dropped.duplicates, list.edges.len() as u64 - loops - graph.edges() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_equal_those_of_a_naive_build(
        vertices in 1u64..40,
        ends in prop::collection::vec((any::<u64>(), any::<u64>(), 1u64..9), 0..200),
        directed: bool,
        weighted: bool,
        threads in 1usize..4,
    ) {
        let edge = |(from, to, weight)| {
            let weight = if weighted { weight } else { 0 };
            Edge { from: from % vertices, to: to % vertices, weight }
        };
        let list = EdgeList { vertices, edges: ends.into_iter().map(edge).collect(), weighted };
        check::<u32>(&list, directed, threads);
        check::<u64>(&list, directed, threads);
    }
}

/// Several chunks of rows, so that they are moved together; one row longer than a chunk.
#[test]
fn many_duplicates_in_several_chunks() {
    let hub = (0..300_000u64).map(|i| (7, i % 999 * 301));
    let others = (0..900_000u64).map(|i| (i % 300_000, i % 77_777));
    let list = EdgeList::new(300_700, hub.chain(others));
    check::<u32>(&list, true, 3);
    check::<u32>(&list, false, 2);
}

#[test]
fn missing_vertices_and_narrow_widths_are_rejected() {
    let list = EdgeList::new(3, [(0, 1), (2, 9), (1, 3)]);
    let error = build(true, 2).graph::<u32>(&list).unwrap_err();
    assert!(matches!(error, GraphError::Vertex { id: 9, vertices: 3 }), "{error}");
    let wide = EdgeList { vertices: 1 << 32, edges: Vec::new(), weighted: false };
    let error = build(true, 2).graph::<u32>(&wide).unwrap_err();
    assert_eq!(error.help(), [Help::Width64], "{error}");
}

#[test]
fn no_edges_and_one_vertex() {
    for directed in [false, true] {
        let graph: Graph<u32> = build(directed, 2).graph(&EdgeList::new(1, [(0, 0)])).unwrap();
        assert_eq!((graph.vertices(), graph.edges(), graph.dropped.self_loops), (1, 0, 1));
    }
}

/// Edge counts that `bfs -g SCALE` and `bfs -u SCALE` of the GAP benchmark suite (revision b5e3e19)
/// print as "undirected edges".
#[test]
fn edge_counts_match_the_gap_benchmark_suite() {
    for (scale, edges) in [(10, 10_496), (12, 48_386), (14, 212_930), (16, 909_646)] {
        for shuffled in [false, true] {
            let source =
                Kronecker { scale, degree: 16, weighted: false, rng: Rng::Whole, shuffled };
            let graph: Graph<u32> = build(false, 2).graph(&source).unwrap();
            assert_eq!(graph.edges(), edges, "Kronecker, scale {scale}");
        }
    }
    for (scale, edges) in [(10, 16_125), (14, 261_860), (16, 1_048_276)] {
        let source = Uniform { scale, degree: 16, weighted: false };
        let graph: Graph<u32> = build(false, 2).graph(&source).unwrap();
        assert_eq!(graph.edges(), edges, "uniform, scale {scale}");
    }
}

/// Floating point gives the same graph at small scales, and another from scale 16 on.
#[test]
fn floating_point_graphs_differ_little() {
    let edges = |scale, rng| {
        let source = Kronecker { scale, degree: 16, weighted: false, rng, shuffled: false };
        let graph: Graph<u32> = build(false, 2).graph(&source).unwrap();
        graph.edges()
    };
    assert_eq!(edges(14, Rng::Whole), edges(14, Rng::Float));
    assert_eq!(edges(16, Rng::Whole).abs_diff(edges(16, Rng::Float)), 1);
}

/// Hashes numbers in order: FNV-1a, a number at a time.
fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let one = |sum: u64, number: u64| (sum ^ number).wrapping_mul(0x0100_0000_01b3);
    numbers.into_iter().fold(0xcbf2_9ce4_8422_2325, one)
}

fn sum_of_edges(source: &impl EdgeSource) -> u64 {
    let mut numbers = Vec::new();
    for block in 0..source.blocks() {
        source.block(block, |Edge { from, to, weight }| numbers.extend([from, to, weight]));
    }
    sum(numbers)
}

/// Expected sums come from a separate program in another language, written from the documentation
/// of `generate`. Each graph has more than one block.
#[test]
fn generated_graphs_and_random_orders_are_the_same_on_every_machine() {
    let kronecker =
        Kronecker { scale: 15, degree: 16, weighted: true, rng: Rng::Whole, shuffled: true };
    assert_eq!(sum_of_edges(&kronecker), 0x3cbc_26f5_159b_f5f5);
    assert_eq!(
        sum_of_edges(&Uniform { scale: 15, degree: 16, weighted: true }),
        0x87bf_5568_540b_e8fc
    );
    assert_eq!(
        sum_of_edges(&Grid { rows: 300, columns: 1000, weighted: true }),
        0xe0dd_f460_e11a_c8c6
    );
    let small: Graph<u32> =
        build(false, 1).graph(&Grid { rows: 20, columns: 50, weighted: false }).unwrap();
    let new =
        VertexMap::of(&small, VertexOrder::Random(7), DegreeKind::Out, ThreadPool::new(2)).new;
    assert_eq!(sum(new.into_iter().map(u64::from)), 0x247c_cf40_7a64_03bd);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let source =
        Kronecker { scale: 12, degree: 16, weighted: true, rng: Rng::Whole, shuffled: true };
    let one: Graph<u32> = build(true, 1).graph(&source).unwrap();
    let four: Graph<u32> = build(true, 4).graph(&source).unwrap();
    assert_eq!(rows(&one.out), rows(&four.out));
    assert_eq!(rows(one.incoming()), rows(four.incoming()));
}

#[test]
fn a_grid_joins_neighbours() {
    let source = Grid { rows: 3, columns: 4, weighted: true };
    let graph: Graph<u32> = build(false, 2).graph(&source).unwrap();
    assert_eq!((graph.vertices(), graph.edges() as u64), (12, source.edges()));
    assert_eq!(graph.out.neighbours(5), [1, 4, 6, 9]);
    assert_eq!(graph.out.neighbours(0), [1, 4]);
    let there = graph.out.weights(5)[2];
    let back = graph.out.weights(6)[graph.out.neighbours(6).iter().position(|&v| v == 5).unwrap()];
    assert_eq!(there, back);
    let line: Graph<u32> =
        build(false, 1).graph(&Grid { rows: 1, columns: 5, weighted: false }).unwrap();
    assert_eq!(line.edges(), 4);
}
