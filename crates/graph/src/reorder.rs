//! Vertex orders that place vertices of high degree together, so that a few huge pages hold them
//! (Faldu et al., IISWC'19; Manocha et al., IISWC'22, section 5).
//!
//! The map is kept, so that results carry the old IDs.

mod rcm;
mod relabel;

use std::fmt;
use std::str::FromStr;

use crate::error::NameKind;
use crate::generate::Permutation;
use crate::{Csr, Graph, GraphError, Result, ThreadPool, Width};

/// Order of vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VertexOrder {
    /// Degree-based grouping: eight groups by degree relative to the average, highest first. Within
    /// a group the old order, and with it locality, is kept.
    Dbg,
    /// Vertices above the average first, by degree; the others in the old order.
    HubSort,
    /// Vertices above the average first, in the old order.
    HubCluster,
    /// All vertices by degree, highest first; equal degrees in the old order.
    Sort,
    /// Random order by this seed, the worst case.
    Random(u64),
    /// Reverse Cuthill–McKee: neighbours get close IDs. For meshes and road networks. Uses one
    /// thread.
    Rcm,
}

/// Edges that count as the degree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DegreeKind {
    /// Outgoing edges: for kernels that pull.
    #[default]
    Out,
    /// Incoming edges: for kernels that push.
    In,
}

/// Lower bounds of the groups of [`VertexOrder::Dbg`] except the last, in halves of the average
/// degree.
pub const DBG_HALVES: [u64; 7] = [64, 32, 16, 8, 4, 2, 1];

/// One-to-one map from old to new vertex IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexMap<V> {
    /// New ID of each old ID.
    pub new: Vec<V>,
}

impl<V: Width> VertexMap<V> {
    /// Computes the map of an order. Reads the offsets once or twice; [`VertexOrder::Rcm`] reads
    /// the edges.
    pub fn of(graph: &Graph<V>, order: VertexOrder, degree: DegreeKind, pool: ThreadPool) -> Self {
        let rows = match degree {
            DegreeKind::Out => &graph.out,
            DegreeKind::In => graph.incoming(),
        };
        let above =
            |v: usize| rows.degree(v) as u128 * rows.vertices() as u128 > rows.edges() as u128;
        match order {
            VertexOrder::Dbg => {
                by_groups(rows.vertices(), DBG_HALVES.len() + 1, pool, |v| dbg_group(rows, v))
            }
            VertexOrder::HubCluster => {
                by_groups(rows.vertices(), 2, pool, |v| usize::from(!above(v)))
            }
            VertexOrder::Sort => by_keys(rows.vertices(), |v| usize::MAX - rows.degree(v)),
            VertexOrder::HubSort => by_keys(rows.vertices(), |v| {
                if above(v) { usize::MAX - 1 - rows.degree(v) } else { usize::MAX }
            }),
            VertexOrder::Random(seed) => random(rows.vertices(), seed),
            VertexOrder::Rcm => rcm::rcm(graph),
        }
    }

    /// Makes a map of a list of new IDs.
    ///
    /// # Errors
    /// [`GraphError::InvalidMap`] if an ID is missing or repeated.
    pub fn from_new(new: Vec<V>) -> Result<Self> {
        let mut seen = vec![false; new.len()];
        for (old, to) in new.iter().enumerate() {
            let seen = seen.get_mut(to.at());
            if seen.is_none_or(|seen| std::mem::replace(seen, true)) {
                return Err(GraphError::InvalidMap { old: old as u64, new: to.at() as u64 });
            }
        }
        Ok(Self { new })
    }

    /// Returns the old ID of each new ID.
    pub fn old(&self) -> Vec<V> {
        let mut old = vec![V::default(); self.new.len()];
        for (v, new) in self.new.iter().enumerate() {
            old[new.at()] = V::new(v);
        }
        old
    }
}

