//! Kernels by their names, and what they found as a record.

use std::mem::take;

use hugepilot_record::graph::{KernelResult, Ranked};

use super::PreparedGraph;
use super::values::{Value, Values, depths, least};
use crate::kernel::{
    CcAlgorithm, DiameterAlgorithm, Direction, KernelCost, PageRankConfig, Setup, SsspAlgorithm,
    betweenness, bfs, components, diameter, pagerank, sssp, triangles,
};
use crate::{Result, Width};

/// A kernel with what it is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Breadth-first search.
    Bfs(Direction),
    /// Shortest ways.
    Sssp(SsspAlgorithm),
    /// `PageRank`.
    PageRank(PageRankConfig),
    /// Connected components.
    Components(CcAlgorithm),
    /// Betweenness from one source.
    Betweenness,
    /// The longest shortest way.
    Diameter(DiameterAlgorithm),
    /// Triangles.
    Triangles,
}

/// One run.
pub(super) struct KernelRun {
    pub(super) result: KernelResult,
    pub(super) cost: KernelCost,
    /// Whether it held, and what did not; `None` where it was not asked.
    pub(super) verdict: Option<std::result::Result<(), String>>,
    /// What each vertex has, where that was asked and there is such a thing.
    pub(super) values: Option<Values>,
}

/// What is wanted beside the result.
#[derive(Clone, Copy)]
pub(super) struct RunOptions {
    pub(super) verify: bool,
    pub(super) values: bool,
}

/// The highest ones that are told.
const TOP: usize = 10;

impl Kernel {
    /// As on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bfs(_) => "bfs",
            Self::Sssp(_) => "sssp",
            Self::PageRank(_) => "pr",
            Self::Components(_) => "cc",
            Self::Betweenness => "bc",
            Self::Diameter(_) => "diameter",
            Self::Triangles => "tc",
        }
    }

    /// Whether edges must have weights.
    pub fn needs_weights(&self) -> bool {
        matches!(self, Self::Sssp(_))
    }

    /// Whether it finds something for each vertex.
    pub fn has_values(&self) -> bool {
        !matches!(self, Self::Diameter(_) | Self::Triangles)
    }

    /// Whether it begins at a vertex.
    pub(super) fn starts(&self) -> bool {
        matches!(self, Self::Bfs(_) | Self::Sssp(_) | Self::Betweenness | Self::Diameter(_))
    }

    /// The bytes of each property that it keeps, or may keep, to be set aside before there is a graph.
    pub(super) fn properties<V: Width>(&self, vertices: usize) -> Vec<usize> {
        let bytes = |size: usize| vertices.saturating_mul(size);
        let (word, eight) = (bytes(size_of::<V>()), bytes(size_of::<u64>()));
        match self {
            Self::Bfs(_) | Self::Sssp(_) | Self::Components(_) | Self::Triangles => vec![word],
            Self::Diameter(DiameterAlgorithm::DoubleSweep) => vec![word],
            Self::Diameter(DiameterAlgorithm::MultiSource) => vec![eight; 2],
            Self::PageRank(_) => vec![word; 2],
            Self::Betweenness => vec![word, word, eight],
        }
    }

    /// Once, from `start`.
    pub(super) fn run<V: Width>(
        &self,
        ready: &PreparedGraph<V>,
        start: Option<V>,
        setup: &Setup,
        asked: RunOptions,
    ) -> Result<KernelRun> {
        let (graph, start) = (&ready.graph, start.unwrap_or_default());
        let RunOptions { verify, values } = asked;
        let number = |value: V| (value != V::NONE).then_some(value.at() as u64);
        Ok(match *self {
            Self::Bfs(direction) => {
                let found = bfs(graph, start, direction, setup)?;
                let level_sizes = found.levels.iter().map(|&size| size as u64).collect();
                let result = KernelResult::Bfs { reached: found.reached() as u64, level_sizes };
                let verdict = verify.then(|| found.verify(graph, start));
                let values = values.then(|| {
                    let depths = depths(&found.parents);
                    boxed(move |v| Value::Depth(number(depths[v])))
                });
                KernelRun { result, verdict, values, cost: found.cost }
            }
            Self::Sssp(algorithm) => {
                let mut found = sssp(graph, start, algorithm, setup)?;
                let result = KernelResult::Sssp {
                    reached: found.reached() as u64,
                    distance_sum: found.sum(),
                    distance_max: found.most().map_or(0, |far| far.at() as u64),
                };
                let (verdict, cost) =
                    (verify.then(|| found.verify(graph, start)), take(&mut found.cost));
                let values =
                    values.then(|| boxed(move |v| Value::Distance(number(found.distances[v]))));
                KernelRun { result, verdict, values, cost }
            }
            Self::PageRank(config) => {
                let mut found = pagerank(graph, config, setup)?;
                let result = KernelResult::Pr {
                    sum: (0..graph.vertices()).map(|v| found.rank(v)).sum(),
                    top: top(ready, |v| found.rank(v)),
                    iterations: found.iterations as u64,
                    residual: found.residual,
                    converged: Some(found.residual <= config.tolerance),
                };
                let (verdict, cost) =
                    (verify.then(|| found.verify(graph, config)), take(&mut found.cost));
                let values = values.then(|| boxed(move |v| Value::Real(found.rank(v))));
                KernelRun { result, verdict, values, cost }
            }
            Self::Components(algorithm) => {
                let found = components(graph, algorithm, setup)?;
                let result = KernelResult::Cc {
                    components: found.count() as u64,
                    largest: found.largest() as u64,
                };
                let verdict = verify.then(|| found.verify(graph));
                let values = values.then(|| {
                    let (names, labels) = (ready.original_ids(), &found.labels);
                    let least = least(labels, |v| names.of(v));
                    boxed(move |v| Value::Label(least[v]))
                });
                KernelRun { result, verdict, values, cost: found.cost }
            }
            Self::Betweenness => {
                let mut found = betweenness(graph, &[start], setup)?;
                let result = KernelResult::Bc { top: top(ready, |v| found.score(v)) };
                let (verdict, cost) =
                    (verify.then(|| found.verify(graph, &[start])), take(&mut found.cost));
                let values = values.then(|| boxed(move |v| Value::Real(found.score(v))));
                KernelRun { result, verdict, values, cost }
            }
            Self::Diameter(algorithm) => {
                let found = diameter(graph, start, algorithm, setup)?;
                let result = KernelResult::Diameter { lower_bound: found.lower_bound as u64 };
                let verdict = verify.then(|| found.verify(graph));
                KernelRun { result, verdict, values: None, cost: found.cost }
            }
            Self::Triangles => {
                let found = triangles(graph, setup)?;
                let result = KernelResult::Tc { triangles: found.count };
                let verdict = verify.then(|| found.verify(graph));
                KernelRun { result, verdict, values: None, cost: found.cost }
            }
        })
    }
}

fn boxed(value: impl Fn(usize) -> Value + 'static) -> Values {
    Box::new(value)
}

/// The vertices with the highest values, by their numbers in the source; of equals, those with the lowest.
fn top<V: Width>(ready: &PreparedGraph<V>, value: impl Fn(usize) -> f64) -> Vec<Ranked> {
    let names = ready.original_ids();
    let mut best: Vec<Ranked> = Vec::with_capacity(TOP + 1);
    for v in 0..ready.graph.vertices() {
        let one = Ranked { vertex: names.of(v), value: value(v) };
        let before = |other: &Ranked| (other.value, one.vertex) > (one.value, other.vertex);
        let place = best.partition_point(before);
        if place < TOP {
            best.insert(place, one);
            best.truncate(TOP);
        }
    }
    best
}
