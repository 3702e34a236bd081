//! Tests of vertex orders against their definitions, and of relabelled graphs.

use proptest::prelude::*;

use super::*;
use crate::{Build, Edge, EdgeList, PagePlan};

fn graph(list: &EdgeList, directed: bool) -> Graph<u32> {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) }.graph(list).unwrap()
}

const ORDERS: [VertexOrder; 6] = [
    VertexOrder::Dbg,
    VertexOrder::HubSort,
    VertexOrder::HubCluster,
    VertexOrder::Sort,
    VertexOrder::Random(3),
    VertexOrder::Rcm,
];

/// Definition in the papers: fractions of the average, hottest group first.
fn group_by_fractions(degree: usize, average: f64) -> usize {
    let bounds = [32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5];
    bounds.iter().position(|bound| degree as f64 >= bound * average).unwrap_or(7)
}

/// Stars of all sizes: their centres have degrees on both sides of every bound, and on it.
#[test]
fn groups_start_at_their_bounds() {
    let (mut edges, mut next) = (Vec::new(), 0);
    for size in [1u64, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129] {
        edges.extend((1..=size).map(|leaf| (next, next + leaf)));
        next += size + 1;
    }
    // An average of exactly 2, so that the bounds are integers.
    let count = edges.len() as u64;
    let clique = |from: u64| (0..40).flat_map(move |a| (0..a).map(move |b| (from + a, from + b)));
    edges.extend(clique(next).take((next + 40 - count).try_into().unwrap()));
    let graph = graph(&EdgeList::new(next + 40, edges), false);
    assert_eq!(graph.out.edges(), 2 * graph.vertices());
    let mut seen = [false; 8];
    for v in 0..graph.vertices() {
        let group = dbg_group(&graph.out, v);
        assert_eq!(
            group,
            group_by_fractions(graph.out.degree(v), 2.0),
            "degree {}",
            graph.out.degree(v)
        );
        seen[group] = true;
    }
    assert!(seen[..7].iter().all(|&seen| seen), "{seen:?}");
}

fn check_order(graph: &Graph<u32>, order: VertexOrder, new: &[u32]) {
    let rows = &graph.out;
    let average = rows.edges() as f64 / rows.vertices() as f64;
    let key = |v: usize| {
        let degree = rows.degree(v);
        let hub = degree as f64 > average;
        match order {
            VertexOrder::Dbg if rows.edges() == 0 => 7,
            VertexOrder::Dbg => group_by_fractions(degree, average),
            VertexOrder::Sort => usize::MAX - degree,
            VertexOrder::HubSort if hub => usize::MAX - 1 - degree,
            VertexOrder::HubCluster if hub => 0,
            VertexOrder::HubSort | VertexOrder::HubCluster => usize::MAX,
            VertexOrder::Random(_) | VertexOrder::Rcm => unreachable!(),
        }
    };
    let mut expected: Vec<usize> = (0..rows.vertices()).collect();
    expected.sort_by_key(|&v| (key(v), v));
    for (number, v) in expected.into_iter().enumerate() {
        assert_eq!(new[v] as usize, number, "{order}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn maps_are_one_to_one_and_relabelling_keeps_the_graph(
        vertices in 1u64..60,
        ends in prop::collection::vec((any::<u64>(), any::<u64>(), 1u64..9), 0..300),
        directed: bool,
        threads in 1usize..4,
    ) {
        // Skewed, so that some vertices have many edges.
        let edge = |(from, to, weight)| {
            Edge { from: from % vertices * (from % 7) / 7, to: to % vertices, weight }
        };
        let edges = ends.into_iter().map(edge).collect();
        let graph = graph(&EdgeList { vertices, edges, weighted: true }, directed);
        let pool = ThreadPool::new(threads);
        for order in ORDERS {
            let map = VertexMap::of(&graph, order, DegreeKind::Out, pool);
            prop_assert_eq!(&VertexMap::from_new(map.new.clone()).unwrap(), &map);
            if !matches!(order, VertexOrder::Random(_) | VertexOrder::Rcm) {
                check_order(&graph, order, &map.new);
            }
            let other = graph.relabelled(&map, &PagePlan::default(), pool).unwrap();
            prop_assert_eq!(other.is_directed(), directed);
            check_relabelled(&graph.out, &other.out, &map);
            check_relabelled(graph.incoming(), other.incoming(), &map);
        }
    }
}

fn check_relabelled(before: &Csr<u32>, after: &Csr<u32>, map: &VertexMap<u32>) {
    for v in 0..before.vertices() {
        let neighbours = before.neighbours(v).iter().map(|&to| map.new[to as usize]);
        let mut expected: Vec<_> = neighbours.zip(before.weights(v)).collect();
        expected.sort_unstable();
        let new = map.new[v] as usize;
        let row = after.neighbours(new).iter().copied();
        assert_eq!(expected, row.zip(after.weights(new)).collect::<Vec<_>>());
    }
}

/// The order of a shuffled grid has a narrow band again.
#[test]
fn reverse_cuthill_mckee_puts_neighbours_together() {
    let grid = crate::Grid { rows: 20, columns: 30, weighted: false };
    let build = Build { directed: false, pages: PagePlan::default(), pool: ThreadPool::new(2) };
    let grid: Graph<u32> = build.graph(&grid).unwrap();
    let shuffled =
        VertexMap::of(&grid, VertexOrder::Random(5), DegreeKind::Out, ThreadPool::new(1));
    let shuffled = grid.relabelled(&shuffled, &PagePlan::default(), ThreadPool::new(1)).unwrap();
    let band = |graph: &Graph<u32>| {
        let apart =
            |v: usize| graph.out.neighbours(v).iter().map(move |&to| (to as usize).abs_diff(v));
        (0..graph.vertices()).flat_map(apart).max().unwrap()
    };
    let ordered = VertexMap::of(&shuffled, VertexOrder::Rcm, DegreeKind::Out, ThreadPool::new(1));
    let ordered = shuffled.relabelled(&ordered, &PagePlan::default(), ThreadPool::new(1)).unwrap();
    assert!(
        band(&shuffled) > 300 && band(&ordered) <= 40,
        "{} to {}",
        band(&shuffled),
        band(&ordered)
    );
}

#[test]
fn orders_round_trip_and_errors_list_the_names() {
    for order in ORDERS {
        assert_eq!(order.to_string().parse::<VertexOrder>().unwrap(), order);
    }
    assert_eq!("random".parse::<VertexOrder>().unwrap(), VertexOrder::Random(1));
    for wrong in ["", "degree", "random:", "random:x", "DBG"] {
        assert!(wrong.parse::<VertexOrder>().unwrap_err().to_string().contains("dbg"), "{wrong}");
    }
    assert!(VertexMap::from_new(vec![0u32, 2, 2]).is_err());
    assert!(VertexMap::from_new(vec![0u32, 3, 1]).is_err());
}