/// Returns the group of a vertex in degree-based grouping; 0 has the highest degrees.
pub fn dbg_group<V: Width>(rows: &Csr<V>, v: usize) -> usize {
    DBG_HALVES.iter().take_while(|&&halves| by_average(rows, v) < halves).count()
}

/// Returns the degree of a vertex in whole halves of the average; 0 in a graph without edges.
fn by_average<V: Width>(rows: &Csr<V>, v: usize) -> u64 {
    let (degree, edges) = (rows.degree(v) as u128, rows.edges() as u128);
    let halves = (2 * degree * rows.vertices() as u128).checked_div(edges).unwrap_or(0);
    u64::try_from(halves).unwrap_or(u64::MAX)
}

/// Concatenates groups, each in the old order. Each thread counts its part, and starts at the end
/// of the parts before.
fn by_groups<V: Width>(
    vertices: usize,
    groups: usize,
    pool: ThreadPool,
    group: impl Fn(usize) -> usize + Sync,
) -> VertexMap<V> {
    let counts = pool.run(|worker| {
        let mut counts = vec![0; groups];
        worker.part(vertices).for_each(|v| counts[group(v)] += 1);
        counts
    });
    let mut next = 0;
    let mut starts = vec![vec![0; groups]; counts.len()];
    for group in 0..groups {
        for (start, count) in starts.iter_mut().zip(&counts) {
            start[group] = next;
            next += count[group];
        }
    }
    let parts = pool.run(|worker| {
        let mut next = starts[worker.id].clone();
        let number = |v| {
            let next = &mut next[group(v)];
            *next += 1;
            V::new(*next - 1)
        };
        worker.part(vertices).map(number).collect::<Vec<V>>()
    });
    VertexMap { new: parts.concat() }
}

/// Sorts by ascending keys; equal keys stay in the old order.
fn by_keys<V: Width>(vertices: usize, key: impl Fn(usize) -> usize) -> VertexMap<V> {
    let mut old: Vec<usize> = (0..vertices).collect();
    old.sort_by_key(|&v| key(v));
    let mut new = vec![V::default(); vertices];
    for (number, v) in old.into_iter().enumerate() {
        new[v] = V::new(number);
    }
    VertexMap { new }
}

/// Permutes the numbers below the next power of two, repeatedly until the result is in range.
fn random<V: Width>(vertices: usize, seed: u64) -> VertexMap<V> {
    let permutation = Permutation::seeded(vertices.next_power_of_two().trailing_zeros(), seed);
    let number = |v: usize| {
        let mut number = permutation.of(v as u64);
        while number >= vertices as u64 {
            number = permutation.of(number);
        }
        #[allow(clippy::cast_possible_truncation)] // below `vertices`
        V::new(number as usize)
    };
    VertexMap { new: (0..vertices).map(number).collect() }
}

const NAMES: [(&str, VertexOrder); 5] = [
    ("dbg", VertexOrder::Dbg),
    ("hub-sort", VertexOrder::HubSort),
    ("hub-cluster", VertexOrder::HubCluster),
    ("sort", VertexOrder::Sort),
    ("rcm", VertexOrder::Rcm),
];

/// Prints the name that `FromStr` parses.
impl fmt::Display for VertexOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMES.iter().find(|(_, order)| order == self)) {
            (_, Some((name, _))) => f.write_str(name),
            (Self::Random(seed), None) => write!(f, "random:{seed}"),
            (_, None) => Err(fmt::Error),
        }
    }
}

impl FromStr for VertexOrder {
    type Err = GraphError;
    fn from_str(text: &str) -> Result<Self> {
        if let Some((_, order)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*order);
        }
        let seed = text
            .strip_prefix("random")
            .map(|seed| seed.strip_prefix(':').map_or(Ok(1), str::parse));
        seed.and_then(std::result::Result::ok).map(Self::Random).ok_or_else(|| {
            let found = text.to_owned();
            GraphError::UnknownName { kind: NameKind::VertexOrder, found }
        })
    }
}

#[cfg(test)]
mod tests;
