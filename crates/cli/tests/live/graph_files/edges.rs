//! Edge lists, and serial reference algorithms for their results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Source, target and weight of each edge.
pub(super) type Edges = Vec<(u64, u64, u64)>;

/// Generates edges between some of `ids` by a linear congruence, without self-loops. The last ID
/// has an edge.
pub(super) fn edges(ids: &[u64], count: usize) -> Edges {
    let mut state = 11u64;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut edges: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    while edges.len() < count {
        let (from, to) = (next(ids.len()), next(ids.len()));
        // No edge joins the two halves, so that some vertices are unreachable.
        if from != to && from % 2 == to % 2 {
            edges.insert((ids[from], ids[to]), next(90) as u64 + 1);
        }
    }
    let last = ids.len() - 1;
    edges.insert((ids[last - 2], ids[last]), 5);
    edges.into_iter().map(|((from, to), weight)| (from, to, weight)).collect()
}

pub(super) fn text(edges: &Edges) -> String {
    edges.iter().fold(String::new(), |mut text, (from, to, weight)| {
        let _ = writeln!(text, "{from} {to} {weight}");
        text
    })
}

/// Adds the reverse edges; of two weights, the lower one stays.
pub(super) fn symmetrized(edges: &Edges) -> Edges {
    let mut all = BTreeMap::new();
    for &(from, to, weight) in edges {
        for ends in [(from, to), (to, from)] {
            let least = all.entry(ends).or_insert(weight);
            *least = weight.min(*least);
        }
    }
    all.into_iter().map(|((from, to), weight)| (from, to, weight)).collect()
}

pub(super) fn vertices(edges: &Edges) -> BTreeSet<u64> {
    edges.iter().flat_map(|&(from, to, _)| [from, to]).collect()
}

/// Computes path lengths by relaxing all edges until nothing changes.
pub(super) fn distances(
    edges: &Edges,
    source: u64,
    length: impl Fn(u64) -> u64,
) -> BTreeMap<u64, u64> {
    let mut distances = BTreeMap::from([(source, 0)]);
    loop {
        let before = distances.clone();
        for &(from, to, weight) in edges {
            if let Some(&distance) = distances.get(&from) {
                let path = distance + length(weight);
                let least = distances.entry(to).or_insert(path);
                *least = path.min(*least);
            }
        }
        if distances == before {
            return distances;
        }
    }
}
