//! New numbers for vertices, so that those with many edges lie together: then a few huge pages hold them (Faldu and others,
//! IISWC'19; Manocha and others, IISWC'22, section 5).
//!
//! The map is kept, so that results come back under the old numbers.

mod rcm;
mod relabel;

use std::fmt;
use std::str::FromStr;

use crate::generate::Permutation;
use crate::{Csr, Graph, GraphError, Result, ThreadPool, Width};

/// Which numbers vertices get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VertexOrder {
    /// DegreeKind-based grouping: eight groups by degree against the average, those with most edges first; within a group the old
    /// order stays, and with it what lay together.
    Dbg,
    /// Those above the average first, by degree; the rest in the old order.
    HubSort,
    /// Those above the average first, in the old order.
    HubCluster,
    /// All by degree, those with most edges first; the old order among equals.
    Sort,
    /// Any, by this seed: the worst to be had.
    Random(u64),
    /// Reverse Cuthill–McKee: neighbours get near numbers. For meshes and roads; one thread.
    Rcm,
}

/// Which edges count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DegreeKind {
    /// Those that leave a vertex: for kernels that pull.
    #[default]
    Out,
    /// Those that lead to it: for kernels that push.
    In,
}

/// Bounds of the groups of [`VertexOrder::Dbg`] but for the last, in halves of the average degree: a group begins with its bound.
pub const DBG_HALVES: [u64; 7] = [64, 32, 16, 8, 4, 2, 1];

/// New numbers by old ones, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexMap<V> {
    /// The new number of each old one.
    pub new: Vec<V>,
}

impl<V: Width> VertexMap<V> {
    /// That of `order`. Reads the offsets once or twice; [`VertexOrder::Rcm`] the edges.
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

    /// From a list of new numbers.
    ///
    /// # Errors
    /// [`GraphError::InvalidMap`] if one is missing, or there twice.
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

    /// The old number of each new one.
    pub fn old(&self) -> Vec<V> {
        let mut old = vec![V::default(); self.new.len()];
        for (v, new) in self.new.iter().enumerate() {
            old[new.at()] = V::new(v);
        }
        old
    }
}

/// The group of a vertex: 0 has most edges.
pub fn dbg_group<V: Width>(rows: &Csr<V>, v: usize) -> usize {
    DBG_HALVES.iter().take_while(|&&halves| by_average(rows, v) < halves).count()
}

/// How many whole halves of the average degree a vertex has; without edges at all, none.
fn by_average<V: Width>(rows: &Csr<V>, v: usize) -> u64 {
    let (degree, edges) = (rows.degree(v) as u128, rows.edges() as u128);
    let halves = (2 * degree * rows.vertices() as u128).checked_div(edges).unwrap_or(0);
    u64::try_from(halves).unwrap_or(u64::MAX)
}

/// Groups one after the other, in each the old order. Each thread counts a part, and numbers it from where those before it end.
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

/// By ascending keys, in the old order among equals.
fn by_keys<V: Width>(vertices: usize, key: impl Fn(usize) -> usize) -> VertexMap<V> {
    let mut old: Vec<usize> = (0..vertices).collect();
    old.sort_by_key(|&v| key(v));
    let mut new = vec![V::default(); vertices];
    for (number, v) in old.into_iter().enumerate() {
        new[v] = V::new(number);
    }
    VertexMap { new }
}

/// By a one-to-one map of the numbers below the next power of two, applied until it hits one that is there.
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

/// Reads back as the same.
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
        seed.and_then(std::result::Result::ok)
            .map(Self::Random)
            .ok_or_else(|| GraphError::Order { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests;
